"""Measured load by row of the node table, for scores over all nodes at once.

A row is computed again when its Node object changed, when there are new measurements, or when one of its
samples has become too old. In between an attempt reads the columns and computes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from bayplan.plugin import BoolColumn, Cluster, NodeColumns, changed_rows
from bayplan.plugin._internal import Freshness
from bayplan.plugins.library.load_aware.history import (
    MAX_AGE_SECONDS,
    NEVER,
    WINDOW_SECONDS,
    FloatArray,
    UsageHistory,
)

Capacity = Callable[[Cluster, int, str], int]
"""What a row of the cluster has of a resource, in the unit of the samples."""

_NO_PLACE: Final = -1


@dataclass(slots=True)
class Load:
    """What nodes use of a resource, as a share of the node between 0 and 1; not a number: unknown."""

    latest: Any
    mean: Any
    deviation: Any


class LoadColumns:
    """The loads of all rows for some resources."""

    def __init__(self, history: UsageHistory, resources: Sequence[str], capacity: Capacity) -> None:
        self._history = history
        self._capacity_of = capacity
        self._resources = tuple(resources)
        self._cluster: ref[Cluster] | None = None
        self._next_expiry = np.inf
        self._loads: dict[str, Load] = {}
        self.rows_computed = 0
        """How many rows were computed since the beginning: what the columns cost."""

    def update(self, cluster: Cluster, now: float) -> None:
        """Brings the columns up to date."""
        if self._cluster is None or self._cluster() is not cluster:
            self._start(cluster)
        self._grow(cluster.nodes.high)
        with self._freshness as stale, self._measured as stale_measurements:
            moved = self._measured.recorded(self._history.moved)
            changed = changed_rows(None if moved is None else stale, cluster)
            rows = (cluster.nodes.row_of.get(name) for name in moved or ())
            changed.update(row for row in rows if row is not None)
            for row in changed:
                self._read_node(cluster, row, now)
            if stale_measurements is None:
                self._compute(np.arange(len(self.measured_at)), now)
                return
            if now > self._next_expiry:
                changed.update(np.flatnonzero(self._expires < now).tolist())
            if changed:
                self._compute(np.array(sorted(changed), dtype=np.intp), now)

    def known(self, nodes: NodeColumns, now: float) -> BoolColumn:
        """Which of these rows have a recent measurement."""
        recent: BoolColumn = now - nodes.gather(self.measured_at) <= MAX_AGE_SECONDS
        return recent

    def load(self, nodes: NodeColumns, resource: str) -> Load:
        load = self._loads[resource]
        return Load(nodes.gather(load.latest), nodes.gather(load.mean), nodes.gather(load.deviation))

    def capacity(self, nodes: NodeColumns, resource: str) -> FloatArray:
        return nodes.gather(self._capacities[resource])

    def _start(self, cluster: Cluster) -> None:
        self._cluster = ref(cluster)
        self._freshness = cluster.changes.freshness(rows=(cluster.changes.nodes,))
        self._measured = Freshness(self._history.clock, (self._history.measured,))
        self._next_expiry = np.inf
        self._place: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._expires: FloatArray = np.zeros(0)
        self.measured_at: FloatArray = np.zeros(0)
        """The time of the last measurement."""
        self._names: list[str] = []
        self.named_at: FloatArray = np.zeros(0)
        """When the row was taken over from a node of another name, as far as that was noticed."""
        self._capacities: dict[str, FloatArray] = {name: np.zeros(0) for name in self._resources}
        self._loads = {name: Load(np.zeros(0), np.zeros(0), np.zeros(0)) for name in self._resources}

    def _grow(self, rows: int) -> None:
        more = rows - len(self._place)
        if more <= 0:
            return
        self._place = np.concatenate((self._place, np.full(more, _NO_PLACE)))
        self._expires = np.concatenate((self._expires, np.full(more, np.inf)))
        self.measured_at = np.concatenate((self.measured_at, np.full(more, NEVER)))
        self._names += [""] * more
        self.named_at = np.concatenate((self.named_at, np.full(more, NEVER)))
        for resource, load in self._loads.items():
            unknown = np.full(more, np.nan)
            self._capacities[resource] = np.concatenate((self._capacities[resource], np.zeros(more)))
            for field in ("latest", "mean", "deviation"):
                setattr(load, field, np.concatenate((getattr(load, field), unknown)))

    def _read_node(self, cluster: Cluster, row: int, now: float) -> None:
        exists = cluster.nodes.node[row] is not None
        name = cluster.nodes.name[row]
        if self._names[row] != name:
            if self._names[row]:
                self.named_at[row] = now
            self._names[row] = name
        self._place[row] = self._history.place_of.get(name, _NO_PLACE) if exists else _NO_PLACE
        for resource, capacity in self._capacities.items():
            capacity[row] = self._capacity_of(cluster, row, resource) if exists else 0

    def _compute(self, rows: NDArray[np.intp], now: float) -> None:
        self.rows_computed += len(rows)
        places = self._place[rows]
        has_place = places != _NO_PLACE
        times = self._history.times[:, places]
        recent = has_place & (now - times <= WINDOW_SECONDS)
        self.measured_at[rows] = np.where(has_place, times[-1], NEVER)
        self._expires[rows] = np.where(recent, times, np.inf).min(axis=0) + WINDOW_SECONDS
        self._next_expiry = self._expires.min(initial=np.inf)
        for resource, load in self._loads.items():
            amounts = self._history.amounts[resource][:, places]
            valid = recent & ~np.isnan(amounts)
            size = self._capacities[resource][rows]
            divisor = np.where(self._history.are_shares[:, places], 1.0, np.maximum(size, 1.0))
            shares = np.where(valid, amounts / divisor, 0.0)
            count = valid.sum(axis=0)
            known = (count > 0) & (size > 0)
            count = np.maximum(count, 1)
            mean = shares.sum(axis=0) / count
            variance = np.where(valid, (shares - mean) ** 2, 0.0).sum(axis=0) / count
            last = len(valid) - 1 - valid[::-1].argmax(axis=0)
            load.latest[rows] = np.where(known, shares[last, np.arange(len(rows))], np.nan)
            load.mean[rows] = np.where(known, mean, np.nan)
            load.deviation[rows] = np.where(known, np.sqrt(variance), np.nan)
