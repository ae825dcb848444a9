"""Which labels nodes lack to match a node selector: of the pod, of a volume, or of a storage class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from bayplan.answers.explain.rejections import Subject
from bayplan.answers.explain.remedies import NO_LABEL, MatchLabels
from bayplan.api.node import Node
from bayplan.api.node_selectors import NAME_FIELD, CompiledTerm, field_matches
from bayplan.api.selectors import Requirement


def label_remedies(
    subject: Subject, terms: Sequence[CompiledTerm], origin: str = "", *, by_name: bool = True
) -> list[MatchLabels]:
    """What nodes would need to match one of these terms; nothing for nodes that do.

    Without `by_name` fields are ignored, as for volumes.
    """
    usable = [term for term in terms if term.error is None]
    found: dict[tuple[tuple[Requirement, ...], ...], list[Node]] = {}
    for node in subject.node_objects():
        missed = [tuple(_missed(term, node, by_name=by_name)) for term in usable]
        fewest = min(map(len, missed), default=0)
        if fewest:
            nearest = dict.fromkeys(one for one in missed if len(one) == fewest)
            found.setdefault(tuple(nearest), []).append(node)
    ordered = sorted(found.items(), key=lambda item: -len(item[1]))
    return [
        MatchLabels(
            tuple(node.name for node in nodes),
            alternatives,
            len(usable),
            _instead(alternatives, nodes),
            origin,
            len(nodes) == len(subject.nodes),
        )
        for alternatives, nodes in ordered
    ]


def _missed(term: CompiledTerm, node: Node, *, by_name: bool) -> Iterator[Requirement]:
    yield from (one for one in term.expressions if not one.matches(node.labels))
    if by_name:
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
