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

from bisect import bisect_left
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
from bayplan.preemption.victims import MayEvictOnRows
from bayplan.queues.amounts import readable, total
from bayplan.queues.records import PodGroupOf
from bayplan.queues.volcano import accounts as accounting
from bayplan.queues.volcano import jobs, victims
from bayplan.queues.volcano.accounts import Account, Entitlement
from bayplan.queues.volcano.active import VolcanoQueues
from bayplan.queues.volcano.candidates import JobPods
from bayplan.queues.volcano.objects import JobGroup, JobView
from bayplan.queues.volcano.resources import Resources, is_empty, plus
from bayplan.state.cluster import Cluster
from bayplan.state.columns import IdColumn
from bayplan.state.derived import derived
from bayplan.state.groups import Group

NO_ACTION: Final = "preemption: neither reclaim nor preempt is among the configured actions"
PREEMPTABLE, RECLAIMABLE = "enablePreemptable", "enableReclaimable"
"""The switches of plugins that choose victims, by action."""
NEVER: Final = "preemption: not eligible due to preemptionPolicy=Never."


@dataclass(frozen=True, slots=True)
class AskingPod:
    """A pod or gang that asks for victims, as `victims.py` sees it."""

    job: JobView
    asked: Resources
    priority: int


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

    def may_evict(self, state: CycleState, pod: Pod, outcome: FilterOutcome) -> MayEvictOnRows:
        queues = self.queues
        assert queues is not None
        asking = asking_pod(queues, pod, queues.amounts_of(pod))
        return MayEvictOnRows(VictimChoice(queues, asking, pipelined(queues, [pod])).by_row)

    def pod_group_post_filter(self, outcome: GroupOutcome) -> GroupSteps[GroupPostFilterResult]:
        queues, cluster, pods = self.queues, outcome.cluster, outcome.pods
        if queues is None:
            return GroupPostFilterResult(unschedulable("preemption: there are no capacity queues"))
        amounts = [queues.amounts_of(pod) for pod in pods]
        group, nominated = queues.group_of(pods[0]), pipelined(queues, pods)
        least = missing(cluster, outcome.group)
        reason = why_not(queues, group, total(amounts[:least]), nominated)
        if reason:
            return GroupPostFilterResult(unschedulable(reason))
        count = entitled_members(queues, group, amounts, nominated)
        most = count if count >= least else len(pods)
        asking = asking_pod(queues, pods[0], total(amounts[:most]))

        def allowed(units: Sequence[Sequence[int]]) -> Sequence[int]:
            may_go = np.zeros(cluster.pods.high, dtype=np.bool_)
            may_go[VictimChoice(queues, asking, nominated).everywhere(cluster)] = True
            cells = may_go.tolist()
            return [index for index, unit in enumerate(units) if all(cells[slot] for slot in unit)]

        has_own_policy = "PodGroupPreemptionPolicy" in self.release.gates
        result = yield from preempt(outcome, has_own_policy=has_own_policy, allowed=allowed, most=most)
        reason = "" if count >= least else _why_not_entitled(queues, group, total(amounts[:least]), nominated)
        if reason and not result.status.is_success:
            return GroupPostFilterResult(unschedulable(reason))
        return result


def missing(cluster: Cluster, group: Group) -> int:
    """How many members a gang has to get a node for at least."""
    states = cluster.groups
    scheduled = 0 if states is None else states[group.key].scheduled_count
    return max(1, group.min_count - scheduled)


def entitled_members(
    queues: VolcanoQueues,
    group: PodGroupOf,
    amounts: Sequence[Resources],
    nominated: Mapping[str, Resources] = accounting.NOTHING,
) -> int:
    """For how many of its first members, which ask for these amounts, a group may reclaim."""
    account = queues.account(group.queue)
    if account is None or "reclaim" not in queues.conf.actions:
        return 0

    def is_too_many(count: int) -> bool:
        return not is_entitled(queues, account, total(amounts[:count]), nominated)

    if not is_too_many(len(amounts)):
        return len(amounts)
    return bisect_left(range(1, len(amounts)), True, key=is_too_many)


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


def asking_pod(queues: VolcanoQueues, pod: Pod, asked: Resources) -> AskingPod:
    """A pod that asks for victims, or the first one of a gang that asks for all of this."""
    return AskingPod(queues.job(queues.group_of(pod), pod), asked, pod.priority)


class VictimChoice:
    """The running pods that may be evicted for a pod or a gang.

    The queues and jobs that can lose anything are found once, for all nodes.
    """

    def __init__(
        self,
        queues: VolcanoQueues,
        asking: AskingPod,
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
        self.others, self.own = self._ranked(others, RECLAIMABLE), self._ranked(own, PREEMPTABLE)

    def _ranked(self, accounts: Iterable[Account], switch: str) -> list[JobView]:
        """The jobs of some queues, in the order of eviction."""
        queues, own, found = self._queues, self._asking.job, list[JobView]()
        keeps_gangs = queues.conf.has("gang", switch)
        for account in accounts:
            for group in account.queue.groups.values():
                assert isinstance(group, JobGroup)
                item = group.pod_group
                if keeps_gangs and len(group.tasks) <= (1 if item is None else item.spec.min_member):
                    continue  # most gangs run with their minimum
                view = queues.job(group)
                if group.queue.leaving:
                    view = replace(view, ready=sum(not task.leaving for task in group.tasks.values()))
                if group.name != own.name and (view.ready > view.min_available or not keeps_gangs):
                    found.append(view)
        return in_order(queues, own.account, found)

    def by_row(self, cluster: Cluster, rows: IdColumn) -> IdColumn:
        """The slots of the pods that may be evicted to make room on one of these rows, whichever it is."""
        on_rows = np.zeros(cluster.nodes.high, dtype=np.bool_)
        on_rows[rows] = True
        table = cluster.pods
        slots = (table.assigned.read & on_rows.take(table.row.read)).nonzero()[0]
        return self._among(cluster, slots, table.row.array.take(slots))

    def everywhere(self, cluster: Cluster) -> IdColumn:
        """The slots of the pods that may be evicted together."""
        slots = cluster.pods.assigned.read.nonzero()[0]
        return self._among(cluster, slots, np.zeros(len(slots), dtype=np.intp))

    def _among(self, cluster: Cluster, slots: IdColumn, place: IdColumn) -> IdColumn:
        """Those that may be evicted of these, including those that are ending already."""
        pods, table = derived(cluster, JobPods), cluster.pods
        is_ending = table.terminating.array.take(slots)
        chosen = [slots[is_ending]]
        for ranked, plugins in ((self.others, _reclaim_plugins), (self.own, _preempt_plugins)):
            if not ranked:
                continue
            rank_of = np.full(len(pods.ids), -1, dtype=np.intp)
            for rank, view in enumerate(ranked):
                known = pods.ids.known(view.name)
                if known is not None:
                    rank_of[known.number] = rank
            job = rank_of.take(pods.job.take(slots))
            here = ((job >= 0) & ~is_ending & pods.is_preemptable.take(slots)).nonzero()[0]
            some, job, where = slots.take(here), job.take(here), place.take(here)
            order = pods.in_order(some, (job, where), table.priority.array.take(some))
            some = some.take(order)
            shapes, shape = pods.shapes_of(some)
            found = victims.Candidates(
                victims.JobTable(ranked),
                shapes,
                place=where.take(order),
                job=job.take(order),
                shape=shape,
                priority=table.priority.array.take(some),
                is_critical=pods.is_critical.take(some),
            )
            allowed = victims.allowed_by_all(plugins(self._queues, self._asking), found)
            chosen.append(some.take(allowed))
        return np.concatenate(chosen)


def in_order(queues: VolcanoQueues, asking: Account, found: list[JobView]) -> list[JobView]:
    """Jobs in the order of eviction: near queues first, then those with most of what they deserve."""
    order = queues.order_of_jobs
    ranked = sorted(found, key=lambda each: (jobs.standing(each, order), each.name), reverse=True)
    ranked.sort(key=lambda each: accounting.standing(each.account, queues.kind), reverse=True)
    ranked.sort(key=lambda each: each.account.spec.priority)
    if queues.conf.hierarchy:
        ranked.sort(key=lambda each: victims.nearness(asking, each.account))
    return ranked


def _common(queues: VolcanoQueues, switch: str) -> list[victims.Plugin]:
    found: list[victims.Plugin] = [victims.not_critical]
    if queues.conf.has("gang", switch):
        found.append(victims.spared_by_gang)
    return found


def _reclaim_plugins(queues: VolcanoQueues, asking: AskingPod) -> list[victims.Plugin]:
    levels = queues.conf.reclaim_levels if queues.conf.hierarchy else 0
    found = _common(queues, RECLAIMABLE)
    if queues.kind is Entitlement.PROPORTION:
        found.append(victims.above_deserved)
    elif queues.kind is Entitlement.CAPACITY:
        found.append(partial(victims.reclaimable, asking, levels=levels))
    return found


def _preempt_plugins(queues: VolcanoQueues, asking: AskingPod) -> list[victims.Plugin]:
    """By priority or by share, whichever is in the first tier; both if they are in the same."""
    found = _common(queues, PREEMPTABLE)
    for tier in queues.conf.tiers:
        names = {each.name for each in tier if each.enabled(PREEMPTABLE)} & {"priority", "drf"}
        if "priority" in names:
            found.append(partial(victims.of_lower_priority, asking))
        if "drf" in names:
            found.append(partial(victims.of_larger_share, asking, capacity=asking.job.capacity))
        if names:
            return found
    return [victims.nobody]
