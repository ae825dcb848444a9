"""Indexes that only some rules need: made when first asked for, and brought up to date when asked for again.

What every cycle needs, the cluster keeps in step itself. An index over volumes would be dead weight there for
most pods; here it costs nothing until a pod with volumes comes, and then as much as has changed since the
last one. All who ask about one cluster share it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from bayplan.snapshot.changes import ChangeLog
from bayplan.snapshot.cluster import Cluster


class Derived(Protocol):
    """An index. It must not hold on to the cluster, only to parts of it, lest neither is ever freed."""

    def __init__(self, cluster: Cluster) -> None: ...

    def update(self, cluster: Cluster) -> None:
        """Takes in what has changed since the last call."""


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


class LogReader:
    """Follows one of the cluster's logs of changed rows."""

    __slots__ = ("_cursor",)

    def __init__(self) -> None:
        self._cursor = -1

    def changed(self, log: ChangeLog, rows: int) -> Iterable[int]:
        """The rows that changed since the last call; all of them the first time."""
        changed = log.since(self._cursor) if self._cursor >= 0 else None
        self._cursor = log.end
        return range(rows) if changed is None else set(changed)
