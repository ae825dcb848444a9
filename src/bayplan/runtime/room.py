"""How many identical pods fit into each of several sets of nodes, without placing them one by one.

For a group that may be placed in one of a hundred domains, only this number decides which domain is the best
(`scheduler/group_cycle.py`); the nodes of its members matter in that domain alone. If the filters of a pod
depend on the row alone and are formulas over columns, a row takes identical pods until it rejects the next
one, whatever happens on other rows. So the number is a sum over rows, computed with hypotheses: all rows with
one more pod, those that still pass with two, and so on.

The same hypotheses can leave pods out: whether a group would fit if all pods of lower priority were evicted
is computed without removing them from the columns, after which all cached results would be stale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from bayplan.api.pod import Pod
from bayplan.runtime.calls import AttemptError
from bayplan.runtime.framework import Framework
from bayplan.runtime.search import Search
from bayplan.state.cluster import Cluster
from bayplan.state.columns import IdColumn
from bayplan.state.hypothesis import Hypothesis
from bayplan.state.view import IntColumn

MAX_BY_ROW: Final = 128
"""The largest number of members on one row that is computed this way: the work grows with its square."""


def room(
    framework: Framework, pods: Sequence[Pod], sets: Sequence[IdColumn], without: Sequence[int] = ()
) -> list[int] | None:
    """How many of these pods fit on the rows of each set, which are disjoint.

    None if that cannot be told without placing them: they differ, or a plugin has to be called for each.

    Args:
        without: slots of pods that are taken as gone.
    """
    search = _search(framework, pods, sets)
    if search is None:
        return None
    rows = np.concatenate(sets)
    of_set = np.repeat(np.arange(len(sets)), [len(one) for one in sets])
    fitting: IntColumn = np.zeros(len(sets), dtype=np.int64)
    gone = _Gone(framework.cluster, without)
    slot = framework.cluster.pods.add(search.pod, search.pod_info, 0, False, 0)
    try:
        for count in range(MAX_BY_ROW):
            wanted = fitting.take(of_set) < len(pods)
            rows, of_set = rows[wanted], of_set[wanted]
            if not len(rows):
                break
            if count or len(without):
                with_others = gone.and_added(rows, slot, count)
                passing = framework.filtering.filter_as_given(search, with_others).passing
            else:
                passing = search.results.passing.take(rows)
            rows, of_set = rows[passing], of_set[passing]
            fitting += np.bincount(of_set, minlength=len(sets))
        else:
            return None
    finally:
        framework.cluster.pods.remove(slot)
    return [min(count, len(pods)) for count in fitting.tolist()]


class _Gone:
    """Pods that hypotheses leave out, by row."""

    def __init__(self, cluster: Cluster, slots: Sequence[int]) -> None:
        self._cluster = cluster
        of_pod = cluster.pods.row.array.take(slots) if len(slots) else np.zeros(0, dtype=np.intp)
        by_row = of_pod.argsort(kind="stable")
        self._slots = np.array(slots, dtype=np.intp).take(by_row)
        self._starts = np.searchsorted(of_pod.take(by_row), np.arange(cluster.nodes.high + 1))

    def and_added(self, rows: IdColumn, added: int, count: int) -> Hypothesis:
        """These rows without the pods, and with so many more pods like the added one."""
        first = self._starts.take(rows)
        gone = self._starts.take(rows + 1) - first
        starts = np.zeros(len(rows) + 1, dtype=np.intp)
        np.cumsum(gone + count, out=starts[1:])
        slots = np.full(starts[-1], added, dtype=np.intp)
        signs = np.ones(starts[-1], dtype=np.int64)
        nth = np.arange(gone.sum()) - np.repeat(gone.cumsum() - gone, gone)
        at = np.repeat(starts[:-1], gone) + nth
        slots[at] = self._slots.take(np.repeat(first, gone) + nth)
        signs[at] = -1
        return Hypothesis(self._cluster, rows, slots, starts, signs)


def _search(framework: Framework, pods: Sequence[Pod], sets: Sequence[IdColumn]) -> Search | None:
    """The search for each of these pods, up to date; None if they have to be placed one by one."""
    cluster, profile = framework.cluster, framework.profile
    if not framework.cache or framework.extenders is not None or cluster.nominated:
        return None
    searches = [framework.begin(pod) for pod in pods]
    first = searches[0]
    if any(pod.status.nominated_node_name for pod in pods):
        return None
    if any((one.signature, one.results) != (first.signature, first.results) for one in searches):
        return None
    try:
        if framework.pre_filter(first) is not None or first.pre_filter_nodes is not None:
            return None
        first.results.update()
    except AttemptError:
        return None
    skipped = profile.covered_by_skip & (first.skipped_filters | first.results.skipped)
    if first.results.may_have_errors or any(step.name not in skipped for step in profile.reserves):
        return None
    if not framework.filtering.are_formulas(first):
        return None
    is_sampled = any(framework.nodes_to_find(first, len(rows)) < len(rows) for rows in sets)
    return None if is_sampled else first
