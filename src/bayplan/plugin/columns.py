"""Columns, ids and indexes over nodes, for rules over whole columns."""

from bayplan.snapshot.derived import (
    Derived,
    changed_rows,
    derived,
)
from bayplan.snapshot.interning import (
    IdColumn,
    Interner,
    Lookup,
)
from bayplan.snapshot.view import (
    LabelValues,
)

__all__ = [
    "Derived",
    "IdColumn",
    "Interner",
    "LabelValues",
    "Lookup",
    "changed_rows",
    "derived",
]
