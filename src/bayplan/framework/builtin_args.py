"""The arguments of the built-in plugins: fields, defaults and rules of kubescheduler.config.k8s.io/v1.

All eight kinds are in one file, because plugins use single records and the configuration all of them. A
record always holds normalized values: what upstream sets for a zero or an empty list is set when the record
is created. The texts of validation errors are upstream's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Self

import msgspec

from bayplan.api.pod import NodeAffinity, TopologySpreadConstraint
from bayplan.api.selectors import Operator, qualified_name_problems, requirement_problems
from bayplan.framework.args import (
    ArgsRecord,
    Duration,
    FieldError,
    Gates,
    Int32,
    Int64,
    PluginArgs,
    at,
    compact_json,
    duplicate,
    forbidden,
    invalid,
    required,
    unsupported,
)

LEAST_ALLOCATED: Final = "LeastAllocated"
MOST_ALLOCATED: Final = "MostAllocated"
REQUESTED_TO_CAPACITY_RATIO: Final = "RequestedToCapacityRatio"
SCORING_STRATEGIES: Final = (LEAST_ALLOCATED, MOST_ALLOCATED, REQUESTED_TO_CAPACITY_RATIO)

MAX_SHAPE_SCORE: Final = 10
"""Scores in a shape are between 0 and this; plugins scale them to 100."""


class ResourceSpec(ArgsRecord, frozen=True):
    """A resource and its weight among the resources of a score."""

    name: str = ""
    weight: Int64 = 1

    def __post_init__(self) -> None:
        if self.weight == 0:
            msgspec.structs.force_setattr(self, "weight", 1)


DEFAULT_RESOURCES: Final = (ResourceSpec(name="cpu"), ResourceSpec(name="memory"))


class UtilizationShapePoint(ArgsRecord, frozen=True):
    """One point of a piecewise linear function from utilization (percent) to score (0 to 10)."""

    utilization: Int32 = 0
    score: Int32 = 0


class RequestedToCapacityRatioParam(ArgsRecord, frozen=True):
    shape: tuple[UtilizationShapePoint, ...] = ()


class ScoringStrategy(ArgsRecord, frozen=True):
    """How NodeResourcesFit scores. A strategy that is given must have a type."""

    type: str = ""
    resources: tuple[ResourceSpec, ...] = DEFAULT_RESOURCES
    requested_to_capacity_ratio: RequestedToCapacityRatioParam | None = None

    def __post_init__(self) -> None:
        if not self.resources:
            msgspec.structs.force_setattr(self, "resources", DEFAULT_RESOURCES)

    def problems(self, path: str) -> Iterator[FieldError]:
        if self.type not in SCORING_STRATEGIES:
            yield unsupported(at(path, "type"), self.type, SCORING_STRATEGIES)
        for i, resource in enumerate(self.resources):
            if not 0 < resource.weight <= 100:
                detail = f"resource weight of {resource.name} not in valid range (0, 100]"
                yield invalid(at(path, "resources", i, "weight"), resource.weight, detail)
        ratio, where = self.requested_to_capacity_ratio, at(path, "requestedToCapacityRatio")
        if self.type == REQUESTED_TO_CAPACITY_RATIO:
            if ratio is None:
                yield required(where, "must be specified when type is RequestedToCapacityRatio")
            else:
                yield from shape_problems(ratio.shape, at(where, "shape"))
        elif ratio is not None:
            yield forbidden(where, "must be nil when type is not RequestedToCapacityRatio")


def shape_problems(shape: Sequence[UtilizationShapePoint], path: str) -> Iterator[FieldError]:
    """The errors of a shape; only the first point that is out of order is reported."""
    if not shape:
        yield required(path, "at least one point must be specified")
    for i in range(1, len(shape)):
        if shape[i - 1].utilization >= shape[i].utilization:
            detail = "values must be sorted in increasing order"
            yield invalid(at(path, i, "utilization"), shape[i].utilization, detail)
            break
    for i, point in enumerate(shape):
        if not 0 <= point.utilization <= 100:
            yield invalid(at(path, i, "utilization"), point.utilization, "not in valid range [0, 100]")
        if not 0 <= point.score <= MAX_SHAPE_SCORE:
            yield invalid(at(path, i, "score"), point.score, "not in valid range [0, 10]")


def shape_scores(shape: Sequence[UtilizationShapePoint]) -> tuple[int, ...]:
    """The score (0 to 100) for each utilization from 0 to 100 percent."""
    points = [(point.utilization, point.score * (100 // MAX_SHAPE_SCORE)) for point in shape]
    return tuple(broken_linear(points, percent) for percent in range(101))


def broken_linear(points: Sequence[tuple[int, int]], at: int) -> int:
    """The value at `at` of the straight lines through the points, cut towards zero as Go divides."""
    x0, y0 = points[0]
    if at <= x0:
        return y0
    for x1, y1 in points[1:]:
        if at <= x1:
            rise = abs(y1 - y0) * (at - x0) // (x1 - x0)
            return y0 + rise if y1 >= y0 else y0 - rise
        x0, y0 = x1, y1
    return y0


_FIELD_OPERATORS: Final = (Operator.IN, Operator.NOT_IN)


# The node affinity that a profile adds to its pods, as it is written in NodeAffinity's arguments. The
# fields of the API's record are repeated because a configuration distinguishes what a pod does not: a missing
# list and an empty one are printed differently, in the written configuration and in error texts.


class WrittenRequirement(ArgsRecord, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None

    def label_problems(self, path: str) -> Iterator[FieldError]:
        """What is wrong with this as a requirement on a label."""
        if self.operator not in tuple(Operator):
            yield unsupported(at(path, "operator"), self.operator, tuple(Operator))
            return
        for text in requirement_problems(self.key, Operator(self.operator), self.values or (), path):
            where, _, message = text.partition(": ")
            if self.values == ():
                message = message.replace("Invalid value: null", "Invalid value: []", 1)
            yield FieldError(where, message)

    def field_problems(self, path: str) -> Iterator[FieldError]:
        """What is wrong with this as a requirement on a field of the node."""
        if self.operator not in _FIELD_OPERATORS:
            yield unsupported(at(path, "operator"), self.operator, _FIELD_OPERATORS)
        elif self.values is None or len(self.values) != 1:
            message = f"Invalid value: {compact_json(self.values)}: must have one element"
            yield FieldError(at(path, "values"), message)


class WrittenTerm(ArgsRecord, frozen=True):
    match_expressions: tuple[WrittenRequirement, ...] = ()
    match_fields: tuple[WrittenRequirement, ...] = ()

    def problems(self, path: str) -> Iterator[FieldError]:
        for i, requirement in enumerate(self.match_expressions):
            yield from requirement.label_problems(at(path, "matchExpressions", i))
        for i, requirement in enumerate(self.match_fields):
            yield from requirement.field_problems(at(path, "matchFields", i))


class WrittenSelector(ArgsRecord, frozen=True):
    node_selector_terms: tuple[WrittenTerm, ...] | None = None

    def to_wire(self) -> dict[str, object]:
        # The only list of the API that is written even if it is empty or missing.
        terms = self.node_selector_terms
        return {"nodeSelectorTerms": None if terms is None else [term.to_wire() for term in terms]}


class WrittenPreference(ArgsRecord, frozen=True):
    weight: Int32 = 0
    preference: WrittenTerm = WrittenTerm()


class AddedAffinity(ArgsRecord, frozen=True):
    """A node affinity that is added to every pod of the profile."""

    required: WrittenSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[WrittenPreference, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )

    @property
    def node_affinity(self) -> NodeAffinity:
        """The same as the API's record."""
        wire = self.to_wire()
        if self.required is not None and self.required.node_selector_terms is None:
            wire["requiredDuringSchedulingIgnoredDuringExecution"] = {}
        return msgspec.convert(wire, NodeAffinity)

    @classmethod
    def from_node_affinity(cls, affinity: NodeAffinity) -> AddedAffinity:
        """The API's record as it would be written."""
        return msgspec.convert(msgspec.to_builtins(affinity), cls)

    def problems(self, path: str) -> Iterator[FieldError]:
        """The parse errors; terms that are empty or have no weight are ignored."""
        if self.required is not None:
            terms = self.required.node_selector_terms or ()
            where = at(path, "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
            yield from _problems_of_terms(enumerate(terms), where)
        weighing = ((i, term.preference) for i, term in enumerate(self.preferred) if term.weight)
        yield from _problems_of_terms(weighing, at(path, "preferredDuringSchedulingIgnoredDuringExecution"))


def _problems_of_terms(terms: Iterable[tuple[int, WrittenTerm]], path: str) -> Iterator[FieldError]:
    for i, term in terms:
        yield from term.problems(at(path, i))


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
    """As written; `node_affinity` of it is added to every pod of the profile."""

    @classmethod
    def adding(cls, affinity: NodeAffinity) -> NodeAffinityArgs:
        """Arguments that add this affinity."""
        return cls(added=AddedAffinity.from_node_affinity(affinity))

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
