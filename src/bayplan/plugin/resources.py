"""Quantities, and what pods request."""

from bayplan.api.quantity import (
    NANO,
    is_extended_resource,
    is_scalar_resource,
    is_tracked_resource,
    milli_value,
    parse_quantity,
    value,
)
from bayplan.api.requests import (
    assigned_requests,
    balance_requests,
    fit_requests,
    nonzero_requests,
    scoring_requests,
)

__all__ = [
    "NANO",
    "assigned_requests",
    "balance_requests",
    "fit_requests",
    "is_extended_resource",
    "is_scalar_resource",
    "is_tracked_resource",
    "milli_value",
    "nonzero_requests",
    "parse_quantity",
    "scoring_requests",
    "value",
]
