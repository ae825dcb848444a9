"""Asking the filters: about the cluster as it is, and about what if.

Kept plugins have answered for all rows already (`Standing`); here the others are asked, and all of them about
hypotheses. Pods nominated to a node count as if they were there, if they go first: the pod must fit with them
and without them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bayplan.api.pod import Pod
from bayplan.framework.node_statuses import PASS, Collected, Reasons, Verdicts
from bayplan.framework.points import Point
from bayplan.framework.state import CycleState
from bayplan.framework.status import Status
from bayplan.runtime import calls
from bayplan.runtime.nominated_pods import KeptPromises, joined, with_promised
from bayplan.runtime.profile import Profile, Step
from bayplan.runtime.search import Search
from bayplan.runtime.timing import ADJUST, Caller, timed
from bayplan.snapshot.cluster import Cluster
from bayplan.snapshot.interning import IdColumn
from bayplan.snapshot.node_info import NodeInfo
from bayplan.snapshot.view import NodeColumns
from bayplan.snapshot.what_if import FEW_ROWS, Hypothesis

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
        self._reading_pods = tuple(step for step in profile.filters if step.usage or not step.kept)
        """Those that may say something else if other pods were there."""

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
            self._mind_promises(search, verdicts, row_local=not asked)
        return verdicts

    def _mind_promises(self, search: Search, verdicts: Verdicts, *, row_local: bool) -> None:
        """Pods that are expected on a node and go first count as if they were there."""

        def judge(supposed: Hypothesis) -> Verdicts:
            return self.judge_plainly(search, supposed)

        if row_local:
            key = (KeptPromises, search.pod.priority)
            kept: KeptPromises | None = search.standing.shared.get(key)
            if kept is None:
                kept = search.standing.shared[key] = KeptPromises(self._cluster)
            kept.renew(search.pod, judge)
            verdicts.overrule_all(kept.who, kept.why)
            return
        supposed = with_promised(self._cluster, search.pod, None)
        if supposed is not None:
            verdicts.overrule(supposed.rows, judge(supposed))

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
        supposed = with_promised(self._cluster, search.pod, rows)
        return supposed is None or bool(self.judge_plainly(search, supposed).passing[0])

    def judge(self, search: Search, hypothesis: Hypothesis, *, kept_only: bool = False) -> Verdicts:
        """What the filters would say if other pods were on these rows, pods nominated there included."""
        together = joined(hypothesis, search.pod) if self._cluster.nominated else None
        if together is None:
            return self.judge_plainly(search, hypothesis, kept_only=kept_only)
        at, with_them = together
        verdicts = self._no_verdicts(search, hypothesis)
        verdicts.overrule(at, self.judge_plainly(search, with_them, kept_only=kept_only))
        left = verdicts.passing.nonzero()[0]
        if len(left):
            without = hypothesis.subset(left)
            verdicts.overrule(left, self.judge_plainly(search, without, kept_only=kept_only))
        return verdicts

    def judge_plainly(self, search: Search, supposed: Hypothesis, *, kept_only: bool = False) -> Verdicts:
        """What the filters say about these rows with just these pods there."""
        standing = search.standing
        steps = [
            step
            for step in self._reading_pods
            if not (standing.skips(step.name) if step.kept else kept_only or step.name in search.skipped)
        ]
        verdicts = Verdicts(*standing.from_nodes_alone(supposed.rows), standing.reasons)
        if len(supposed) <= FEW_ROWS and all(step.elementwise for step in steps):
            self._ask_in_plain_numbers(search, steps, supposed, verdicts)
        else:
            self._ask(search, steps, supposed, verdicts)
        return verdicts

    def indifferent(self, search: Search) -> NDArray[np.bool_]:
        """The rows that filters which are not kept leave to the others, whoever is taken away from there.

        They let the pod in as it is and with pods that are expected there, and the pods there do not matter.
        """
        asked, pod = self.asked(search), search.pod
        verdicts = self._no_verdicts(search, self._nodes)
        self._ask(search, asked, self._nodes, verdicts)
        indifferent = verdicts.passing
        for step in asked:
            indifferent &= ~calls.minds_pods(step, search.state, pod, self._nodes)
        supposed = with_promised(self._cluster, pod, None) if self._cluster.nominated else None
        if supposed is not None:
            expected = self._no_verdicts(search, supposed)
            self._ask(search, asked, supposed, expected)
            indifferent[supposed.rows] &= expected.passing
        return indifferent

    def _ask_in_plain_numbers(
        self, search: Search, steps: Sequence[Step], supposed: Hypothesis, verdicts: Verdicts
    ) -> None:
        for position in range(len(supposed)):
            one = supposed.one(position)
            for step in steps:
                if step.index > verdicts.who[position]:
                    break
                state, reasons = self._state(search, step), search.standing.reasons[step.index]
                why = self._caller.calls.filter_one(step, state, search.pod, one, reasons)
                if why:
                    verdicts.who[position], verdicts.why[position] = step.index, why
                    break

    def alone(self, search: Search, step: Step) -> Verdicts:
        """What one plugin says about every row, whatever the others say."""
        verdicts = self._no_verdicts(search, self._nodes)
        self._ask(search, [step], self._nodes, verdicts)
        supposed = with_promised(self._cluster, search.pod, None)
        if supposed is not None:
            there = self._no_verdicts(search, supposed)
            self._ask(search, [step], supposed, there)
            verdicts.overrule(supposed.rows, there)
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


def _adjust_error(verb: str, step: Step, text: str) -> calls.AttemptError:
    text = f'running {verb} on PreFilter plugin "{step.name}": {text}'
    return calls.AttemptError(text, step.name, Point.FILTER)
