"""API objects that are neither pods nor nodes, by kind.

Plugins look them up by name. Every change is recorded in the topic of its kind (`Changes.kind`), so that
values that depend on a kind are brought up to date.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar, cast

from bayplan.api.meta import Object
from bayplan.snapshot.changes import Changes

ObjectT = TypeVar("ObjectT", bound=Object)


class Lister(Generic[ObjectT]):
    """All objects of one kind, in the order in which they were added."""

    __slots__ = ("_any", "_by_key", "changes")

    def __init__(self, kind: type[ObjectT], changes: Changes) -> None:
        self._any = changes.objects
        self.changes = changes.kind(kind)
        self._by_key: dict[tuple[str, str], ObjectT] = {}

    def __iter__(self) -> Iterator[ObjectT]:
        return iter(self._by_key.values())

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, name: str, namespace: str = "") -> ObjectT | None:
        return self._by_key.get((namespace, name))

    def put(self, item: ObjectT) -> None:
        key = (item.namespace, item.name)
        before = self._by_key.get(key)
        self._by_key[key] = item
        self._record(before, item)

    def remove(self, item: ObjectT) -> None:
        before = self._by_key.pop((item.namespace, item.name), None)
        if before is not None:
            self._record(before, None)

    def _record(self, before: ObjectT | None, after: ObjectT | None) -> None:
        self.changes.record((before, after))
        self._any.change()


class Objects:
    """A lister for each kind."""

    def __init__(self, changes: Changes | None = None) -> None:
        self._changes = Changes() if changes is None else changes
        self._listers: dict[type[Object], Lister[Object]] = {}

    def of(self, kind: type[ObjectT]) -> Lister[ObjectT]:
        found = self._listers.get(kind)
        if found is None:
            found = self._listers[kind] = cast("Lister[Object]", Lister(kind, self._changes))
        return cast("Lister[ObjectT]", found)

    def put(self, item: Object) -> None:
        self.of(type(item)).put(item)

    def remove(self, item: Object) -> None:
        self.of(type(item)).remove(item)
