"""How many identical pods fit into each of several sets of nodes, without placing them one by one.

For a group that may be placed in one of a hundred domains, only this number decides which domain is the best
(`scheduler/group_cycle.py`); the nodes of its members matter in that domain alone. If the filters of a pod
depend on the row alone and are formulas over columns, a row takes identical pods until it rejects the next
one, whatever happens on other rows. So the number is a sum over rows, computed with hypotheses: all rows with
one more pod, those that still pass with two, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from bayplan.api.pod import Pod
from bayplan.runtime.calls import AttemptError
from bayplan.runtime.framework import Framework
from bayplan.runtime.search import Search
from bayplan.state.columns import IdColumn
from bayplan.state.hypothesis import Hypothesis
from bayplan.state.view import IntColumn

MAX_BY_ROW: Final = 128
"""The largest number of members on one row that is computed this way: the work grows with its square."""


def room(framework: Framework, pods: Sequence[Pod], sets: Sequence[IdColumn]) -> list[int] | None:
    """How many of these pods fit on the rows of each set, which are disjoint.

    None if that cannot be told without placing them: they differ, or a plugin has to be called for each.
    """
    search = _search(framework, pods, sets)
    if search is None:
        return None
    rows = np.concatenate(sets)
    of_set = np.repeat(np.arange(len(sets)), [len(one) for one in sets])
    passing = search.results.passing.take(rows)
    rows, of_set = rows[passing], of_set[passing]
    fitting: IntColumn = np.bincount(of_set, minlength=len(sets))
    cluster = framework.cluster
    slot = cluster.pods.add(search.pod, search.pod_info, 0, False, 0)
    try:
        for count in range(1, MAX_BY_ROW):
            wanted = fitting.take(of_set) < len(pods)
            rows, of_set = rows[wanted], of_set[wanted]
            if not len(rows):
                break
            slots = np.full(len(rows) * count, slot, dtype=np.intp)
            starts = np.arange(0, len(slots) + 1, count)
            with_others = Hypothesis(cluster, rows, slots, starts, np.ones(len(slots), dtype=np.int64))
            passing = framework.filtering.filter_as_given(search, with_others).passing
            rows, of_set = rows[passing], of_set[passing]
            fitting += np.bincount(of_set, minlength=len(sets))
        else:
            return None
    finally:
        cluster.pods.remove(slot)
    return [min(count, len(pods)) for count in fitting.tolist()]


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
