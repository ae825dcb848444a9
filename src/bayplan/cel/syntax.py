"""The abstract syntax of an expression.

The parser makes these nodes, macros rewrite some of them (`x.all(e, p)` becomes a `Comprehension`), and the
checker fills in `type` and, for calls, `overloads`. Nodes are compared by identity: the same text in two
places is two nodes.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bayplan.cel.types import Type
    from bayplan.cel.values import Value


@dataclass(slots=True, eq=False)
class Expr:
    offset: int
    """Where the node is in the source: an operator's own position, not the start of its operands."""
    type: Type | None = field(default=None, init=False, repr=False)
    """Filled in by the checker."""

    def copy(self) -> Expr:
        """An equal tree of new nodes, for macros that use an operand twice."""
        return copy.deepcopy(self)


@dataclass(slots=True, eq=False)
class Literal(Expr):
    value: Value


@dataclass(slots=True, eq=False)
class Ident(Expr):
    name: str


@dataclass(slots=True, eq=False)
class Select(Expr):
    operand: Expr
    field_name: str
    test_only: bool = False
    """`has(operand.field)`."""


@dataclass(slots=True, eq=False)
class Call(Expr):
    function: str
    args: list[Expr]
    target: Expr | None = None
    overloads: list[str] = field(default_factory=list, init=False)
    """The overloads that fit the static types, filled in by the checker."""


@dataclass(slots=True, eq=False)
class ListExpr(Expr):
    elements: list[Expr]
    optional: frozenset[int] = frozenset()
    """Indices of elements written as `?e`."""


@dataclass(slots=True, eq=False)
class MapEntry:
    key: Expr
    value: Expr
    optional: bool = False


@dataclass(slots=True, eq=False)
class MapExpr(Expr):
    entries: list[MapEntry]


@dataclass(slots=True, eq=False)
class Struct(Expr):
    """`Name{field: value}`. Selectors have no such types; the checker reports it."""

    type_name: str
    values: list[Expr]


@dataclass(slots=True, eq=False)
class Comprehension(Expr):
    """A fold over a list or the keys of a map; `cel.bind` is one over an empty list."""

    range: Expr
    iter_var: str
    iter_var2: str
    """Empty unless both key (or index) and value are named."""
    accu_var: str
    accu_init: Expr
    condition: Expr
    step: Expr
    result: Expr


def qualified_name(expr: Expr) -> str | None:
    """`a.b.c` for a chain of field selections on a name, else None."""
    if isinstance(expr, Ident):
        return expr.name
    if isinstance(expr, Select) and not expr.test_only:
        prefix = qualified_name(expr.operand)
        return None if prefix is None else f"{prefix}.{expr.field_name}"
    return None
