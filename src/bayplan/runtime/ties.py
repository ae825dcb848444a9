"""The tie-break among nodes with equal scores: a rank for each position, and the lowest wins.

`FirstNode` takes the first position. `KubeScheduler`, the default, does what upstream does: it puts the
feasible nodes on a binary heap and takes its root. With equal scores that is neither the first node nor a
random one: it is the first maximum in the heap's pre-order (index 0, then the subtree of 1, then that of 2).
How two positions compare does not depend on the length of the list, so one table serves all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bayplan.framework.tie_break import TieBreak

_rank: NDArray[np.int64] = np.zeros(1, dtype=np.int64)


def heap_rank(length: int) -> NDArray[np.int64]:
    """For each position of a list of at least this length: its position in pre-order."""
    global _rank
    if len(_rank) < length:
        depth = max(length, 1024).bit_length()
        rank = np.zeros(2**depth - 1, dtype=np.int64)
        for level in range(depth - 1):
            first, size = 2**level - 1, 2**level
            parents = rank[first : first + size]
            children = rank[first + size : first + 3 * size].reshape(size, 2)
            children[:, 0] = parents + 1
            children[:, 1] = parents + 2 ** (depth - level - 1)
        _rank = rank
    return _rank


def tie_rank(tie_break: TieBreak, length: int) -> NDArray[np.int64]:
    """For each position of a list of at least this length: its rank among nodes with equal scores."""
    if tie_break is TieBreak.FIRST_NODE:
        return np.arange(length, dtype=np.int64)
    return heap_rank(length)


def pick(totals: NDArray[np.int64], max_total: int, tie_break: TieBreak = TieBreak.KUBE_SCHEDULER) -> int:
    """The position of the winner among feasible nodes, given in the order in which they were found.

    `max_total` is a bound for the totals. Usually total and rank fit into one integer, so that one argmax is
    enough.
    """
    if tie_break is TieBreak.FIRST_NODE:
        return int(totals.argmax())
    rank = heap_rank(len(totals))
    shift = len(rank).bit_length()
    if max_total < 1 << (62 - shift):
        key = totals << shift
        key -= rank[: len(totals)]
        return int(key.argmax())
    best = (totals == totals.max()).nonzero()[0]
    return int(best[rank.take(best).argmin()])
