"""Topology spread constraints, and the selectors of a pod's owners."""

from bayplan.api.pod import (
    TopologySpreadConstraint,
)
from bayplan.api.spread import (
    DO_NOT_SCHEDULE,
    HOSTNAME,
    SCHEDULE_ANYWAY,
    SYSTEM_DEFAULTS,
    SpreadConstraint,
    default_constraints,
    own_constraints,
)
from bayplan.state.owners import (
    OWNER_KINDS,
    owner_selector,
)

__all__ = [
    "DO_NOT_SCHEDULE",
    "HOSTNAME",
    "OWNER_KINDS",
    "SCHEDULE_ANYWAY",
    "SYSTEM_DEFAULTS",
    "SpreadConstraint",
    "TopologySpreadConstraint",
    "default_constraints",
    "own_constraints",
    "owner_selector",
]
