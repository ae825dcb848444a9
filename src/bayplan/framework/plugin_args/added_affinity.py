"""The node affinity that a profile adds to its pods, as it is written in NodeAffinity's arguments.

The plugin uses the API's record, which `node_affinity` returns. The fields are repeated here because a
configuration distinguishes what a pod does not: a missing list and an empty one are printed differently, in
the written configuration and in error texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from bayplan.api.pod import NodeAffinity
from bayplan.api.selectors import Operator, requirement_problems
from bayplan.framework.plugin_args.base import ArgsRecord, Int32
from bayplan.framework.plugin_args.field_errors import FieldError, at, compact_json, unsupported

_FIELD_OPERATORS: Final = (Operator.IN, Operator.NOT_IN)


class WrittenRequirement(ArgsRecord, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None

    def label_problems(self, path: str) -> Iterator[FieldError]:
        """What is wrong with this as a requirement on a label."""
        if self.operator not in tuple(Operator):
            yield unsupported(at(path, "operator"), self.operator, tuple(Operator))
            return
        for text in requirement_problems(self.key, Operator(self.operator), self.values or (), path):
            where, _, message = text.partition(": ")
            if self.values == ():
                message = message.replace("Invalid value: null", "Invalid value: []", 1)
            yield FieldError(where, message)

    def field_problems(self, path: str) -> Iterator[FieldError]:
        """What is wrong with this as a requirement on a field of the node."""
        if self.operator not in _FIELD_OPERATORS:
            yield unsupported(at(path, "operator"), self.operator, _FIELD_OPERATORS)
        elif self.values is None or len(self.values) != 1:
            message = f"Invalid value: {compact_json(self.values)}: must have one element"
            yield FieldError(at(path, "values"), message)


class WrittenTerm(ArgsRecord, frozen=True):
    match_expressions: tuple[WrittenRequirement, ...] = ()
    match_fields: tuple[WrittenRequirement, ...] = ()

    def problems(self, path: str) -> Iterator[FieldError]:
        for i, requirement in enumerate(self.match_expressions):
            yield from requirement.label_problems(at(path, "matchExpressions", i))
        for i, requirement in enumerate(self.match_fields):
            yield from requirement.field_problems(at(path, "matchFields", i))


class WrittenSelector(ArgsRecord, frozen=True):
    node_selector_terms: tuple[WrittenTerm, ...] | None = None

    def to_wire(self) -> dict[str, object]:
        # The only list of the API that is written even if it is empty or missing.
        terms = self.node_selector_terms
        return {"nodeSelectorTerms": None if terms is None else [term.to_wire() for term in terms]}


class WrittenPreference(ArgsRecord, frozen=True):
    weight: Int32 = 0
    preference: WrittenTerm = WrittenTerm()


class AddedAffinity(ArgsRecord, frozen=True):
    """A node affinity that is added to every pod of the profile."""

    required: WrittenSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[WrittenPreference, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )

    @property
    def node_affinity(self) -> NodeAffinity:
        """The same as the API's record."""
        wire = self.to_wire()
        if self.required is not None and self.required.node_selector_terms is None:
            wire["requiredDuringSchedulingIgnoredDuringExecution"] = {}
        return msgspec.convert(wire, NodeAffinity)

    @classmethod
    def from_node_affinity(cls, affinity: NodeAffinity) -> AddedAffinity:
        """The API's record as it would be written."""
        return msgspec.convert(msgspec.to_builtins(affinity), cls)

    def problems(self, path: str) -> Iterator[FieldError]:
        """The parse errors; terms that are empty or have no weight are ignored."""
        if self.required is not None:
            terms = self.required.node_selector_terms or ()
            where = at(path, "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
            yield from _problems_of_terms(enumerate(terms), where)
        weighing = ((i, term.preference) for i, term in enumerate(self.preferred) if term.weight)
        yield from _problems_of_terms(weighing, at(path, "preferredDuringSchedulingIgnoredDuringExecution"))


def _problems_of_terms(terms: Iterable[tuple[int, WrittenTerm]], path: str) -> Iterator[FieldError]:
    for i, term in terms:
        yield from term.problems(at(path, i))
