"""Which of the nodes where evicting helps is taken: the one where least is lost."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bayplan.preemption.victims import DryRun


def best(found: DryRun, considered: NDArray[np.bool_]) -> int | None:
    """The index of the best of the rows considered, the first of equals; None where there is none.

    Criterion after criterion only the best stay: fewest budgets violated, least important first victim,
    smallest sum of priorities, fewest victims, latest start of the most important ones.
    """
    ties = equally_good(found, considered)
    return int(ties[0]) if len(ties) else None


def ranked(found: DryRun) -> NDArray[np.intp]:
    """All rows where evicting helps, the best first and equals in the order of the node list."""
    helped: NDArray[np.intp] = found.fits.nonzero()[0]
    losses = [loss.take(helped) for loss in _criteria(found)]
    return helped.take(np.lexsort(losses[::-1]))


def equally_good(found: DryRun, considered: NDArray[np.bool_]) -> NDArray[np.intp]:
    """The rows among which only chance could decide."""
    left = considered.nonzero()[0]
    for losses in _criteria(found):
        if len(left) <= 1:
            break
        values = losses.take(left)
        left = left[values == values.min()]
    return left


def _criteria(found: DryRun) -> Iterator[NDArray[np.int64]]:
    yield found.violations
    yield found.highest_priority
    yield found.priority_sum
    yield found.victim_count
    yield -found.earliest_start
