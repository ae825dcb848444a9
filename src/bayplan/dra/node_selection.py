"""Which nodes a slice, or a device in it, is for."""

from __future__ import annotations

from collections.abc import Iterable

from bayplan.api.meta import LabelSelectorRequirement, NodeSelector
from bayplan.api.node import Node
from bayplan.api.node_selectors import CompiledTerm, compile_terms_strict, terms_match
from bayplan.dra.errors import AllocationError
from bayplan.errors import SelectorError


class NodeSelection:
    """A node by name, all nodes, or those that a selector matches; none of these matches nothing."""

    __slots__ = ("_terms", "all_nodes", "node_name", "selector")

    def __init__(self, node_name: str, all_nodes: bool, selector: NodeSelector | None) -> None:
        self.node_name = node_name
        self.all_nodes = all_nodes
        self.selector = selector
        self._terms: tuple[CompiledTerm, ...] | str | None = None

    @property
    def is_set(self) -> bool:
        return bool(self.node_name) or self.all_nodes or self.selector is not None

    def matches(self, node: Node) -> bool:
        """Whether the node is selected.

        Raises:
            AllocationError: the selector cannot be parsed.
        """
        if self.node_name:
            return node.name == self.node_name
        if self.all_nodes:
            return True
        if self.selector is None:
            return False
        if self._terms is None:
            self._terms = _compiled(self.selector)
        if isinstance(self._terms, str):
            raise AllocationError(self._terms)
        return terms_match(self._terms, node.labels, node.name)


def _compiled(selector: NodeSelector) -> tuple[CompiledTerm, ...] | str:
    try:
        return compile_terms_strict(selector.node_selector_terms)
    except SelectorError as error:
        return f"failed to parse node selector {go_string(selector)}: {error}"


def go_string(selector: NodeSelector) -> str:
    """A node selector as Kubernetes writes it in messages."""
    terms = "".join(
        f"NodeSelectorTerm{{MatchExpressions:{_requirements(term.match_expressions)},"
        f"MatchFields:{_requirements(term.match_fields)},}},"
        for term in selector.node_selector_terms
    )
    return f"&NodeSelector{{NodeSelectorTerms:[]NodeSelectorTerm{{{terms}}},}}"


def _requirements(requirements: Iterable[LabelSelectorRequirement]) -> str:
    written = "".join(
        f"NodeSelectorRequirement{{Key:{one.key},Operator:{one.operator},Values:[{' '.join(one.values)}],}},"
        for one in requirements
    )
    return f"[]NodeSelectorRequirement{{{written}}}"
