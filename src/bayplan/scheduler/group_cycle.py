"""The scheduling cycle of a group: one search for each member, on columns that show the members before it.

Cluster and group in, `GroupDecision` out. Members are placed one after the other with the search of single
pods; each counts in the columns, and what it needs is reserved, before the next one is searched for. The
undo log of the cluster reverts all of it at the end, so nothing of the simulation is left: `group_scheduling`
executes the decision.

    start ─► placements ─► for each: members in turn, until they cannot be enough ─► the best
                                                   │ none fits
                                                   ▼
                                           PodGroupPostFilter (preemption)

The groups of a composite group take the place of members: each is placed in turn within the placement of its
parent, and counts there before the next one is placed, until there cannot be enough groups. If a composite
group cannot be scheduled, none of the groups below it is.

Every function that may call extenders is a generator, as `cycle.scheduling_cycle` is.

schedule_one_podgroup.go: podGroupSchedulingAlgorithm
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from bayplan.api.pod import Pod
from bayplan.api.quantity import amount_text
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
from bayplan.state.group_trees import GroupTree
from bayplan.state.groups import NEVER, Group

UNSCHEDULABLE: Final = "pod group is unschedulable"
RESOURCE_GAP: Final = "resource gap: "
"""Coscheduling's words for less than minResources."""


@dataclass(slots=True)
class _Run:
    """The members of a group, or the groups of a composite one, as one placement would have them.

    Members that were not tried have no decision, and groups that were not tried no run.
    """

    tree: GroupTree
    status: Status
    decisions: list[Decision] = field(default_factory=list)
    children: list[_Run] = field(default_factory=list)

    @property
    def placed(self) -> list[Decision]:
        """The members that found a node; of a composite group those of the groups that fit."""
        found = [decision for decision in self.decisions if decision.found is not None]
        return found + [one for run in self.children if run.status.is_success for one in run.placed]


@dataclass(slots=True)
class GroupPart:
    """The result for one group of a tree. `status` is that of its placement; `final` also has what
    PodGroupPostFilter added. A composite group has no members of its own."""

    group: Group
    pods: Sequence[Pod]
    status: Status
    final: Status
    decisions: Sequence[Decision | None]
    """By member, in order; None for those that were not tried."""
    fits: bool
    """Whether it was placed, perhaps in vain because the group above it could not be."""


@dataclass(frozen=True, slots=True)
class PlacementResult:
    """What one of several placements would do for a group."""

    placement: NodePlacement
    status: Status
    decisions: Sequence[Decision]
    """Of the members that were tried."""
    placed: int
    """The number of members that found a node."""
    total: int | None
    """The score, if several placements fit."""


@dataclass(slots=True)
class GroupDecision:
    """The result of one attempt to schedule a group."""

    group: Group
    status: Status
    """That of the placement."""
    final: Status
    """The status after PodGroupPostFilter, which adds its message or has failed."""
    parts: Sequence[GroupPart]
    """The group itself, and those below it."""
    placements: Sequence[PlacementResult] = ()
    """The result of each, if the cycle keeps them."""
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

    @property
    def decisions(self) -> list[Decision | None]:
        """Of all members, in the order of the tree; None for those that were not tried."""
        return [decision for part in self.parts for decision in part.decisions]


class GroupCycle:
    """One attempt to schedule some members of a group, all of one profile.

    Args:
        framework: of their profile.
        tree: the group with the members to schedule.
        stopwatch: measures placements and preemption.
        keeps_placements: whether each placement is searched, and the decision has the result of each.
    """

    def __init__(
        self,
        framework: Framework,
        tree: GroupTree,
        stopwatch: Callable[[], float] = float,
        *,
        keeps_placements: bool = False,
    ) -> None:
        self._framework = framework
        self._cluster = framework.cluster
        self._tree = tree
        self._pre_filtered: frozenset[str] = frozenset()
        self._is_local = True
        self._stopwatch = stopwatch
        self._keeps_placements = keeps_placements
        self._kept: Sequence[PlacementResult] = ()
        self.shared = GroupCycleState()
        self.generated_placements = 0
        self.evaluations: list[tuple[bool, float]] = []
        """Of each placement that was evaluated: whether it is feasible, and how long that took."""

    def decide(self) -> Steps[GroupDecision]:
        """The attempt. Nominations of its members reserve no nodes meanwhile, also not against each other.

        scheduling_queue.go: nominatedPodToInfo finds nothing of pods that are being scheduled
        """
        undo = self._cluster.undo
        undo.mark()
        for pod in self._tree.pods if self._cluster.nominated else ():
            self._cluster.remove_nomination(pod.uid)
        try:
            return (yield from self._decide())
        finally:
            undo.revert()

    def _decide(self) -> Steps[GroupDecision]:
        run = yield from self._find_root()
        parts = list(_parts(self._tree, run))
        decision = GroupDecision(self._tree.group, run.status, run.status, parts, self._kept)
        if run.status.code is Code.UNSCHEDULABLE and self._framework.profile.pod_group_post_filters:
            yield from self._post_filter(decision)
        return decision

    # Placing members

    def _find_root(self) -> Steps[_Run]:
        """The best placement of all members, or why there is none."""
        gap = self._resource_gap() if self._tree.group.min_resources else ""
        if gap:
            return _Run(self._tree, Status(Code.UNRESOLVABLE, (gap,)))
        run = yield from self._find(self._tree, NodePlacement())
        if run.status.is_success and not run.placed:
            # A group is scheduled only if a member is placed now; those of earlier attempts do not count.
            run.status = Status(Code.UNSCHEDULABLE, (UNSCHEDULABLE,))
        return run

    def _resource_gap(self) -> str:
        """What the cluster lacks of the group's minResources, on all nodes together; empty if nothing.

        Its own members count as free, and so do pods that it may preempt: otherwise it would never do so in
        a full cluster.
        """
        cluster, tree = self._cluster, self._tree
        if cluster.groups is None or not cluster.groups.checks_min_resources:
            return ""
        pods, rows, gaps = cluster.pods, cluster.order, []
        preempts = all(pod.spec.preemption_policy != NEVER for pod in tree.pods)
        is_free = pods.assigned.array & (pods.priority.array < tree.group.priority) & preempts
        is_free[[cluster.slot_of(pod.uid) for pod in tree.scheduled()]] = True
        for kind, wanted in tree.group.min_resources.items():
            columns = cluster.nodes.resource(kind)
            free = int((columns.allocatable.array.take(rows) - columns.requested.array.take(rows)).sum())
            lacking = wanted - free - int(pods.requests(kind).array[is_free].sum())
            if lacking > 0:
                gaps.append(f"{kind} {amount_text(kind, lacking)}")
        return f"{RESOURCE_GAP}{', '.join(gaps)}" if gaps else ""

    def _find(self, tree: GroupTree, within: NodePlacement) -> Steps[_Run]:
        """The best placement of a group on these nodes, or why there is none. All is reverted."""
        points, profile = self._framework.points, self._framework.profile
        scheduled = tree.scheduled()
        placements = points.generate_placements(profile, tree.group, scheduled, within)
        if isinstance(placements, Status):
            return _Run(tree, placements)
        is_measured = not tree.group.key.is_composite
        self.generated_placements += len(placements) if is_measured else 0
        run = yield from self._find_by_room(tree, placements, scheduled)
        if run is not None:
            return run
        runs: list[_Run] = []
        for placement in placements:
            started = self._stopwatch()
            run = yield from self._place(tree, placement)
            if run.status.code is Code.ERROR or not profile.placement_generators:
                return run
            if is_measured:
                self.evaluations.append((run.status.is_success, self._stopwatch() - started))
            runs.append(run)
        fitting = [index for index, run in enumerate(runs) if run.status.is_success]
        placed = [[decision.pod for decision in run.placed] for run in runs]
        totals = self._totals(tree, placements, scheduled, fitting, placed)
        if self._keeps_placements and tree is self._tree and tree.group.topology_key:
            self._kept = [
                PlacementResult(each, run.status, run.decisions, len(pods), totals.get(index))
                for index, (each, run, pods) in enumerate(zip(placements, runs, placed, strict=True))
            ]
        if not fitting:
            return _none_fits(runs[0], len(runs))
        return runs[max(fitting, key=lambda index: totals.get(index, 0))]

    def _totals(
        self,
        tree: GroupTree,
        placements: Sequence[NodePlacement],
        scheduled: Sequence[Pod],
        fitting: Sequence[int],
        placed: Sequence[Sequence[Pod]],
    ) -> dict[int, int]:
        """The total scores of those that fit, by index, if there are several; `placed` are their members."""
        if len(fitting) < 2:
            return {}
        points, profile = self._framework.points, self._framework.profile
        sets, members = [placements[index] for index in fitting], [placed[index] for index in fitting]
        totals = points.score_placements(profile, tree.group, scheduled, sets, members)
        return dict(zip(fitting, totals, strict=True))

    def _find_by_room(
        self, tree: GroupTree, placements: Sequence[NodePlacement], scheduled: Sequence[Pod]
    ) -> Steps[_Run | None]:
        """The same for identical members: how many fit decides, and only one placement is searched.

        None if every placement has to be searched.
        """
        if tree.children or not tree.pods or self._keeps_placements:
            return None
        started = self._stopwatch()
        sets = [placement.rows for placement in placements if placement.rows is not None]
        fit = room(self._framework, tree.pods, sets) if len(sets) == len(placements) > 1 else None
        if fit is None:
            return None
        before = tree.scheduled_count
        fitting = [i for i, count in enumerate(fit) if self._feasible(tree, before + count, 0).is_success]
        chosen = 0
        if fitting:
            placed = [tree.pods[:count] for count in fit]
            totals = self._totals(tree, placements, scheduled, fitting, placed)
            chosen = max(fitting, key=lambda index: totals.get(index, 0))
        run = yield from self._place(tree, placements[chosen])
        if run.status.code is Code.ERROR or len(run.placed) != fit[chosen]:
            return None
        seconds, fits = (self._stopwatch() - started) / len(placements), set(fitting)
        self.evaluations += [(index in fits, seconds) for index in range(len(placements))]
        return run if fitting else _none_fits(run, len(placements))

    def _place(self, tree: GroupTree, nodes: NodePlacement) -> Steps[_Run]:
        """Places the members on these nodes, as far as they fit, and reverts it."""
        place = self._place_groups if tree.group.key.is_composite else self._place_members
        with self._simulation() as reserved:
            return (yield from place(tree, nodes, reserved))

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

    def _place_groups(self, tree: GroupTree, nodes: NodePlacement, reserved: list[Placement]) -> Steps[_Run]:
        """schedule_one_podgroup.go: compositePodGroupSchedulingDefaultAlgorithm"""
        scheduled, remaining = 0, len(tree.children)
        run = _Run(tree, self._feasible(tree, scheduled, remaining))
        for child in tree.children:
            if run.status.code in (Code.UNSCHEDULABLE, Code.ERROR):
                return run
            found = yield from self._find(child, nodes)
            error = found.status.message if found.status.code is Code.ERROR else ""
            if error:
                text = f"composite pod group evaluation failed due to child error: {error}"
                return _Run(tree, Status(Code.ERROR, (text,)))
            run.children.append(found)
            remaining -= 1
            if found.status.is_success:
                scheduled += 1
                for decision in found.placed:
                    assert decision.found is not None
                    assumed = self._assume(decision, decision.found, reserved)
                    if assumed is not decision:
                        text = f"failed to assume the subtree: {assumed.message}"
                        return _Run(tree, Status(Code.ERROR, (text,)))
            run.status = self._feasible(tree, scheduled, remaining)
        return run

    def _place_members(self, tree: GroupTree, nodes: NodePlacement, reserved: list[Placement]) -> Steps[_Run]:
        """schedule_one_podgroup.go: podGroupPodSchedulingAlgorithm"""
        scheduled, remaining = tree.scheduled_count, len(tree.pods)
        feasible = self._feasible(tree, scheduled, remaining)
        if feasible.code is Code.UNSCHEDULABLE:
            return _Run(tree, Status(Code.UNSCHEDULABLE, (UNSCHEDULABLE, *feasible.reasons)))
        run = _Run(tree, feasible)
        for pod in tree.pods:
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
            feasible = run.status = self._feasible(tree, scheduled, remaining)
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

    def _feasible(self, tree: GroupTree, scheduled: int, remaining: int) -> Status:
        points, profile = self._framework.points, self._framework.profile
        return points.placement_feasible(profile, tree.group, scheduled, remaining)

    def _assume(self, decision: Decision, found: Found, reserved: list[Placement]) -> Decision:
        """Counts the member on its node and reserves what it needs."""
        framework, search, pod = self._framework, found.search, decision.pod
        skipped = framework.profile.covered_by_skip & (search.skipped_filters | search.results.skipped)
        placed = Placement(framework.profile, search.state, pod, found.node_name, skipped)
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
            group=self._tree.group,
            pods=self._tree.pods,
            pre_filtered=self._pre_filtered,
            place_again=self._place_again,
            fails_without=self._fails_without,
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
            for part in decision.parts:
                part.final = status
            return
        message = (status.message,) if status.message else ()
        decision.final = Status(decision.status.code, (*decision.status.reasons, *message))
        # kube-scheduler adds the message once for every group that shares a status with its parent.
        shared = Counter(id(part.status) for part in decision.parts)
        for part in decision.parts:
            added = message * shared[id(part.status)]
            part.final = Status(part.status.code, (*part.status.reasons, *added))
        if status.is_success:
            decision.waits_for_preemption = True
            decision.nominations = dict(answer.nominations)
            decision.eviction = answer.eviction
            decision.preempting_plugin = status.plugin

    def _place_again(self) -> Steps[GroupPlacement]:
        run = yield from self._find_root()
        return GroupPlacement(run.status, [self._placed(decision) for decision in run.placed])

    def _fails_without(self, slots: Sequence[int]) -> Status | None:
        """The status of placing the members if the pods in these slots were gone.

        None if they would fit, or if that cannot be counted.
        """
        tree, profile = self._tree, self._framework.profile
        if tree.children or not tree.pods or tree.group.min_resources:
            return None
        placements = self._framework.points.generate_placements(
            profile, tree.group, tree.scheduled(), NodePlacement()
        )
        if isinstance(placements, Status):
            return None
        started, order = self._stopwatch(), self._cluster.order
        sets = [order if placement.rows is None else placement.rows for placement in placements]
        fit = room(self._framework, tree.pods, sets, without=slots)
        if fit is None:
            return None
        statuses = [self._status_with(tree, count) for count in fit]
        if any(count and status.is_success for count, status in zip(fit, statuses, strict=True)):
            return None
        self.generated_placements += len(placements)
        if profile.placement_generators:
            seconds = (self._stopwatch() - started) / len(placements)
            self.evaluations += [(status.is_success, seconds) for status in statuses]
        if any(status.is_success for status in statuses):
            return Status(Code.UNSCHEDULABLE, (UNSCHEDULABLE,))
        if not profile.placement_generators:
            return statuses[0]
        return _none_fits(_Run(tree, statuses[0]), len(placements)).status

    def _status_with(self, tree: GroupTree, count: int) -> Status:
        """The status of placing identical members if so many of them find a node."""
        scheduled, remaining = tree.scheduled_count, len(tree.pods)
        feasible = self._feasible(tree, scheduled, remaining)
        if feasible.code is Code.UNSCHEDULABLE:
            return Status(Code.UNSCHEDULABLE, (UNSCHEDULABLE, *feasible.reasons))
        for tried in range(1, len(tree.pods) + 1):
            feasible = self._feasible(tree, scheduled + min(tried, count), remaining - tried)
            if feasible.code is Code.UNSCHEDULABLE:
                return feasible
        return feasible

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
    return replace(first, status=Status(Code.UNSCHEDULABLE, (UNSCHEDULABLE, reason)))


def _parts(tree: GroupTree, run: _Run | None, failed: Status | None = None) -> Iterator[GroupPart]:
    """The results of the groups in a tree. `failed` is the status of the parent if that does not fit: the
    groups below it that do, or were not tried, have it, too.

    schedule_one_podgroup.go: completeCompositePodGroupAlgorithmResultMap
    """
    fits = run is not None and run.status.is_success
    if run is None or (failed is not None and fits):
        assert failed is not None, "groups are tried in turn until their parent fails"
        run = _Run(tree, failed)
    pods = () if tree.group.key.is_composite else tree.pods
    untried = [None] * (len(pods) - len(run.decisions))
    yield GroupPart(tree.group, pods, run.status, run.status, [*run.decisions, *untried], fits)
    runs = {id(one.tree): one for one in run.children}
    for child in tree.children:
        below = None if run.status.is_success else run.status
        yield from _parts(child, runs.get(id(child)), below)
