"""Asking the filters: about the cluster as it is, and about what if.

Kept plugins have answered for all rows already (`Standing`); here the others are asked, and all of them about
hypotheses. Pods nominated to a node count as if they were there, if they go first: the pod must fit with them
and without them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from bayplan.api.pod import Pod
from bayplan.framework import calls
from bayplan.framework.points import Point
from bayplan.framework.profile import Profile, Step
from bayplan.framework.search import Search
from bayplan.framework.state import CycleState
from bayplan.framework.status import Status
from bayplan.framework.timing import ADJUST, Caller, timed
from bayplan.framework.verdicts import PASS, Collected, Reasons, Verdicts
from bayplan.snapshot.cluster import Cluster
from bayplan.snapshot.interning import IdColumn
from bayplan.snapshot.node_info import NodeInfo
from bayplan.snapshot.view import NodeColumns
from bayplan.snapshot.what_if import Hypothesis

MOST_REASONS: Final = 1000
"""Combinations of reasons that are remembered of one plugin for pods of one shape."""

Adjust = Callable[[CycleState, Pod, Pod, NodeInfo], Status | None]
"""A plugin's AddPod or RemovePod."""


class Filtering:
    """The Filter plugins of one profile at work on one cluster."""

    def __init__(self, profile: Profile, cluster: Cluster, caller: Caller) -> None:
        self._profile = profile
        self._caller = caller
        self._cluster = cluster
        self._nodes = NodeColumns(cluster)
        self._asked = tuple(step for step in profile.filters if not step.kept)

    def asked(self, search: Search) -> list[Step]:
        """The plugins that are asked in every cycle and have something to say about this pod."""
        return [step for step in self._asked if step.name not in search.skipped]

    def verdicts(self, search: Search) -> Verdicts:
        """What the filters say about every row, pods nominated there included."""
        standing, asked = search.standing, self.asked(search)
        for step in asked:
            if len(standing.reasons[step.index]) > MOST_REASONS:
                # A plugin that never says the same twice would be remembered for ever.
                standing.reasons[step.index] = Reasons(step.name)
        verdicts = Verdicts(standing.who, standing.why, standing.reasons)
        self._ask(search, asked, self._nodes, verdicts)
        if self._cluster.nominated:
            hypothesis = self.with_nominated(search.pod, None)
            if hypothesis is not None:
                verdicts.overrule(hypothesis.rows, self.judge_plainly(search, hypothesis))
        return verdicts

    def fits_row(self, search: Search, row: int) -> bool:
        """Whether one row passes, pods nominated there included. The Standing must be up to date."""
        if search.standing.who[row] != PASS:
            return False
        rows = np.array([row], dtype=np.intp)
        asked = self.asked(search)
        if asked:
            view = NodeColumns(self._cluster, rows)
            verdicts = self._no_verdicts(search, view)
            self._ask(search, asked, view, verdicts)
            if verdicts.who[0] != PASS:
                return False
        if row not in self._cluster.nominated:
            return True
        as_it_is = Hypothesis(
            self._cluster, rows, rows[:0], np.zeros(2, dtype=np.intp), np.zeros(0, dtype=np.int64)
        )
        joined = self.with_nominated(search.pod, as_it_is)
        return joined is None or bool(self.judge_plainly(search, joined).passing[0])

    def judge(self, search: Search, hypothesis: Hypothesis) -> Verdicts:
        """What the filters would say if other pods were on these rows, pods nominated there included."""
        plain = self.judge_plainly(search, hypothesis)
        if self._cluster.nominated:
            joined = self.with_nominated(search.pod, hypothesis)
            if joined is not None:
                at = _positions(hypothesis.rows, joined.rows)
                plain.overrule(at, self.judge_plainly(search, joined))
        return plain

    def judge_plainly(self, search: Search, view: NodeColumns) -> Verdicts:
        """What the filters say about these rows as they are given."""
        steps = [
            step
            for step in self._profile.filters
            if not (search.standing.skips(step.name) if step.kept else step.name in search.skipped)
        ]
        verdicts = self._no_verdicts(search, view)
        self._ask(search, steps, view, verdicts)
        return verdicts

    def alone(self, search: Search, step: Step) -> Verdicts:
        """What one plugin says about every row, whatever the others say."""
        verdicts = self._no_verdicts(search, self._nodes)
        self._ask(search, [step], self._nodes, verdicts)
        hypothesis = self.with_nominated(search.pod, None)
        if hypothesis is not None:
            there = self._no_verdicts(search, hypothesis)
            self._ask(search, [step], hypothesis, there)
            verdicts.overrule(hypothesis.rows, there)
        return verdicts

    @staticmethod
    def _no_verdicts(search: Search, view: NodeColumns) -> Verdicts:
        who = np.full(len(view), PASS, dtype=np.int8)
        return Verdicts(who, np.zeros(len(view), dtype=np.int64), search.standing.reasons)

    def _ask(self, search: Search, steps: Sequence[Step], view: NodeColumns, verdicts: Verdicts) -> None:
        """Adds the verdicts of these plugins."""
        for step in steps:
            left: IdColumn | None = None
            if step.one_node_at_a_time:
                left = (verdicts.who > step.index).nonzero()[0]
                if view is self._nodes:
                    left = left[self._cluster.nodes.exists.read.take(left)]
            found = self._collect(search, step, view, left)
            if found is not None:
                verdicts.add(step.index, found if left is None else found.among(left, len(view)))

    def _collect(
        self, search: Search, step: Step, view: NodeColumns, left: IdColumn | None
    ) -> Collected | None:
        reasons = search.standing.reasons[step.index]
        state = self._state(search, step)
        if isinstance(view, Hypothesis):
            view = view if left is None else view.subset(left)
            if hasattr(step.plugin, "add_pod"):
                return self._ask_each_row(search, step, view)
        elif left is not None:
            view = NodeColumns(self._cluster, view.rows.take(left))
        return self._caller.calls.filter_rows(step, state, search.pod, view, reasons)

    @staticmethod
    def _state(search: Search, step: Step) -> CycleState:
        return search.standing.state_of(step) if step.kept else search.state

    def _ask_each_row(self, search: Search, step: Step, view: Hypothesis) -> Collected | None:
        """For plugins with AddPod and RemovePod: each row has a state of its own."""
        reasons = search.standing.reasons[step.index]
        why = np.zeros(len(view), dtype=np.int64)
        for position in range(len(view)):
            state = self._state(search, step).clone()
            gone, added = view.changed_pods(position)
            node = view.node_info(position)
            for verb, method, pods in (
                ("RemovePod", step.plugin.remove_pod, gone),
                ("AddPod", step.plugin.add_pod, added),
            ):
                for other in pods:
                    self._adjust(verb, method, step, state, search.pod, other, node)
            row = view.subset(np.array([position], dtype=np.intp))
            why[position] = self._caller.calls.filter_one(step, state, search.pod, row, reasons)
        return Collected.from_numbers(why, reasons) if why.any() else None

    def _adjust(
        self, verb: str, method: Adjust, step: Step, state: CycleState, pod: Pod, other: Pod, node: NodeInfo
    ) -> None:
        try:
            answer = timed(self._caller.timer, step.name, ADJUST + verb, method)(state, pod, other, node)
            problem = "" if answer is None or answer.is_success else answer.message
        except Exception as error:
            raise _adjust_error(verb, step, calls.describe(error)) from error
        if problem:
            raise _adjust_error(verb, step, problem)

    def with_nominated(self, pod: Pod, base: Hypothesis | None) -> Hypothesis | None:
        """Rows with nominated pods that go first, with those pods added. None where there are none.

        `base` says what else is supposed of the rows, and then which rows are meant.
        """
        cluster, pods = self._cluster, self._cluster.pods
        slots = pods.nominated.read.nonzero()[0]
        slots = slots[pods.priority.array.take(slots) >= pod.priority]
        slots = slots[slots != cluster.nominated_slot(pod.uid)]
        rows = pods.row.array.take(slots)
        known = cluster.nodes.exists.array.take(rows)
        if base is not None:
            among = np.zeros(cluster.nodes.high, dtype=np.bool_)
            among[base.rows] = True
            known = known & among.take(rows)
        if not known.any():
            return None
        return _with_added(cluster, rows[known], slots[known], base)


def _adjust_error(verb: str, step: Step, text: str) -> calls.AttemptError:
    text = f'running {verb} on PreFilter plugin "{step.name}": {text}'
    return calls.AttemptError(text, step.name, Point.FILTER)


def _positions(rows: IdColumn, wanted: IdColumn) -> IdColumn:
    """Where in `rows` each of `wanted` stands."""
    order = rows.argsort(kind="stable")
    return order.take(np.searchsorted(rows.take(order), wanted))


def _with_added(cluster: Cluster, rows: IdColumn, added: IdColumn, base: Hypothesis | None) -> Hypothesis:
    """`base`, or the cluster as it is, on these rows, with a pod added for each; a row may come twice."""
    here = np.unique(rows)
    place = np.searchsorted(here, rows)
    slots, signs = added, np.ones(len(added), dtype=np.int64)
    if base is not None:
        before = base.subset(_positions(base.rows, here))
        place = np.concatenate((np.repeat(np.arange(len(here)), np.diff(before.starts)), place))
        slots, signs = np.concatenate((before.slots, slots)), np.concatenate((before.signs, signs))
    order = place.argsort(kind="stable")
    starts = np.zeros(len(here) + 1, dtype=np.intp)
    np.cumsum(np.bincount(place, minlength=len(here)), out=starts[1:])
    return Hypothesis(cluster, here, slots.take(order), starts, signs.take(order))
