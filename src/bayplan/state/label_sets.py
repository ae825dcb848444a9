"""Sets of pod labels, and the selectors that match them.

Many pods have the same labels in the same namespace. Each such set is interned once, so matching a pod
becomes a table lookup by the set's id, and a selector is evaluated once for each distinct set instead of once
for each pod. Two indexes reduce the number of evaluations: from a label to the sets that have it (for a new
selector), and from a label to the selectors that require it (for a new set).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from bayplan.api.selectors import EVERYTHING, Operator, Selector
from bayplan.state.interning import SharedIds

T = TypeVar("T", bound=Hashable)

_Label = tuple[str, str]
_Key = tuple[str, frozenset[_Label]]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class LabelSet:
    """The labels of a pod and its namespace. There is one for all that are equal (`LabelSets.intern`)."""

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

    `alive` excludes terminating pods.
    """

    parts: tuple[PodSelector, ...]
    alive: bool = False
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.parts, self.alive)))

    def __hash__(self) -> int:
        # A pod with thousands of terms has one query with as many parts for each topology key.
        return self._hash

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return all(part.matches(namespace, labels) for part in self.parts)


class SelectorIndex(Generic[T]):
    """Finds the selectors that may match given labels without trying all of them.

    An entry is indexed by one label that its selector requires (`app In (web)` by app=web), or, if it
    requires none, is among those that are always tried.
    """

    def __init__(self) -> None:
        self._by_label: dict[_Label, dict[T, None]] = {}
        self._always: dict[T, None] = {}

    def add(self, selector: Selector, entry: T) -> None:
        if selector.is_nothing:
            return
        labels = _required_labels(selector)
        if labels is None:
            self._always[entry] = None
        else:
            for label in labels:
                self._by_label.setdefault(label, {})[entry] = None

    def discard(self, selector: Selector, entry: T) -> None:
        self._always.pop(entry, None)
        for label in _required_labels(selector) or ():
            entries = self._by_label.get(label, {})
            entries.pop(entry, None)
            if not entries:
                self._by_label.pop(label, None)

    def candidates(self, labels: Mapping[str, str]) -> Iterator[T]:
        yield from self._always
        if self._by_label:
            for label in labels.items():
                yield from self._by_label.get(label, ())


def _required_labels(selector: Selector) -> list[_Label] | None:
    """Labels of which a pod must have one to match; None if the selector requires none."""
    for requirement in selector.requirements:
        if requirement.operator == Operator.IN:
            return [(requirement.key, value) for value in requirement.values]
    return None


def narrowest(query: PodQuery) -> Selector:
    """The part of a query to index it by: one that requires a label, if any does."""
    for part in query.parts:
        if any(requirement.operator == Operator.IN for requirement in part.selector.requirements):
            return part.selector
    return query.parts[0].selector if query.parts else EVERYTHING


class LabelSets:
    """All sets of labels in use: a reference to one keeps its id from being reused."""

    def __init__(self) -> None:
        self._sets: SharedIds[_Key, LabelSet] = SharedIds(self._forget)
        self._sets_with: dict[_Label, dict[int, None]] = {}
        self.fresh: list[LabelSet] = []
        """New sets, for code that stores something for each (`PodCounts`) and clears this."""

    def __len__(self) -> int:
        """The number of ids: the length of a table over them."""
        return len(self._sets)

    def __getitem__(self, set_id: int) -> LabelSet:
        """The set with an id that is in use."""
        return self._sets[set_id]

    def intern(self, namespace: str, labels: Mapping[str, str]) -> LabelSet:
        key = (namespace, frozenset(labels.items()))
        return self._sets.intern(key, lambda set_id: self._make(set_id, namespace, labels))

    def _make(self, set_id: int, namespace: str, labels: Mapping[str, str]) -> LabelSet:
        made = LabelSet(set_id, namespace, dict(labels))
        self.fresh.append(made)
        for label in labels.items():
            self._sets_with.setdefault(label, {})[set_id] = None
        return made

    def _forget(self, set_id: int, key: _Key) -> None:
        for label in key[1]:
            set_ids = self._sets_with[label]
            del set_ids[set_id]
            if not set_ids:
                del self._sets_with[label]

    def candidates(self, selector: Selector) -> Iterator[LabelSet]:
        """Sets that may match, by the first label that the selector requires."""
        if selector.is_nothing:
            return
        labels = _required_labels(selector)
        if labels is None:
            yield from self._sets
            return
        for label in labels:
            for set_id in self._sets_with.get(label, ()):
                found = self._sets.find(set_id)
                if found is not None:
                    yield found
