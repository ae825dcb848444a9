"""The arguments of the built-in plugins: fields, defaults and rules of kubescheduler.config.k8s.io/v1.

All eight kinds are in one file, because plugins use single records and the configuration all of them. A
record always holds normalized values: what upstream sets for a zero or an empty list is set when the record
is created.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Self

import msgspec

from bayplan.api.pod import NodeAffinity, TopologySpreadConstraint
from bayplan.api.selectors import qualified_name_problems
from bayplan.framework.plugin_args.added_affinity import AddedAffinity
from bayplan.framework.plugin_args.base import Gates, Int32, Int64, PluginArgs
from bayplan.framework.plugin_args.duration import Duration
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
    DEFAULT_RESOURCES,
    LEAST_ALLOCATED,
    MAX_SHAPE_SCORE,
    ResourceSpec,
    ScoringStrategy,
    UtilizationShapePoint,
    shape_problems,
)

SYSTEM_DEFAULTING: Final = "System"
LIST_DEFAULTING: Final = "List"
UNSATISFIABLE_ACTIONS: Final = ("DoNotSchedule", "ScheduleAnyway")


class NodeResourcesFitArgs(PluginArgs, frozen=True):
    ignored_resources: tuple[str, ...] = ()
    """Extended resources that the filter ignores."""
    ignored_resource_groups: tuple[str, ...] = ()
    """The same for whole groups: `example.com` stands for every `example.com/…`."""
    scoring_strategy: ScoringStrategy = ScoringStrategy(type=LEAST_ALLOCATED)

    def validate_for_build(self, gates: Gates) -> Iterator[FieldError]:
        # Upstream intends to check these with the configuration, too, but looks for a plugin of another name;
        # so they are checked, and reported, only where the plugin is used.
        for i, resource in enumerate(self.ignored_resources):
            yield from _name_problems(resource, at("ignoredResources", i))
        for i, group in enumerate(self.ignored_resource_groups):
            where = at("ignoredResourceGroups", i)
            if "/" in group:
                yield invalid(where, group, "resource group name can't contain '/'")
            yield from _name_problems(group, where)
        yield from self.scoring_strategy.problems("scoringStrategy")


class NodeResourcesBalancedAllocationArgs(PluginArgs, frozen=True):
    resources: tuple[ResourceSpec, ...] = DEFAULT_RESOURCES

    def __post_init__(self) -> None:
        if not self.resources:
            msgspec.structs.force_setattr(self, "resources", DEFAULT_RESOURCES)

    def validate(self, path: str, gates: Gates) -> Iterator[FieldError]:
        seen: set[str] = set()
        for i, resource in enumerate(self.resources):
            where = at(path, "resources", i)
            if resource.name in seen:
                yield duplicate(at(where, "name"), resource.name)
            seen.add(resource.name)
            if resource.weight != 1:
                yield invalid(at(where, "weight"), resource.weight, "must be 1")


class NodeAffinityArgs(PluginArgs, frozen=True):
    added: AddedAffinity | None = msgspec.field(default=None, name="addedAffinity")
    """As written; the plugin uses `added_affinity`."""

    @classmethod
    def adding(cls, affinity: NodeAffinity) -> NodeAffinityArgs:
        """Arguments that add this affinity."""
        return cls(added=AddedAffinity.from_node_affinity(affinity))

    @property
    def added_affinity(self) -> NodeAffinity | None:
        """The affinity that is added to every pod of the profile."""
        return None if self.added is None else self.added.node_affinity

    def validate(self, path: str, gates: Gates) -> Iterator[FieldError]:
        if self.added is not None:
            yield from self.added.problems(at(path, "addedAffinity"))


class PodTopologySpreadArgs(PluginArgs, frozen=True):
    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    """For pods without constraints of their own; only together with `List`."""
    defaulting_type: str = SYSTEM_DEFAULTING

    def __post_init__(self) -> None:
        if not self.defaulting_type:
            msgspec.structs.force_setattr(self, "defaulting_type", SYSTEM_DEFAULTING)

    def validate(self, path: str, gates: Gates) -> Iterator[FieldError]:
        where = at(path, "defaultingType")
        if self.defaulting_type not in (SYSTEM_DEFAULTING, LIST_DEFAULTING):
            yield unsupported(where, self.defaulting_type, (SYSTEM_DEFAULTING, LIST_DEFAULTING))
        elif self.defaulting_type == SYSTEM_DEFAULTING and self.default_constraints:
            yield invalid(where, self.defaulting_type, "when .defaultConstraints are not empty")
        seen: set[tuple[str, str]] = set()
        for i, constraint in enumerate(self.default_constraints):
            where = at(path, "defaultConstraints", i)
            yield from _constraint_problems(constraint, where)
            key = (constraint.topology_key, constraint.when_unsatisfiable)
            if key in seen:
                yield duplicate(where, f"{{{key[0]}, {key[1]}}}")
            seen.add(key)


class InterPodAffinityArgs(PluginArgs, frozen=True):
    hard_pod_affinity_weight: Int32 = 1
    """What a required affinity term of a running pod adds to the score of nodes that would satisfy it."""
    ignore_preferred_terms_of_existing_pods: bool = False

    def validate(self, path: str, gates: Gates) -> Iterator[FieldError]:
        if not 0 <= self.hard_pod_affinity_weight <= 100:
            where = at(path, "hardPodAffinityWeight")
            yield invalid(where, self.hard_pod_affinity_weight, "not in valid range [0, 100]")


class DefaultPreemptionArgs(PluginArgs, frozen=True):
    """How many candidate nodes preemption evaluates before it chooses one.

    With kube-scheduler's default values, given or omitted, every candidate is evaluated: that is cheap here.
    Other values limit the search as in kube-scheduler. An explicit default must not decide differently from
    an omitted one, or `config show` would change a configuration.
    """

    min_candidate_nodes_percentage: Int32 = 10
    min_candidate_nodes_absolute: Int32 = 100

    @property
    def evaluates_all_candidates(self) -> bool:
        """Whether the search for candidates is unlimited."""
        return self == DefaultPreemptionArgs()

    def validate(self, path: str, gates: Gates) -> Iterator[FieldError]:
        percentage, absolute = at(path, "minCandidateNodesPercentage"), at(path, "minCandidateNodesAbsolute")
        if not 0 <= self.min_candidate_nodes_percentage <= 100:
            yield invalid(percentage, self.min_candidate_nodes_percentage, "not in valid range [0, 100]")
        if self.min_candidate_nodes_absolute < 0:
            yield invalid(absolute, self.min_candidate_nodes_absolute, "not in valid range [0, inf)")
        if self.min_candidate_nodes_percentage == self.min_candidate_nodes_absolute == 0:
            yield invalid(percentage, 0, "cannot be zero at the same time as minCandidateNodesAbsolute")
            yield invalid(absolute, 0, "cannot be zero at the same time as minCandidateNodesPercentage")


class VolumeBindingArgs(PluginArgs, frozen=True):
    bind_timeout_seconds: Int64 = 600
    shape: tuple[UtilizationShapePoint, ...] | None = None
    """Scores by storage capacity; rejected while the gate StorageCapacityScoring is off."""

    def completed(self, gates: Gates) -> Self:
        if self.shape or "StorageCapacityScoring" not in gates:
            return self
        points = (
            UtilizationShapePoint(utilization=0, score=MAX_SHAPE_SCORE),
            UtilizationShapePoint(utilization=100, score=0),
        )
        return msgspec.structs.replace(self, shape=points)

    def validate(self, path: str, gates: Gates) -> Iterator[FieldError]:
        if self.bind_timeout_seconds < 0:
            detail = "invalid BindTimeoutSeconds, should not be a negative value"
            yield invalid(at(path, "bindTimeoutSeconds"), self.bind_timeout_seconds, detail)
        if "StorageCapacityScoring" in gates:
            yield from shape_problems(self.shape or (), at(path, "shape"))
        elif self.shape is not None:
            detail = "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring"
            yield invalid(at(path, "shape"), self.shape, detail)


DEFAULT_FILTER_TIMEOUT: Final = Duration.of(seconds=10)
DEFAULT_BINDING_TIMEOUT: Final = Duration.of(seconds=600)


class DynamicResourcesArgs(PluginArgs, frozen=True):
    filter_timeout: Duration | None = DEFAULT_FILTER_TIMEOUT
    """For one node; zero means no limit."""
    binding_timeout: Duration | None = DEFAULT_BINDING_TIMEOUT
    """How long binding waits for devices to become ready."""

    def completed(self, gates: Gates) -> Self:
        # A default that was not written is this same object; one that was written is not, and is rejected.
        changes: dict[str, Duration | None] = {}
        if not _limits_filtering(gates) and self.filter_timeout is DEFAULT_FILTER_TIMEOUT:
            changes["filter_timeout"] = None
        if not _waits_for_devices(gates) and self.binding_timeout is DEFAULT_BINDING_TIMEOUT:
            changes["binding_timeout"] = None
        return msgspec.structs.replace(self, **changes) if changes else self

    def validate(self, path: str, gates: Gates) -> Iterator[FieldError]:
        where, timeout = at(path, "filterTimeout"), self.filter_timeout
        if timeout is not None:
            if not _limits_filtering(gates):
                yield forbidden(where, "DRASchedulingFilterTimeout feature gate is disabled")
            elif timeout.nanoseconds < 0:
                yield invalid(where, timeout, "must be zero or positive")
        where, timeout = at(path, "bindingTimeout"), self.binding_timeout
        if timeout is not None:
            if not _waits_for_devices(gates):
                gate = "DRADeviceBindingConditions or DRAResourceClaimDeviceStatus"
                yield forbidden(where, f"{gate} feature gate is disabled")
            elif timeout < Duration.of(seconds=1):
                yield invalid(where, timeout, "must be at least 1 second")


BUILTIN_ARGS: Final[dict[str, type[PluginArgs]]] = {
    "DefaultPreemption": DefaultPreemptionArgs,
    "DynamicResources": DynamicResourcesArgs,
    "InterPodAffinity": InterPodAffinityArgs,
    "NodeAffinity": NodeAffinityArgs,
    "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocationArgs,
    "NodeResourcesFit": NodeResourcesFitArgs,
    "PodTopologySpread": PodTopologySpreadArgs,
    "VolumeBinding": VolumeBindingArgs,
}
"""Which built-in plugin takes which arguments; the others take none."""


def _limits_filtering(gates: Gates) -> bool:
    return "DRASchedulerFilterTimeout" in gates


def _waits_for_devices(gates: Gates) -> bool:
    return {"DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"} <= gates


def _name_problems(name: str, path: str) -> Iterator[FieldError]:
    for problem in qualified_name_problems(name):
        yield invalid(path, name, problem)


def _constraint_problems(constraint: TopologySpreadConstraint, path: str) -> Iterator[FieldError]:
    if constraint.max_skew <= 0:
        yield invalid(at(path, "maxSkew"), constraint.max_skew, "not in valid range (0, inf)")
    if not constraint.topology_key:
        yield required(at(path, "topologyKey"), "can not be empty")
    else:
        yield from _name_problems(constraint.topology_key, at(path, "topologyKey"))
    action = constraint.when_unsatisfiable
    if not action:
        yield required(at(path, "whenUnsatisfiable"), "can not be empty")
    elif action not in UNSATISFIABLE_ACTIONS:
        yield unsupported(at(path, "whenUnsatisfiable"), action, UNSATISFIABLE_ACTIONS)
    if constraint.label_selector is not None:
        detail = "constraint must not define a selector, as they deduced for each pod"
        yield forbidden(at(path, "labelSelector"), detail)
