"""Plays rollouts: what controllers do after the pod template of a workload was changed.

A rollout goes in rounds. In each, the controller does what it would do next (`bayplan.controllers`), and the
scheduler takes the pods that are pending then. Pods are available as soon as they are bound, and deleted pods
are gone at once: a rollout stalls here where it would never end, not where it has to wait for a probe.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from msgspec.structs import replace

from bayplan.answers.whatif.outcomes import Outcome, Placement, Placements, RolloutResult, unique
from bayplan.api.meta import Condition, Content
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.controllers.pods import deletion_order, is_active
from bayplan.controllers.workloads import (
    Eligibility,
    Size,
    bounds,
    daemon_rollout,
    daemon_steps,
    node_of,
    ordinal_of,
    roll,
    stateful_ordinals,
    stateful_steps,
)

if TYPE_CHECKING:
    from bayplan.answers.whatif.cluster import Cluster


class Workshop(Protocol):
    """What a rollout needs of the cluster."""

    def pods(self) -> Iterable[Pod]:
        """The pods of the workload, of every template."""

    def create(self, which: int | str | None, *, is_new: bool = True) -> str:
        """Creates a pod of the new or the old template: with this ordinal, or for this node. Returns why the
        server rejects it, or nothing."""

    def delete(self, pod: Pod) -> None: ...

    def nodes(self) -> Iterable[Node]: ...


class Rollout:
    """One workload on its way to a new template."""

    def __init__(self, workload: str, content: Content, digest: str, label: str, shop: Workshop) -> None:
        self.workload = workload
        self._spec: Content = {**content["spec"], "minReadySeconds": 0}
        self._digest, self._label, self._shop = digest, label, shop
        self._rejected = ""
        self._reason = ""
        self._available = len([pod for pod in self._pods() if pod.spec.node_name])
        """The smallest number of available pods until now."""
        self._pending = 0
        """The largest number of pods that found no node, until now, and why."""
        self._pending_reason = ""

    # For the kinds

    @property
    def wanted(self) -> int:
        return int(self._spec["replicas"])

    def step(self) -> bool:
        """Does what the controller does next. False: nothing is left to do, or it has to wait."""
        raise NotImplementedError

    # For the cluster

    def next_step(self) -> bool:
        """Does a step, and notes how many pods are available after it."""
        has_moved = self.step()
        self._available = min(self._available, _available(list(self._pods())))
        return has_moved

    def observe(self, placed: Mapping[str, Placement]) -> None:
        """Notes how many pods are pending after the scheduler has run."""
        pending = [pod for pod in self._pods() if not pod.spec.node_name]
        found = [placed[pod.key].reason for pod in pending if pod.key in placed]
        self._reason = next(filter(None, found), "")
        if len(pending) > self._pending:
            self._pending, self._pending_reason = len(pending), self._reason

    @property
    def has_pending(self) -> bool:
        """Whether a pod of the new template waits for a node."""
        return any(self.is_updated(pod) and not pod.spec.node_name for pod in self._pods())

    def result(self) -> RolloutResult:
        pods = list(self._pods())
        updated = sum(self.is_updated(pod) and bool(pod.spec.node_name) for pod in pods)
        is_complete = updated == len(pods) == self.wanted
        stalled_by = "" if is_complete else self._reason or self._rejected
        available = min(self._available, self.wanted)
        reason = stalled_by or self._pending_reason
        new = tuple(pod.key for pod in pods if self.is_updated(pod))
        return RolloutResult(
            self.workload, self.wanted, updated, is_complete, available, self._pending, reason, new
        )

    def is_updated(self, pod: Pod) -> bool:
        return pod.labels.get(self._label) == self._digest

    def _pods(self) -> Iterable[Pod]:
        return (pod for pod in self._shop.pods() if is_active(pod))

    def _create(self, which: int | str | None, *, is_new: bool = True) -> bool:
        self._rejected = self._shop.create(which, is_new=is_new)
        return not self._rejected


class DeploymentRollout(Rollout):
    """New pods as far as maxSurge allows, then fewer old ones as far as maxUnavailable does."""

    _desired = 0
    """Size of the new ReplicaSet."""

    def step(self) -> bool:
        new = [pod for pod in self._pods() if self.is_updated(pod)]
        old = [pod for pod in self._pods() if not self.is_updated(pod)]
        if self._spec["strategy"]["type"] == "Recreate":
            for pod in old:
                self._shop.delete(pod)
            self._desired = self.wanted
            return self._fill(len(new)) or bool(old)
        if self._fill(len(new)):
            return True
        sets: dict[str, list[Pod]] = {}
        for pod in sorted(old, key=_age):
            owner = pod.metadata.controller()
            sets.setdefault("" if owner is None else owner.name, []).append(pod)
        sizes = [Size(name, len(pods), _available(pods)) for name, pods in sets.items()]
        wanted = bounds(self.wanted, self._spec["strategy"])
        changed = roll(wanted, Size(_NEW, self._desired, _available(new)), sizes)
        if _NEW in changed:
            self._desired = changed[_NEW]
            self._fill(len(new))
            return True
        for name, size in changed.items():
            for pod in deletion_order(sets[name])[: len(sets[name]) - size]:
                self._shop.delete(pod)
        return bool(changed)

    def _fill(self, count: int) -> bool:
        created = 0
        while count + created < self._desired and self._create(None):
            created += 1
        return bool(created)


_NEW: Final = ""
"""The name of the new ReplicaSet among the sizes."""


class StatefulSetRollout(Rollout):
    """The last pod of the old template is deleted and created again; the next one when that is available."""

    def __init__(self, workload: str, content: Content, digest: str, label: str, shop: Workshop) -> None:
        super().__init__(workload, content, digest, label, shop)
        self._name: str = content["metadata"]["name"]

    def step(self) -> bool:
        pods = {ordinal_of(pod.name, self._name): _ready(pod) for pod in self._pods()}
        by_ordinal = {number: pod for number, pod in pods.items() if number is not None}
        changed = False
        for step in list(stateful_steps(self._spec, by_ordinal, self._digest, 0.0)):
            if step.delete is not None:
                self._shop.delete(step.delete)
                changed = True
            elif step.create is not None:
                assert isinstance(step.create, int)
                keeps = step.create < self._partition() and bool(pods)
                changed |= self._create(step.create, is_new=not keeps)
        return changed

    def _partition(self) -> int:
        rolling = self._spec["updateStrategy"].get("rollingUpdate") or {}
        return stateful_ordinals(self._spec).start + int(rolling.get("partition") or 0)

    def result(self) -> RolloutResult:
        found = super().result()
        kept = min(self._partition() - stateful_ordinals(self._spec).start, self.wanted)
        if kept <= 0 or found.is_complete:
            return found
        is_complete = found.updated >= self.wanted - kept and not self._reason
        return RolloutResult(
            found.workload,
            self.wanted,
            found.updated,
            is_complete,
            found.available,
            found.pending,
            found.reason,
        )


class DaemonSetRollout(Rollout):
    """Pods are replaced node by node: as many at a time as maxUnavailable allows, or maxSurge beside them."""

    def __init__(self, workload: str, content: Content, digest: str, label: str, shop: Workshop) -> None:
        super().__init__(workload, content, digest, label, shop)
        self._eligibility = Eligibility(content)

    @property
    def wanted(self) -> int:
        return len(self._wanted())

    def _wanted(self) -> list[str]:
        return [node.name for node in self._shop.nodes() if self._eligibility.of(node)[0]]

    def step(self) -> bool:
        eligible = {node.name: self._eligibility.of(node) for node in self._shop.nodes()}
        by_node: dict[str, list[Pod]] = {}
        for pod in sorted(self._pods(), key=self.is_updated):
            by_node.setdefault(node_of(pod), []).append(_ready(pod))
        rolling = self._spec["updateStrategy"].get("rollingUpdate") or {}
        surge = rolling.get("maxSurge") or 0
        wanted = [name for name, (may_come, _) in eligible.items() if may_come]
        if surge not in (0, "0%"):
            return self._surge(by_node, wanted, surge)
        changed = False
        for step in (
            *daemon_steps(eligible, by_node),
            *daemon_rollout(self._spec, wanted, by_node, self._digest, 0.0),
        ):
            if step.delete is not None:
                self._shop.delete(step.delete)
                changed = True
            elif step.create is not None:
                changed |= self._create(step.create)
        return changed

    def _surge(self, by_node: Mapping[str, Sequence[Pod]], wanted: list[str], surge: int | str) -> bool:
        """The new pod of a node starts beside the old one, which is deleted when the new one is available."""
        # daemon/update.go: rollingUpdate
        allowed = surge if isinstance(surge, int) else max(-(-int(surge[:-1]) * len(wanted) // 100), 1)
        changed, running = False, 0
        for node in wanted:
            pods = by_node.get(node, ())
            old = [pod for pod in pods if not self.is_updated(pod)]
            new = [pod for pod in pods if self.is_updated(pod)]
            if old and new and _available(new):
                for pod in old:
                    self._shop.delete(pod)
                changed = True
            elif old and new:
                running += 1
        for node in wanted:
            pods = by_node.get(node, ())
            if not any(map(self.is_updated, pods)) and (not pods or running < allowed):
                running += bool(pods)
                changed |= self._create(node)
        return changed


def _available(pods: Sequence[Pod]) -> int:
    return sum(bool(pod.spec.node_name) for pod in pods)


def _age(pod: Pod) -> float:
    created = pod.metadata.creation_timestamp
    return 0.0 if created is None else created.timestamp()


def _ready(pod: Pod) -> Pod:
    """The pod as it is once its containers run: a pod with a node is ready."""
    conditions = (Condition(type="Ready", status="True"),) if pod.spec.node_name else ()
    return replace(pod, status=replace(pod.status, conditions=conditions))


def play(cluster: Cluster, first: Placements, ignored: frozenset[str]) -> Placements:
    """Plays the rollouts of a cluster to their ends; `first` is the result for the pods before.

    Args:
        ignored: uids of pending pods that are not scheduled.
    """
    rollouts, cluster._rollouts = cluster._rollouts, ()
    found = {one.pod: one for one in first}
    parts = [first]
    for rollout in rollouts:
        rollout.observe(found)
    for _ in range(_MAX_ROUNDS):
        moved = [rollout.next_step() for rollout in rollouts]
        if not any(moved):
            break
        pending = [pod for pod in cluster.pending if pod.uid not in ignored]
        placed = cluster._scheduling.schedule(pending, cluster.groups_left_out)
        parts.append(placed)
        found.update((one.pod, one) for one in placed)
        for rollout in rollouts:
            rollout.observe(found)
    pods = tuple(
        one for key, one in found.items() if one.outcome in _WITHOUT_POD or cluster.find_pod(key) is not None
    )
    return dataclasses.replace(
        first,
        pods=pods,
        warnings=unique(one for part in parts for one in part.warnings),
        evicted=unique(one for part in parts for one in part.evicted),
        failures=unique(one for part in parts for one in part.failures),
        rollouts=tuple(rollout.result() for rollout in rollouts),
    )


def begin(cluster: Cluster) -> None:
    """Takes the first steps of all rollouts, until each has a pod to schedule or has to wait."""
    rollouts, cluster._rollouts = cluster._rollouts, ()
    for rollout in rollouts:
        while rollout.next_step() and not rollout.has_pending:
            pass


_MAX_ROUNDS: Final = 100_000
"""A limit against rollouts that preempt each other again and again."""
_WITHOUT_POD: Final = (Outcome.NOT_RECREATED, Outcome.REJECTED)

ROLLOUTS: Final[Mapping[str, Callable[[str, Content, str, str, Workshop], Rollout]]] = {
    "Deployment": DeploymentRollout,
    "StatefulSet": StatefulSetRollout,
    "DaemonSet": DaemonSetRollout,
}
