"""The Service `kubernetes` in `default`, through which pods reach the API server.

Pods are simulated here, and nothing connects to it, but some tools check that it exists.
"""

from __future__ import annotations

from typing import Any, Final

from bayplan.embedded.server.kinds import ENDPOINT_SLICES, ENDPOINTS, SERVICES, Resource
from bayplan.embedded.server.objects import ObjectAPI

NAME: Final = "kubernetes"
NAMESPACE: Final = "default"
_LABELS: Final = {"component": "apiserver", "provider": "kubernetes"}


def publish(api: ObjectAPI, host: str, port: int) -> None:
    """Creates the service, and writes the current endpoint: after a restart it may be different."""
    service = {
        "metadata": {"name": NAME, "labels": _LABELS},
        "spec": {"ports": [{"name": "https", "port": 443, "targetPort": port}]},
    }
    addresses = {
        "metadata": {"name": NAME, "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": host}], "ports": [{"name": "https", "port": port}]}],
    }
    slice_ = {
        "metadata": {"name": NAME, "labels": {"kubernetes.io/service-name": NAME}},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": port}],
        "endpoints": [{"addresses": [host], "conditions": {"ready": True}}],
    }
    for resource, content in ((SERVICES, service), (ENDPOINTS, addresses), (ENDPOINT_SLICES, slice_)):
        _write(api, resource, content)


def _write(api: ObjectAPI, resource: Resource, content: dict[str, Any]) -> None:
    if api.store.find(resource, resource.key(NAME, NAMESPACE)) is None:
        api.create(resource, content, NAMESPACE)
    else:
        api.patch(resource, NAME, NAMESPACE, content)
