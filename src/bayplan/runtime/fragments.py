"""The fragments of pod signatures: what a plugin that declares its `Dependencies` can read of a pod.

Pods with equal fragments are identical to the plugin, and share its results (`plugin_results.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from bayplan.api.pod import Pod, pod_images
from bayplan.framework.plugin_api import PodFunction
from bayplan.state.pods import encoded, relevant_volumes

_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")


def _resources(pod: Pod) -> Any:
    spec, status = pod.spec, pod.status
    return (
        [(c.name, c.resources) for c in spec.containers],
        [(c.name, c.resources, c.restart_policy) for c in spec.init_containers],
        spec.overhead,
        spec.resources,
        [(c.name, c.resources, c.allocated_resources) for c in status.container_statuses],
        [(c.name, c.resources, c.allocated_resources) for c in status.init_container_statuses],
        status.resources,
        status.allocated_resources,
        [(c.type, c.status, c.reason) for c in status.conditions if c.type == "PodResizePending"],
    )


def _claims(pod: Pod) -> Any:
    if not pod.spec.resource_claims:
        return None
    return pod.spec.resource_claims, pod.status.resource_claim_statuses, pod.name, pod.uid


def _volumes(pod: Pod) -> Any:
    volumes = relevant_volumes(pod)
    if not volumes:
        return None
    itself = (pod.name, pod.uid) if any(volume.ephemeral is not None for volume in volumes) else None
    return pod.namespace, volumes, itself


POD_FIELDS: Final[dict[str, Callable[[Pod], Any]]] = {
    "namespace": lambda pod: pod.namespace,
    "labels": lambda pod: pod.labels,
    "annotations": lambda pod: pod.annotations,
    "name": lambda pod: (pod.namespace, pod.name, pod.uid),
    "priority": lambda pod: pod.priority,
    "node_name": lambda pod: pod.spec.node_name,
    "node_selector": lambda pod: pod.spec.node_selector,
    "node_affinity": lambda pod: pod.spec.affinity and pod.spec.affinity.node_affinity,
    "tolerations": lambda pod: pod.spec.tolerations,
    "resources": _resources,
    "ports": lambda pod: [
        (c.ports, c.restart_policy) for c in (*pod.spec.init_containers, *pod.spec.containers) if c.ports
    ],
    "images": lambda pod: (pod_images(pod), len(pod.spec.containers) + len(pod.spec.init_containers)),
    "volumes": _volumes,
    "resource_claims": _claims,
    "host": lambda pod: (pod.spec.host_network, pod.spec.host_users),
    "restart_rules": lambda pod: [
        c.restart_policy_rules
        for c in (*pod.spec.init_containers, *pod.spec.containers)
        if c.restart_policy_rules
    ],
    "owner": lambda pod: pod.metadata.controller(),
}
"""The fields that a plugin can declare, and how their values are read from the pod."""

NOT_IN_TEMPLATE: Final = frozenset({"annotations", "name", "node_name", "resource_claims"})
"""Fields by which pods of one template (`state.pods.pod_signature`) can differ."""


class PodSigner:
    """Computes one plugin's fragments of signatures."""

    __slots__ = ("_fields", "_functions", "per_pod")

    def __init__(self, fields: Iterable[str], functions: Sequence[PodFunction] = ()) -> None:
        names = sorted(set(fields))
        unknown = [name for name in names if name not in POD_FIELDS]
        if unknown:
            raise ValueError(f"unknown pod fields {unknown}; known are {sorted(POD_FIELDS)}")
        self._fields = [POD_FIELDS[name] for name in names]
        self._functions = tuple(functions)
        self.per_pod = bool(functions) or bool(NOT_IN_TEMPLATE.intersection(names) - {"node_name"})
        """Whether pods of one template may have different signatures."""

    def __call__(self, pod: Pod) -> bytes:
        values = [field(pod) for field in self._fields]
        if not self._functions:
            return encoded(_encoder, values)
        own = [function(pod) for function in self._functions]
        try:
            return encoded(_encoder, (values, own))
        except TypeError:
            raise TypeError(self._wrong_value(own)) from None

    def _wrong_value(self, values: Sequence[object]) -> str:
        """The message for a value that cannot be encoded."""
        for function, value in zip(self._functions, values, strict=True):
            try:
                _encoder.encode(value)
            except OverflowError:
                continue
            except TypeError:
                name = getattr(function, "__name__", repr(function))
                return (
                    f"the function {name} in depends_on returned {type(value).__name__}, which cannot be "
                    "compared; return numbers, strings, tuples, dataclasses or msgspec structs"
                )
        return "a function in depends_on returned a value that cannot be compared"
