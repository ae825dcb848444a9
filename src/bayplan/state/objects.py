"""API objects that are neither pods nor nodes, by kind.

Plugins look them up by name. Every change is recorded in the topic of its kind (`Changes.kind`), so that
values that depend on a kind are brought up to date.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from bayplan.api.meta import Object
from bayplan.clock import Changes
from bayplan.state.undo import UndoLog

ObjectT = TypeVar("ObjectT", bound=Object)


class Lister(Generic[ObjectT]):
    """All objects of one kind, in the order in which they were added."""

    __slots__ = ("_any", "_by_key", "_row_of", "_rows", "_undo", "changes")

    def __init__(self, kind: type[ObjectT], changes: Changes, undo: UndoLog | None = None) -> None:
        self._any = None if kind.is_per_pod else changes.objects
        self._undo = UndoLog() if undo is None else undo
        self.changes = changes.kind(kind)
        self._rows = changes.nodes
        self._row_of: Mapping[str, int] = {}
        self._by_key: dict[tuple[str, str], ObjectT] = {}

    def __iter__(self) -> Iterator[ObjectT]:
        return iter(self._by_key.values())

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, name: str, namespace: str = "") -> ObjectT | None:
        return self._by_key.get((namespace, name))

    def belongs_to_nodes(self, row_of: Mapping[str, int]) -> None:
        """Each object has the name of its node: from now on its changes are also changes of that row."""
        self._row_of = row_of

    def put(self, item: ObjectT) -> None:
        meta = item.metadata
        key = (meta.namespace, meta.name)
        before = self._by_key.get(key)
        self._by_key[key] = item
        if self._undo.active:
            self._undo.record(lambda: self.remove(item) if before is None else self.put(before))
        self._record(before, item)

    def remove(self, item: ObjectT) -> None:
        key = (item.namespace, item.name)
        before = self._by_key.get(key)
        if before is None:
            return
        if self._undo.active:
            order = list(self._by_key)
            self._undo.record(lambda: self._restore(before, order))
        del self._by_key[key]
        self._record(before, None)

    def _restore(self, item: ObjectT, order: list[tuple[str, str]]) -> None:
        """Reverts a removal, at the old position in the order."""
        self.put(item)
        self._by_key = {key: self._by_key[key] for key in order}

    def _record(self, before: ObjectT | None, after: ObjectT | None) -> None:
        self.changes.record((before, after))
        if self._row_of:
            item = after or before
            row = None if item is None else self._row_of.get(item.name)
            if row is not None:
                self._rows.record(row)
        if self._any is not None:
            self._any.change()


class Objects:
    """A lister for each kind."""

    def __init__(self, changes: Changes | None = None, undo: UndoLog | None = None) -> None:
        self._changes = Changes() if changes is None else changes
        self._undo = UndoLog() if undo is None else undo
        self._listers: dict[type[Object], Lister[Any]] = {}

    def of(self, kind: type[ObjectT]) -> Lister[ObjectT]:
        try:
            return self._listers[kind]
        except KeyError:
            made = self._listers[kind] = Lister(kind, self._changes, self._undo)
            return made

    def put(self, item: Object) -> None:
        self.of(type(item)).put(item)

    def remove(self, item: Object) -> None:
        self.of(type(item)).remove(item)
