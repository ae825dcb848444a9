"""Columns, ids and indexes over nodes, for rules over whole columns."""

from bayplan.snapshot.derived import (
    Derived,
    ObjectReader,
    changed_rows,
    derived,
)
from bayplan.snapshot.interning import (
    IdColumn,
    Interner,
    Lookup,
    distinct_ids,
)
from bayplan.snapshot.node_amounts import (
    Amounts,
    NodeAmounts,
)
from bayplan.snapshot.view import (
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
