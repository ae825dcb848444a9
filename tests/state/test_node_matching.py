"""Node selectors over columns match as node selectors over one node.

Generated selectors are compared in `tests/plugins/test_node_affinity.py`; here are the cases that a pod's
affinity never reaches, and views of some rows.
"""

from __future__ import annotations

import numpy as np
import pytest

from bayplan.api.meta import LabelSelectorRequirement
from bayplan.api.node_selectors import RequiredNodeAffinity, compile_terms
from bayplan.api.selectors import EVERYTHING, NOTHING, Selector, selector_from_map
from bayplan.state.cluster import Cluster
from bayplan.state.node_matching import rows_matching, rows_matching_selector, rows_matching_term
from bayplan.state.view import NodeColumns
from bayplan.testing.builders import make_expression, make_node, make_node_term


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    for name, labels in (("a", {"size": "1"}), ("b", {"size": "10"}), ("c", {"size": "big"}), ("d", {})):
        cluster.set_node(make_node(name, labels=labels))
    return cluster


@pytest.mark.parametrize(
    ("selector", "matching"),
    [
        pytest.param(EVERYTHING, "abcd", id="{} matches all"),
        pytest.param(NOTHING, "", id="no selector matches none"),
        pytest.param(selector_from_map({"size": "10"}), "b", id="one label"),
        pytest.param(selector_from_map({"size": "11"}), "", id="a value that no node has"),
        pytest.param(selector_from_map({"colour": "red"}), "", id="a label that no node has"),
    ],
)
def test_selector(cluster: Cluster, selector: Selector, matching: str) -> None:
    mask = rows_matching_selector(NodeColumns(cluster), selector)
    assert [name for name, matches in zip("abcd", mask, strict=True) if matches] == list(matching)


@pytest.mark.parametrize(
    ("expression", "matching"),
    [
        pytest.param(make_expression("size", "In", "1", "big", "huge"), "ac", id="In"),
        pytest.param(make_expression("size", "NotIn", "1", "big"), "bd", id="NotIn, also without the label"),
        pytest.param(make_expression("size", "Exists"), "abc", id="Exists"),
        pytest.param(make_expression("size", "DoesNotExist"), "d", id="DoesNotExist"),
        pytest.param(make_expression("size", "Gt", "1"), "b", id="Gt, of numbers only"),
        pytest.param(make_expression("size", "Lt", "2"), "a", id="Lt, as numbers and not as text"),
        pytest.param(make_expression("size", "Gt", "x"), "", id="what does not parse matches none"),
    ],
)
def test_expression(cluster: Cluster, expression: LabelSelectorRequirement, matching: str) -> None:
    (term,) = compile_terms([make_node_term(expression)])
    mask = rows_matching_term(NodeColumns(cluster), term)
    assert [name for name, matches in zip("abcd", mask, strict=True) if matches] == list(matching)


@pytest.mark.parametrize(
    ("field", "matching"),
    [
        pytest.param(make_expression("metadata.name", "In", "b"), "b", id="this name"),
        pytest.param(make_expression("metadata.name", "NotIn", "b"), "acd", id="all but this name"),
        pytest.param(make_expression("metadata.name", "In", "z"), "", id="a name that no node has"),
        pytest.param(make_expression("metadata.uid", "In", "b"), "", id="other fields are empty"),
        pytest.param(make_expression("metadata.uid", "NotIn", "b"), "abcd", id="so they are never something"),
        pytest.param(make_expression("metadata.uid", "In", ""), "abcd", id="and always nothing"),
    ],
)
def test_field(cluster: Cluster, field: LabelSelectorRequirement, matching: str) -> None:
    (term,) = compile_terms([make_node_term(fields=[field])])
    mask = rows_matching_term(NodeColumns(cluster), term)
    assert [name for name, matches in zip("abcd", mask, strict=True) if matches] == list(matching)


def test_demanding_nothing_matches_all(cluster: Cluster) -> None:
    assert rows_matching(NodeColumns(cluster), RequiredNodeAffinity()).all()


def test_some_rows_in_any_order(cluster: Cluster) -> None:
    terms = compile_terms(
        [
            make_node_term(make_expression("size", "Gt", "1")),
            make_node_term(fields=[make_expression("metadata.name", "In", "d")]),
        ]
    )
    few = NodeColumns(cluster, np.array([3, 0, 1]))
    assert rows_matching(few, RequiredNodeAffinity(terms=terms)).tolist() == [True, False, True]
