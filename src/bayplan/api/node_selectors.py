"""Compiled node selectors: which nodes a pod's node affinity, a volume or a device allows.

They differ from label selectors in three ways. Terms are alternatives. Labels can be compared as numbers (Gt,
Lt), and a node can be selected by name (matchFields). And a term that does not parse is not always an error:
in a pod's required affinity it never matches (lazy), elsewhere it is rejected (strict).

https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#node-affinity
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bayplan.api.meta import LabelSelectorRequirement, NodeSelectorTerm
from bayplan.api.pod import Pod, PreferredSchedulingTerm
from bayplan.api.selectors import (
    Operator,
    Requirement,
    Selector,
    invalid_value,
    requirement_problems,
    selector_from_map,
)
from bayplan.errors import SelectorError

NAME_FIELD: Final = "metadata.name"
"""The only field of a node that matchFields can select; any other reads as ""."""

_OPERATORS: Final = tuple(operator.value for operator in Operator)
_FIELD_OPERATORS: Final = (Operator.IN.value, Operator.NOT_IN.value)
_ONE_ELEMENT: Final = "must have one element"


@dataclass(frozen=True, slots=True)
class CompiledTerm:
    """One alternative of a node selector: everything in it must hold."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()
    error: str | None = None
    """The parse error of the term; such a term matches no node."""


@dataclass(frozen=True, slots=True)
class PreferredTerm:
    """A term that adds `weight` to the score of the nodes it matches."""

    weight: int
    term: CompiledTerm


@dataclass(frozen=True, slots=True)
class RequiredNodeAffinity:
    """All requirements of a pod on its node's labels and name."""

    selector: Selector | None = None
    """From nodeSelector; None if the pod has none, or an empty one."""
    terms: tuple[CompiledTerm, ...] | None = None
    """From the required node affinity; None if the pod has none. An empty tuple matches no node."""

    @property
    def is_empty(self) -> bool:
        """Whether every node matches."""
        return self.selector is None and self.terms is None

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        if self.selector is not None and not self.selector.matches(labels):
            return False
        return self.terms is None or terms_match(self.terms, labels, name)


def required_node_affinity(pod: Pod) -> RequiredNodeAffinity:
    """The requirements of `pod`, parsed lazily."""
    spec = pod.spec
    selector = selector_from_map(spec.node_selector) if spec.node_selector else None
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return RequiredNodeAffinity(selector)
    return RequiredNodeAffinity(selector, compile_terms(affinity.required.node_selector_terms))


def compile_terms(terms: Sequence[NodeSelectorTerm], path: str = "") -> tuple[CompiledTerm, ...]:
    """Compiles alternatives lazily: a term that does not parse is kept with its error, and matches nothing.

    Empty terms are dropped. `path` is the path of the selector, for errors.
    """
    path = f"{path}.nodeSelectorTerms" if path else "nodeSelectorTerms"
    return tuple(
        _compile_term(term, f"{path}[{i}]") for i, term in enumerate(terms) if not is_empty_term(term)
    )


def compile_terms_strict(terms: Sequence[NodeSelectorTerm], path: str = "") -> tuple[CompiledTerm, ...]:
    """Compiles alternatives that must all parse.

    Raises:
        SelectorError: at least one term does not.
    """
    compiled = compile_terms(terms, path)
    _raise_joined([term.error for term in compiled if term.error is not None])
    return compiled


def compile_preferred(terms: Sequence[PreferredSchedulingTerm], path: str = "") -> tuple[PreferredTerm, ...]:
    """Compiles preferences; those without weight or content are dropped unparsed.

    Raises:
        SelectorError: one of the others does not parse, which invalidates the whole list.
    """
    compiled = tuple(
        PreferredTerm(preferred.weight, _compile_term(preferred.preference, f"{path}[{i}]"))
        for i, preferred in enumerate(terms)
        if preferred.weight != 0 and not is_empty_term(preferred.preference)
    )
    _raise_joined([preferred.term.error for preferred in compiled if preferred.term.error is not None])
    return compiled


def terms_match(terms: Sequence[CompiledTerm], labels: Mapping[str, str], name: str) -> bool:
    """Whether one of the alternatives matches; without alternatives, none does."""
    return any(term_matches(term, labels, name) for term in terms)


def term_matches(term: CompiledTerm, labels: Mapping[str, str], name: str) -> bool:
    """Whether the whole term matches a node.

    Without a name (a volume is matched against labels alone) fields are ignored, so that they never exclude a
    node.
    """
    if term.error is not None:
        return False
    if not all(requirement.matches(labels) for requirement in term.expressions):
        return False
    return not name or all(field_matches(requirement, name) for requirement in term.fields)


def field_matches(requirement: Requirement, name: str) -> bool:
    """Whether a requirement of matchFields holds for the node of this name."""
    actual = name if requirement.key == NAME_FIELD else ""
    return (actual in requirement.values) is (requirement.operator is Operator.IN)


def is_empty_term(term: NodeSelectorTerm) -> bool:
    """Whether the term is empty; it then selects no node, not all."""
    return not term.match_expressions and not term.match_fields


def _compile_term(term: NodeSelectorTerm, path: str) -> CompiledTerm:
    problems: list[str] = []
    expressions = []
    for i, expression in enumerate(term.match_expressions):
        at = f"{path}.matchExpressions[{i}]"
        if expression.operator not in _OPERATORS:
            problems.append(_unsupported(at, expression.operator, _OPERATORS))
            continue
        operator = Operator(expression.operator)
        problems += requirement_problems(expression.key, operator, expression.values, at)
        expressions.append(Requirement(expression.key, operator, frozenset(expression.values)))
    fields = []
    for i, expression in enumerate(term.match_fields):
        at = f"{path}.matchFields[{i}]"
        if problem := _field_problem(expression, at):
            problems.append(problem)
        else:
            operator = Operator(expression.operator)
            fields.append(Requirement(expression.key, operator, frozenset(expression.values)))
    if problems:
        return CompiledTerm(error=_joined(problems))
    return CompiledTerm(tuple(expressions), tuple(fields))


def _field_problem(expression: LabelSelectorRequirement, path: str) -> str:
    if expression.operator not in _FIELD_OPERATORS:
        return _unsupported(path, expression.operator, _FIELD_OPERATORS)
    if len(expression.values) != 1:
        return invalid_value(f"{path}.values", expression.values, _ONE_ELEMENT)
    return ""


def _unsupported(path: str, operator: str, supported: Sequence[str]) -> str:
    choices = ", ".join(f'"{choice}"' for choice in supported)
    return f'{path}.operator: Unsupported value: "{operator}": supported values: {choices}'


def _joined(problems: Sequence[str]) -> str:
    return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"


def _raise_joined(errors: Sequence[str]) -> None:
    if errors:
        raise SelectorError(_joined(errors))
