"""Node selectors over columns: which rows a pod's node affinity, a volume or a device allows.

`bayplan.api.node_selectors` defines node selectors and evaluates them for one node; this module evaluates
them for many rows at once. Each label key of a selector becomes a column, and a requirement a comparison of
ids: strings are compared once for each distinct value, not once for each node.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bayplan.api.node_selectors import NAME_FIELD, CompiledTerm, PreferredTerm, RequiredNodeAffinity
from bayplan.api.selectors import Operator, Requirement, Selector
from bayplan.state.view import BoolColumn, IntColumn, NodeColumns


def rows_matching(nodes: NodeColumns, required: RequiredNodeAffinity) -> BoolColumn:
    """Rows that satisfy all requirements of a pod on its node's labels and name."""
    if required.selector is None:
        return _all(nodes) if required.terms is None else rows_matching_terms(nodes, required.terms)
    mask = rows_matching_selector(nodes, required.selector)
    if required.terms is not None:
        mask = mask & rows_matching_terms(nodes, required.terms)
    return mask


def rows_matching_terms(nodes: NodeColumns, terms: Iterable[CompiledTerm]) -> BoolColumn:
    """Rows for which one of the alternatives matches; without alternatives, none does."""
    mask = _none(nodes)
    for term in terms:
        if term.error is None:
            mask |= rows_matching_term(nodes, term)
    return mask


def rows_matching_term(nodes: NodeColumns, term: CompiledTerm) -> BoolColumn:
    """Rows for which the whole term matches. A term that could not be parsed matches none."""
    if term.error is not None:
        return _none(nodes)
    mask = _all(nodes)
    for requirement in term.expressions:
        mask &= _having(nodes, requirement)
    for requirement in term.fields:
        mask &= _named(nodes, requirement)
    return mask


def rows_matching_selector(nodes: NodeColumns, selector: Selector) -> BoolColumn:
    """Rows whose labels match a label selector."""
    if selector.is_nothing:
        return _none(nodes)
    mask = _all(nodes)
    for requirement in selector.requirements:
        mask &= _having(nodes, requirement)
    return mask


def preference_of_rows(nodes: NodeColumns, preferred: Iterable[PreferredTerm]) -> IntColumn:
    """For each row the sum of the weights of the terms that match it."""
    total = np.zeros(len(nodes), dtype=np.int64)
    for preference in preferred:
        total += preference.weight * rows_matching_term(nodes, preference.term)
    return total


def _having(nodes: NodeColumns, requirement: Requirement) -> BoolColumn:
    values = nodes.label(requirement.key)
    match requirement.operator:
        case Operator.IN:
            return values.isin(requirement.values)
        case Operator.NOT_IN:
            return ~values.isin(requirement.values)
        case Operator.EXISTS:
            return values.exists()
        case Operator.DOES_NOT_EXIST:
            return ~values.exists()
        case Operator.GT | Operator.LT:
            key = requirement.key
            satisfied: BoolColumn = values.map(lambda value: requirement.matches({key: value})) != 0
            return satisfied


def _named(nodes: NodeColumns, requirement: Requirement) -> BoolColumn:
    """A requirement of matchFields. Fields other than the name read as "", for every node."""
    mask = _none(nodes)
    if requirement.key == NAME_FIELD:
        for name in requirement.values:
            mask |= nodes.is_named(name)
    elif "" in requirement.values:
        mask = _all(nodes)
    return mask if requirement.operator is Operator.IN else ~mask


def _all(nodes: NodeColumns) -> BoolColumn:
    return np.ones(len(nodes), dtype=np.bool_)


def _none(nodes: NodeColumns) -> BoolColumn:
    return np.zeros(len(nodes), dtype=np.bool_)
