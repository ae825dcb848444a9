"""In which order the pods of a trace arrive, and in which order its nodes are listed.

Pods arrive until 130 % of the cluster's GPU has been requested: first every pod of the trace, shuffled, then
copies that are drawn from it. The order of the nodes decides among nodes with equal scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bayplan.errors import InputError
from bayplan.simulate.openb.trace import Row, Trace, read_table

ARRIVALS_FILE: Final = "arrivals.csv"
RANKS_FILE: Final = "node_ranks.csv"

TARGET_PERCENT: Final = 130
MAX_ARRIVALS: Final = 1_000_000
_DRAWS: Final = 4096


@dataclass(frozen=True, slots=True)
class Orders:
    """Indexes into the pods and nodes of a trace."""

    arrivals: Sequence[int]
    nodes: Sequence[int]


def seeded_orders(trace: Trace, seed: int) -> Orders:
    """Orders that follow from the seed alone.

    Raises:
        InputError: the requests are so small that there would be too many arrivals.
    """
    rng = np.random.default_rng(seed)
    pods = trace.pods
    by_name = sorted(range(len(pods)), key=lambda index: pods[index].name)
    arrivals = [by_name[place] for place in rng.permutation(len(pods)).tolist()]
    target = trace.capacity_milli * TARGET_PERCENT // 100
    requested = sum(pod.total_milli for pod in pods)
    while requested > target:
        requested -= pods[arrivals.pop(int(rng.integers(len(arrivals))))].total_milli
    if len(arrivals) == len(pods):
        _append_copies(trace, arrivals, requested, target, rng, by_name)
    by_node_name = sorted(range(len(trace.nodes)), key=lambda index: trace.nodes[index].name)
    nodes = [by_node_name[place] for place in rng.permutation(len(trace.nodes)).tolist()]
    return Orders(arrivals, nodes)


def _append_copies(
    trace: Trace,
    arrivals: list[int],
    requested: int,
    target: int,
    rng: np.random.Generator,
    by_name: Sequence[int],
) -> None:
    """Appends copies of pods. The published rule compares with one device of the drawn pod, not with all."""
    while True:
        for draw in rng.integers(len(by_name), size=_DRAWS).tolist():
            index = by_name[draw]
            pod = trace.pods[index]
            if requested + pod.gpu_milli > target:
                return
            arrivals.append(index)
            requested += pod.total_milli
        if len(arrivals) > MAX_ARRIVALS:
            raise InputError(
                f"more than {MAX_ARRIVALS:,} pods would arrive: their GPU requests are too small"
            )


def read_orders(directory: Path, trace: Trace, seed: int) -> Orders:
    """The orders in the columns `seed<number>` of two files: row numbers of pods, and ranks of nodes.

    Raises:
        InputError: a file is missing or invalid, or does not fit the trace.
    """
    column = f"seed{seed}"
    arrivals, ranks = directory / ARRIVALS_FILE, directory / RANKS_FILE
    # Columns may differ in length: the shorter ones end with empty cells.
    rows = [row for row in read_table(arrivals, (column,)) if row.cells[column]]
    found = [row.number(column, len(trace.pods) - 1) for row in rows]
    by_rank: dict[int, Row] = {}
    nodes = [0] * len(trace.nodes)
    count = 0
    for index, row in enumerate(read_table(ranks, (column,))):
        if index >= len(nodes):
            raise row.problem(column, f"the trace has only {len(nodes)} nodes")
        rank = row.number(column, len(nodes) - 1)
        if by_rank.setdefault(rank, row) is not row:
            raise row.problem(column, f"rank {rank} is in line {by_rank[rank].line}, too")
        nodes[rank] = index
        count += 1
    if count != len(nodes):
        raise InputError(f"has {count} ranks for {len(nodes)} nodes", source=str(ranks), field=column)
    return Orders(found, nodes)
