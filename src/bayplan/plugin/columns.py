"""Columns, ids and indexes over nodes, for rules over whole columns."""

from bayplan.state.derived import (
    Derived,
    ObjectReader,
    changed_rows,
    derived,
)
from bayplan.state.interning import (
    IdColumn,
    Interner,
    Lookup,
    distinct_ids,
)
from bayplan.state.node_amounts import (
    Amounts,
    NodeAmounts,
)
from bayplan.state.view import (
    LabelValues,
)

__all__ = [
    "Amounts",
    "Derived",
    "IdColumn",
    "Interner",
    "LabelValues",
    "Lookup",
    "NodeAmounts",
    "ObjectReader",
    "changed_rows",
    "derived",
    "distinct_ids",
]
