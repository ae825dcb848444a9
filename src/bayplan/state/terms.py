"""Labels and affinity terms of pods, and the selectors that match them: each distinct one is stored once.

Many pods have the same labels in the same namespace. Each such set is interned (`LabelSets`), so matching a
pod becomes a table lookup by the set's id, and a selector is evaluated once for each distinct set instead of
once for each pod. Two indexes reduce the number of evaluations: from a label to the sets that have it (for a
new selector), and from a label to the selectors that require it (for a new set: `SelectorIndex`).

Required anti-affinity of a running pod excludes others, and its preferences attract or repel them.
Evaluating every running pod for every incoming one is what makes affinity slow upstream. `CarriedTerms` has
each distinct term once, with a column of the number of pods on each node that carry it; an incoming pod is
compared with the terms (found by its labels), never with the pods. The opposite direction, pods that match a
selector, is in `counts.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from bayplan.api.pod import Pod, PodAffinityTerm
from bayplan.api.selectors import EVERYTHING, NOTHING, Operator, Selector, compile_selector
from bayplan.clock import COUNT_HISTORY, Changes, Clock, Log
from bayplan.errors import SelectorError
from bayplan.state.columns import Column, SharedIds, Table

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


MAX_MATCHED: Final = 10_000
"""The maximum number of label sets whose matching terms are cached (more if there are many terms), and of
term sets whose columns are."""


class TermKind(IntEnum):
    REQUIRED_AFFINITY = 0
    REQUIRED_ANTI_AFFINITY = 1
    PREFERRED_AFFINITY = 2
    PREFERRED_ANTI_AFFINITY = 3


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """A parsed term: which pods it selects, and its topology key.

    `namespaces` are those listed, or the owner's by default. A pod is selected if its namespace is among them
    or `namespace_selector` matches its namespace's labels.
    """

    topology_key: str
    namespaces: frozenset[str]
    namespace_selector: Selector
    selector: Selector

    def matches(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
        return (
            namespace in self.namespaces or self.namespace_selector.matches(namespace_labels)
        ) and self.selector.matches(labels)


@dataclass(frozen=True, slots=True)
class CarriedTerm:
    """A term of an assigned pod. `weight` is that of a preference, 0 for a required term."""

    kind: TermKind
    weight: int
    term: AffinityTerm


def parse_term(term: PodAffinityTerm, owner_namespace: str) -> AffinityTerm:
    """Raises SelectorError if a selector is malformed."""
    namespaces = term.namespaces
    if not namespaces and term.namespace_selector is None:
        namespaces = (owner_namespace,)
    return AffinityTerm(
        topology_key=term.topology_key,
        namespaces=frozenset(namespaces),
        namespace_selector=(
            NOTHING if term.namespace_selector is None else compile_selector(term.namespace_selector)
        ),
        selector=compile_selector(term.label_selector),
    )


def parse_terms(
    terms: Iterable[tuple[int, PodAffinityTerm]], owner_namespace: str
) -> tuple[tuple[int, AffinityTerm], ...]:
    return tuple((weight, parse_term(term, owner_namespace)) for weight, term in terms)


def pod_terms(pod: Pod, kind: TermKind) -> tuple[tuple[int, PodAffinityTerm], ...]:
    """The terms of one kind as written, each with its weight (0 for required ones)."""
    affinity = pod.spec.affinity
    if affinity is None:
        return ()
    anti = kind in (TermKind.REQUIRED_ANTI_AFFINITY, TermKind.PREFERRED_ANTI_AFFINITY)
    terms = affinity.pod_anti_affinity if anti else affinity.pod_affinity
    if terms is None:
        return ()
    if kind in (TermKind.REQUIRED_AFFINITY, TermKind.REQUIRED_ANTI_AFFINITY):
        return tuple((0, term) for term in terms.required)
    return tuple((weighted.weight, weighted.pod_affinity_term) for weighted in terms.preferred)


def carried_terms(pod: Pod) -> tuple[CarriedTerm, ...]:
    """The terms of the pod that affect other pods. A list with a malformed term counts as empty, as
    upstream."""
    carried: list[CarriedTerm] = []
    if pod.spec.affinity is None:
        return ()
    for kind in TermKind:
        try:
            parsed = parse_terms(pod_terms(pod, kind), pod.namespace)
        except SelectorError:
            continue
        carried.extend(CarriedTerm(kind, weight, term) for weight, term in parsed)
    return tuple(carried)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class TermSet:
    """The terms of a pod. There is one for all that are equal (`TermSets.intern`)."""

    id: int
    carried: tuple[CarriedTerm, ...]


class TermSets:
    """All sets of terms in use; the empty set has the id 0."""

    def __init__(self) -> None:
        self._sets: SharedIds[tuple[CarriedTerm, ...], TermSet] = SharedIds(self._forget)
        self._holding: dict[CarriedTerm, Counter[int]] = {}
        """For each term the ids of the sets that have it, and how often."""
        self._none = self.intern(())

    def __len__(self) -> int:
        """The number of ids."""
        return len(self._sets)

    def __getitem__(self, terms_id: int) -> TermSet:
        """The terms with an id that is in use."""
        return self._sets[terms_id]

    def intern(self, carried: tuple[CarriedTerm, ...]) -> TermSet:
        return self._sets.intern(carried, lambda terms_id: self._make(terms_id, carried))

    def _make(self, terms_id: int, carried: tuple[CarriedTerm, ...]) -> TermSet:
        for term in carried:
            self._holding.setdefault(term, Counter())[terms_id] += 1
        return TermSet(terms_id, carried)

    def _forget(self, terms_id: int, carried: tuple[CarriedTerm, ...]) -> None:
        for term in set(carried):
            holding = self._holding[term]
            del holding[terms_id]
            if not holding:
                del self._holding[term]

    def multiplicity(self, carried: CarriedTerm) -> NDArray[np.int64]:
        """A table over the ids: how often each set has this term."""
        table = np.zeros(len(self), dtype=np.int64)
        for terms_id, times in self._holding.get(carried, {}).items():
            table[terms_id] = times
        return table


class TermCarriers:
    """One term and how often the pods on each node carry it."""

    __slots__ = ("carried", "changed", "column", "total")

    def __init__(self, carried: CarriedTerm, column: Column, clock: Clock) -> None:
        self.carried = carried
        self.column = column
        self.changed: Log[int] = Log(clock, COUNT_HISTORY)
        """The rows where a pod with the term was added or removed."""
        self.total = 0


MatchingTerms = Mapping[TermKind, tuple[TermCarriers, ...]]
NO_TERMS: Final[MatchingTerms] = dict.fromkeys(TermKind, ())


class CarriedTerms:
    """All terms of assigned pods.

    A term whose last carrier is gone is dropped. The topic `terms` changes when a term appears or disappears.
    """

    def __init__(self, nodes: Table, changes: Changes) -> None:
        self._nodes = nodes
        self._topic = changes.terms
        self._carriers: dict[CarriedTerm, TermCarriers] = {}
        self._index: SelectorIndex[CarriedTerm] = SelectorIndex()
        self._matching: dict[LabelSet, tuple[Mapping[str, str], MatchingTerms]] = {}
        """For each set of labels that was asked for: the labels of its namespace, and the terms."""
        self._of_terms: dict[TermSet, list[TermCarriers]] = {}

    def __len__(self) -> int:
        return len(self._carriers)

    def __iter__(self) -> Iterator[CarriedTerm]:
        return iter(self._carriers)

    def add(self, terms: TermSet, row: int, change: int) -> None:
        """A pod with these terms was added to the row (change 1) or removed (-1)."""
        for carriers in self._resolve(terms):
            carriers.column.cell[row] += change
            carriers.changed.record(row)
            carriers.total += change
            if carriers.total == 0:
                self._drop(carriers)

    def _resolve(self, terms: TermSet) -> list[TermCarriers]:
        known = self._of_terms.get(terms)
        if known is not None:
            return known
        if len(self._of_terms) >= MAX_MATCHED:
            self._of_terms.clear()
        found = []
        for carried in terms.carried:
            carriers = self._carriers.get(carried)
            if carriers is None:
                carriers = TermCarriers(carried, self._nodes.column(np.int64), self._topic.clock)
                self._carriers[carried] = carriers
                self._index.add(carried.term.selector, carried)
                self._terms_changed()
            found.append(carriers)
        self._of_terms[terms] = found
        return found

    def _drop(self, carriers: TermCarriers) -> None:
        del self._carriers[carriers.carried]
        self._index.discard(carriers.carried.term.selector, carriers.carried)
        self._nodes.drop_column(carriers.column)
        self._of_terms.clear()
        self._terms_changed()

    def _terms_changed(self) -> None:
        self._matching.clear()
        self._topic.change()

    def matching(self, label_set: LabelSet, namespace_labels: Mapping[str, str]) -> MatchingTerms:
        """The terms, by kind, that select a pod with these labels."""
        if not self._carriers:
            return NO_TERMS
        known = self._matching.get(label_set)
        if known is not None and known[0] == namespace_labels:
            return known[1]
        if len(self._matching) >= MAX_MATCHED + 2 * len(self._carriers):
            self._matching.clear()
        found: dict[TermKind, list[TermCarriers]] = {kind: [] for kind in TermKind}
        for carried in self._index.candidates(label_set.labels):
            if carried.term.matches(label_set.namespace, label_set.labels, namespace_labels):
                found[carried.kind].append(self._carriers[carried])
        matching = {kind: tuple(carriers) for kind, carriers in found.items()}
        self._matching[label_set] = (namespace_labels, matching)
        return matching
