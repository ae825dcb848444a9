"""Sets of pod labels, and the selectors that ask about them.

Many pods carry the same labels in the same namespace. Each such set is interned once, so "does this selector
match this pod" becomes a table lookup by the set's id, and a selector is evaluated once for each distinct set
instead of once for each pod. Two indexes keep the number of evaluations small: from a label to the sets that
carry it (for a new selector), and from a label to the selectors that insist on it (for a new set).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from bayplan.api.selectors import EVERYTHING, Operator, Selector

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class LabelSet:
    """The labels of a pod and its namespace. Equal sets share one id."""

    id: int
    namespace: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PodSelector:
    """Pods of some namespaces (None: of all) whose labels match."""

    namespaces: frozenset[str] | None
    selector: Selector

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return (self.namespaces is None or namespace in self.namespaces) and self.selector.matches(labels)


@dataclass(frozen=True, slots=True)
class PodQuery:
    """Which pods to count: those that match every part.

    `alive` leaves out pods that are being deleted.
    """

    parts: tuple[PodSelector, ...]
    alive: bool = False

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return all(part.matches(namespace, labels) for part in self.parts)


class SelectorIndex(Generic[T]):
    """Finds the selectors that may match given labels without trying them all.

    An entry stands under one label that its selector insists on (`app In (web)` stands under app=web), or,
    where it insists on none, among those that are always tried.
    """

    def __init__(self) -> None:
        self._by_label: dict[tuple[str, str], dict[T, None]] = {}
        self._always: dict[T, None] = {}

    def add(self, selector: Selector, entry: T) -> None:
        for place in self._places(selector):
            place[entry] = None

    def discard(self, selector: Selector, entry: T) -> None:
        for place in self._places(selector):
            place.pop(entry, None)

    def candidates(self, labels: Mapping[str, str]) -> Iterator[T]:
        yield from self._always
        if self._by_label:
            for label in labels.items():
                yield from self._by_label.get(label, ())

    def _places(self, selector: Selector) -> Iterator[dict[T, None]]:
        if selector.is_nothing:
            return
        for requirement in selector.requirements:
            if requirement.operator == Operator.IN:
                for value in requirement.values:
                    yield self._by_label.setdefault((requirement.key, value), {})
                return
        yield self._always


def narrowest(query: PodQuery) -> Selector:
    """The part of a query to index it by: one that insists on a label, if any does."""
    for part in query.parts:
        if any(requirement.operator == Operator.IN for requirement in part.selector.requirements):
            return part.selector
    return query.parts[0].selector if query.parts else EVERYTHING


class LabelSets:
    """All sets of labels seen so far."""

    def __init__(self) -> None:
        self.all: list[LabelSet] = []
        self._ids: dict[tuple[str, frozenset[tuple[str, str]]], LabelSet] = {}
        self._carrying: dict[tuple[str, str], list[LabelSet]] = {}

    def intern(self, namespace: str, labels: Mapping[str, str]) -> LabelSet:
        key = (namespace, frozenset(labels.items()))
        found = self._ids.get(key)
        if found is None:
            found = self._ids[key] = LabelSet(len(self.all), namespace, dict(labels))
            self.all.append(found)
            for label in labels.items():
                self._carrying.setdefault(label, []).append(found)
        return found

    def candidates(self, selector: Selector) -> Iterable[LabelSet]:
        """Sets that may match, by the first label that the selector insists on."""
        if selector.is_nothing:
            return ()
        for requirement in selector.requirements:
            if requirement.operator == Operator.IN:
                return [
                    found
                    for value in requirement.values
                    for found in self._carrying.get((requirement.key, value), ())
                ]
        return self.all
