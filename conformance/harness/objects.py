"""API objects as people write them, for tests: dictionaries with just what matters, the rest defaulted."""

from __future__ import annotations

from typing import Any

Raw = dict[str, Any]


def node(name: str, *, cpu: str = "4", memory: str = "32Gi", pods: str = "110", **metadata: Any) -> Raw:
    room = {"cpu": cpu, "memory": memory, "pods": pods}
    labels = {"kubernetes.io/hostname": name, **metadata.pop("labels", {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, **metadata},
        "status": {"capacity": room, "allocatable": room},
    }


def pod(
    name: str,
    *,
    namespace: str = "default",
    cpu: str = "",
    memory: str = "",
    labels: dict[str, str] | None = None,
    metadata: Raw | None = None,
    **spec: Any,
) -> Raw:
    """A pod with one container and, unless the spec has another one, a grace period of 0."""
    requests = {name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount}
    container = {"name": "main", "image": "nothing", "resources": {"requests": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}, **(metadata or {})},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **spec},
    }


def condition(item: Raw, kind: str) -> Raw | None:
    """A condition of an object, by its type."""
    conditions = item.get("status", {}).get("conditions", [])
    return next((condition for condition in conditions if condition["type"] == kind), None)
