"""Columns, ids and indexes over nodes, for rules over whole columns."""

from bayplan.clock import (
    Clock,
    Freshness,
    Log,
    Topic,
)
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
    "Clock",
    "Derived",
    "Freshness",
    "IdColumn",
    "Interner",
    "LabelValues",
    "Log",
    "Lookup",
    "NodeAmounts",
    "ObjectReader",
    "Topic",
    "changed_rows",
    "derived",
    "distinct_ids",
]
