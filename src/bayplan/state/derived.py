"""Indexes that only some plugins need: created on first use, and brought up to date on every use.

The cluster itself updates what every cycle needs. An index over volumes would be wasted there for most pods;
here it costs nothing until the first pod with volumes, and then as much as has changed since the last one.
All users of one cluster share it. `NamespaceUsage` is the simplest; the others are in `devices.py`,
`disks.py`, `node_amounts.py`, `volumes.py` and `volume_binding.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

from bayplan.api.meta import Object
from bayplan.clock import Freshness
from bayplan.state.cluster import Cluster
from bayplan.state.objects import Lister, ObjectT

GroupT = TypeVar("GroupT", bound=Hashable)
ItemT = TypeVar("ItemT")


class Derived(Protocol):
    """An index. It must refer only to parts of the cluster, not to the cluster itself, so that both can be
    freed."""

    freshness: Freshness
    """What the index depends on."""

    def __init__(self, cluster: Cluster) -> None: ...

    def update(self, cluster: Cluster, rows: set[int]) -> None:
        """Brings these rows up to date, and processes the objects that changed (`ObjectReader`).

        After an exception the next call gets the same rows and objects again.
        """


DerivedT = TypeVar("DerivedT", bound=Derived)

_made: WeakKeyDictionary[Cluster, dict[type[Any], Any]] = WeakKeyDictionary()


def derived(cluster: Cluster, kind: type[DerivedT]) -> DerivedT:
    """The cluster's index of this kind, up to date."""
    indexes = _made.get(cluster)
    if indexes is None:
        indexes = _made[cluster] = {}
    index: DerivedT | None = indexes.get(kind)
    if index is None:
        index = indexes[kind] = kind(cluster)
    freshness = index.freshness
    if not freshness.is_current:
        with freshness as stale:
            index.update(cluster, changed_rows(stale, cluster))
    return index


def changed_rows(stale: Sequence[int] | None, cluster: Cluster) -> set[int]:
    """The rows to bring up to date, each once (`Freshness.stale_rows`)."""
    return set(range(cluster.nodes.high) if stale is None else stale)


class ObjectReader(Generic[ObjectT]):
    """Which objects of one kind changed since an index was up to date.

    If the update of the index fails, the next one gets the same objects again.
    """

    __slots__ = ("_freshness", "_known", "_removed")

    def __init__(self, freshness: Freshness) -> None:
        self._freshness = freshness
        """That of the index."""
        self._known: dict[tuple[str, str], ObjectT] = {}
        self._removed: list[ObjectT] = []
        """What the last call returned: the index may still have it."""

    def changed(self, lister: Lister[ObjectT]) -> tuple[list[ObjectT], list[ObjectT]]:
        """The objects that were removed since then and those that were added; a changed one is in both."""
        recorded = self._freshness.recorded(lister.changes)
        if recorded is None:
            removed, added = [*self._removed, *self._known.values()], list(lister)
            self._known = {(item.namespace, item.name): item for item in added}
        elif not recorded:
            removed, added = [], []
        else:
            first: dict[tuple[str, str], Object | None] = {}
            for before, now in recorded:
                item = now if before is None else before
                assert item is not None
                first.setdefault((item.metadata.namespace, item.metadata.name), before)
            removed, added = [], []
            for key, before in first.items():
                now = lister.get(key[1], key[0])
                if before is now:
                    continue
                if before is not None:
                    removed.append(cast(ObjectT, before))
                    self._known.pop(key, None)
                if now is not None:
                    added.append(now)
                    self._known[key] = now
        self._removed = removed
        return removed, added


class Groups(Generic[GroupT, ItemT]):
    """Items by group and, within it, by name. Empty groups are removed."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: dict[GroupT, dict[str, ItemT]] = {}

    def of(self, group: GroupT) -> Collection[ItemT]:
        found = self._items.get(group)
        return () if found is None else found.values()

    def put(self, group: GroupT, name: str, item: ItemT) -> None:
        self._items.setdefault(group, {})[name] = item

    def discard(self, group: GroupT, name: str) -> None:
        found = self._items.get(group)
        if found is not None:
            found.pop(name, None)
            if not found:
                del self._items[group]


_NOTHING: Mapping[str, int] = {}

_Sums = dict[str, dict[str, int]]
"""By namespace and resource: cpu in milli, everything else in whole units."""


class NamespaceUsage:
    """The sum of the requests of the assigned pods of each namespace.

    It includes assumed pods, so plugins need not update it in Reserve and Unreserve.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.freshness = cluster.changes.freshness(rows=(cluster.changes.usage,))
        self._rows: dict[int, _Sums] = {}
        self._total: _Sums = {}

    def update(self, cluster: Cluster, rows: set[int]) -> None:
        for row in rows:
            self._add(self._rows.pop(row, {}), -1)
            sums: _Sums = {}
            for slot in cluster.row_pods[row] if row < len(cluster.row_pods) else ():
                pod = cluster.pods.pod[slot]
                assert pod is not None
                here = sums.setdefault(pod.namespace, {})
                for resource, amount in cluster.pods.info_of(slot).requests.items():
                    here[resource] = here.get(resource, 0) + amount
            if sums:
                self._rows[row] = sums
                self._add(sums, 1)

    def _add(self, sums: Mapping[str, Mapping[str, int]], sign: int) -> None:
        for namespace, amounts in sums.items():
            total = self._total.setdefault(namespace, {})
            for resource, amount in amounts.items():
                total[resource] = total.get(resource, 0) + sign * amount
                if not total[resource]:
                    del total[resource]
            if not total:
                del self._total[namespace]

    def of(self, namespace: str) -> Mapping[str, int]:
        """What the pods of a namespace request on all nodes."""
        return self._total.get(namespace, _NOTHING)
