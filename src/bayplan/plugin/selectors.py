"""Label selectors."""

from bayplan.api.selectors import (
    EVERYTHING,
    NOTHING,
    Operator,
    Requirement,
    selector_from_map,
)

__all__ = [
    "EVERYTHING",
    "NOTHING",
    "Operator",
    "Requirement",
    "selector_from_map",
]
