"""Columns, ids and indexes over nodes, for rules over whole columns."""

from bayplan.snapshot.derived import (
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
    "IdColumn",
    "Interner",
    "LabelValues",
    "Lookup",
    "derived",
]
