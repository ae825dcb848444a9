"""How plugins read the cluster: over all nodes at once, or one node at a time.

Every accessor of `NodeColumns` returns a read-only array with one entry per row. The rows may be all of the
cluster's or a few that changed: a plugin is written once for both. `OneNode` has the same names for a single
row with plain numbers instead of arrays, and `Hypothesis` (`hypothesis.py`) the columns with hypothetical
pods. `NodeInfo` is one node as an object, for plugins that evaluate one node at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from bayplan.api.node import Node, Taint
from bayplan.api.pod import HostPort, Pod
from bayplan.api.quantity import MAX_REQUEST
from bayplan.clock import Freshness
from bayplan.state.cluster import Cluster
from bayplan.state.columns import ABSENT, Column, IdColumn, Lookup, distinct_ids
from bayplan.state.nodes import LabelColumn
from bayplan.state.terms import CarriedTerm, PodQuery

if TYPE_CHECKING:
    from bayplan.state.cluster import Cluster

FEW_DOMAINS: Final = 64
"""Tables up to this length are compared with the last one gathered."""
MAX_SPREAD: Final = 8
MAX_MEMO: Final = 512

BoolColumn = NDArray[np.bool_]
IntColumn = NDArray[np.int64]

T = TypeVar("T")


class LabelValues:
    """The values of one label over the rows. Compared with a string it yields a mask; absent equals None."""

    __slots__ = ("_label", "ids")
    __hash__ = None  # type: ignore[assignment]  # compares elementwise, like an array

    def __init__(self, label: LabelColumn, ids: IdColumn) -> None:
        self._label = label
        self.ids = ids

    def __eq__(self, value: object) -> BoolColumn:  # type: ignore[override]  # elementwise, like an array
        wanted = ABSENT if value is None else self._label.values.find(str(value))
        if value is not None and wanted == ABSENT:
            return np.zeros(len(self.ids), dtype=np.bool_)
        equal: BoolColumn = self.ids == wanted
        return equal

    def __ne__(self, value: object) -> BoolColumn:  # type: ignore[override]  # elementwise, like an array
        return ~(self == value)

    def isin(self, values: Iterable[str]) -> BoolColumn:
        wanted = [found for value in values if (found := self._label.values.find(value)) != ABSENT]
        if len(wanted) == 1:
            only: BoolColumn = self.ids == wanted[0]
            return only
        table = np.zeros(len(self._label.values) + 1, dtype=np.bool_)
        table[wanted] = True
        return table.take(self.ids)

    def exists(self) -> BoolColumn:
        present: BoolColumn = self.ids != ABSENT
        return present

    def map(self, function: Callable[[str], int], absent: int = 0) -> IntColumn:
        """`function` of the value, evaluated once for each distinct value."""
        table = np.array([*(function(value) for value in self._label.values.values), absent], dtype=np.int64)
        return table.take(self.ids)


class NodeColumns:
    """Columns over some rows (None: all rows in use, including those without a node)."""

    __slots__ = ("_domains", "_freshness", "_gathered", "_labels", "_memo", "_rows", "cluster")

    def __init__(self, cluster: Cluster, rows: IdColumn | None = None) -> None:
        self.cluster = cluster
        self._rows = rows
        self._labels: dict[str, LabelValues] = {}
        self._gathered: dict[tuple[str, str, bytes], NDArray[Any]] = {}
        self._domains: dict[str, IdColumn] = {}
        self._memo: dict[Hashable, Any] = {}
        self._freshness: Freshness | None = None
        """Of what depends on labels; created on first use."""

    def __len__(self) -> int:
        return self.cluster.nodes.high if self._rows is None else len(self._rows)

    @property
    def rows(self) -> IdColumn:
        """Which rows of the table these are."""
        return np.arange(self.cluster.nodes.high) if self._rows is None else self._rows

    def of(self, column: Column) -> NDArray[Any]:
        """A column of the table over these rows."""
        if self._rows is None:
            return column.read
        taken = column.array.take(self._rows)
        taken.flags.writeable = False
        return taken

    def gather(self, by_row: NDArray[Any]) -> NDArray[Any]:
        """An array with an entry for each row of the table, over these rows."""
        return by_row if self._rows is None else by_row.take(self._rows)

    # Properties of nodes

    @property
    def exists(self) -> BoolColumn:
        return self.of(self.cluster.nodes.exists)

    @property
    def unschedulable(self) -> BoolColumn:
        return self.of(self.cluster.nodes.unschedulable)

    @property
    def names(self) -> list[str]:
        name = self.cluster.nodes.name
        return name if self._rows is None else [name[row] for row in self._rows]

    def is_named(self, name: str) -> BoolColumn:
        mask = np.zeros(len(self), dtype=np.bool_)
        row = self.cluster.nodes.row_of.get(name)
        if row is not None:
            mask[self.positions_of([row])] = True
        return mask

    def positions_of(self, rows: Iterable[int]) -> IdColumn:
        """The positions in these columns of the given rows of the table, if they are among them."""
        wanted = np.fromiter(rows, dtype=np.intp)
        if self._rows is None:
            return wanted
        return np.isin(self._rows, wanted).nonzero()[0]

    def label(self, key: str) -> LabelValues:
        if self._rows is None:
            label = self.cluster.nodes.label(key)
            return LabelValues(label, self.of(label.column))
        found = self._labels.get(key)
        if found is None:
            label = self.cluster.nodes.label(key)
            found = self._labels[key] = LabelValues(label, self.of(label.column))
        return found

    def by_domain(self, key: str, table: NDArray[Any]) -> NDArray[Any]:
        """Each row's entry of a table with one entry for each value of a label, and a last one for rows
        without it.

        While pods are added and removed such tables rarely change: the same array is returned for an equal
        table, until a node is added, removed or relabelled.
        """
        if len(table) > FEW_DOMAINS:
            return table.take(self.label(key).ids)
        self._drop_outdated()
        if len(self._gathered) > MAX_SPREAD:
            self._gathered.clear()
        key_and_table = (key, table.dtype.char, table.tobytes())
        found = self._gathered.get(key_and_table)
        if found is None:
            found = self._gathered[key_and_table] = table.take(self.label(key).ids)
            found.setflags(write=False)
        return found

    def domains(self, key: str) -> IdColumn | None:
        """The values of a label that occur, as indexes of a table for `by_domain`. None: there are many."""
        self._drop_outdated()
        found = self._domains.get(key)
        if found is None and len(self.cluster.nodes.label(key).values) < FEW_DOMAINS:
            found = self._domains[key] = distinct_ids(self.label(key).ids)
        return found

    def memo(self, key: Hashable, make: Callable[[], T]) -> T:
        """A value that depends only on the key and the labels of these rows, computed on first use."""
        self._drop_outdated()
        if key not in self._memo:
            if len(self._memo) >= MAX_MEMO:
                self._memo.clear()
            self._memo[key] = make()
        found: T = self._memo[key]
        return found

    def _drop_outdated(self) -> None:
        """Drops what depends on labels, if the topology has changed."""
        freshness = self._freshness
        if freshness is None:
            changes = self.cluster.changes
            freshness = self._freshness = changes.freshness((changes.topology,))
        if not freshness.is_current:
            self._gathered.clear()
            self._domains.clear()
            self._memo.clear()
            freshness.mark_current()

    def taints(self, lookup: Lookup[tuple[Taint, ...]]) -> IntColumn:
        """`lookup` (made by `taint_lookup`) of each node's list of taints."""
        return lookup(self.of(self.cluster.nodes.taint_set))

    def taint_lookup(self, function: Callable[[tuple[Taint, ...]], int]) -> Lookup[tuple[Taint, ...]]:
        """A function of a node's taints, evaluated once for each distinct list of them."""
        return Lookup(self.cluster.nodes.taint_lists, function)

    def features(self, lookup: Lookup[frozenset[str]]) -> IntColumn:
        return lookup(self.of(self.cluster.nodes.feature_set))

    def feature_lookup(self, function: Callable[[frozenset[str]], int]) -> Lookup[frozenset[str]]:
        """A function of a node's declared features, evaluated once for each distinct set of them."""
        return Lookup(self.cluster.nodes.feature_lists, function)

    # Usage

    @property
    def allowed_pods(self) -> IntColumn:
        return self.of(self.cluster.nodes.allowed_pods)

    @property
    def pod_count(self) -> IntColumn:
        return self.of(self.cluster.nodes.pod_count)

    def allocatable(self, resource: str) -> IntColumn:
        """cpu in milli, everything else in whole units. 0 if a node has none of it."""
        return self.of(self.cluster.nodes.resource(resource).allocatable)

    def requested(self, resource: str) -> IntColumn:
        return self.of(self.cluster.nodes.resource(resource).requested)

    @property
    def nonzero_cpu_milli(self) -> IntColumn:
        return self.of(self.cluster.nodes.nonzero_cpu_milli)

    @property
    def nonzero_memory_bytes(self) -> IntColumn:
        return self.of(self.cluster.nodes.nonzero_memory_bytes)

    def pods_on(self, position: int) -> list[Pod]:
        """The pods of one of the rows."""
        return list(self.cluster.pods_on(int(self.rows[position])))

    def used_ports(self, position: int) -> set[HostPort]:
        return self.cluster.ports.on_row.get(int(self.rows[position]), set())

    def positions_using_ports(self, ports: Iterable[HostPort]) -> IdColumn:
        """Rows where a pod uses one of the ports, on any address."""
        users = self.cluster.ports.rows
        rows = [used for port in ports if (used := users.get((port.protocol, port.port)))]
        return self.positions_of(rows[0] if len(rows) == 1 else set[int]().union(*rows))

    def node_info(self, position: int) -> NodeInfo:
        """One node as an object, for plugins that evaluate one node at a time."""
        return NodeInfo(self.cluster, int(self.rows[position]), self.pods_on(position))

    def node_infos(self) -> Iterator[NodeInfo]:
        """All of the rows as objects, one after the other."""
        cluster = self.cluster
        for row in self.rows.tolist():
            yield NodeInfo(cluster, row)

    # What a hypothesis adds or removes (nothing, here)

    def matching_change(self, query: PodQuery) -> IntColumn | int:
        """How many more pods match the query on each row than the cluster has there."""
        return 0

    def carried_change(self, carried: CarriedTerm) -> IntColumn | int:
        """How many more times the pods of each row carry the term than in the cluster."""
        return 0

    def added_terms(self) -> tuple[CarriedTerm, ...]:
        """The (anti-)affinity terms of hypothetical pods."""
        return ()

    # The same operations for columns and for one node

    @staticmethod
    def where(condition: Any, then: Any, otherwise: Any) -> Any:
        return np.where(condition, then, otherwise)

    @staticmethod
    def minimum(one: Any, other: Any) -> Any:
        return np.minimum(one, other)

    @staticmethod
    def maximum(one: Any, other: Any) -> Any:
        return np.maximum(one, other)

    @staticmethod
    def sqrt(value: Any) -> Any:
        return np.sqrt(value)

    @staticmethod
    def trunc(value: Any) -> Any:
        """Towards zero, as an integer."""
        return np.asarray(value).astype(np.int64)

    @staticmethod
    def any(condition: Any) -> bool:
        return bool(np.count_nonzero(condition))


class OneNode(NodeColumns):
    """The accessors of `NodeColumns` for one row: numbers where those return arrays.

    After a placement one row has changed. NumPy spends most of a microsecond on each operation however short
    the array; Python's own numbers are ten times faster there. So a plugin with `elementwise = True` (it only
    compares, adds, and calls `where`, `minimum` and so on of the columns it is given) is evaluated on such a
    row instead of on arrays of length one. It is written once.
    """

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


class NodeInfo:
    """A node and its pods. Read-only."""

    __slots__ = ("_cluster", "_pods", "_row")

    def __init__(self, cluster: Cluster, row: int, pods: Sequence[Pod] | None = None) -> None:
        self._cluster = cluster
        self._row = row
        self._pods = pods

    @property
    def pods(self) -> Sequence[Pod]:
        """The pods on the node (in a hypothesis: those that would be there)."""
        if self._pods is None:
            # Listed on first use: most plugins read only the Node object.
            self._pods = list(self._cluster.pods_on(self._row))
        return self._pods

    @property
    def row(self) -> int:
        """Its row in the columns of the cluster."""
        return self._row

    @property
    def node(self) -> Node:
        """The API object."""
        node = self._cluster.nodes.node[self._row]
        assert node is not None
        return node

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def labels(self) -> dict[str, str]:
        return self.node.labels

    @property
    def annotations(self) -> dict[str, str]:
        return self.node.annotations

    @property
    def taints(self) -> tuple[Taint, ...]:
        return self.node.spec.taints

    @property
    def unschedulable(self) -> bool:
        return self.node.spec.unschedulable

    def allocatable(self, resource: str) -> int:
        """cpu in milli, everything else in whole units."""
        return int(self._cluster.nodes.resource(resource).allocatable.cell[self._row])

    def requested(self, resource: str) -> int:
        """What the pods on the node request."""
        return sum(self._cluster.pod_infos.of(pod).requests.get(resource, 0) for pod in self.pods)

    def free(self, resource: str) -> int:
        return self.allocatable(resource) - self.requested(resource)
