"""NodeResourcesFit: what a pod requests must be free, and how much is free is scored."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayplan.api.pod import ResourceRequirements
from bayplan.framework.builtin_args import broken_linear
from bayplan.framework.group_api import NodePlacement
from bayplan.plugin import Action, Cluster, Code, Node, NodeColumns, Pod, Resource
from bayplan.plugin.args import (
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    REQUESTED_TO_CAPACITY_RATIO,
    NodeResourcesFitArgs,
    RequestedToCapacityRatioParam,
    ResourceSpec,
    ScoringStrategy,
    UtilizationShapePoint,
)
from bayplan.plugin.objects import fit_requests, scoring_requests
from bayplan.plugins.node_resources_fit import NodeResourcesFit
from bayplan.state.groups import group_of
from bayplan.testing.builders import make_container, make_node, make_pod
from bayplan.testing.calling import make_plugin
from tests.effort import examples
from tests.scheduler.behaviour.test_groups import make_group

from .evaluating import (
    GPU,
    UNRESOLVABLE,
    UNSCHEDULABLE,
    Evaluation,
    few_rows,
    make_cluster,
    points,
    registrations,
    requests,
    requeues,
    resource_clusters,
    without,
)

POD_DELETED = (Resource.POD, Action.DELETE)
POD_SHRANK = (Resource.POD, Action.UPDATE_POD_SCALE_DOWN)
NODE_CAME = (Resource.NODE, Action.ADD)
NODE_CHANGED = (Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE)

RISING = ((0, 0), (100, 10))
FALLING = ((0, 10), (100, 0))


def fitting(
    strategy: str = LEAST_ALLOCATED,
    shape: tuple[tuple[int, int], ...] | None = None,
    *,
    ignored: tuple[str, ...] = (),
    ignored_groups: tuple[str, ...] = (),
    weights: Mapping[str, int] | None = None,
) -> NodeResourcesFit:
    """The plugin with a strategy; weights of resources, by default equal for cpu and memory."""
    resources = weights or {"cpu": 1, "memory": 1}
    ratio = None
    if shape is not None:
        curve = tuple(UtilizationShapePoint(utilization=x, score=y) for x, y in shape)
        ratio = RequestedToCapacityRatioParam(shape=curve)
    return make_plugin(
        NodeResourcesFit,
        NodeResourcesFitArgs(
            ignored_resources=ignored,
            ignored_resource_groups=ignored_groups,
            scoring_strategy=ScoringStrategy(
                type=strategy,
                resources=tuple(ResourceSpec(name=name, weight=weight) for name, weight in resources.items()),
                requested_to_capacity_ratio=ratio,
            ),
        ),
    )


def devices(count: int) -> dict[str, Any]:
    """A further resource of a node, for `make_node`."""
    return {GPU: count}


def test_its_points_are_upstreams() -> None:
    assert points(NodeResourcesFit) == {"PreFilter", "Filter", "PreScore", "Score"}


# Filter


@pytest.mark.parametrize(
    ("requested", "rejected"),
    [
        pytest.param({}, None, id="it requests nothing"),
        pytest.param({"cpu": 1, "memory": 10}, None, id="it takes all that is left"),
        pytest.param({"cpu": "1001m"}, (UNSCHEDULABLE, ("Insufficient cpu",)), id="a little too much cpu"),
        pytest.param(
            {"memory": 11}, (UNSCHEDULABLE, ("Insufficient memory",)), id="a little too much memory"
        ),
        pytest.param(
            {"ephemeral-storage": 6},
            (UNSCHEDULABLE, ("Insufficient ephemeral-storage",)),
            id="a little too much storage",
        ),
        pytest.param(
            {"cpu": 2, "memory": 20, GPU: 2},
            (UNSCHEDULABLE, ("Insufficient cpu", "Insufficient memory", f"Insufficient {GPU}")),
            id="all shortages are reported",
        ),
        pytest.param({"cpu": 5}, (UNRESOLVABLE, ("Insufficient cpu",)), id="more cpu than the node has"),
        pytest.param(
            {"cpu": 5, "memory": 11},
            (UNRESOLVABLE, ("Insufficient cpu", "Insufficient memory")),
            id="more cpu than the node has, and too much memory",
        ),
        pytest.param(
            {"other.com/x": 1},
            (UNRESOLVABLE, ("Insufficient other.com/x",)),
            id="what the node does not have",
        ),
        pytest.param({"other.com/x": 0}, None, id="nothing of what the node does not have"),
        pytest.param({"hugepages-2Mi": 1}, (UNRESOLVABLE, ("Insufficient hugepages-2Mi",)), id="huge pages"),
        pytest.param({"cpu": 0, "unknown": 5}, None, id="what scheduling does not count"),
    ],
)
def test_filter(requested: dict[str, Any], rejected: tuple[Code, tuple[str, ...]] | None) -> None:
    node = make_node("n", cpu=4, memory=100, ephemeral_storage=10, **devices(2))
    there = make_pod("there", requests={"cpu": 3, "memory": 90, "ephemeral-storage": 5, GPU: 1})
    evaluation = Evaluation(
        make_plugin(NodeResourcesFit), make_pod(requests=requested), make_cluster([node], {"n": [there]})
    )
    assert evaluation.rejected() == ({} if rejected is None else {"n": rejected})
    assert evaluation.statuses_one_by_one() == evaluation.statuses()


def test_pods_are_counted() -> None:
    cluster = make_cluster([make_node("full", cpu=1, pods=1)], {"full": [make_pod("there")]})
    found = [
        Evaluation(make_plugin(NodeResourcesFit), make_pod(cpu=cpu), cluster).rejected()["full"]
        for cpu in (None, "500m", 2)
    ]
    assert found == [
        (UNSCHEDULABLE, ("Too many pods",)),
        (UNSCHEDULABLE, ("Too many pods",)),
        (UNRESOLVABLE, ("Too many pods", "Insufficient cpu")),
    ]


def test_a_pod_that_requests_nothing_fits_an_overcommitted_node() -> None:
    cluster = make_cluster([make_node("n", cpu=1)], {"n": [make_pod("there", cpu=2)]})
    assert Evaluation(make_plugin(NodeResourcesFit), make_pod(cpu=0), cluster).rejected() == {}


@pytest.mark.parametrize(
    ("plugin", "fits"),
    [
        pytest.param(fitting(), False, id="nothing is ignored"),
        pytest.param(fitting(ignored=(GPU,)), True, id="the resource is ignored"),
        pytest.param(fitting(ignored=("example.com/tpu",)), False, id="another one is"),
        pytest.param(fitting(ignored_groups=("example.com",)), True, id="its group is ignored"),
        pytest.param(fitting(ignored_groups=("example",)), False, id="another group is"),
    ],
)
def test_extended_resources_can_be_ignored(plugin: NodeResourcesFit, fits: bool) -> None:
    cluster = make_cluster([make_node("n")])
    assert (Evaluation(plugin, make_pod(requests={GPU: 1}), cluster).rejected() == {}) is fits


def test_only_extended_resources_can_be_ignored() -> None:
    plugin = fitting(ignored=("cpu", "hugepages-2Mi"))
    evaluation = Evaluation(
        plugin, make_pod(requests={"cpu": 9, "hugepages-2Mi": 1}), make_cluster([make_node("n")])
    )
    assert evaluation.rejected() == {"n": (UNRESOLVABLE, ("Insufficient cpu", "Insufficient hugepages-2Mi"))}


def test_a_node_fits_if_a_pod_there_were_gone() -> None:
    there, small = make_pod("there", cpu=3), make_pod("small", cpu="500m")
    cluster = make_cluster([make_node("n", cpu=4, pods=2)], {"n": [there, small]})
    evaluation = Evaluation(make_plugin(NodeResourcesFit), make_pod(cpu=2), cluster)
    rejections = [evaluation.statuses(without(cluster, pod.uid))[0] for pod in (there, small)]
    assert [status and status.reasons for status in rejections] == [None, ("Insufficient cpu",)]


def expected_status(cluster: Cluster, row: int, pod: Pod) -> tuple[Code, list[str]] | None:
    """The rule for one node, as the specification states it."""
    reasons, never = [], False
    if int(cluster.nodes.pod_count.cell[row]) + 1 > int(cluster.nodes.allowed_pods.cell[row]):
        reasons.append("Too many pods")
    for resource, amount in fit_requests(pod).items():
        columns = cluster.nodes.resource(resource)
        allocatable, used = int(columns.allocatable.cell[row]), int(columns.requested.cell[row])
        if amount > 0 and amount > allocatable - used:
            reasons.append(f"Insufficient {resource}")
            never = never or amount > allocatable
    return (UNRESOLVABLE if never else UNSCHEDULABLE, sorted(reasons)) if reasons else None


@settings(max_examples=examples(150), deadline=None)
@given(resource_clusters(), requests(), st.data())
def test_filter_agrees_with_a_plain_rule(
    cluster: Cluster, requested: dict[str, int], data: st.DataObject
) -> None:
    pod = make_pod(requests=requested)
    evaluation = Evaluation(make_plugin(NodeResourcesFit), pod, cluster)
    expected = [expected_status(cluster, row, pod) for row in range(len(evaluation.nodes))]

    def plain(statuses: list[Any]) -> list[tuple[Code, list[str]] | None]:
        return [None if status is None else (status.code, sorted(status.reasons)) for status in statuses]

    assert plain(evaluation.statuses()) == expected
    assert plain(evaluation.statuses_one_by_one()) == expected
    rows = data.draw(few_rows(len(expected)))
    few = evaluation.statuses(NodeColumns(cluster, np.array(rows)))
    assert plain(few) == [expected[row] for row in rows]


# Score


@pytest.mark.parametrize(
    ("plugin", "score"),
    [
        pytest.param(fitting(), 37, id="LeastAllocated"),
        pytest.param(fitting(weights={"cpu": 1, "memory": 2}), 41, id="LeastAllocated, memory counts twice"),
        pytest.param(fitting(MOST_ALLOCATED), 62, id="MostAllocated"),
        pytest.param(fitting(REQUESTED_TO_CAPACITY_RATIO, FALLING), 38, id="a falling curve, rounded"),
        pytest.param(fitting(REQUESTED_TO_CAPACITY_RATIO, RISING), 63, id="a rising curve, rounded"),
    ],
)
def test_score(plugin: NodeResourcesFit, score: int) -> None:
    """Vectors of the specification: cpu 3000 of 4000 and memory 5000 of 10000 with the pod."""
    cluster = make_cluster(
        [make_node("n", cpu=4, memory=10000)], {"n": [make_pod("there", cpu=2, memory=3000)]}
    )
    evaluation = Evaluation(plugin, make_pod(cpu=1, memory=2000), cluster)
    assert (evaluation.scores(), evaluation.scores_one_by_one()) == ([score], [score])


@pytest.mark.parametrize(
    ("there", "pod", "score"),
    [
        pytest.param({"cpu": 0}, {"cpu": 0, "memory": 0}, 90, id="a missing request counts 200 MiB"),
        pytest.param({"cpu": 0, "memory": 0}, {"cpu": 0, "memory": 0}, 100, id="an explicit 0 counts 0"),
        pytest.param({"cpu": 0, "memory": 0}, {"memory": 0}, 95, id="the pod's missing cpu counts 100m"),
    ],
)
def test_defaults_for_what_is_not_requested(there: dict[str, int], pod: dict[str, int], score: int) -> None:
    cluster = make_cluster(
        [make_node("n", cpu=1, memory=1000 * 2**20)], {"n": [make_pod("there", requests=there)]}
    )
    assert Evaluation(make_plugin(NodeResourcesFit), make_pod(requests=pod), cluster).scores() == [score]


def test_requests_of_the_pod_as_a_whole_are_filtered_but_not_scored() -> None:
    """Upstream's scoring of the incoming pod does not see them."""
    whole = ResourceRequirements(requests={"cpu": 5, "memory": 0})
    pod = make_pod(containers=[make_container(cpu=1, memory=0)], resources=whole)
    evaluation = Evaluation(make_plugin(NodeResourcesFit), pod, make_cluster([make_node("n", cpu=4)]))
    assert (evaluation.rejected(), evaluation.scores()) == (
        {"n": (UNRESOLVABLE, ("Insufficient cpu",))},
        [87],
    )


@pytest.mark.parametrize(
    ("requested", "scores"),
    [
        pytest.param({"cpu": 1, "memory": 0}, [75, 75], id="no pod requests devices, so they do not count"),
        pytest.param({"cpu": 1, "memory": 0, GPU: 1}, [62, 75], id="where there are none they do not count"),
    ],
)
def test_special_resources_count_only_where_they_are_requested(
    requested: dict[str, int], scores: list[int]
) -> None:
    plugin = fitting(weights={"cpu": 1, GPU: 1, "pods": 1})
    cluster = make_cluster([make_node("with", cpu=4, **devices(2)), make_node("without", cpu=4)])
    assert Evaluation(plugin, make_pod(requests=requested), cluster).scores() == scores


def test_no_resource_that_counts_scores_zero() -> None:
    plugin = fitting(weights={GPU: 1})
    evaluation = Evaluation(plugin, make_pod(), make_cluster([make_node("a", **devices(1)), make_node("b")]))
    assert (evaluation.scores(), evaluation.scores_one_by_one()) == ([0, 0], [0, 0])


@pytest.mark.parametrize(
    ("curve", "at", "value"),
    [
        pytest.param([(10, 1), (90, 9)], 0, 1, id="before the first point"),
        pytest.param([(10, 1), (90, 9)], 19, 1, id="cut down"),
        pytest.param([(10, 1), (90, 9)], 20, 2, id="just reached"),
        pytest.param([(10, 1), (90, 9)], 89, 8, id="almost at the end"),
        pytest.param([(10, 1), (90, 9)], 100, 9, id="after the last point"),
        pytest.param([(0, 100), (3, 0)], 1, 67, id="falling, cut towards zero"),
        pytest.param([(0, 0), (50, 100), (100, 0)], 75, 50, id="the second segment"),
        pytest.param([(40, 7)], 41, 7, id="a single point"),
    ],
)
def test_broken_linear(curve: list[tuple[int, int]], at: int, value: int) -> None:
    assert broken_linear(curve, at) == value


def expected_score(cluster: Cluster, row: int, pod: Pod, args: NodeResourcesFitArgs) -> int:
    """The rule for one node, as the specification states it."""
    strategy = args.scoring_strategy
    requested = scoring_requests(pod)
    nodes = cluster.nodes
    nonzero = {"cpu": nodes.nonzero_cpu_milli, "memory": nodes.nonzero_memory_bytes}
    total = weights = 0
    for spec in strategy.resources:
        columns = nodes.resource(spec.name)
        allocatable, amount = int(columns.allocatable.cell[row]), requested.get(spec.name, 0)
        if allocatable == 0 or (amount == 0 and spec.name == GPU):
            continue
        want = int(nonzero.get(spec.name, columns.requested).cell[row]) + amount
        if strategy.type == LEAST_ALLOCATED:
            score = 0 if want > allocatable else (allocatable - want) * 100 // allocatable
        elif strategy.type == MOST_ALLOCATED:
            score = min(want, allocatable) * 100 // allocatable
        else:
            assert strategy.requested_to_capacity_ratio is not None
            shape = [(p.utilization, p.score * 10) for p in strategy.requested_to_capacity_ratio.shape]
            score = broken_linear(shape, 100 if want > allocatable else want * 100 // allocatable)
            if score == 0:
                continue
        total += score * spec.weight
        weights += spec.weight
    if weights == 0:
        return 0
    if strategy.type == REQUESTED_TO_CAPACITY_RATIO:
        return int(total / weights + 0.5)
    return total // weights


shapes = st.lists(
    st.tuples(st.integers(0, 100), st.integers(0, 10)),
    min_size=1,
    max_size=4,
    unique_by=lambda point: point[0],
).map(lambda found: tuple(sorted(found)))


@st.composite
def plugins(draw: st.DrawFn) -> NodeResourcesFit:
    strategy = draw(st.sampled_from([LEAST_ALLOCATED, MOST_ALLOCATED, REQUESTED_TO_CAPACITY_RATIO]))
    names = st.sampled_from(["cpu", "memory", "ephemeral-storage", GPU])
    weights = draw(st.dictionaries(names, st.integers(1, 5), min_size=1))
    shape = draw(shapes) if strategy == REQUESTED_TO_CAPACITY_RATIO else None
    return fitting(strategy, shape, weights=weights)


@settings(max_examples=examples(200), deadline=None)
@given(plugins(), resource_clusters(), requests(), st.data())
def test_score_agrees_with_a_plain_rule(
    plugin: NodeResourcesFit, cluster: Cluster, requested: dict[str, int], data: st.DataObject
) -> None:
    pod = make_pod(requests=requested)
    evaluation = Evaluation(plugin, pod, cluster)
    expected = [expected_score(cluster, row, pod, plugin.args) for row in range(len(evaluation.nodes))]
    assert evaluation.scores() == expected
    assert evaluation.scores_one_by_one() == expected
    rows = data.draw(few_rows(len(expected)))
    few = plugin.score(evaluation.state, pod, NodeColumns(cluster, np.array(rows)))
    assert few.tolist() == [expected[row] for row in rows]


# Hints


@pytest.mark.parametrize(
    ("deleted", "expected"),
    [
        pytest.param(make_pod("d", node="n"), True, id="it was on a node"),
        pytest.param(make_pod("d", nominated_node="n"), True, id="it was nominated to a node"),
        pytest.param(make_pod("d"), False, id="it was nowhere"),
    ],
)
def test_hint_on_deleted_pods(deleted: Pod, expected: bool) -> None:
    assert requeues(make_plugin(NodeResourcesFit), POD_DELETED, make_pod(cpu=1), deleted, None) is expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(make_pod("p", cpu=2), make_pod("p", cpu=1), True, id="itself"),
        pytest.param(
            make_pod("o", node="n", cpu=2),
            make_pod("o", node="n", cpu=1),
            True,
            id="another, in what it needs",
        ),
        pytest.param(
            make_pod("o", node="n", memory=2),
            make_pod("o", node="n", memory=1),
            False,
            id="another, in something else",
        ),
        pytest.param(
            make_pod("o", node="n", cpu=1), make_pod("o", node="n", cpu=2), False, id="another one grew"
        ),
        pytest.param(make_pod("o", cpu=2), make_pod("o", cpu=1), False, id="another one that is on no node"),
        pytest.param(
            make_pod("o", node="n", requests={GPU: 2}),
            make_pod("o", node="n"),
            True,
            id="another one gave its devices back",
        ),
    ],
)
def test_hint_on_pods_that_shrank(old: Pod, new: Pod, expected: bool) -> None:
    waiting = make_pod("p", requests={"cpu": 4, "memory": 0, GPU: 1})
    assert requeues(make_plugin(NodeResourcesFit), POD_SHRANK, waiting, old, new) is expected


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        pytest.param(make_node("n", cpu=2), True, id="it has room"),
        pytest.param(make_node("n", cpu=1), False, id="it is too small"),
        pytest.param(make_node("n", cpu=2, pods=0), False, id="it takes no pods"),
    ],
)
def test_hint_on_new_nodes(new: Node, expected: bool) -> None:
    assert requeues(make_plugin(NodeResourcesFit), NODE_CAME, make_pod(cpu=2), None, new) is expected


def test_hint_on_new_nodes_counts_ignored_resources() -> None:
    plugin = fitting(ignored=(GPU,))
    assert not requeues(plugin, NODE_CAME, make_pod(requests={GPU: 1}), None, make_node("n"))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(make_node("n", cpu=2), make_node("n", cpu=4), True, id="cpu grew"),
        pytest.param(make_node("n", cpu=1), make_node("n", cpu=2), True, id="cpu grew just enough"),
        pytest.param(make_node("n", cpu="500m"), make_node("n", cpu=1), False, id="cpu grew too little"),
        pytest.param(make_node("n", cpu=4), make_node("n", cpu=2), False, id="cpu shrank"),
        pytest.param(make_node("n", memory=1), make_node("n", memory=2), False, id="something else grew"),
        pytest.param(make_node("n", pods=1), make_node("n", pods=2), True, id="more pods are allowed"),
        pytest.param(
            make_node("n"),
            make_node("n", **devices(1)),
            False,
            id="devices were added that it does not request",
        ),
    ],
)
def test_hint_on_nodes_that_changed(old: Node, new: Node, expected: bool) -> None:
    assert requeues(make_plugin(NodeResourcesFit), NODE_CHANGED, make_pod(cpu=2), old, new) is expected


def test_hint_on_devices_that_came() -> None:
    old, new = make_node("n"), make_node("n", **devices(1))
    assert requeues(make_plugin(NodeResourcesFit), NODE_CHANGED, make_pod(requests={GPU: 1}), old, new)


def device_class(name: str, resource: str | None) -> SimpleNamespace:
    return SimpleNamespace(name=name, spec=SimpleNamespace(extended_resource_name=resource))


IMPLICIT = "deviceclass.resource.kubernetes.io/gpu"


@pytest.mark.parametrize(
    ("requested", "old", "new", "expected"),
    [
        pytest.param(
            GPU, None, device_class("gpu", GPU), True, id="a class was added with the requested name"
        ),
        pytest.param(IMPLICIT, None, device_class("gpu", None), True, id="its implicit name is requested"),
        pytest.param("cpu", None, device_class("gpu", GPU), False, id="it is not requested"),
        pytest.param(
            GPU, device_class("gpu", None), device_class("gpu", GPU), True, id="it got the requested name"
        ),
        pytest.param(GPU, device_class("gpu", GPU), device_class("gpu", None), False, id="it lost that name"),
        pytest.param(GPU, device_class("gpu", GPU), device_class("gpu", GPU), False, id="its name stayed"),
        pytest.param(
            IMPLICIT, device_class("gpu", None), device_class("gpu", GPU), False, id="the implicit one is old"
        ),
    ],
)
def test_hint_on_device_classes(requested: str, old: object, new: object, expected: bool) -> None:
    event = (Resource.DEVICE_CLASS, Action.ADD if old is None else Action.UPDATE)
    assert (
        requeues(make_plugin(NodeResourcesFit), event, make_pod(requests={requested: 1}), old, new)
        is expected
    )


def test_registrations() -> None:
    assert registrations(make_plugin(NodeResourcesFit)) == [
        (Resource.POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN),
        (Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE),
        (Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE),
    ]


def plain_placement_score(sizes: list[Mapping[str, int]], used: Mapping[str, int]) -> int:
    """The mean share of cpu and memory that would be in use, in whole percents."""
    shares = []
    for name, amount in used.items():
        size = sum(one[name] for one in sizes)
        shares += [min(amount, size) * 100 // size] if size else []
    return sum(shares) // len(shares) if shares else 0


@pytest.mark.parametrize("seed", range(20))
def test_domains_are_scored_by_how_full_they_would_be(seed: int) -> None:
    rng = random.Random(seed)
    cluster = Cluster()
    sizes = [{"cpu": rng.randrange(9) * 1000, "memory": rng.randrange(4) << 30} for _ in range(9)]
    used = [dict.fromkeys(size, 0) for size in sizes]
    for number, size in enumerate(sizes):
        cluster.set_node(make_node(f"n{number}", cpu=f"{size['cpu']}m", memory=str(size["memory"])))
        for other in range(rng.randrange(3)):
            cluster.add_pod(make_pod(f"p{number}-{other}", cpu="500m", memory="1Gi"), f"n{number}")
            used[number]["cpu"] += 500
            used[number]["memory"] += 1 << 30
    pods = [make_pod(f"g{number}", cpu="1", memory="512Mi") for number in range(5)]
    domains = [[0, 1], [5], [2, 3, 4], [], [8, 6, 7]]
    placed = [pods[: rng.randrange(6)] for _ in domains]
    plugin = make_plugin(NodeResourcesFit, NodeResourcesFitArgs(), cluster)
    placements = [NodePlacement(str(rows), np.array(rows, dtype=np.intp)) for rows in domains]
    group = group_of(make_group())
    expected = [
        plain_placement_score(
            [sizes[row] for row in rows],
            {
                "cpu": sum(used[row]["cpu"] for row in rows) + 1000 * len(there),
                "memory": sum(used[row]["memory"] for row in rows) + (len(there) << 29),
            },
        )
        for rows, there in zip(domains, placed, strict=True)
    ]
    assert plugin.score_placements(group, (), placements, placed) == expected
