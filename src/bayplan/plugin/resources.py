"""Quantities, and what pods request."""

from bayplan.api.qos import (
    BEST_EFFORT,
    BURSTABLE,
    GUARANTEED,
    qos_class,
)
from bayplan.api.quantity import (
    NANO,
    is_extended_resource,
    is_scalar_resource,
    is_tracked_resource,
    milli_value,
    parse_quantity,
    resource_amount,
    resource_amounts,
    value,
)
from bayplan.api.requests import (
    fit_requests,
    scoring_requests,
)

__all__ = [
    "BEST_EFFORT",
    "BURSTABLE",
    "GUARANTEED",
    "NANO",
    "fit_requests",
    "is_extended_resource",
    "is_scalar_resource",
    "is_tracked_resource",
    "milli_value",
    "parse_quantity",
    "qos_class",
    "resource_amount",
    "resource_amounts",
    "scoring_requests",
    "value",
]
