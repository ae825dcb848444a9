"""Arguments of plugins: their types and the errors of validation."""

from bayplan.framework.plugin_args.args import (
    DefaultPreemptionArgs,
    DynamicResourcesArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    VolumeBindingArgs,
)
from bayplan.framework.plugin_args.base import (
    ArgsRecord,
    Gates,
)
from bayplan.framework.plugin_args.duration import (
    Duration,
)
from bayplan.framework.plugin_args.field_errors import (
    FieldError,
    at,
    duplicate,
    forbidden,
    invalid,
    required,
    unsupported,
)
from bayplan.framework.plugin_args.scoring import (
    LEAST_ALLOCATED,
    MAX_SHAPE_SCORE,
    MOST_ALLOCATED,
    REQUESTED_TO_CAPACITY_RATIO,
    RequestedToCapacityRatioParam,
    ResourceSpec,
    ScoringStrategy,
    UtilizationShapePoint,
    shape_scores,
)

__all__ = [
    "LEAST_ALLOCATED",
    "MAX_SHAPE_SCORE",
    "MOST_ALLOCATED",
    "REQUESTED_TO_CAPACITY_RATIO",
    "ArgsRecord",
    "DefaultPreemptionArgs",
    "Duration",
    "DynamicResourcesArgs",
    "FieldError",
    "Gates",
    "InterPodAffinityArgs",
    "NodeAffinityArgs",
    "NodeResourcesBalancedAllocationArgs",
    "NodeResourcesFitArgs",
    "PodTopologySpreadArgs",
    "RequestedToCapacityRatioParam",
    "ResourceSpec",
    "ScoringStrategy",
    "UtilizationShapePoint",
    "VolumeBindingArgs",
    "at",
    "duplicate",
    "forbidden",
    "invalid",
    "required",
    "shape_scores",
    "unsupported",
]
