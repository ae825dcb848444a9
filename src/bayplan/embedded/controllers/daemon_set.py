"""DaemonSets: one pod on each eligible node.

The scheduler schedules the pods like all others; each names its node in its affinity, and tolerates the
taints of unhealthy nodes. The template's node selector, affinity and tolerations determine the eligible
nodes. `daemon_steps` and `daemon_rollout` of `bayplan.controllers.workloads` decide what is next.

https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from bayplan.api.meta import Content
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.controllers.pods import REVISION_HASH, available_in, is_active
from bayplan.controllers.workloads import Eligibility, daemon_pod, daemon_rollout, daemon_steps, node_of
from bayplan.embedded.controllers.cluster import Cluster, ObjectChange
from bayplan.embedded.controllers.controller import KeyMapper, earliest, write_status
from bayplan.embedded.controllers.pod_owner import PodOwner, Revisions, hash_in, pods_per_call
from bayplan.embedded.server.kinds import DAEMON_SETS, NODES, Resource


class DaemonSets(PodOwner):
    """Reconciles DaemonSets."""

    name: ClassVar = "daemonset-controller"
    batch_seconds: ClassVar = 0.05

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, DAEMON_SETS)
        self._revisions = Revisions(cluster)
        self._eligibility: dict[str, tuple[int, Eligibility]] = {}
        """By key, with the generation of the DaemonSet."""
        self._known: dict[str, dict[str, tuple[int, tuple[bool, bool]]]] = {}
        """By key and node: the version of the node, and whether it is eligible."""

    def watches(self) -> dict[Resource, KeyMapper]:
        return {**super().watches(), NODES: self._node}

    def _workload(self, change: ObjectChange) -> Iterable[str]:
        if change.after is None:
            self._eligibility.pop(change.key, None)
            self._known.pop(change.key, None)
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
        """Nodes are evaluated again only if they changed, or the DaemonSet did."""
        generation = content["metadata"]["generation"]
        if key not in self._eligibility or self._eligibility[key][0] != generation:
            self._eligibility[key] = generation, Eligibility(content)
            self._known[key] = {}
        eligibility, before = self._eligibility[key][1], self._known[key]
        known = self._known[key] = {}
        for document in self.api.documents(NODES):
            entry = before.get(document.key)
            if entry is None or entry[0] != document.version:
                entry = document.version, eligibility.of(document.record(Node))
            known[document.key] = entry
        return {node: found for node, (_, found) in known.items()}

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
        """Creates missing pods, some per call, and deletes those that should not be there."""
        made, most = 0, pods_per_call(content["spec"]["template"])
        for step in daemon_steps(eligible, by_node):
            if step.delete is not None:
                if step.has_failed:
                    node = node_of(step.delete)
                    message = f"Found failed daemon pod {step.delete.key} on node {node}, will try to kill it"
                    self.events.warning(content, "FailedDaemonPod", message)
                self.delete_pod(content, step.delete)
            elif made < most:
                assert isinstance(step.create, str)
                self.create_pod(content, daemon_pod(content, digest, step.create))
                made += 1
        return made

    def _roll(
        self, content: Content, digest: str, wanted: set[str], by_node: dict[str, list[Pod]]
    ) -> float | None:
        for step in daemon_rollout(content["spec"], wanted, by_node, digest, self.api.time()):
            if step.delete is None:
                return step.wait
            self.delete_pod(content, step.delete)
        return None

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
