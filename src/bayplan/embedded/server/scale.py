"""The scale subresource: how many replicas a workload should have, in the same form for all kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from bayplan.api.meta import LabelSelector
from bayplan.api.selectors import Selector, compile_selector, selector_from_map
from bayplan.embedded.server import kinds, statuses
from bayplan.embedded.server.kinds import Resource

if TYPE_CHECKING:
    from bayplan.embedded.server.objects import ObjectAPI

Content = dict[str, Any]


def get(api: ObjectAPI, resource: Resource, name: str, namespace: str) -> Content:
    """The Scale of a workload."""
    return _scale_of(resource, api.get(resource, name, namespace))


def update(
    api: ObjectAPI,
    resource: Resource,
    scale: Content,
    namespace: str,
    *,
    dry_run: bool = False,
    manager: str = "bayplan",
) -> Content:
    """Sets the number of replicas, and returns the new Scale."""
    meta = scale.get("metadata") or {}
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or replicas < 0:
        problem = statuses.invalid_field("spec.replicas", replicas, "must be greater than or equal to 0")
        raise statuses.invalid(_SCALES, meta.get("name", ""), [problem])
    workload = api.get(resource, meta.get("name", ""), namespace)
    known = workload["metadata"]
    if meta.get("uid"):
        known["uid"] = meta["uid"]
    if meta.get("resourceVersion"):
        known["resourceVersion"] = meta["resourceVersion"]
    workload.setdefault("spec", {})["replicas"] = replicas
    updated = api.update(resource, workload, namespace, dry_run=dry_run, manager=manager)
    return _scale_of(resource, updated)


_SCALES = Resource("scales", "Scale", group="autoscaling")


def _scale_of(resource: Resource, workload: Content) -> Content:
    meta, spec, status = workload["metadata"], workload.get("spec") or {}, workload.get("status") or {}
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    scale: Content = {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {field: meta[field] for field in kept if field in meta},
        "spec": {"replicas": spec.get("replicas", 0)},
        "status": {"replicas": status.get("replicas", 0)},
    }
    selector = _selector(resource, spec.get("selector"))
    if selector is not None:
        scale["status"]["selector"] = str(selector)
    return scale


def _selector(resource: Resource, selector: Any) -> Selector | None:
    if not isinstance(selector, dict):
        return None
    if resource == kinds.REPLICATION_CONTROLLERS:
        return selector_from_map(selector)
    return compile_selector(msgspec.convert(selector, LabelSelector))
