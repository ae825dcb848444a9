"""Which EndpointSlices a Service has: the addresses of its pods, by the ports they listen on.

Pure rules; `embedded/controllers/services.py` writes the slices.

https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from bayplan.api.meta import Content
from bayplan.controllers.pods import has_condition, hash_of, owner_reference

SERVICE_NAME: Final = "kubernetes.io/service-name"
MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
MANAGER: Final = "endpointslice-controller.k8s.io"
_PER_SLICE: Final = 100
"""As kube-controller-manager's --max-endpoints-per-slice."""


def endpoint_slices(
    service: Content, pods: Iterable[Content], zone_of: Callable[[str], str]
) -> list[Content]:
    """The slices of a service with these pods, which its selector matches; `zone_of` a node's name."""
    by_ports: dict[tuple[tuple[Any, ...], ...], list[Content]] = {}
    for pod in pods:
        endpoint = _endpoint(service, pod, zone_of)
        if endpoint is not None:
            by_ports.setdefault(_ports(service, pod), []).append(endpoint)
    slices = []
    for ports, endpoints in sorted(by_ports.items(), key=lambda item: repr(item[0])):
        for start in range(0, len(endpoints), _PER_SLICE):
            part = endpoints[start : start + _PER_SLICE]
            slices.append(_slice(service, ports, part, start // _PER_SLICE))
    return slices or [_slice(service, (), [], 0)]


def _slice(
    service: Content, ports: tuple[tuple[Any, ...], ...], endpoints: list[Content], number: int
) -> Content:
    meta = service["metadata"]
    labels = {**(meta.get("labels") or {}), SERVICE_NAME: meta["name"], MANAGED_BY: MANAGER}
    name = f"{meta['name']}-{hash_of([meta['uid'], ports, number])}"
    return {
        "metadata": {"name": name, "labels": labels, "ownerReferences": [owner_reference(service)]},
        "addressType": "IPv4",
        "ports": [{"name": name, "port": port, "protocol": protocol} for name, port, protocol in ports],
        "endpoints": endpoints,
    }


def _endpoint(service: Content, pod: Content, zone_of: Callable[[str], str]) -> Content | None:
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    if not status.get("podIP") or status.get("phase") in ("Succeeded", "Failed"):
        return None
    terminating, serving = "deletionTimestamp" in meta, has_condition(pod, "Ready")
    always = bool(service["spec"].get("publishNotReadyAddresses"))
    node = spec.get("nodeName", "")
    endpoint = {
        "addresses": [status["podIP"]],
        "conditions": {
            "ready": always or (serving and not terminating),
            "serving": serving,
            "terminating": terminating,
        },
        "nodeName": node,
        "targetRef": {
            "kind": "Pod",
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
        },
    }
    if zone := zone_of(node):
        endpoint["zone"] = zone
    return endpoint


def _ports(service: Content, pod: Content) -> tuple[tuple[Any, ...], ...]:
    """Name, number and protocol of the ports; those that the pod does not have are left out."""
    found = []
    for port in service["spec"].get("ports") or ():
        protocol, target = port.get("protocol", "TCP"), port.get("targetPort") or port["port"]
        if isinstance(target, str):
            named = (
                each["containerPort"]
                for container in pod["spec"]["containers"]
                for each in container.get("ports") or ()
                if each.get("name") == target and each.get("protocol", "TCP") == protocol
            )
            target = next(named, None)
        if target is not None:
            found.append((port.get("name", ""), target, protocol))
    return tuple(found)
