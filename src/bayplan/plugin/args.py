"""Arguments of plugins: their types and the errors of validation."""

from bayplan.framework.args import ArgsRecord as ArgsRecord
from bayplan.framework.args import Duration as Duration
from bayplan.framework.args import FieldError as FieldError
from bayplan.framework.args import Gates as Gates
from bayplan.framework.args import at as at
from bayplan.framework.args import duplicate as duplicate
from bayplan.framework.args import forbidden as forbidden
from bayplan.framework.args import invalid as invalid
from bayplan.framework.args import required as required
from bayplan.framework.args import unsupported as unsupported
from bayplan.framework.builtin_args import LEAST_ALLOCATED as LEAST_ALLOCATED
from bayplan.framework.builtin_args import MAX_SHAPE_SCORE as MAX_SHAPE_SCORE
from bayplan.framework.builtin_args import MOST_ALLOCATED as MOST_ALLOCATED
from bayplan.framework.builtin_args import REQUESTED_TO_CAPACITY_RATIO as REQUESTED_TO_CAPACITY_RATIO
from bayplan.framework.builtin_args import DefaultPreemptionArgs as DefaultPreemptionArgs
from bayplan.framework.builtin_args import DynamicResourcesArgs as DynamicResourcesArgs
from bayplan.framework.builtin_args import InterPodAffinityArgs as InterPodAffinityArgs
from bayplan.framework.builtin_args import NodeAffinityArgs as NodeAffinityArgs
from bayplan.framework.builtin_args import (
    NodeResourcesBalancedAllocationArgs as NodeResourcesBalancedAllocationArgs,
)
from bayplan.framework.builtin_args import NodeResourcesFitArgs as NodeResourcesFitArgs
from bayplan.framework.builtin_args import PodTopologySpreadArgs as PodTopologySpreadArgs
from bayplan.framework.builtin_args import RequestedToCapacityRatioParam as RequestedToCapacityRatioParam
from bayplan.framework.builtin_args import ResourceSpec as ResourceSpec
from bayplan.framework.builtin_args import ScoringStrategy as ScoringStrategy
from bayplan.framework.builtin_args import UtilizationShapePoint as UtilizationShapePoint
from bayplan.framework.builtin_args import VolumeBindingArgs as VolumeBindingArgs
from bayplan.framework.builtin_args import shape_scores as shape_scores
