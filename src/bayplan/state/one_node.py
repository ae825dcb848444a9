"""A single row with plain numbers, for plugins that are a formula over the columns.

After a placement one row has changed. NumPy spends most of a microsecond on each operation however short the
array; Python's own numbers are ten times faster there. So a plugin with `elementwise = True` (it only
compares, adds, and calls `where`, `minimum` and so on of the columns it is given) is evaluated on such a row
instead of on arrays of length one. It is written once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bayplan.api.saturation import MAX_REQUEST
from bayplan.state.cluster import Cluster
from bayplan.state.table import Column
from bayplan.state.view import NodeColumns


class OneNode(NodeColumns):
    """The accessors of `NodeColumns` for one row: numbers where those return arrays."""

    __slots__ = ("_row",)

    def __init__(self, cluster: Cluster, row: int) -> None:
        self.cluster = cluster
        self._row = row
        self._rows = None

    def __len__(self) -> int:
        return 1

    @property
    def rows(self) -> Any:
        return np.array([self._row], dtype=np.intp)

    def of(self, column: Column) -> Any:
        return column.cell[self._row]

    @staticmethod
    def where(condition: Any, then: Any, otherwise: Any) -> Any:
        return then if condition else otherwise

    @staticmethod
    def minimum(one: Any, other: Any) -> Any:
        return one if one <= other else other

    @staticmethod
    def maximum(one: Any, other: Any) -> Any:
        return one if one >= other else other

    @staticmethod
    def sqrt(value: Any) -> Any:
        return math.sqrt(value)

    @staticmethod
    def trunc(value: Any) -> Any:
        return int(value)

    @staticmethod
    def any(condition: Any) -> bool:
        return bool(condition)


class HypotheticalNode(OneNode):
    """A single hypothetical row: `changes` are slots of pods with their signs, removed (-1) or added (+1)."""

    __slots__ = ("changes",)

    def __init__(self, cluster: Cluster, row: int, changes: Sequence[tuple[int, int]]) -> None:
        super().__init__(cluster, row)
        self.changes = changes

    @property
    def pod_count(self) -> Any:
        return super().pod_count + sum([sign for _, sign in self.changes])

    def requested(self, resource: str) -> Any:
        amount = self.cluster.pods.requests(resource).cell
        return self._sum(super().requested(resource), amount.__getitem__)

    @property
    def nonzero_cpu_milli(self) -> Any:
        info_of = self.cluster.pods.info_of
        return self._sum(super().nonzero_cpu_milli, lambda slot: info_of(slot).nonzero_cpu_milli)

    @property
    def nonzero_memory_bytes(self) -> Any:
        info_of = self.cluster.pods.info_of
        return self._sum(super().nonzero_memory_bytes, lambda slot: info_of(slot).nonzero_memory_bytes)

    def _sum(self, total: Any, amount: Callable[[int], int]) -> Any:
        """A sum over the pods of the row with these changes. The sum of the column may be saturated."""
        if self._row in self.cluster.recounted_rows:
            total = sum(map(amount, self.cluster.row_pods[self._row]))
        for slot, sign in self.changes:
            total += sign * amount(slot)
        return total if total <= MAX_REQUEST else MAX_REQUEST
