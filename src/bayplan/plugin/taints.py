"""Taints and tolerations."""

from bayplan.api.tolerations import (
    PREFER_NO_SCHEDULE,
    any_tolerates,
    count_untolerated_preferences,
    tolerates,
    untolerated_taint,
)

__all__ = [
    "PREFER_NO_SCHEDULE",
    "any_tolerates",
    "count_untolerated_preferences",
    "tolerates",
    "untolerated_taint",
]
