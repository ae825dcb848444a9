"""DaemonSets: one pod on each eligible node.

The scheduler schedules the pods like all others; each names its node in its affinity, and tolerates the
taints of unhealthy nodes. The template's node selector, affinity and tolerations determine the eligible
nodes; they are evaluated again only for nodes that changed.

https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final

import msgspec

from bayplan.api.meta import Content
from bayplan.api.node import Node
from bayplan.api.node_selectors import NAME_FIELD, required_node_affinity
from bayplan.api.pod import Pod
from bayplan.api.reading import without_nulls
from bayplan.api.tolerations import NO_EXECUTE, untolerated_taint
from bayplan.embedded.controllers.cluster import Cluster, ObjectChange, available_in, is_active
from bayplan.embedded.controllers.controller import KeyMapper, earliest, write_status
from bayplan.embedded.controllers.pod_owner import (
    REVISION_HASH,
    PodOwner,
    Revisions,
    hash_in,
    pod_from,
    pods_per_call,
    rounded,
)
from bayplan.embedded.server.documents import Document
from bayplan.embedded.server.kinds import DAEMON_SETS, NODES, Resource

_GENERATION: Final = "pod-template-generation"


class DaemonSets(PodOwner):
    """Reconciles DaemonSets."""

    name: ClassVar = "daemonset-controller"
    batch_seconds: ClassVar = 0.05

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, DAEMON_SETS)
        self._revisions = Revisions(cluster)
        self._eligibility: dict[str, Eligibility] = {}

    def watches(self) -> dict[Resource, KeyMapper]:
        return {**super().watches(), NODES: self._node}

    def _workload(self, change: ObjectChange) -> Iterable[str]:
        if change.after is None:
            self._eligibility.pop(change.key, None)
        return super()._workload(change)

    def _node(self, change: ObjectChange) -> Iterable[str]:
        return list(self._selectors)

    # Reconciling

    def reconcile(self, key: str) -> float | None:
        content = self.cluster.find(DAEMON_SETS, key)
        if content is None or "deletionTimestamp" in content["metadata"]:
            return None
        revision = self._revisions.current(content)
        eligible = self._eligible(key, content)
        by_node = self._pods_by_node(content)
        made = self._place(content, hash_in(revision), eligible, by_node)
        self.cluster.sync()
        by_node = self._pods_by_node(content)
        wanted = {name for name, (may_come, _) in eligible.items() if may_come}
        again = 0.0 if made == pods_per_call(content["spec"]["template"]) else None
        if content["spec"]["updateStrategy"]["type"] == "RollingUpdate":
            again = earliest(again, self._roll(content, hash_in(revision), wanted, by_node))
            self.cluster.sync()
            by_node = self._pods_by_node(content)
        hashes = {pod.labels.get(REVISION_HASH, "") for pods in by_node.values() for pod in pods}
        self._revisions.forget_old(content, {*hashes, hash_in(revision)})
        return earliest(again, self._write_status(content, hash_in(revision), wanted, by_node))

    def _eligible(self, key: str, content: Content) -> dict[str, tuple[bool, bool]]:
        eligibility = self._eligibility.get(key)
        if eligibility is None or eligibility.generation != content["metadata"]["generation"]:
            eligibility = self._eligibility[key] = Eligibility(content)
        return eligibility.of_nodes(self.api.documents(NODES))

    def _pods_by_node(self, content: Content) -> dict[str, list[Pod]]:
        """Pods by the node they are assigned to or meant for, oldest first."""
        found: dict[str, list[Pod]] = {}
        for pod in self.pods_of(content).pods.values():
            found.setdefault(node_of(pod), []).append(pod)
        for pods in found.values():
            pods.sort(key=lambda pod: (not pod.spec.node_name, pod.metadata.creation_timestamp, pod.name))
        return found

    # Pods

    def _place(
        self,
        content: Content,
        digest: str,
        eligible: dict[str, tuple[bool, bool]],
        by_node: dict[str, list[Pod]],
    ) -> int:
        """Creates missing pods, some per call, and deletes pods from nodes that are not eligible."""
        made, most = 0, pods_per_call(content["spec"]["template"])
        for node, (may_come, may_stay) in eligible.items():
            pods = by_node.get(node, [])
            finished = [pod for pod in pods if pod.is_finished and not pod.is_terminating]
            for pod in finished:
                message = f"Found failed daemon pod {pod.key} on node {node}, will try to kill it"
                self.events.warning(content, "FailedDaemonPod", message)
                self.delete_pod(content, pod)
            alive = [pod for pod in pods if is_active(pod)]
            if may_come and not pods and made < most:
                self.create_pod(content, self._pod_for(content, digest, node))
                made += 1
            for pod in alive[1:] if may_stay else alive:
                self.delete_pod(content, pod)
        for node, pods in by_node.items():
            if node not in eligible:
                for pod in pods:
                    if is_active(pod) and not pod.spec.node_name:
                        self.delete_pod(content, pod)  # its node went before it came
        return made

    def _pod_for(self, content: Content, digest: str, node: str) -> Content:
        generation = (
            content["metadata"].get("annotations", {}).get("deprecated.daemonset.template.generation")
        )
        labels = {REVISION_HASH: digest, _GENERATION: generation or "1"}
        pod = pod_from(content["spec"]["template"], content, labels=labels)
        pod["spec"] = daemon_spec(pod["spec"], node)
        return pod

    def _roll(
        self, content: Content, digest: str, wanted: set[str], by_node: dict[str, list[Pod]]
    ) -> float | None:
        """Replaces pods of older templates, as many at a time as may be missing."""
        rolling = content["spec"]["updateStrategy"].get("rollingUpdate") or {}
        allowed = max(rounded(rolling.get("maxUnavailable", 1), len(wanted), up=True), 1)
        min_ready, now = content["spec"].get("minReadySeconds", 0), self.api.time()
        missing = 0
        waiting: list[float] = []
        old_and_useless: list[Pod] = []
        old: list[Pod] = []
        for node in sorted(wanted):
            alive = [pod for pod in by_node.get(node, ()) if is_active(pod)]
            delay = available_in(alive[0], min_ready, now) if alive else None
            if delay:
                waiting.append(delay)
            is_available = delay == 0
            missing += not is_available
            if alive and alive[0].labels.get(REVISION_HASH) != digest:
                (old if is_available else old_and_useless).append(alive[0])
        for pod in old_and_useless + old[: max(allowed - missing, 0)]:
            self.delete_pod(content, pod)
        return min(waiting, default=None)

    def _write_status(
        self, content: Content, digest: str, wanted: set[str], by_node: dict[str, list[Pod]]
    ) -> float | None:
        min_ready, now = content["spec"].get("minReadySeconds", 0), self.api.time()
        scheduled = misscheduled = ready = available = updated = 0
        waiting: list[float] = []
        for node, pods in by_node.items():
            alive = [pod for pod in pods if is_active(pod)]
            if node not in wanted:
                misscheduled += bool(alive)
                continue
            if not alive:
                continue
            scheduled += 1
            updated += alive[0].labels.get(REVISION_HASH) == digest
            delay = available_in(alive[0], min_ready, now)
            ready += delay is not None
            available += delay == 0
            if delay:
                waiting.append(delay)
        status = {
            "currentNumberScheduled": scheduled,
            "numberMisscheduled": misscheduled,
            "desiredNumberScheduled": len(wanted),
            "numberReady": ready,
            "observedGeneration": content["metadata"]["generation"],
            "updatedNumberScheduled": updated or None,
            "numberAvailable": available or None,
            "numberUnavailable": len(wanted) - available or None,
        }
        write_status(self.api, DAEMON_SETS, content, status)
        return min(waiting, default=None)


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
