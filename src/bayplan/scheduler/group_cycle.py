"""The scheduling cycle of a group: one search for each member, on columns that show the members before it.

Cluster and group in, `GroupDecision` out. Members are placed one after the other with the search of single
pods; each counts in the columns, and what it needs is reserved, before the next one is searched for. The
undo log of the cluster reverts all of it at the end, so nothing of the simulation is left: `group_scheduling`
executes the decision.

    start ─► placements ─► for each: members in turn, until they cannot be enough ─► the best
                                                   │ none fits
                                                   ▼
                                           PodGroupPostFilter (preemption)

Every function that may call extenders is a generator, as `cycle.scheduling_cycle` is.

schedule_one_podgroup.go: podGroupSchedulingAlgorithm
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from bayplan.api.pod import Pod
from bayplan.framework.group_api import (
    GroupOutcome,
    GroupPlacement,
    GroupPostFilterResult,
    MemberOutcome,
    NodePlacement,
    Placed,
)
from bayplan.framework.outcome import Eviction, Nomination, fit_error
from bayplan.framework.state import GroupCycleState
from bayplan.framework.status import Code, Status
from bayplan.runtime.calls import AttemptError
from bayplan.runtime.extension_points import Placement, RejectedError
from bayplan.runtime.framework import Framework
from bayplan.runtime.room import room
from bayplan.runtime.search import Found, Steps
from bayplan.scheduler.cycle import Decision, error_decision, scheduling_cycle
from bayplan.state.groups import PREEMPT_LOWER_PRIORITY, Group, GroupState

UNSCHEDULABLE: Final = "pod group is unschedulable"


@dataclass(slots=True)
class _Run:
    """The members as one placement would have them. Members that were not tried have no decision."""

    status: Status
    decisions: list[Decision] = field(default_factory=list)

    @property
    def placed(self) -> list[Decision]:
        return [decision for decision in self.decisions if decision.found is not None]


@dataclass(slots=True)
class GroupDecision:
    """The result of one attempt to schedule a group.

    `status` is that of the placement; `message` also has what PodGroupPostFilter added. Members that were not
    tried have no decision.
    """

    group: Group
    status: Status
    final: Status
    """The status after PodGroupPostFilter, which may have failed."""
    decisions: Sequence[Decision | None]
    """By member, in order."""
    waits_for_preemption: bool = False
    nominations: dict[str, Nomination] = field(default_factory=dict)
    eviction: Eviction | None = None
    preempting_plugin: str = ""
    preemption_code: Code | None = None
    """The result of preemption; None if it was not tried."""
    preemption_seconds: float = 0.0

    @property
    def message(self) -> str:
        return self.final.message


class GroupCycle:
    """One attempt to schedule some members of a group, all of one profile.

    Args:
        framework: of their profile.
        members: what is known of the group.
        pods: the members to schedule, in order.
        stopwatch: measures placements and preemption.
    """

    def __init__(
        self,
        framework: Framework,
        group: Group,
        members: GroupState,
        pods: Sequence[Pod],
        stopwatch: Callable[[], float] = float,
    ) -> None:
        self._framework = framework
        self._cluster = framework.cluster
        self._group = group
        self._members = members
        self._pods = pods
        self._pre_filtered: frozenset[str] = frozenset()
        self._is_local = True
        self._stopwatch = stopwatch
        self.shared = GroupCycleState()
        self.generated_placements = 0
        self.evaluations: list[tuple[bool, float]] = []
        """Of each placement that was evaluated: whether it is feasible, and how long that took."""

    def decide(self) -> Steps[GroupDecision]:
        run = yield from self._find()
        status, tried = run.status, len(run.decisions)
        decisions: list[Decision | None] = [*run.decisions, *[None] * (len(self._pods) - tried)]
        decision = GroupDecision(self._group, status, status, decisions)
        if status.code is Code.UNSCHEDULABLE and self._framework.profile.pod_group_post_filters:
            yield from self._post_filter(decision)
        return decision

    # Placing members

    def _find(self) -> Steps[_Run]:
        """The best placement, or why there is none."""
        points, profile = self._framework.points, self._framework.profile
        scheduled = list(self._members.scheduled.values())
        placements = points.generate_placements(profile, self._group, scheduled)
        if isinstance(placements, Status):
            return _Run(placements)
        self.generated_placements += len(placements)
        run = yield from self._find_by_room(placements, scheduled)
        if run is not None:
            return run
        runs: list[_Run] = []
        for placement in placements:
            started = self._stopwatch()
            run = yield from self._place(placement)
            if run.status.code is Code.ERROR or not profile.placement_generators:
                return self._checked(run)
            self.evaluations.append((run.status.is_success, self._stopwatch() - started))
            runs.append(run)
        fitting = [index for index, run in enumerate(runs) if run.status.is_success]
        if not fitting:
            return _none_fits(runs[0], len(runs))
        placed = [[decision.pod for decision in run.placed] for run in runs]
        return self._checked(runs[self._best(placements, scheduled, fitting, placed)])

    def _best(
        self,
        placements: Sequence[NodePlacement],
        scheduled: Sequence[Pod],
        fitting: Sequence[int],
        placed: Sequence[Sequence[Pod]],
    ) -> int:
        """The index of the best placement among those that fit; `placed` are its members, for each."""
        if len(fitting) == 1:
            return fitting[0]
        points, profile = self._framework.points, self._framework.profile
        sets, members = [placements[index] for index in fitting], [placed[index] for index in fitting]
        totals = points.score_placements(profile, self._group, scheduled, sets, members)
        return fitting[totals.index(max(totals))]

    def _find_by_room(
        self, placements: Sequence[NodePlacement], scheduled: Sequence[Pod]
    ) -> Steps[_Run | None]:
        """The same for identical members: how many fit decides, and only one placement is searched.

        None if every placement has to be searched.
        """
        started = self._stopwatch()
        sets = [placement.rows for placement in placements if placement.rows is not None]
        fit = room(self._framework, self._pods, sets) if len(sets) == len(placements) > 1 else None
        if fit is None:
            return None
        before = self._members.scheduled_count
        fitting = [i for i, count in enumerate(fit) if self._feasible(before + count, 0).is_success]
        chosen = 0
        if fitting:
            placed = [self._pods[:count] for count in fit]
            chosen = self._best(placements, scheduled, fitting, placed)
        run = yield from self._place(placements[chosen])
        if run.status.code is Code.ERROR or len(run.placed) != fit[chosen]:
            return None
        seconds, fits = (self._stopwatch() - started) / len(placements), set(fitting)
        self.evaluations += [(index in fits, seconds) for index in range(len(placements))]
        return self._checked(run) if fitting else _none_fits(run, len(placements))

    def _checked(self, run: _Run) -> _Run:
        """A group is scheduled only if a member was placed now; those of earlier attempts do not count."""
        if run.status.is_success and not run.placed:
            run.status = Status(Code.UNSCHEDULABLE, (UNSCHEDULABLE,))
        return run

    def _place(self, nodes: NodePlacement) -> Steps[_Run]:
        """Places the members on these nodes, as far as they fit, and reverts it."""
        with self._simulation() as reserved:
            return (yield from self._place_members(nodes, reserved))

    @contextmanager
    def _simulation(self) -> Iterator[list[Placement]]:
        """Reverts what happens inside. The members that were added to the list get Unreserve before."""
        undo, reserved = self._cluster.undo, list[Placement]()
        undo.mark()
        try:
            yield reserved
        finally:
            for placed in reversed(reserved):
                self._framework.points.unreserve(placed)
            undo.revert()

    def _place_members(self, nodes: NodePlacement, reserved: list[Placement]) -> Steps[_Run]:
        """schedule_one_podgroup.go: podGroupPodSchedulingAlgorithm"""
        scheduled, remaining = self._members.scheduled_count, len(self._pods)
        feasible = self._feasible(scheduled, remaining)
        if feasible.code is Code.UNSCHEDULABLE:
            return _Run(Status(Code.UNSCHEDULABLE, (UNSCHEDULABLE, *feasible.reasons)))
        run = _Run(feasible)
        for pod in self._pods:
            if feasible.code is Code.ERROR:
                text = f"failed to evaluate placement feasibility: {feasible.message}"
                run.status = Status(Code.ERROR, (text,))
                return run
            decision = yield from scheduling_cycle(
                self._framework, pod, nodes.rows, self.shared, runs_post_filter=False
            )
            self._observe(decision)
            if decision.found is not None:
                decision = self._assume(decision, decision.found, reserved)
            run.decisions.append(decision)
            if decision.status.code is Code.ERROR:
                text = f"failed to schedule other pod from a pod group: {decision.message}"
                run.status = Status(Code.ERROR, (text,))
                return run
            remaining -= 1
            scheduled += decision.found is not None
            feasible = run.status = self._feasible(scheduled, remaining)
            if feasible.code is Code.UNSCHEDULABLE:
                return run
        if feasible.code is Code.WAIT:
            run.status = Status(Code.UNSCHEDULABLE, feasible.reasons)
        return run

    def _observe(self, decision: Decision) -> None:
        search = decision.search if decision.found is None else decision.found.search
        if search is not None:
            self._pre_filtered |= search.pre_filtered
            self._is_local = self._is_local and not self._framework.filtering.uncached_steps(search)

    def _feasible(self, scheduled: int, remaining: int) -> Status:
        points, profile = self._framework.points, self._framework.profile
        return points.placement_feasible(profile, self._group, scheduled, remaining)

    def _assume(self, decision: Decision, found: Found, reserved: list[Placement]) -> Decision:
        """Counts the member on its node and reserves what it needs."""
        framework, search, pod = self._framework, found.search, decision.pod
        skipped = framework.profile.covered_by_skip & (search.skipped_filters | search.results.skipped)
        placed = Placement(framework.profile, search.state, pod, found.node_name, skipped)
        self._cluster.remove_nomination(pod.uid)
        self._cluster.add_pod(pod, found.node_name, search.pod_info)
        try:
            framework.points.reserve(placed)
        except (RejectedError, AttemptError) as failed:
            framework.points.unreserve(placed)
            self._cluster.remove_pod(pod.uid)
            if isinstance(failed, AttemptError):
                return error_decision(pod, str(failed), failed.plugin, failed.traceback)
            status = Status(Code.UNSCHEDULABLE, failed.status.reasons, failed.status.plugin)
            return Decision(
                pod, status, fit_error(1, [(failed.status, 1)]), search=search, nomination=Nomination("")
            )
        reserved.append(placed)
        return decision

    # PodGroupPostFilter

    def _post_filter(self, decision: GroupDecision) -> Steps[None]:
        outcome = GroupOutcome(
            cluster=self._cluster,
            group=self._group,
            pods=self._pods,
            pre_filtered=self._pre_filtered,
            place_again=self._place_again,
            is_local=self._is_local,
            members=[_outcome(member) for member in decision.decisions if member is not None],
        )
        points, profile = self._framework.points, self._framework.profile
        started = self._stopwatch()
        answer = yield from points.pod_group_post_filter(profile, outcome)
        decision.preemption_code = outcome.preemption_code
        decision.preemption_seconds = self._stopwatch() - started
        self._add_answer(decision, answer)

    def _add_answer(self, decision: GroupDecision, answer: GroupPostFilterResult) -> None:
        status = answer.status
        if status.code is Code.ERROR:
            decision.final = status
            return
        message = (status.message,) if status.message else ()
        decision.final = Status(decision.status.code, (*decision.status.reasons, *message))
        if status.is_success:
            decision.waits_for_preemption = True
            decision.nominations = dict(answer.nominations)
            decision.eviction = answer.eviction
            decision.preempting_plugin = status.plugin

    def _place_again(self) -> Steps[GroupPlacement]:
        run = yield from self._find()
        return GroupPlacement(run.status, [self._placed(decision) for decision in run.placed])

    def _placed(self, decision: Decision) -> Placed:
        found, reserved = decision.found, list[Placement]()
        assert found is not None
        pod, framework = decision.pod, self._framework

        def put() -> None:
            self._assume(decision, found, reserved)

        def take() -> None:
            if reserved:
                framework.points.unreserve(reserved.pop())
                self._cluster.remove_pod(pod.uid)

        return Placed(pod, found.row, partial(framework.fits_on, pod, found.row, self.shared), put, take)


def _outcome(member: Decision) -> MemberOutcome:
    search = member.search if member.found is None else member.found.search
    return MemberOutcome(member.pod, None if search is None else search.state, member.diagnosis)


def _none_fits(first: _Run, count: int) -> _Run:
    """The group fits on none of so many placements. The members have the results of the first."""
    status = first.status
    text = UNSCHEDULABLE if status.reasons[:1] == (UNSCHEDULABLE,) else status.message
    reason = f"0/{count} placements are available, first placement status: {text}"
    return _Run(Status(Code.UNSCHEDULABLE, (UNSCHEDULABLE, reason)), first.decisions)


def invalid(group: Group, members: GroupState, pods: Sequence[Pod], *, has_own_policy: bool = False) -> str:
    """Why these members cannot be scheduled together; empty if they can.

    `has_own_policy`: the group has a preemption policy, which its pods must share.
    """
    first = pods[0]
    for pod in (*pods, *members.scheduled.values()):
        if pod.spec.scheduler_name != first.spec.scheduler_name:
            return (
                "all pods in a single pod group should have the same .spec.schedulerName set, "
                f'got: "{pod.spec.scheduler_name}" and "{first.spec.scheduler_name}"'
            )
        if pod.priority != group.priority:
            return (
                "all pods in a single pod group should have the same priority as the pod group's priority, "
                f"got {pod.priority} and {group.priority}"
            )
        policy = _policy(pod)
        if has_own_policy and policy != group.preemption_policy:
            return (
                "all pods in a single pod group should have the same preemption policy as the pod group's "
                f"preemption policy, got {policy} and {group.preemption_policy}"
            )
        if not has_own_policy and policy != _policy(first):
            return (
                "all pods in a single pod group should have the same preemption policy, "
                f"got {policy} and {_policy(first)}"
            )
    return ""


def _policy(pod: Pod) -> str:
    return pod.spec.preemption_policy or PREEMPT_LOWER_PRIORITY
