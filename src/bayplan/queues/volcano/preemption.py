"""VolcanoPreemption: the actions reclaim and preempt, as a plugin.

A pod or gang that has room in its queue and finds no nodes may evict pods of other queues, if its queue stays
within what it deserves (reclaim), and pods of jobs with a lower priority in its own queue (preempt). Victims
are chosen as by DefaultPreemption (all that are needed or none, PodDisruptionBudgets first) among the pods
that all plugins of the configuration allow: queues stay above `deserved` and `guarantee`, gangs keep their
minimum (unless the plugin gang is disabled for the action), and critical pods stay.

Volcano calls only the first tier of plugins that returns a result, so with the usual two tiers the plugin of
the queues is never called, and a queue below its share loses pods. Here all plugins are called.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Final

import numpy as np

from bayplan.api import volcano
from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.api.workloads import PriorityClass
from bayplan.framework.group_api import GroupOutcome, GroupPostFilterResult, GroupSteps
from bayplan.framework.outcome import FilterOutcome, Nomination, PostFilterResult
from bayplan.framework.state import CycleState
from bayplan.framework.status import unschedulable
from bayplan.preemption.groups import preempt
from bayplan.preemption.plugin import PreemptionPlugin
from bayplan.preemption.victims import MayEvict
from bayplan.queues.amounts import readable, total
from bayplan.queues.usage import PodGroupOf
from bayplan.queues.volcano import accounts as accounting
from bayplan.queues.volcano import jobs, victims
from bayplan.queues.volcano.accounts import Account, Entitlement
from bayplan.queues.volcano.active import CRITICAL, VolcanoQueues
from bayplan.queues.volcano.objects import JobView
from bayplan.queues.volcano.resources import Resources, is_empty, plus

NO_ACTION: Final = "preemption: neither reclaim nor preempt is among the actions of volcano-scheduler.conf"
PREEMPTABLE, RECLAIMABLE = "enablePreemptable", "enableReclaimable"
"""The switches of plugins that choose victims, by action."""
NEVER: Final = "preemption: not eligible due to preemptionPolicy=Never."


@dataclass(frozen=True, slots=True)
class Running:
    """A pod as `victims.py` sees it."""

    uid: str
    job: JobView
    asked: Resources
    priority: int
    created: float
    is_critical: bool


class VolcanoPreemption(PreemptionPlugin):
    """Reclaims what a queue is entitled to, and preempts jobs of lower priority in the same queue."""

    kinds: ClassVar[tuple[type[Object], ...]] = (volcano.Queue, volcano.PodGroup, PriorityClass)
    queues: VolcanoQueues | None = None
    """Set by the scheduler."""

    def post_filter(self, state: CycleState, pod: Pod, outcome: FilterOutcome) -> PostFilterResult:
        queues = self.queues
        if queues is None:
            return PostFilterResult(unschedulable("preemption: there are no capacity queues"))
        if pod.spec.preemption_policy == "Never":
            return PostFilterResult(unschedulable(NEVER))
        group, asked = queues.group_of(pod), queues.amounts_of(pod)
        reason = why_not(queues, group, asked, pipelined(queues, [pod]))
        if reason:
            return PostFilterResult(unschedulable(reason), Nomination(""))
        return super().post_filter(state, pod, outcome)

    def may_evict(self, state: CycleState, pod: Pod, outcome: FilterOutcome) -> MayEvict:
        queues = self.queues
        assert queues is not None
        asking = running_pod(queues, pod, queues.amounts_of(pod))
        choice = VictimChoice(queues, asking, pipelined(queues, [pod]))

        def allowed(row: int, pods: Sequence[Pod]) -> Sequence[Pod]:
            chosen = choice.among(pods)
            return [each for each in pods if each.uid in chosen]

        return allowed

    def pod_group_post_filter(self, outcome: GroupOutcome) -> GroupSteps[GroupPostFilterResult]:
        queues, cluster, pods = self.queues, outcome.cluster, outcome.pods
        if queues is None:
            return GroupPostFilterResult(unschedulable("preemption: there are no capacity queues"))
        asked = total(queues.amounts_of(pod) for pod in pods)
        group, nominated = queues.group_of(pods[0]), pipelined(queues, pods)
        reason = why_not(queues, group, asked, nominated)
        if reason:
            return GroupPostFilterResult(unschedulable(reason))
        asking = running_pod(queues, pods[0], asked)

        def allowed(units: Sequence[Sequence[int]]) -> Sequence[int]:
            choice, table = VictimChoice(queues, asking, nominated), cluster.pods
            slots = [cluster.slot_of(uid) for uid in choice.candidates() if cluster.has_pod(uid)]
            slots += (table.terminating.read & table.assigned.read).nonzero()[0].tolist()
            chosen = choice.among(pod for slot in slots if (pod := table.pod[slot]) is not None)
            may_go = np.zeros(table.high, dtype=np.bool_)
            may_go[[cluster.slot_of(uid) for uid in chosen]] = True
            cells = may_go.tolist()
            return [index for index, unit in enumerate(units) if all(cells[slot] for slot in unit)]

        has_own_policy = "PodGroupPreemptionPolicy" in self.release.gates
        result = yield from preempt(outcome, has_own_policy=has_own_policy, allowed=allowed)
        if not result.status.is_success and (reason := _why_not_entitled(queues, group, asked, nominated)):
            return GroupPostFilterResult(unschedulable(reason))
        return result


def pipelined(queues: VolcanoQueues, asking: Sequence[Pod]) -> dict[str, Resources]:
    """What victims make room for, by name of the queue and its ancestors, without the pods that ask now.

    A queue that is entitled to two more CPUs must not take them twice while the first pods still wait for
    their victims to end.
    """
    found: dict[str, Resources] = {}
    for leaf, amounts in queues.nominated_amounts(asking):
        account = queues.account(leaf)
        for each in () if account is None else account.upwards():
            found[each.name] = plus(found.get(each.name, {}), amounts)
    return found


def why_not(
    queues: VolcanoQueues,
    group: PodGroupOf,
    asked: Resources,
    nominated: Mapping[str, Resources] = accounting.NOTHING,
) -> str:
    """Why a group may take nothing from others; "" if it may take something.

    Args:
        nominated: see `pipelined`.
    """
    actions = queues.conf.actions
    if "preempt" in actions:
        return ""
    if "reclaim" not in actions:
        return NO_ACTION
    return _why_not_entitled(queues, group, asked, nominated)


def _why_not_entitled(
    queues: VolcanoQueues, group: PodGroupOf, asked: Resources, nominated: Mapping[str, Resources]
) -> str:
    account = queues.account(group.queue)
    if account is None or is_entitled(queues, account, asked, nominated):
        return ""
    return f"preemption: {not_entitled(account, asked, nominated.get(account.name, {}))}"


def not_entitled(account: Account, asked: Resources, nominated: Resources | None = None) -> str:
    """Why a queue may not reclaim, in numbers."""
    deserved, waiting = account.deserved, nominated or {}
    if is_empty(deserved):
        return f"queue {account.name} deserves nothing, so it takes nothing from others"
    for kind, amount in asked.items():
        limit, used, soon = deserved.get(kind), account.allocated.get(kind, 0), waiting.get(kind, 0)
        if limit is not None and kind != "pods" and used + soon + amount > limit:
            unit = "vcore" if kind == "cpu" else kind
            parts = {"allocated": used, "pipelined": soon, "requested": amount, "deserved": limit}
            shown = (
                f"{readable(unit, int(each))} {word}"
                for word, each in parts.items()
                if each or word != "pipelined"
            )
            return f"queue {account.name} is not entitled to this: {kind} {', '.join(shown)}"
    return f"queue {account.name} is not entitled to this"


def is_entitled(
    queues: VolcanoQueues,
    account: Account,
    asked: Resources,
    nominated: Mapping[str, Resources] = accounting.NOTHING,
) -> bool:
    """Whether a queue is entitled to what is requested, so that it may reclaim."""
    levels = queues.conf.reclaim_levels if queues.conf.hierarchy else 0
    return accounting.may_reclaim(
        account, asked, queues.kind, levels=levels, strict=True, pipelined=nominated
    )


def running_pod(queues: VolcanoQueues, pod: Pod, asked: Resources) -> Running:
    """A pod that asks for victims, as `victims.py` sees it."""
    return Running(pod.uid, queues.job(queues.group_of(pod)), asked, pod.priority, 0.0, is_critical=False)


@dataclass(frozen=True, slots=True)
class RankedJob:
    """A job that can lose pods."""

    rank: int
    """Jobs with a lower one lose pods first."""
    view: JobView
    group: PodGroupOf


class VictimChoice:
    """The running pods that may be evicted for a pod or a gang.

    The queues and jobs that can lose anything are found once. Then only their pods are looked at.
    """

    def __init__(
        self,
        queues: VolcanoQueues,
        asking: Running,
        nominated: Mapping[str, Resources] = accounting.NOTHING,
    ) -> None:
        account, actions = asking.job.account, queues.conf.actions
        self._queues, self._asking = queues, asking
        others: list[Account] = []
        if "reclaim" in actions and is_entitled(queues, account, asking.asked, nominated):
            others = [
                each
                for each in queues.accounts.values()
                if each is not account and each.spec.reclaimable and accounting.may_lose(each, queues.kind)
            ]
        own = [account] if "preempt" in actions else []
        self._others, self._own = self._ranked(others, RECLAIMABLE), self._ranked(own, PREEMPTABLE)

    def _ranked(self, accounts: Iterable[Account], switch: str) -> dict[str, RankedJob]:
        """The jobs of some queues, by name."""
        queues, own, found = self._queues, self._asking.job, list[tuple[JobView, PodGroupOf]]()
        keeps_gangs = queues.conf.has("gang", switch)
        for account in accounts:
            for group in account.queue.groups.values():
                assert isinstance(group, PodGroupOf)
                view = queues.job(group)
                if group.queue.leaving:
                    view = replace(view, ready=sum(not task.leaving for task in group.tasks.values()))
                if group.name != own.name and (view.ready > view.min_available or not keeps_gangs):
                    found.append((view, group))
        ordered = in_order(queues, own.account, found)
        return {view.name: RankedJob(rank, view, group) for rank, (view, group) in enumerate(ordered)}

    def candidates(self) -> Iterable[str]:
        """The uids of the pods of these jobs."""
        for jobs_of in (self._others, self._own):
            for job in jobs_of.values():
                yield from job.group.tasks

    def among(self, pods: Iterable[Pod]) -> set[str]:
        """The uids of the pods that may all be evicted together, including those that are ending already."""
        queues, chosen = self._queues, set[str]()
        others, own = list[tuple[int, Running]](), list[tuple[int, Running]]()
        for pod in pods:
            uid = pod.metadata.uid
            if pod.is_terminating:
                chosen.add(uid)
                continue
            task = queues.task_of(uid)
            if task is None:
                continue
            name, found = task.group.name, others
            job = self._others.get(name)
            if job is None:
                job, found = self._own.get(name), own
            if job is not None and is_preemptable(pod):
                critical = pod.namespace == "kube-system" or pod.spec.priority_class_name in CRITICAL
                made = Running(uid, job.view, task.amounts, task.priority, task.created, is_critical=critical)
                found.append((job.rank, made))
        for found, plugins in ((others, _reclaim_plugins), (own, _preempt_plugins)):
            if found:
                found.sort(key=_in_order_of_eviction)
                allowed = victims.allowed_by_all(plugins(queues, self._asking), [each for _, each in found])
                chosen.update(each.uid for each in allowed)
        return chosen


def _in_order_of_eviction(found: tuple[int, Running]) -> tuple[int, int, float, str]:
    rank, task = found
    return (rank, task.priority, -task.created, task.uid)


def is_preemptable(pod: Pod) -> bool:
    meta = pod.metadata
    value = meta.annotations.get(volcano.PREEMPTABLE) or meta.labels.get(volcano.PREEMPTABLE, "true")
    return value.lower() in ("1", "t", "true")


def in_order(
    queues: VolcanoQueues, asking: Account, found: list[tuple[JobView, PodGroupOf]]
) -> list[tuple[JobView, PodGroupOf]]:
    """Jobs in the order of eviction: near queues first, then those with most of what they deserve."""
    order = queues.order_of_jobs
    ranked = sorted(found, key=lambda each: (jobs.standing(each[0], order), each[0].name), reverse=True)
    ranked.sort(key=lambda each: accounting.standing(each[0].account, queues.kind), reverse=True)
    ranked.sort(key=lambda each: each[0].account.spec.priority)
    if queues.conf.hierarchy:
        ranked.sort(key=lambda each: victims.nearness(asking, each[0].account))
    return ranked


def _common(queues: VolcanoQueues, switch: str) -> list[victims.Plugin[Running]]:
    found: list[victims.Plugin[Running]] = [victims.not_critical]
    if queues.conf.has("gang", switch):
        found.append(victims.spared_by_gang)
    return found


def _reclaim_plugins(queues: VolcanoQueues, asking: Running) -> list[victims.Plugin[Running]]:
    levels = queues.conf.reclaim_levels if queues.conf.hierarchy else 0
    found = _common(queues, RECLAIMABLE)
    if queues.kind is Entitlement.PROPORTION:
        found.append(victims.above_deserved)
    elif queues.kind is Entitlement.CAPACITY:
        found.append(lambda tasks: victims.reclaimable(asking, tasks, levels=levels))
    return found


def _preempt_plugins(queues: VolcanoQueues, asking: Running) -> list[victims.Plugin[Running]]:
    """By priority or by share, whichever is in the first tier; both if they are in the same."""
    found = _common(queues, PREEMPTABLE)
    for tier in queues.conf.tiers:
        names = {each.name for each in tier if each.enabled(PREEMPTABLE)} & {"priority", "drf"}
        if "priority" in names:
            found.append(partial(victims.of_lower_priority, asking))
        if "drf" in names:
            found.append(lambda tasks: victims.of_larger_share(asking, tasks, asking.job.capacity))
        if names:
            return found
    return [lambda tasks: []]
