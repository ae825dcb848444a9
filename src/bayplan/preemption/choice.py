"""Chooses the node for preemption: upstream's pickOneNodeForPreemption."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bayplan.preemption.table import VictimTable
from bayplan.snapshot.interning import IdColumn


def pick_node(table: VictimTable, rows: IdColumn) -> int | None:
    """The best of these rows, the first of equals; None if there are none."""
    ties = equally_good(table, rows)
    return int(ties[0]) if len(ties) else None


def ranked(table: VictimTable, rows: IdColumn) -> IdColumn:
    """These rows, the best first and equals in the order in which they were given."""
    losses = [loss.take(rows) for loss in _criteria(table)]
    return rows.take(np.lexsort(losses[::-1]))


def equally_good(table: VictimTable, rows: IdColumn) -> IdColumn:
    """The rows that are best by all criteria.

    Each criterion keeps only the best rows: fewest violated budgets, lowest priority of the most important
    victim, smallest sum of priorities, fewest victims, latest start of the most important victims.
    """
    for losses in _criteria(table):
        if len(rows) <= 1:
            break
        values = losses.take(rows)
        least = values == values[values.argmin()]
        if np.count_nonzero(least) != len(least):
            rows = rows[least]
    return rows


def _criteria(table: VictimTable) -> Iterator[NDArray[np.int64]]:
    yield table.violations
    yield table.highest_priority
    yield table.priority_sum
    yield table.victim_count
    yield -table.earliest_start
