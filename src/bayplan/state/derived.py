"""Indexes that only some plugins need: created on first use, and brought up to date on every use.

The cluster itself updates what every cycle needs. An index over volumes would be wasted there for most pods;
here it costs nothing until the first pod with volumes, and then as much as has changed since the last one.
All users of one cluster share it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

from bayplan.clock import NEVER, Freshness
from bayplan.state.cluster import Cluster
from bayplan.state.objects import Lister, ObjectT

GroupT = TypeVar("GroupT", bound=Hashable)
ItemT = TypeVar("ItemT")


class Derived(Protocol):
    """An index. It must refer only to parts of the cluster, not to the cluster itself, so that both can be
    freed."""

    def __init__(self, cluster: Cluster) -> None: ...

    def update(self, cluster: Cluster) -> None:
        """Processes what has changed since the last call."""


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
    index.update(cluster)
    return index


def changed_rows(freshness: Freshness, cluster: Cluster) -> Iterable[int]:
    """The rows to bring up to date, each once; the index counts as up to date from now on."""
    rows = freshness.stale_rows()
    freshness.mark_current()
    return range(cluster.nodes.high) if rows is None else set(rows)


class ObjectReader(Generic[ObjectT]):
    """Which objects of one kind changed since the last call."""

    __slots__ = ("_known", "_time")

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], ObjectT] = {}
        self._time = NEVER

    def changed(self, lister: Lister[ObjectT]) -> tuple[list[ObjectT], list[ObjectT]]:
        """The objects that were removed since the last call and those that were added; a changed one is in
        both."""
        changes = lister.changes
        if changes.changed_at <= self._time:
            return [], []
        recorded = changes.since(self._time)
        self._time = changes.clock.now
        if recorded is None:
            keys = dict.fromkeys([*self._known, *((item.namespace, item.name) for item in lister)])
        else:
            keys = {}
            for before, now in recorded:
                item = before if now is None else now
                assert item is not None
                keys[item.metadata.namespace, item.metadata.name] = None
        removed, added = [], []
        for namespace, name in keys:
            before, now = self._known.get((namespace, name)), lister.get(name, namespace)
            if before is now:
                continue
            if before is not None:
                removed.append(self._known.pop((namespace, name)))
            if now is not None:
                added.append(now)
                self._known[namespace, name] = now
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
