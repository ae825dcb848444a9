"""API objects that are neither pods nor nodes, by kind, with a version for each kind.

Rules look them up by name. `version` grows with every change of a kind, so that a result which depends on
one can tell whether it still holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar, cast

from bayplan.api.meta import Object

ObjectT = TypeVar("ObjectT", bound=Object)


class Lister(Generic[ObjectT]):
    """All objects of one kind, in the order in which they came."""

    __slots__ = ("_all", "_by_key", "version")

    def __init__(self, all_kinds: Objects) -> None:
        self._all = all_kinds
        self._by_key: dict[tuple[str, str], ObjectT] = {}
        self.version = 0

    def __iter__(self) -> Iterator[ObjectT]:
        return iter(self._by_key.values())

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, name: str, namespace: str = "") -> ObjectT | None:
        return self._by_key.get((namespace, name))

    def put(self, item: ObjectT) -> None:
        self._by_key[item.namespace, item.name] = item
        self._changed()

    def remove(self, item: ObjectT) -> None:
        if self._by_key.pop((item.namespace, item.name), None) is not None:
            self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._all.version += 1


class Objects:
    """A lister for each kind. `version` grows with every change of any of them."""

    def __init__(self) -> None:
        self.version = 0
        self._listers: dict[type[Object], Lister[Object]] = {}

    def of(self, kind: type[ObjectT]) -> Lister[ObjectT]:
        found = self._listers.get(kind)
        if found is None:
            found = self._listers[kind] = Lister(self)
        return cast("Lister[ObjectT]", found)

    def put(self, item: Object) -> None:
        self.of(type(item)).put(item)

    def remove(self, item: Object) -> None:
        self.of(type(item)).remove(item)

    def versions(self, kinds: tuple[type[Object], ...]) -> tuple[int, ...]:
        return tuple(self.of(kind).version for kind in kinds)
