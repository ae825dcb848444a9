"""The nodes that a DaemonSet is for, and the affinity and tolerations that its pods get."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from bayplan.api.node import Node
from bayplan.api.node_selectors import NAME_FIELD, required_node_affinity
from bayplan.api.pod import Pod
from bayplan.api.reading import without_nulls
from bayplan.api.tolerations import NO_EXECUTE, untolerated_taint
from bayplan.embedded.server.documents import Content, Document

_PREFIX: Final = "node.kubernetes.io/"
_DAEMON_TAINTS: Final = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


class Eligibility:
    """For one version of a DaemonSet: whether a pod should run on a node, and whether one may stay there."""

    def __init__(self, content: Content) -> None:
        self.generation = content["metadata"]["generation"]
        spec = {**content["spec"]["template"]["spec"]}
        spec["tolerations"] = _tolerations(spec)
        pod = msgspec.convert(without_nulls({"spec": spec}), Pod, strict=False)
        self._tolerations = pod.spec.tolerations
        self._affinity = required_node_affinity(pod)
        self._known: dict[str, tuple[int, tuple[bool, bool]]] = {}

    def of_nodes(self, nodes: Iterable[Document]) -> dict[str, tuple[bool, bool]]:
        found = {}
        known: dict[str, tuple[int, tuple[bool, bool]]] = {}
        for document in nodes:
            entry = self._known.get(document.key)
            if entry is None or entry[0] != document.version:
                entry = document.version, self._of(document.record(Node))
            known[document.key] = entry
            found[document.key] = entry[1]
        self._known = known
        return found

    def _of(self, node: Node) -> tuple[bool, bool]:
        if not self._affinity.matches(node.labels, node.name):
            return False, False
        taints = node.spec.taints
        may_come = untolerated_taint(taints, self._tolerations) is None
        evicting = [taint for taint in taints if taint.effect == NO_EXECUTE]
        return may_come, untolerated_taint(evicting, self._tolerations) is None


def daemon_spec(spec: Content, node: str) -> Content:
    """A pod's spec with the tolerations of a daemon, and its node as affinity."""
    field = {"key": NAME_FIELD, "operator": "In", "values": [node]}
    affinity: dict[str, Any] = dict(spec.get("affinity") or {})
    node_affinity = dict(affinity.get("nodeAffinity") or {})
    # The node is one on which the template's terms hold; only its name is left to say.
    node_affinity[_REQUIRED] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity["nodeAffinity"] = node_affinity
    return {**spec, "affinity": affinity, "tolerations": _tolerations(spec)}


def node_of(pod: Pod) -> str:
    """The node that a daemon pod is assigned to, or meant for."""
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity = pod.spec.affinity
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    for term in required.node_selector_terms if required else ():
        for field in term.match_fields:
            if field.key == NAME_FIELD and len(field.values) == 1:
                return field.values[0]
    return ""


def _tolerations(spec: Content) -> list[Content]:
    tolerations = list(spec.get("tolerations") or ())
    added = [*_DAEMON_TAINTS, *([("network-unavailable", "NoSchedule")] if spec.get("hostNetwork") else [])]
    for name, effect in added:
        toleration = {"key": f"{_PREFIX}{name}", "operator": "Exists", "effect": effect}
        if toleration not in tolerations:
            tolerations.append(toleration)
    return tolerations
