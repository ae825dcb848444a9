"""CapacityPreemption: a queue below its guarantee takes from queues above theirs.

A pod that has room in its queue but finds no node may evict pods of other queues after the delay of its
queue, if its queue is entitled to what it requests. Victims are chosen as by DefaultPreemption (all that one
node needs or none, PodDisruptionBudgets first), among the pods that `victims.py` allows: of equal or lower
priority within the fences, and only as long as every queue keeps its guarantee. So a victim cannot preempt
its preemptor in turn: its own queue is not entitled to more. A pod of a DaemonSet can run on one node only,
and preempts pods of any queue there, without a delay.

This plugin replaces DefaultPreemption if capacity queues are configured: priority alone is no reason to evict
a pod, because a queue could then lose what it is guaranteed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import ClassVar, Final

from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.api.workloads import PriorityClass
from bayplan.framework.group_api import GroupOutcome, GroupPostFilterResult, GroupSteps
from bayplan.framework.outcome import Eviction, FilterOutcome, Nomination, PostFilterResult
from bayplan.framework.state import CycleState
from bayplan.framework.status import unschedulable
from bayplan.preemption.evaluation import evaluate, preemption_result
from bayplan.preemption.groups import preempt, terminating_victims
from bayplan.preemption.plugin import PreemptionPlugin, candidate_sampling
from bayplan.preemption.units import violations
from bayplan.preemption.victims import MayEvict
from bayplan.queues import victims
from bayplan.queues.active import CapacityQueues
from bayplan.queues.amounts import Amounts, plus, total
from bayplan.queues.records import Unserved, created_at
from bayplan.queues.tree import Queue, Task
from bayplan.queues.yunikorn.config import VCORE
from bayplan.queues.yunikorn.pods import facts
from bayplan.state.cluster import Cluster

NOT_OWED: Final = "preemption: queue {queue} is not entitled to what the pod requests"
TOO_EARLY: Final = "preemption: pods of queue {queue} may preempt others {seconds:g} s after their creation"
DISABLED: Final = "preemption: disabled by preemption.enabled of the partition"
NEVER: Final = "preemption: not eligible due to preemptionPolicy=Never."
SPARED: Final = (victims.ORIGINATOR_SCORE, victims.NO_PREEMPT_SCORE)
"""The scores of victims that are avoided: first pods of applications, and pods that have opted out."""


class CapacityPreemption(PreemptionPlugin):
    """Preempts pods of queues above their guarantee for a queue below its own."""

    kinds: ClassVar[tuple[type[Object], ...]] = (PriorityClass,)
    queues: CapacityQueues | None = None
    """Set by the scheduler."""

    def post_filter(self, state: CycleState, pod: Pod, outcome: FilterOutcome) -> PostFilterResult:
        queues = self.queues
        if queues is None:
            return PostFilterResult(unschedulable("preemption: there are no capacity queues"))
        known = facts(pod)
        if not known.may_preempt:
            return PostFilterResult(unschedulable(NEVER))
        if not known.required_node and not _victims_end([pod], outcome.cluster):
            reason = self._not_now([pod], queues.amounts_of(pod), pod.priority)
            if reason:
                return PostFilterResult(unschedulable(reason), Nomination(""))
        result = super().post_filter(state, pod, outcome)
        if not known.required_node:
            result = self._sparing(pod, outcome, result)
            if result.eviction is None:
                self._unserved([pod], outcome.cluster)
        return self._with_units(result, outcome.cluster)

    def _sparing(self, pod: Pod, outcome: FilterOutcome, result: PostFilterResult) -> PostFilterResult:
        """The same without victims that are to be spared, if others suffice somewhere and no more
        PodDisruptionBudgets are violated."""
        if result.eviction is None:
            return result
        scores = [self._score(victim) for victim in result.eviction.victims]
        for limit in SPARED:
            if max(scores) < limit:
                break
            sampling = candidate_sampling(self.args, self.handle)
            evaluation = evaluate(pod, outcome, sampling, self._may_evict(pod, outcome, below=limit))
            other = preemption_result(evaluation, outcome)
            if other.eviction is not None and other.eviction.pdb_violations <= result.eviction.pdb_violations:
                return other
        return result

    def _score(self, pod: Pod) -> int:
        task = None if self.queues is None else self.queues.task_of(pod.uid)
        return 0 if task is None else victims.task_score(task)

    def _not_now(self, pods: Sequence[Pod], asked: Amounts, priority: int) -> str:
        """Why these pods of one application may not take from others now; "" if they may."""
        queues = self.queues
        assert queues is not None
        if not queues.preempts:
            return DISABLED
        leaf = queues.group_of(pods[0]).queue
        if all(queue.guaranteed is None for queue in leaf.upwards()):
            return NOT_OWED.format(queue=leaf.path)
        delay = leaf.policy.preemption_delay
        remaining = min(map(created_at, pods)) + delay - self.handle.now()
        if remaining > 0:
            self.handle.call_later(remaining, lambda: self.handle.activate(list(pods)))
            return TOO_EARLY.format(queue=leaf.path, seconds=delay)
        found = victims.candidates(leaf, asked, priority, without=queues.taken(self.handle.now()))
        if not victims.is_entitled(found, plus(asked, queues.nominated_to(leaf, pods))):
            return NOT_OWED.format(queue=leaf.path)
        return ""

    def _with_units(self, result: PostFilterResult, cluster: Cluster) -> PostFilterResult:
        """Adds to victims the other pods of pod groups that are disrupted as a whole."""
        if result.eviction is None:
            return result
        if cluster.groups is not None:
            alternatives = result.alternatives
            result = replace(
                result,
                eviction=_whole(result.eviction, cluster),
                alternatives=None
                if alternatives is None
                else lambda: [_whole(eviction, cluster) for eviction in alternatives()],
            )
        self._take(result.eviction)
        return result

    def _take(self, eviction: Eviction | None) -> None:
        """Other pods count the victims as leaving from now on."""
        if eviction is not None and self.queues is not None:
            self.queues.take((victim.uid for victim in eviction.victims), self.handle.now())

    def may_evict(self, state: CycleState, pod: Pod, outcome: FilterOutcome) -> MayEvict:
        return self._may_evict(pod, outcome)

    def _may_evict(self, pod: Pod, outcome: FilterOutcome, below: int | None = None) -> MayEvict:
        """The rule for victims, or that for victims with a lower score than this."""
        queues, cluster = self.queues, outcome.cluster
        assert queues is not None
        asked, leaf = queues.amounts_of(pod), queues.group_of(pod).queue
        if facts(pod).required_node:
            return lambda row, pods: self._on_required_node(pod, row, pods, cluster)
        taken = queues.taken(self.handle.now())
        found = victims.candidates(leaf, asked, pod.priority, without=taken)
        tasks = (task for task in found.tasks if below is None or victims.task_score(task) < below)
        by_key, gone = {task.key: task for task in tasks}, {task.key for task in taken}

        def allowed(row: int, pods: Sequence[Pod]) -> Sequence[Pod]:
            units: dict[str, list[Task]] = {}
            for each in pods:
                together = [by_key.get(uid) for uid in pods_together(each, cluster)]
                if None not in together:
                    units[min(task.key for task in together if task)] = [task for task in together if task]
            chosen = within_guarantees(leaf, asked, units.values(), taken)
            return [each for each in pods if each.uid in chosen or _leaves(each, gone)]

        return allowed

    def _on_required_node(self, pod: Pod, row: int, pods: Sequence[Pod], cluster: Cluster) -> Sequence[Pod]:
        """The candidates for a DaemonSet pod, which can run on this node only: guarantees do not count."""
        queues = self.queues
        assert queues is not None
        tasks = [task for each in pods if (task := queues.task_of(each.uid)) is not None]
        asked, available = queues.amounts_of(pod), _available(cluster, row)
        chosen = {task.key for task in victims.required_place_victims(asked, available, tasks, pod.priority)}
        return [each for each in pods if each.uid in chosen]

    def pod_group_post_filter(self, outcome: GroupOutcome) -> GroupSteps[GroupPostFilterResult]:
        queues, group, cluster = self.queues, outcome.group, outcome.cluster
        if queues is None:
            return GroupPostFilterResult(unschedulable("preemption: there are no capacity queues"))
        asked = total(queues.amounts_of(pod) for pod in outcome.pods)
        if not _victims_end(outcome.pods, cluster):
            reason = self._not_now(outcome.pods, asked, group.priority)
            if reason:
                return GroupPostFilterResult(unschedulable(reason))
        leaf = queues.group_of(outcome.pods[0]).queue
        taken = queues.taken(self.handle.now())
        candidates = victims.candidates(leaf, asked, group.priority, without=taken)
        by_key, gone = {task.key: task for task in candidates.tasks}, {task.key for task in taken}

        def allowed(units: Sequence[Sequence[int]]) -> Sequence[int]:
            found, leaving = {}, []
            for index, slots in enumerate(units):
                pods = [cluster.pods.pod[slot] for slot in slots]
                tasks = [None if pod is None else by_key.get(pod.uid) for pod in pods]
                if all(pod is not None and _leaves(pod, gone) for pod in pods):
                    leaving.append(index)
                elif None not in tasks:
                    found[index] = [task for task in tasks if task is not None]
            chosen = within_guarantees(leaf, asked, found.values(), taken)
            may_go = (index for index, tasks in found.items() if tasks[0].key in chosen)
            # The first ones are spared first.
            scores = {index: max(map(victims.task_score, tasks)) for index, tasks in found.items()}
            return sorted((*leaving, *may_go), key=lambda index: (-scores.get(index, 0), index))

        has_own_policy = "PodGroupPreemptionPolicy" in self.release.gates
        result = yield from preempt(outcome, has_own_policy=has_own_policy, allowed=allowed)
        self._take(result.eviction)
        if result.eviction is None:
            self._unserved(outcome.pods, cluster)
        return result

    def _unserved(self, pods: Sequence[Pod], cluster: Cluster) -> None:
        """Their queue is entitled to what they ask for, and pods that start now may be victims later."""
        queues = self.queues
        assert queues is not None
        freshness = cluster.changes.freshness((cluster.changes.usage,))
        freshness.mark_current()
        unserved = Unserved(pods, self.handle.now(), freshness)
        queues.unserved.setdefault(queues.group_of(pods[0]).queue.path, unserved)


def _victims_end(pods: Sequence[Pod], cluster: Cluster) -> bool:
    """Whether pods that were evicted for these are ending: they keep the room, whatever starts meanwhile."""
    return next(terminating_victims(cluster, pods, 0, any_priority=True), None) is not None


def _leaves(pod: Pod, gone: Collection[str]) -> bool:
    """Whether a pod was evicted already. It costs nothing more, and what it frees may be for another pod."""
    return pod.is_terminating or pod.uid in gone


def _available(cluster: Cluster, row: int) -> dict[str, int]:
    """What is free on a node."""
    nodes = cluster.nodes
    amounts = {"pods": nodes.allowed_pods.cell[row] - len(cluster.row_pods[row])}
    for kind in nodes.resource_names():
        columns = nodes.resource(kind)
        free = columns.allocatable.cell[row] - columns.requested.cell[row]
        amounts[VCORE if kind == "cpu" else kind] = free
    return amounts


def pods_together(pod: Pod, cluster: Cluster) -> Collection[str]:
    """The uids of the pods that are evicted if this one is, itself included."""
    groups = cluster.groups
    group = None if groups is None else groups.group_of(pod)
    whole = None if groups is None or group is None else groups.evicted_as_one(group)
    if groups is None or whole is None:
        return (pod.uid,)
    return [uid for state in groups.states_below(whole) for uid in state.scheduled]


def unprotected_first(tasks: Iterable[Task], cluster: Cluster, node_name: str) -> list[Task]:
    """First the tasks whose eviction violates no PodDisruptionBudget, and of them those on this node."""
    known = [task for task in tasks if cluster.has_pod(task.key)]
    counts = violations(cluster, [[cluster.slot_of(task.key)] for task in known])
    protected = {task.key for task, count in zip(known, counts.tolist(), strict=True) if count}
    return sorted(known, key=lambda task: (task.key in protected, task.place != node_name))


def _whole(eviction: Eviction, cluster: Cluster) -> Eviction:
    uids = dict.fromkeys(uid for victim in eviction.victims for uid in pods_together(victim, cluster))
    pods = {victim.uid: victim for victim in eviction.victims}
    for uid in uids:
        if uid not in pods and (assigned := cluster.assigned_pod(uid)) is not None:
            pods[uid] = assigned[0]
    return replace(eviction, victims=tuple(pods.values()))


def within_guarantees(
    asking: Queue, asked: Amounts, units: Iterable[Sequence[Task]], taken: Iterable[Task] = ()
) -> set[str]:
    """The keys of tasks that may all be evicted while every queue keeps its guarantee.

    Args:
        units: tasks that are evicted together or not at all.
        taken: tasks that were taken already.
    """
    world = victims.Hypothesis(asking, without=taken)
    chosen: set[str] = set()
    for unit in sorted(units, key=lambda unit: max(map(victims.victim_key, unit))):
        if victims.remove_unit(world, asked, unit):
            chosen.update(task.key for task in unit)
    return chosen
