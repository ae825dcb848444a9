"""Runs the Filter plugins, on the cluster as it is and on hypotheses.

Results of cached plugins are in `SignatureResults` already; here the other plugins run, and all of them on
hypotheses. Nominated pods of higher or equal priority count as if they were on their node: the pod must fit
with them and without them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bayplan.api.pod import Pod
from bayplan.framework.outcome import (
    PASS,
    Diagnosis,
    FilterOutcome,
    FilterRow,
    LocalFilters,
    NodeStatuses,
    ReasonIds,
    Reasons,
    RejectingPlugins,
    Rejections,
)
from bayplan.framework.state import CycleState
from bayplan.framework.status import Status
from bayplan.runtime import calls
from bayplan.runtime.calls import Caller
from bayplan.runtime.profile import Profile, Step
from bayplan.runtime.search import RowFilter, Search
from bayplan.runtime.signature_results import SignatureResults
from bayplan.state.cluster import Cluster
from bayplan.state.columns import IdColumn, RowMask, cells
from bayplan.state.hypothesis import FEW_ROWS, Changes, Hypothesis
from bayplan.state.view import HypotheticalNode, NodeColumns

MAX_CHANGES_BY_ROW: Final = 256
"""Pods of a hypothesis up to which few rows are filtered one by one; arrays add up more of them faster."""


class NominatedResults:
    """For pods of one signature and priority: the results of the filters with and without nominated pods.

    A row is rejected as it is with its nominated pods, or else as it is without them, as in `results`.
    """

    def __init__(self, cluster: Cluster, results: SignatureResults) -> None:
        self._cluster = cluster
        self._results = results
        changes = cluster.changes
        self._freshness = changes.freshness(
            (*results.topics, results.recombined), (changes.usage, changes.nodes, changes.nominations)
        )
        self._own_row = -1
        """The row to which the last pod was nominated itself: its result is not valid for other pods."""
        self.rejecting_plugin: RejectingPlugins
        """The plugin that rejects a row; PASS if none does."""
        self.reason_id: ReasonIds
        self.rejected: set[int] = set()
        """The rows that are rejected because of their nominated pods."""

    def update(
        self,
        pod: Pod,
        filter_hypothesis: Callable[[Hypothesis], NodeStatuses],
        filter_row: RowFilter | None,
    ) -> None:
        """Filters the rows that changed, and the one to which the pod is nominated itself.

        `results` must be up to date.
        """
        own = self._cluster.nominated_row(pod.uid)
        stale = self._freshness.stale_rows()
        if stale is None:
            results = self._results
            self.rejecting_plugin, self.reason_id = results.rejecting_plugin.copy(), results.reason_id.copy()
            self._plugin_cell, self._reason_cell = cells(self.rejecting_plugin), cells(self.reason_id)
            self.rejected.clear()
            self._filter_rows(pod, None, filter_hypothesis)
        else:
            outdated = {*stale, self._own_row, own} - {-1}
            if filter_row is not None and len(outdated) <= FEW_ROWS:
                for row in outdated:
                    self._filter_row(pod, row, filter_row)
            else:
                rows = np.fromiter(outdated, dtype=np.intp, count=len(outdated))
                self.rejecting_plugin[rows] = self._results.rejecting_plugin.take(rows)
                self.reason_id[rows] = self._results.reason_id.take(rows)
                self.rejected -= outdated
                self._filter_rows(pod, rows, filter_hypothesis)
        self._own_row = own
        self._freshness.mark_current()

    def _filter_row(self, pod: Pod, row: int, filter_row: RowFilter) -> None:
        nominated = nominated_on(self._cluster, pod, row)
        rejection = filter_row(row, nominated) if nominated else (PASS, 0)
        if rejection[0] == PASS:
            self.rejected.discard(row)
            rejection = self._results.rejection(row)
        else:
            self.rejected.add(row)
        self._plugin_cell[row], self._reason_cell[row] = rejection

    def _filter_rows(
        self, pod: Pod, rows: IdColumn | None, filter_hypothesis: Callable[[Hypothesis], NodeStatuses]
    ) -> None:
        nominated = with_nominated(self._cluster, pod, rows)
        if nominated is not None:
            found = filter_hypothesis(nominated)
            failing = (found.rejecting_plugin != PASS).nonzero()[0]
            at = nominated.rows.take(failing)
            self.rejecting_plugin[at] = found.rejecting_plugin.take(failing)
            self.reason_id[at] = found.reason_id.take(failing)
            self.rejected.update(at.tolist())


def with_nominated(cluster: Cluster, pod: Pod, rows: IdColumn | None) -> Hypothesis | None:
    """The rows with nominated pods of higher or equal priority, with those pods. None: there are none.

    `rows` selects rows; None: all.
    """
    if rows is not None and len(rows) <= FEW_ROWS:
        found = {row: here for row in rows.tolist() if (here := nominated_on(cluster, pod, row))}
        return Hypothesis.on_few_rows(cluster, list(found), list(found.values())) if found else None
    slots = _nominated_slots(cluster, pod, rows)
    if not len(slots):
        return None
    where = cluster.pods.row.array.take(slots)
    order = where.argsort(kind="stable")
    slots, where = slots.take(order), where.take(order)
    begins = np.ones(len(where), dtype=np.bool_)
    np.not_equal(where[1:], where[:-1], out=begins[1:])
    first = begins.nonzero()[0]
    signs = np.ones(len(slots), dtype=np.int64)
    return Hypothesis(cluster, where.take(first), slots, np.append(first, len(slots)), signs)


def add_nominated(base: Hypothesis, pod: Pod) -> tuple[IdColumn, Hypothesis] | None:
    """`base` with the nominated pods of higher or equal priority added, if there are any.

    Also returns the positions of these rows in `base`. None: there are none.
    """
    cluster = base.cluster
    nominated = with_nominated(cluster, pod, base.rows)
    if nominated is None:
        return None
    at = _places(base.rows, nominated.rows)
    if len(at) <= FEW_ROWS:
        changes = [[*base.changes(place), *nominated.changes(here)] for here, place in enumerate(at.tolist())]
        return at, Hypothesis.on_few_rows(cluster, nominated.rows.tolist(), changes)
    before = base.subset(at)
    # All pods of a row are adjacent, the nominated ones last.
    places = np.arange(len(at))
    lengths = np.diff(before.starts), np.diff(nominated.starts)
    order = np.concatenate([np.repeat(places, length) for length in lengths]).argsort(kind="stable")
    slots = np.concatenate((before.slots, nominated.slots)).take(order)
    signs = np.concatenate((before.signs, nominated.signs)).take(order)
    return at, Hypothesis(cluster, nominated.rows, slots, before.starts + nominated.starts, signs)


def _nominated_slots(cluster: Cluster, pod: Pod, rows: IdColumn | None) -> IdColumn:
    """Slots of the pods nominated to these rows with higher or equal priority."""
    pods, wanted_rows = cluster.pods, cluster.nodes.exists.read
    if rows is not None:
        among = np.zeros(len(wanted_rows), dtype=np.bool_)
        among[rows] = True
        wanted_rows = wanted_rows & among
    slots = pods.nominated.read.nonzero()[0]
    slots = slots[pods.priority.array.take(slots) >= pod.priority]
    slots = slots[slots != cluster.nominated_slot(pod.uid)]
    found: IdColumn = slots[wanted_rows.take(pods.row.array.take(slots))]
    return found


def nominated_on(cluster: Cluster, pod: Pod, row: int) -> Changes:
    """The pods nominated to one row with higher or equal priority."""
    here = cluster.nominated.get(row)
    if here is None or not cluster.nodes.exists.cell[row]:
        return ()
    itself, priority = cluster.nominated_slot(pod.uid), cluster.pods.priority.cell
    return [(slot, 1) for slot in here if slot != itself and priority[slot] >= pod.priority]


def _places(rows: IdColumn, wanted: IdColumn) -> IdColumn:
    """The index in `rows` of each of `wanted`."""
    if len(rows) == len(wanted) == 1:
        return np.zeros(1, dtype=np.intp)
    order = rows.argsort(kind="stable")
    return order.take(np.searchsorted(rows.take(order), wanted))


MAX_REASONS: Final = 1000
"""The maximum number of combinations of reasons that are stored for one plugin and one signature."""


class Filtering:
    """The Filter plugins of one profile on one cluster."""

    def __init__(self, profile: Profile, cluster: Cluster, caller: Caller) -> None:
        self._profile = profile
        self._caller = caller
        self._cluster = cluster
        self._nodes = NodeColumns(cluster)
        self._uncached = tuple(step for step in profile.filters if not step.cached)
        self._reading_pods = tuple(step for step in profile.filters if step.usage or not step.cached)
        """The plugins whose result may be different in a hypothesis."""

    def uncached_steps(self, search: Search) -> list[Step]:
        """The uncached plugins whose Filter runs for this pod."""
        return [step for step in self._uncached if step.name not in search.skipped_filters]

    def rejected_rows(self, search: Search) -> tuple[tuple[RowMask, ...], NodeStatuses | None]:
        """The rows that uncached plugins and nominated pods reject besides `search.results`.

        Also returns the statuses of all rows if they had to be computed for it: not if every uncached plugin
        has the shortcut `rejected_rows` and no pod is nominated, as usual.
        """
        uncached = self.uncached_steps(search)
        if not self._cluster.nominated:
            if not uncached:
                return (), None
            found = self._by_shortcut(search, uncached)
            if found is not None:
                return found, None
        node_statuses = self.node_statuses(search)
        if node_statuses.is_plain:
            return (), node_statuses
        mask = search.results.passing & ~node_statuses.passing
        rejected = search.signature.rejected
        if rejected is None:
            rejected = search.signature.rejected = RowMask(self._cluster.changes.clock, mask)
        else:
            rejected.assign(mask)
        return (rejected,) if rejected.count else (), node_statuses

    def _by_shortcut(self, search: Search, steps: Sequence[Step]) -> tuple[RowMask, ...] | None:
        """The rows that these plugins reject, of those that reject any; None if one lacks the shortcut."""
        found = []
        for step in steps:
            rows = calls.rejected_rows(step, search.state, search.pod, self._nodes)
            if rows is None:
                return None
            if rows.count:
                found.append(rows)
        return tuple(found)

    def node_statuses(self, search: Search) -> NodeStatuses:
        """The filter results of every row, with and without nominated pods.

        framework.go: RunFilterPluginsWithNominatedPods
        """
        results, uncached = search.results, self.uncached_steps(search)
        for step in uncached:
            if len(results.reasons[step.index]) > MAX_REASONS:
                # Otherwise a plugin whose reasons always differ would use more and more memory.
                results.reasons[step.index] = Reasons(step.name)
        if self._cluster.nominated and not uncached:
            return self._locally_with_nominated(search)
        node_statuses = NodeStatuses(results.rejecting_plugin, results.reason_id, results.reasons)
        if uncached:
            self._add_results(search, uncached, self._nodes, node_statuses)
        supposed = with_nominated(self._cluster, search.pod, None) if self._cluster.nominated else None
        if supposed is not None:
            node_statuses.overrule(supposed.rows, self.filter_as_given(search, supposed))
        return node_statuses

    def _locally_with_nominated(self, search: Search) -> NodeStatuses:
        """`node_statuses` with nominated pods if no uncached plugin takes part: only changed rows are
        filtered."""
        results, priority = search.results, search.pod.priority
        cached = results.memory.get(NominatedResults, priority)
        if cached is None:
            cached = results.memory.put(NominatedResults(self._cluster, results), priority)
        cached.update(
            search.pod, lambda supposed: self.filter_as_given(search, supposed), self._row_filter(search)
        )
        return NodeStatuses(
            cached.rejecting_plugin, cached.reason_id, results.reasons, plain=not cached.rejected
        )

    def fits_row(self, search: Search, row: int) -> bool:
        """Whether one row passes, pods nominated there included. The SignatureResults must be up to date."""
        if search.results.rejecting_plugin[row] != PASS:
            return False
        uncached = self.uncached_steps(search)
        if uncached:
            view = NodeColumns(self._cluster, np.array([row], dtype=np.intp))
            node_statuses = self._all_passing(search, view)
            self._add_results(search, uncached, view, node_statuses)
            if node_statuses.rejecting_plugin[0] != PASS:
                return False
        nominated = nominated_on(self._cluster, search.pod, row) if self._cluster.nominated else ()
        if not nominated:
            return True
        filter_row = self._row_filter(search)
        if filter_row is not None:
            return filter_row(row, nominated)[0] == PASS
        supposed = Hypothesis.on_few_rows(self._cluster, [row], [nominated])
        return bool(self.filter_as_given(search, supposed).passing[0])

    def filter_hypothesis(
        self, search: Search, hypothesis: Hypothesis, *, cached_only: bool = False
    ) -> NodeStatuses:
        """The results of the filters if other pods were on these rows, nominated pods included."""
        is_small = len(hypothesis) <= FEW_ROWS and len(hypothesis.slots) <= MAX_CHANGES_BY_ROW
        filter_row = self._row_filter(search, cached_only) if is_small else None
        if filter_row is not None:
            return self._filter_few(search, hypothesis, filter_row)
        extended = add_nominated(hypothesis, search.pod) if self._cluster.nominated else None
        if extended is None:
            return self.filter_as_given(search, hypothesis, cached_only=cached_only)
        at, with_nominated_pods = extended
        node_statuses = self._all_passing(search, hypothesis)
        node_statuses.overrule(at, self.filter_as_given(search, with_nominated_pods, cached_only=cached_only))
        left = node_statuses.passing.nonzero()[0]
        if len(left):
            without = hypothesis.subset(left)
            node_statuses.overrule(left, self.filter_as_given(search, without, cached_only=cached_only))
        return node_statuses

    def filter_as_given(
        self, search: Search, supposed: Hypothesis, *, cached_only: bool = False
    ) -> NodeStatuses:
        """The results of the filters for these rows with exactly these pods."""
        results = search.results
        node_statuses = NodeStatuses(*results.by_nodes_alone(supposed.rows), results.reasons)
        self._add_results(search, self._hypothesis_steps(search, cached_only), supposed, node_statuses)
        return node_statuses

    def _hypothesis_steps(self, search: Search, cached_only: bool) -> list[Step]:
        """The plugins that run on hypotheses for this pod."""
        skips_filter, skipped = search.results.skips_filter, search.skipped_filters
        return [
            step
            for step in self._reading_pods
            if not (skips_filter(step.name) if step.cached else cached_only or step.name in skipped)
        ]

    def are_formulas(self, search: Search) -> bool:
        """Whether the result for a row depends on its columns alone, whichever pods are added to it."""
        return all(step.elementwise for step in self._hypothesis_steps(search, cached_only=False))

    # Single rows in plain numbers

    def _row_filter(self, search: Search, cached_only: bool = False) -> RowFilter | None:
        """A function that filters one row with exactly these pods; None if a plugin needs arrays."""
        if cached_only not in search.row_filters:
            search.row_filters[cached_only] = self._make_row_filter(search, cached_only)
        return search.row_filters[cached_only]

    def _make_row_filter(self, search: Search, cached_only: bool) -> RowFilter | None:
        steps = self._hypothesis_steps(search, cached_only)
        if not all(step.elementwise for step in steps):
            return None
        results, pod, cluster = search.results, search.pod, self._cluster
        results.update()
        filter_one = self._caller.calls.filter_one
        called = [(step, self._state(search, step), results.reasons[step.index]) for step in steps]

        def filter_row(row: int, changes: Changes) -> tuple[int, int]:
            by_node = results.by_node_alone(row)
            one = HypotheticalNode(cluster, row, changes)
            for step, state, reasons in called:
                if step.index > by_node[0]:
                    break
                reason_id = filter_one(step, state, pod, one, reasons)
                if reason_id:
                    return step.index, reason_id
            return by_node

        return filter_row

    def _row_with_nominated(self, search: Search) -> FilterRow | None:
        """`filter_hypothesis` for one row; None if a plugin needs arrays."""
        filter_row, reasons = self._row_filter(search), search.results.reasons
        if filter_row is None:
            return None

        def rejection(row: int, changes: Changes) -> Status | None:
            plugin, reason_id = self._filter_with_nominated(search, row, changes, filter_row)
            return None if plugin == PASS else reasons[plugin].status(reason_id)

        return rejection

    def _filter_few(self, search: Search, hypothesis: Hypothesis, filter_row: RowFilter) -> NodeStatuses:
        """`filter_hypothesis` row by row."""
        node_statuses = self._all_passing(search, hypothesis)
        for position, row in enumerate(hypothesis.rows.tolist()):
            result = self._filter_with_nominated(search, row, hypothesis.changes(position), filter_row)
            node_statuses.rejecting_plugin[position], node_statuses.reason_id[position] = result
        return node_statuses

    def _filter_with_nominated(
        self, search: Search, row: int, changes: Changes, filter_row: RowFilter
    ) -> tuple[int, int]:
        """The result for one row with these changes, with and without nominated pods."""
        nominated = nominated_on(self._cluster, search.pod, row) if self._cluster.nominated else ()
        if nominated:
            result = filter_row(row, [*changes, *nominated])
            if result[0] != PASS:
                return result
        return filter_row(row, changes)

    def outcome(self, search: Search, diagnosis: Diagnosis, *, cached: bool) -> FilterOutcome:
        """The input of PostFilter plugins. Without `cached`, no result may be reused for identical pods."""
        uncached = bool(self.uncached_steps(search))
        local_filters = LocalFilters(
            filter_hypothesis=lambda hypothesis: self.filter_hypothesis(search, hypothesis, cached_only=True),
            locally_decided=lambda: self.locally_decided(search),
        )
        return FilterOutcome(
            cluster=self._cluster,
            diagnosis=diagnosis,
            filter_hypothesis=lambda hypothesis: self.filter_hypothesis(search, hypothesis),
            memory=search.results.memory,
            topics=search.results.topics,
            pre_filtered=search.pre_filtered,
            is_local=cached and not uncached,
            local_filters=local_filters if cached and uncached else None,
            filter_row=self._row_with_nominated(search),
        )

    def locally_decided(self, search: Search) -> NDArray[np.bool_]:
        """The rows that pass the uncached filters, whichever pods are removed from them.

        They pass with and without nominated pods, and the result does not depend on the pods there.
        """
        uncached, pod = self.uncached_steps(search), search.pod
        node_statuses = self._all_passing(search, self._nodes)
        self._add_results(search, uncached, self._nodes, node_statuses)
        locally_decided = node_statuses.passing
        for step in uncached:
            locally_decided &= ~calls.nodes_affected_by_pods(step, search.state, pod, self._nodes)
        supposed = with_nominated(self._cluster, pod, None) if self._cluster.nominated else None
        if supposed is not None:
            expected = self._all_passing(search, supposed)
            self._add_results(search, uncached, supposed, expected)
            locally_decided[supposed.rows] &= expected.passing
        return locally_decided

    def alone(self, search: Search, step: Step) -> NodeStatuses:
        """The result of one plugin for every row, whether other plugins reject the row or not."""
        node_statuses = self._all_passing(search, self._nodes)
        self._add_results(search, [step], self._nodes, node_statuses)
        supposed = with_nominated(self._cluster, search.pod, None)
        if supposed is not None:
            with_nominated_pods = self._all_passing(search, supposed)
            self._add_results(search, [step], supposed, with_nominated_pods)
            node_statuses.overrule(supposed.rows, with_nominated_pods)
        return node_statuses

    @staticmethod
    def _all_passing(search: Search, view: NodeColumns) -> NodeStatuses:
        rejecting_plugin = np.full(len(view), PASS, dtype=np.int8)
        return NodeStatuses(rejecting_plugin, np.zeros(len(view), dtype=np.int64), search.results.reasons)

    def _add_results(
        self, search: Search, steps: Sequence[Step], view: NodeColumns, node_statuses: NodeStatuses
    ) -> None:
        """Adds the results of these plugins."""
        for step in steps:
            left: IdColumn | None = None
            if step.one_node_at_a_time:
                left = (node_statuses.rejecting_plugin > step.index).nonzero()[0]
                if view is self._nodes:
                    left = left[self._cluster.nodes.exists.read.take(left)]
            found = self._collect(search, step, view, left)
            if found is not None:
                node_statuses.add(step.index, found if left is None else found.among(left, len(view)))

    def _collect(
        self, search: Search, step: Step, view: NodeColumns, left: IdColumn | None
    ) -> Rejections | None:
        reasons = search.results.reasons[step.index]
        state = self._state(search, step)
        if isinstance(view, Hypothesis):
            view = view if left is None else view.subset(left)
            if step.adjusts is not None:
                return self._filter_adjusted(search, step, view)
        elif left is not None:
            view = NodeColumns(self._cluster, view.rows.take(left))
        return self._caller.calls.filter_rows(step, state, search.pod, view, reasons)

    @staticmethod
    def _state(search: Search, step: Step) -> CycleState:
        return search.results.state_of(step) if step.cached else search.state

    def _filter_adjusted(self, search: Search, step: Step, view: Hypothesis) -> Rejections | None:
        """Filters row by row, for plugins with AddPod and RemovePod: each row has its own state."""
        reasons = search.results.reasons[step.index]
        reason_ids = np.zeros(len(view), dtype=np.int64)
        for position in range(len(view)):
            state = self._state(search, step).clone()
            gone, added = view.changed_pods(position)
            node = view.node_info(position)
            self._caller.calls.adjust(step, "RemovePod", state, search.pod, gone, node)
            self._caller.calls.adjust(step, "AddPod", state, search.pod, added, node)
            row = view.subset(np.array([position], dtype=np.intp))
            reason_ids[position] = self._caller.calls.filter_one(step, state, search.pod, row, reasons)
        return Rejections.from_numbers(reason_ids, reasons) if reason_ids.any() else None
