"""Nodes as columns: the table of all nodes.

A row belongs to a node name, not to a Node object: pods can be bound to a node before the node is seen, and
remain when it is deleted. Such a row has `exists` False and is never passed to a plugin.

`NodeTree` is the order in which nodes are evaluated: round robin over zones. Order matters if scores tie and
if nodes are sampled, so it is exactly upstream's: zones in the order they were first seen, nodes of a zone in
the order they were added, and the list alternates between the zones. The list is rebuilt only when a node is
added or removed; a node whose zone label changes moves in the tree at once but keeps its position in the list
until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntFlag
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from bayplan.api.meta import Quantity
from bayplan.api.node import Node, Taint
from bayplan.api.quantity import (
    MAX_REQUEST,
    is_scalar_resource,
    milli_value,
    saturated_allocatable,
    saturated_request,
    value,
)
from bayplan.clock import Changes
from bayplan.state.columns import ABSENT, Column, IdColumn, Interner, Table

if TYPE_CHECKING:
    from bayplan.state.pods import PodInfo

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"


class NodeChange(IntFlag):
    """What a new Node object changed, as far as plugins can see."""

    NOTHING = 0
    ALLOCATABLE = 1
    LABELS = 2
    TAINTS = 4
    IMAGES = 8
    FEATURES = 16
    OTHER = 32


_ALLOCATABLE: Final = NodeChange.ALLOCATABLE.value
_LABELS: Final = NodeChange.LABELS.value
_TAINTS: Final = NodeChange.TAINTS.value
_IMAGES: Final = NodeChange.IMAGES.value
_FEATURES: Final = NodeChange.FEATURES.value
_OTHER: Final = NodeChange.OTHER.value


class ResourceColumns:
    """Allocatable and requested amounts of one resource. cpu is in milli, all else in whole units."""

    __slots__ = ("allocatable", "requested")

    def __init__(self, table: Table) -> None:
        self.allocatable = table.column(np.int64)
        self.requested = table.column(np.int64)


class LabelColumn:
    """The values of one label key, as ids of `values`; ABSENT where a node lacks the key."""

    __slots__ = ("column", "values")

    def __init__(self, table: Table) -> None:
        self.values: Interner[str] = Interner()
        self.column = table.column(np.intp, ABSENT)

    def set(self, row: int, value: str | None) -> None:
        self.column.cell[row] = ABSENT if value is None else self.values.intern(value)


class ImageState:
    """One image name: its size as reported by the first node that had it, and which rows have it."""

    __slots__ = ("rows", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.rows: set[int] = set()


class NodeTable(Table):
    """Columns over node rows.

    | column | dtype | unit | meaning |
    |---|---|---|---|
    | exists | bool | | there is a Node object |
    | unschedulable | bool | | cordoned |
    | taint_set | id | | its list of taints |
    | feature_set | id | | its declared features |
    | listed_set | id | | the resources that it lists as allocatable, even with the amount 0 |
    | allowed_pods, pod_count | int64 | pods | how many may be there, how many are |
    | resource(r).allocatable, .requested | int64 | milli or units | of each resource seen |
    | nonzero_cpu_milli, nonzero_memory_bytes | int64 | | requested, with defaults for pods without requests |
    | label(key) | id | | the value of a label that some plugin reads |
    """

    def __init__(self, changes: Changes | None = None) -> None:
        super().__init__(None if changes is None else changes.size)
        self.node: list[Node | None] = []
        self.name: list[str] = []
        self.row_of: dict[str, int] = {}
        self.exists = self.column(np.bool_, False)
        self.unschedulable = self.column(np.bool_, False)
        self.taint_lists: Interner[tuple[Taint, ...]] = Interner()
        self.taint_set = self.column(np.intp, ABSENT)
        self.feature_lists: Interner[frozenset[str]] = Interner()
        self.feature_set = self.column(np.intp, ABSENT)
        self.listed_resources: Interner[frozenset[str]] = Interner()
        self.listed_set = self.column(np.intp, ABSENT)
        self.allowed_pods = self.column(np.int64)
        self.pod_count = self.column(np.int64)
        self.nonzero_cpu_milli = self.column(np.int64)
        self.nonzero_memory_bytes = self.column(np.int64)
        self.images: dict[str, ImageState] = {}
        self._resources: dict[str, ResourceColumns] = {}
        self._labels: dict[str, LabelColumn] = {}
        for resource in (CPU, MEMORY, EPHEMERAL_STORAGE):
            self.resource(resource)

    def row_for(self, name: str) -> int:
        """The row of a node name, allocated if it has none."""
        row = self.row_of.get(name)
        if row is None:
            row = self.row_of[name] = self.take_row()
            if row == len(self.node):
                self.node.append(None)
                self.name.append(name)
            self.name[row] = name
        return row

    def release(self, row: int) -> None:
        del self.row_of[self.name[row]]
        self.name[row] = ""
        self.free_row(row)

    def resource(self, name: str) -> ResourceColumns:
        columns = self._resources.get(name)
        if columns is None:
            columns = self._resources[name] = ResourceColumns(self)
        return columns

    def resource_names(self) -> list[str]:
        return list(self._resources)

    def label(self, key: str) -> LabelColumn:
        """The column of a label key. It is created on first use, from all nodes."""
        column = self._labels.get(key)
        if column is None:
            column = self._labels[key] = LabelColumn(self)
            for row, node in enumerate(self.node):
                if node is not None and key in node.labels:
                    column.set(row, node.labels[key])
        return column

    def set_node(self, row: int, node: Node) -> NodeChange:
        """Writes a Node object into its row and returns what that changed."""
        old = self.node[row]
        self.node[row] = node
        self.exists.cell[row] = True
        # In plain numbers: a cluster has thousands of nodes, and flags take a microsecond to combine.
        change = 0
        if old is None or old.status.allocatable != node.status.allocatable:
            change |= _ALLOCATABLE
            self._set_allocatable(row, node)
        if old is None or old.labels != node.labels:
            change |= _LABELS
            for key, column in self._labels.items():
                column.set(row, node.labels.get(key))
        if old is None or (old.spec.taints, old.spec.unschedulable) != (
            node.spec.taints,
            node.spec.unschedulable,
        ):
            change |= _TAINTS
            self.unschedulable.cell[row] = node.spec.unschedulable
            self.taint_set.cell[row] = self.taint_lists.intern(node.spec.taints)
        if old is None or old.status.declared_features != node.status.declared_features:
            change |= _FEATURES
            self.feature_set.cell[row] = self.feature_lists.intern(frozenset(node.status.declared_features))
        if old is None or old.status.images != node.status.images:
            change |= _IMAGES
            self._forget_images(row, old)
            for image in node.status.images:
                for name in image.names:
                    self.images.setdefault(
                        name, ImageState(saturated_allocatable(image.size_bytes))
                    ).rows.add(row)
        if old is None or old.annotations != node.annotations:
            change |= _OTHER
        return NodeChange(change)

    def clear_node(self, row: int) -> None:
        """The Node object was deleted; its pods stay counted."""
        self._forget_images(row, self.node[row])
        self.node[row] = None
        for column in (
            self.exists,
            self.unschedulable,
            self.taint_set,
            self.feature_set,
            self.listed_set,
            self.allowed_pods,
            *(columns.allocatable for columns in self._resources.values()),
            *(label.column for label in self._labels.values()),
        ):
            column.cell[row] = column.fill

    def add_requests(self, infos: Sequence[PodInfo], rows: IdColumn, sign: int = 1) -> list[int]:
        """Adds the requests of one pod for each info to its row, or subtracts them (sign -1).

        Returns rows whose sums have to be recounted: they may be too large for a column.
        """
        distinct = {id(info): info for info in infos}
        index = {key: number for number, key in enumerate(distinct)}
        of_pod = np.array([index[id(info)] for info in infos], dtype=np.intp)
        amounts: dict[int, tuple[Column, NDArray[np.int64]]] = {}
        for number, info in enumerate(distinct.values()):
            if info.is_large:
                continue  # Its rows are recounted.
            own = (
                (self.pod_count, 1),
                (self.nonzero_cpu_milli, info.nonzero_cpu_milli),
                (self.nonzero_memory_bytes, info.nonzero_memory_bytes),
                *((requested, amount) for requested, _, amount in info.counted),
            )
            for column, amount in own:
                if id(column) not in amounts:
                    amounts[id(column)] = column, np.zeros(len(distinct), dtype=np.int64)
                amounts[id(column)][1][number] = amount
        too_large = np.zeros(self.high, dtype=np.bool_)
        for column, by_info in amounts.values():
            added = by_info[of_pod]
            np.add.at(column.array, rows, (sign * added).astype(column.array.dtype))
            too_large |= np.bincount(rows, weights=added, minlength=self.high) > MAX_REQUEST // 4
        return np.flatnonzero(too_large).tolist()

    def recount(self, row: int, pods: Sequence[PodInfo]) -> bool:
        """Writes the sum of the requests of a row's pods. False if a sum had to be saturated."""
        sums: dict[str, int] = dict.fromkeys(self._resources, 0)
        for info in pods:
            for resource, amount in info.requests.items():
                sums[resource] += amount
        cpu_milli = sum(info.nonzero_cpu_milli for info in pods)
        memory_bytes = sum(info.nonzero_memory_bytes for info in pods)
        self.pod_count.cell[row] = len(pods)
        self.nonzero_cpu_milli.cell[row] = saturated_request(cpu_milli)
        self.nonzero_memory_bytes.cell[row] = saturated_request(memory_bytes)
        for resource, total in sums.items():
            self._resources[resource].requested.cell[row] = saturated_request(total)
        return max(cpu_milli, memory_bytes, *sums.values()) <= MAX_REQUEST

    def _set_allocatable(self, row: int, node: Node) -> None:
        for columns in self._resources.values():
            columns.allocatable.cell[row] = 0
        self.allowed_pods.cell[row] = 0
        self.listed_set.cell[row] = self.listed_resources.intern(frozenset(node.status.allocatable))
        for name, quantity in node.status.allocatable.items():
            amount = _allocatable(name, quantity)
            if name == PODS:
                self.allowed_pods.cell[row] = amount
            elif amount is not None:
                self.resource(name).allocatable.cell[row] = amount

    def _forget_images(self, row: int, node: Node | None) -> None:
        for image in node.status.images if node is not None else ():
            for name in image.names:
                state = self.images.get(name)
                if state is not None:
                    state.rows.discard(row)
                    if not state.rows:
                        del self.images[name]


@lru_cache(maxsize=4096)
def _allocatable(name: str, quantity: Quantity) -> int | None:
    """How much of a resource a node has, in the unit of its column; None if there is no column.

    Cached: most nodes of a cluster have the same amounts.
    """
    if name == CPU:
        return saturated_allocatable(milli_value(quantity))
    if name in (PODS, MEMORY, EPHEMERAL_STORAGE) or is_scalar_resource(name):
        return saturated_allocatable(value(quantity))
    return None


REGION_LABELS: Final = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")
ZONE_LABELS: Final = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")


def zone_of(labels: Mapping[str, str]) -> str:
    """The key of a node's zone: region and zone together, empty if it has neither."""
    region = next((labels[key] for key in REGION_LABELS if key in labels), "")
    zone = next((labels[key] for key in ZONE_LABELS if key in labels), "")
    return f"{region}:\0:{zone}" if region or zone else ""


class NodeTree:
    """Node names by zone."""

    def __init__(self) -> None:
        self._zones: dict[str, dict[str, None]] = {}
        self._zone_of: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._zone_of)

    def add(self, name: str, labels: Mapping[str, str]) -> None:
        zone = zone_of(labels)
        self._zones.setdefault(zone, {})[name] = None
        self._zone_of[name] = zone

    def remove(self, name: str) -> None:
        zone = self._zone_of.pop(name)
        names = self._zones[zone]
        del names[name]
        if not names:
            del self._zones[zone]

    def update(self, name: str, labels: Mapping[str, str]) -> None:
        if self._zone_of[name] != zone_of(labels):
            self.remove(name)
            self.add(name, labels)

    def restorer(self) -> Callable[[], None]:
        """A function that restores the current order. Call it when the same nodes are here again."""
        zones = [(zone, list(names)) for zone, names in self._zones.items()]

        def restore() -> None:
            self._zones = {zone: dict.fromkeys(names) for zone, names in zones}
            self._zone_of = {name: zone for zone, names in zones for name in names}

        return restore

    def names(self) -> Iterator[str]:
        """First node of every zone, then the second of every zone that has one, and so on."""
        turns = [iter(names) for names in self._zones.values()]
        while turns:
            left = []
            for turn in turns:
                name = next(turn, None)
                if name is not None:
                    yield name
                    left.append(turn)
            turns = left
