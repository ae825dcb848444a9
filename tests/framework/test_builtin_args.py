"""Arguments of the built-in plugins: what they default to, and what is wrong with bad ones."""

from __future__ import annotations

import msgspec
import pytest

from bayplan.api.meta import LabelSelector, LabelSelectorRequirement, NodeSelector, NodeSelectorTerm
from bayplan.api.pod import NodeAffinity, TopologySpreadConstraint
from bayplan.api.releases import V1_36
from bayplan.framework.args import Duration, PluginArgs, aggregate
from bayplan.framework.builtin_args import (
    BUILTIN_ARGS,
    DefaultPreemptionArgs,
    DynamicResourcesArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    RequestedToCapacityRatioParam,
    ResourceSpec,
    ScoringStrategy,
    UtilizationShapePoint,
    VolumeBindingArgs,
)

RATIO = "RequestedToCapacityRatio"
NAME_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def spread(*constraints: TopologySpreadConstraint, defaulting: str = "List") -> PodTopologySpreadArgs:
    return PodTopologySpreadArgs(default_constraints=constraints, defaulting_type=defaulting)


def constraint(
    skew: int = 1, key: str = "zone", action: str = "ScheduleAnyway", selector: LabelSelector | None = None
) -> TopologySpreadConstraint:
    return TopologySpreadConstraint(
        max_skew=skew, topology_key=key, when_unsatisfiable=action, label_selector=selector
    )


def fit(
    type: str, *points: tuple[int, int], resources: tuple[ResourceSpec, ...] = ()
) -> NodeResourcesFitArgs:
    shape = tuple(UtilizationShapePoint(utilization=u, score=s) for u, s in points)
    ratio = RequestedToCapacityRatioParam(shape=shape) if points else None
    return NodeResourcesFitArgs(
        scoring_strategy=ScoringStrategy(type=type, resources=resources, requested_to_capacity_ratio=ratio)
    )


def requiring(
    *expressions: tuple[str, str, tuple[str, ...] | None], fields: bool = False
) -> NodeAffinityArgs:
    """Arguments as they are decoded from a file: values that are None are not given there."""
    requirements = [
        {"key": key, "operator": operator} | ({} if values is None else {"values": values})
        for key, operator, values in expressions
    ]
    term = {"matchFields" if fields else "matchExpressions": requirements}
    terms = {"nodeSelectorTerms": [{}, term]}
    wire = {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return msgspec.convert(wire, NodeAffinityArgs)


TERM = "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[1]"


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (
            DefaultPreemptionArgs(min_candidate_nodes_percentage=101, min_candidate_nodes_absolute=-1),
            "[minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100], "
            "minCandidateNodesAbsolute: Invalid value: -1: not in valid range [0, inf)]",
        ),
        (
            DefaultPreemptionArgs(min_candidate_nodes_percentage=0, min_candidate_nodes_absolute=0),
            "[minCandidateNodesPercentage: Invalid value: 0: cannot be zero at the same time as "
            "minCandidateNodesAbsolute, minCandidateNodesAbsolute: Invalid value: 0: cannot be "
            "zero at the same "
            "time as minCandidateNodesPercentage]",
        ),
        (DefaultPreemptionArgs(min_candidate_nodes_percentage=0), ""),
        (
            InterPodAffinityArgs(hard_pod_affinity_weight=101),
            "hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]",
        ),
        (
            NodeResourcesBalancedAllocationArgs(
                resources=(ResourceSpec(name="cpu"), ResourceSpec(name="cpu", weight=2))
            ),
            '[resources[1].name: Duplicate value: "cpu", resources[1].weight: Invalid value: 2: must be 1]',
        ),
        (
            VolumeBindingArgs(bind_timeout_seconds=-1, shape=()),
            "[bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be "
            "a negative value, "
            "shape: Invalid value: []: unexpected field `shape`, remove it or turn on the feature gate "
            "StorageCapacityScoring]",
        ),
        (
            DynamicResourcesArgs(filter_timeout=Duration.of(-1), binding_timeout=Duration.of(0.5)),
            '[filterTimeout: Invalid value: "-1s": must be zero or positive, '
            'bindingTimeout: Invalid value: "500ms": must be at least 1 second]',
        ),
        (
            spread(defaulting="Other"),
            'defaultingType: Unsupported value: "Other": supported values: "System", "List"',
        ),
        (
            spread(constraint(), defaulting="System"),
            'defaultingType: Invalid value: "System": when .defaultConstraints are not empty',
        ),
        (
            spread(constraint(skew=0, key="", action="")),
            "[defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf), "
            "defaultConstraints[0].topologyKey: Required value: can not be empty, "
            "defaultConstraints[0].whenUnsatisfiable: Required value: can not be empty]",
        ),
        (
            spread(constraint(key="a b", action="Maybe", selector=LabelSelector())),
            f'[defaultConstraints[0].topologyKey: Invalid value: "a b": {NAME_RULE}, '
            'defaultConstraints[0].whenUnsatisfiable: Unsupported value: "Maybe": supported values: '
            '"DoNotSchedule", "ScheduleAnyway", defaultConstraints[0].labelSelector: Forbidden: '
            "constraint must "
            "not define a selector, as they deduced for each pod]",
        ),
        (
            spread(constraint(), constraint(action="DoNotSchedule"), constraint(skew=2)),
            'defaultConstraints[2]: Duplicate value: "{zone, ScheduleAnyway}"',
        ),
        (
            fit("LeastAllocated", resources=(ResourceSpec(name="cpu", weight=101),)),
            "scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu "
            "not in valid range "
            "(0, 100]",
        ),
        (
            fit(RATIO),
            "scoringStrategy.requestedToCapacityRatio: Required value: must be specified when type is "
            "RequestedToCapacityRatio",
        ),
        (
            fit("MostAllocated", (0, 0)),
            "scoringStrategy.requestedToCapacityRatio: Forbidden: must be nil when type is not "
            "RequestedToCapacityRatio",
        ),
        (
            fit(RATIO, (50, 3), (40, 11), (30, 0), (101, 0)),
            "[scoringStrategy.requestedToCapacityRatio.shape[1].utilization: Invalid value: 40: "
            "values must be "
            "sorted in increasing order, "
            "scoringStrategy.requestedToCapacityRatio.shape[1].score: Invalid value: "
            "11: not in valid range [0, 10], scoringStrategy.requestedToCapacityRatio.shape[3].utilization: "
            "Invalid value: 101: not in valid range [0, 100]]",
        ),
        (fit(RATIO, (0, 0), (100, 10)), ""),
        (
            NodeResourcesFitArgs(ignored_resources=("-",)),
            f'ignoredResources[0]: Invalid value: "-": {NAME_RULE}',
        ),
        (requiring(("a", "In", ("b",)), ("a", "Gt", ("1",))), ""),
        (
            requiring(("a", "Exists", ("b",))),
            f'{TERM}.matchExpressions[0].values: Invalid value: ["b"]: values set must be empty '
            "for exists and does "
            "not exist",
        ),
        (
            requiring(("a", "In", ()), ("a", "In", None)),
            f"[{TERM}.matchExpressions[0].values: Invalid value: []: for 'in', 'notin' "
            "operators, values set can't "
            f"be empty, {TERM}.matchExpressions[1].values: Invalid value: null: for 'in', 'notin' operators, "
            "values set can't be empty]",
        ),
        (
            requiring(("a", "Near", ("b",))),
            f'{TERM}.matchExpressions[0].operator: Unsupported value: "Near": supported values: '
            '"In", "NotIn", '
            '"Exists", "DoesNotExist", "Gt", "Lt"',
        ),
        (
            requiring(("metadata.name", "In", ("a", "b")), ("metadata.name", "Gt", None), fields=True),
            f'[{TERM}.matchFields[0].values: Invalid value: ["a","b"]: must have one element, '
            f'{TERM}.matchFields[1].operator: Unsupported value: "Gt": supported values: "In", "NotIn"]',
        ),
    ],
)
def test_what_is_wrong(args: PluginArgs, error: str) -> None:
    assert aggregate(args.validate_for_build(V1_36.gates)) == error


@pytest.mark.parametrize(("name", "args_type"), list(BUILTIN_ARGS.items()))
def test_the_defaults_are_fine(name: str, args_type: type[PluginArgs]) -> None:
    """The kind is the plugin's name and `Args`, and nothing has to be given."""
    args = args_type().completed(V1_36.gates)
    assert args_type.__name__ == f"{name}Args"
    assert list(args.validate_for_build(V1_36.gates)) == []


def test_what_is_empty_becomes_the_default() -> None:
    assert ResourceSpec(name="cpu", weight=0).weight == 1
    assert NodeResourcesBalancedAllocationArgs(resources=()) == NodeResourcesBalancedAllocationArgs()
    assert ScoringStrategy(type="x", resources=()) == ScoringStrategy(type="x")
    assert PodTopologySpreadArgs(defaulting_type="").defaulting_type == "System"


def test_the_added_affinity_is_that_of_the_api() -> None:
    requirement = LabelSelectorRequirement(key="a", operator="In", values=("b",))
    term = NodeSelectorTerm(match_expressions=(requirement,))
    affinity = NodeAffinity(required=NodeSelector(node_selector_terms=(term,)))
    added = NodeAffinityArgs.adding(affinity).added
    assert added is not None
    assert added.node_affinity == affinity


def test_a_selector_without_terms_selects_nothing() -> None:
    wire: dict[str, object] = {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}
    added = msgspec.convert(wire, NodeAffinityArgs).added
    assert added is not None
    assert added.node_affinity == NodeAffinity(required=NodeSelector())


def test_time_outs_are_rejected_where_their_gate_is_off() -> None:
    """Those that were written; defaults are only there where the gate is on."""
    assert list(DynamicResourcesArgs().completed(frozenset()).validate("", frozenset())) == []
    written = DynamicResourcesArgs(filter_timeout=Duration.of(10), binding_timeout=Duration.of(600))
    assert aggregate(written.completed(frozenset()).validate("", frozenset())) == (
        "[filterTimeout: Forbidden: DRASchedulingFilterTimeout feature gate is disabled, bindingTimeout: "
        "Forbidden: DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate is disabled]"
    )


def test_the_shape_of_storage_needs_its_gate() -> None:
    gates = frozenset({"StorageCapacityScoring"})
    completed = VolumeBindingArgs().completed(gates)
    assert completed.to_wire()["shape"] == [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]
    assert list(completed.validate("", gates)) == []
