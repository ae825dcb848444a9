"""Compiled label selectors, what they match, and the topology spread constraints that count by them.

A compiled selector compares and hashes by its normal form (requirements sorted, without duplicates), because
counts of matching pods are stored per selector and shared by all users of an equal one. Node selectors, which
add comparisons and fields, are in `node_selectors.py`.

Spread constraints are prepared here: selectors compiled, defaults filled in, matchLabelKeys merged.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Final

from bayplan.api.meta import LabelSelector
from bayplan.api.names import label_key_problems, label_value_problems, qualified_name_problems
from bayplan.api.pod import TopologySpreadConstraint
from bayplan.errors import SelectorError

_INT64: Final = range(-(2**63), 2**63)
_is_integer = re.compile(r"[+-]?[0-9]{1,400}", re.ASCII).fullmatch

_NO_SUCH_OPERATOR: Final = '"{operator}" is not a valid label selector operator'
_NEEDS_VALUES: Final = "for 'in', 'notin' operators, values set can't be empty"
_TAKES_NO_VALUES: Final = "values set must be empty for exists and does not exist"
_NEEDS_ONE_VALUE: Final = "for 'Gt', 'Lt' operators, exactly one value is required"
_NEEDS_INTEGER: Final = "for 'Gt', 'Lt' operators, the value must be an integer"


class Operator(StrEnum):
    """The operator of a requirement; Gt and Lt only occur in node selectors."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


LABEL_SELECTOR_OPERATORS: Final = frozenset(
    {Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST}
)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on a label."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        actual = labels.get(self.key)
        operator = self.operator
        if operator is Operator.IN:
            return actual is not None and actual in self.values
        if operator is Operator.NOT_IN:
            return actual is None or actual not in self.values
        if operator is Operator.EXISTS:
            return actual is not None
        if operator is Operator.DOES_NOT_EXIST:
            return actual is None
        number, bound = parse_int64(actual), self.bound
        if number is None or bound is None:
            return False
        return number > bound if operator is Operator.GT else number < bound

    @property
    def bound(self) -> int | None:
        """The number that Gt and Lt compare with."""
        return parse_int64(next(iter(self.values))) if len(self.values) == 1 else None

    def __str__(self) -> str:
        values = ",".join(sorted(self.values))
        match self.operator:
            case Operator.IN if len(self.values) == 1:
                return f"{self.key}={values}"
            case Operator.IN:
                return f"{self.key} in ({values})"
            case Operator.NOT_IN:
                return f"{self.key} notin ({values})"
            case Operator.EXISTS:
                return self.key
            case Operator.DOES_NOT_EXIST:
                return f"!{self.key}"
            case Operator.GT:
                return f"{self.key}>{values}"
            case Operator.LT:
                return f"{self.key}<{values}"


def _canonical_order(requirement: Requirement) -> tuple[str, str, tuple[str, ...]]:
    return requirement.key, requirement.operator.value, tuple(sorted(requirement.values))


@dataclass(frozen=True, slots=True)
class Selector:
    """A conjunction of requirements, or (`nothing`) the missing selector, which matches nothing."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        unique = () if self.nothing else tuple(sorted(set(self.requirements), key=_canonical_order))
        object.__setattr__(self, "requirements", unique)
        object.__setattr__(self, "_hash", hash((unique, self.nothing)))

    def __hash__(self) -> int:
        # Selectors are keys of indexes that are used in every cycle, so the hash is computed once.
        return self._hash

    @property
    def is_nothing(self) -> bool:
        """Whether this is the missing selector. It is not "empty": `{}` is."""
        return self.nothing

    @property
    def is_empty(self) -> bool:
        """Whether this is `{}`, which matches everything."""
        return not self.requirements and not self.nothing

    def matches(self, labels: Mapping[str, str]) -> bool:
        if self.nothing:
            return False
        return all(requirement.matches(labels) for requirement in self.requirements)

    def and_(self, *requirements: Requirement) -> Selector:
        """This selector with more requirements; the missing one stays missing."""
        if self.nothing or not requirements:
            return self
        return Selector((*self.requirements, *requirements))

    def __str__(self) -> str:
        if self.nothing:
            return "<nothing>"
        return ",".join(map(str, self.requirements)) or "<everything>"


NOTHING: Final = Selector(nothing=True)
EVERYTHING: Final = Selector()


def compile_selector(selector: LabelSelector | None) -> Selector:
    """Compiles a selector as written.

    Raises:
        SelectorError: its syntax is wrong; `problem` is Kubernetes' text.
    """
    if selector is None:
        return NOTHING
    if not selector.match_labels and not selector.match_expressions:
        return EVERYTHING
    requirements = []
    for key, label in selector.match_labels.items():
        _raise_first(requirement_problems(key, Operator.IN, (label,)))
        requirements.append(Requirement(key, Operator.IN, frozenset((label,))))
    for expression in selector.match_expressions:
        if expression.operator not in LABEL_SELECTOR_OPERATORS:
            raise SelectorError(_NO_SUCH_OPERATOR.format(operator=expression.operator))
        operator = Operator(expression.operator)
        _raise_first(requirement_problems(expression.key, operator, expression.values))
        requirements.append(Requirement(expression.key, operator, frozenset(expression.values)))
    return Selector(tuple(requirements))


def selector_from_map(labels: Mapping[str, str]) -> Selector:
    """Plain equality with every label of the map, whatever their syntax; an empty map matches everything."""
    return Selector(
        tuple(Requirement(key, Operator.IN, frozenset((value,))) for key, value in labels.items())
    )


def requirement_problems(key: str, operator: Operator, values: Iterable[str], path: str = "") -> list[str]:
    """The errors of a requirement on a label, each as `<path>.<field>: Invalid value: …`."""
    values = tuple(values)
    prefix = f"{path}." if path else ""
    at_values = f"{prefix}values"
    problems = []
    if on_key := label_key_problems(key):
        problems.append(invalid_value(f"{prefix}key", key, "; ".join(on_key)))
    if operator in (Operator.IN, Operator.NOT_IN):
        if not values:
            problems.append(invalid_value(at_values, values, _NEEDS_VALUES))
    elif operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST):
        if values:
            problems.append(invalid_value(at_values, values, _TAKES_NO_VALUES))
    else:
        if len(values) != 1:
            problems.append(invalid_value(at_values, values, _NEEDS_ONE_VALUE))
        for i, text in enumerate(values):
            if parse_int64(text) is None:
                problems.append(invalid_value(f"{at_values}[{i}]", text, _NEEDS_INTEGER))
    for i, text in enumerate(values):
        if on_value := label_value_problems(text):
            problems.append(invalid_value(f"{at_values}[{i}][{key}]", text, "; ".join(on_value)))
    return problems


def invalid_value(path: str, actual: str | tuple[str, ...], detail: str) -> str:
    """Kubernetes' text for a field with an invalid value."""
    return f"{path}: Invalid value: {_quoted(actual)}: {detail}"


@lru_cache(maxsize=16384)
def parse_int64(text: str | None) -> int | None:
    """The number in a label's value, or None if it is not a 64-bit integer."""
    if text is None or not _is_integer(text):
        return None
    number = int(text)
    return number if number in _INT64 else None


def _quoted(actual: str | tuple[str, ...]) -> str:
    if isinstance(actual, str):
        return f'"{actual}"'
    return f"[{','.join(map(_quoted, actual))}]" if actual else "null"


def _raise_first(problems: list[str]) -> None:
    """Kubernetes joins several problems of one requirement as `[a, b]`; a single one is bare."""
    if problems:
        raise SelectorError(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")


HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
DO_NOT_SCHEDULE: Final = "DoNotSchedule"
SCHEDULE_ANYWAY: Final = "ScheduleAnyway"

SYSTEM_DEFAULTS: Final = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable=SCHEDULE_ANYWAY),
    TopologySpreadConstraint(max_skew=5, topology_key=ZONE, when_unsatisfiable=SCHEDULE_ANYWAY),
)
"""The default constraints for pods without any, unless the configuration sets others."""


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """One constraint, ready to be counted."""

    max_skew: int
    topology_key: str
    selector: Selector
    min_domains: int
    honors_node_affinity: bool
    honors_taints: bool

    @property
    def by_host(self) -> bool:
        return self.topology_key == HOSTNAME


def own_constraints(
    constraints: Iterable[TopologySpreadConstraint], action: str, labels: Mapping[str, str]
) -> tuple[SpreadConstraint, ...]:
    """The pod's own constraints with this action. Raises SelectorError for a malformed selector."""
    return tuple(
        _prepared(constraint, _own_selector(constraint, labels))
        for constraint in constraints
        if constraint.when_unsatisfiable == action
    )


def default_constraints(
    constraints: Iterable[TopologySpreadConstraint], action: str, selector: Selector
) -> tuple[SpreadConstraint, ...]:
    """The default constraints with this action, for a pod whose owners select it by `selector`."""
    return tuple(
        _prepared(constraint, selector)
        for constraint in constraints
        if constraint.when_unsatisfiable == action
    )


def _own_selector(constraint: TopologySpreadConstraint, labels: Mapping[str, str]) -> Selector:
    selector = compile_selector(constraint.label_selector)
    return selector.and_(
        *(
            Requirement(key, Operator.IN, frozenset((labels[key],)))
            for key in constraint.match_label_keys
            if key in labels
        )
    )


def _prepared(constraint: TopologySpreadConstraint, selector: Selector) -> SpreadConstraint:
    return SpreadConstraint(
        max_skew=constraint.max_skew,
        topology_key=constraint.topology_key,
        selector=selector,
        min_domains=1 if constraint.min_domains is None else constraint.min_domains,
        honors_node_affinity=(constraint.node_affinity_policy or "Honor") == "Honor",
        honors_taints=(constraint.node_taints_policy or "Ignore") == "Honor",
    )


__all__ = [
    "EVERYTHING",
    "NOTHING",
    "Operator",
    "Requirement",
    "Selector",
    "compile_selector",
    "label_key_problems",
    "label_value_problems",
    "parse_int64",
    "qualified_name_problems",
    "requirement_problems",
    "selector_from_map",
]
