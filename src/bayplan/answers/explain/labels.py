"""Which labels nodes lack to match a node selector: of the pod, of a volume, or of a storage class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from bayplan.answers.explain.rejections import Subject
from bayplan.answers.explain.remedies import NO_LABEL, LabelChanges, MatchLabels
from bayplan.api.node import Node
from bayplan.api.node_selectors import NAME_FIELD, CompiledTerm, field_matches
from bayplan.api.selectors import Operator, Requirement


def label_remedies(
    subject: Subject,
    terms: Sequence[CompiledTerm],
    origin: str = "",
    also: Sequence[Requirement] = (),
) -> list[MatchLabels]:
    """What nodes would need to match one of these terms; nothing for nodes that do.

    Terms that no labels can match, together with the requirements that apply `also`, are left out.
    """
    usable = [term for term in terms if can_match(term, also)]
    found: dict[tuple[tuple[Requirement, ...], ...], list[Node]] = {}
    changes: dict[tuple[tuple[Requirement, ...], ...], tuple[LabelChanges, ...]] = {}
    for node in subject.node_objects():
        if any(term.error is None and not any(_missed(term, node)) for term in terms):
            continue
        missed = {tuple(_missed(term, node)): term for term in usable}
        fewest = min(map(len, missed), default=0)
        nearest = {one: term for one, term in missed.items() if len(one) == fewest}
        if nearest:
            found.setdefault(tuple(nearest), []).append(node)
            changes[tuple(nearest)] = tuple(
                _label_changes(one, (*term.expressions, *also)) for one, term in nearest.items()
            )
    ordered = sorted(found.items(), key=lambda item: -len(item[1]))
    return [
        MatchLabels(
            tuple(node.name for node in nodes),
            alternatives,
            changes[alternatives],
            len(terms),
            _instead(alternatives, nodes),
            origin,
            len(nodes) == len(subject.nodes),
        )
        for alternatives, nodes in ordered
    ]


def can_match(term: CompiledTerm, also: Sequence[Requirement] = ()) -> bool:
    """Whether a node can have labels that match the term and the other requirements."""
    if term.error is not None:
        return False
    requirements = (*term.expressions, *also)
    return all(_value(key, requirements) is not IMPOSSIBLE for key in {one.key for one in requirements})


def _label_changes(missed: Sequence[Requirement], requirements: Sequence[Requirement]) -> LabelChanges:
    """New values of the labels that do not meet the requirements; None removes a label."""
    keys = dict.fromkeys(one.key for one in missed if one.key != NAME_FIELD)
    return tuple((key, _value(key, requirements)) for key in keys)


IMPOSSIBLE: Final = "\0"
"""No label has this value."""


def _value(key: str, requirements: Sequence[Requirement]) -> str | None:
    """A value of the label that meets all requirements on it; None if it has to be absent."""
    own = [one for one in requirements if one.key == key]
    candidates: list[str] = []
    for one in own:
        if one.operator is Operator.IN:
            candidates += sorted(one.values)
        elif one.bound is not None:
            candidates += (str(one.bound + 1), str(one.bound - 1))
    for value in (*candidates, "any"):
        if all(one.matches({key: value}) for one in own):
            return value
    return None if all(one.matches({}) for one in own) else IMPOSSIBLE


def _missed(term: CompiledTerm, node: Node) -> Iterator[Requirement]:
    yield from (one for one in term.expressions if not one.matches(node.labels))
    yield from (one for one in term.fields if not field_matches(one, node.name))


def _instead(
    alternatives: Sequence[Sequence[Requirement]], nodes: Sequence[Node]
) -> tuple[tuple[str, tuple[tuple[str, int], ...]], ...]:
    keys = dict.fromkeys(requirement.key for one in alternatives for requirement in one)
    found = []
    for key in keys:
        values = Counter(node.name if key == NAME_FIELD else node.labels.get(key, NO_LABEL) for node in nodes)
        found.append((key, tuple(values.most_common())))
    return tuple(found)
