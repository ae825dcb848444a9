"""NodeResourcesBalancedAllocation: nearer to balance scores above 75, further from it below."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayplan.api.releases import V1_36
from bayplan.plugin import SKIP, Cluster, Pod
from bayplan.plugin.args import NodeResourcesBalancedAllocationArgs, ResourceSpec
from bayplan.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from bayplan.testing.builders import make_container, make_node, make_pod
from bayplan.testing.calling import make_plugin
from tests.effort import examples

from .evaluating import GPU, Evaluation, make_cluster, points, requests, resource_clusters


def balancing(*resources: str) -> NodeResourcesBalancedAllocation:
    specs = tuple(ResourceSpec(name=name) for name in resources)
    return make_plugin(NodeResourcesBalancedAllocation, NodeResourcesBalancedAllocationArgs(resources=specs))


def milli(cpu: int, memory: int, gpu: int = 0) -> dict[str, Any]:
    """Requests, or room, as the vectors of the specification give them: milli cpu, bytes, devices."""
    return {"cpu": f"{cpu}m", "memory": memory, GPU: gpu}


def test_its_points_are_upstreams() -> None:
    assert points(NodeResourcesBalancedAllocation) == {"PreScore", "Score"}


@pytest.mark.parametrize(
    ("room", "used", "requested", "score"),
    [
        pytest.param(
            milli(10000, 20000), milli(3000, 0), milli(3000, 5000), 73, id="a little out of balance"
        ),
        pytest.param(milli(10000, 50000), milli(3000, 5000), milli(3000, 5000), 70, id="more out of balance"),
        pytest.param(milli(10000, 10000), milli(0, 0), milli(3000, 3000), 75, id="balance stays as it is"),
        pytest.param(milli(10000, 10000), milli(5000, 0), milli(0, 5000), 87, id="the pod restores balance"),
        pytest.param(milli(10000, 10000), milli(0, 0), milli(10000, 0), 50, id="the pod takes all of one"),
        pytest.param(
            milli(10000, 10000), milli(9000, 9000), milli(9000, 9000), 75, id="more than all counts as all"
        ),
        pytest.param(milli(10000, 0), milli(0, 0), milli(5000, 0), 75, id="a node without memory"),
    ],
)
def test_score_of_cpu_and_memory(
    room: dict[str, Any], used: dict[str, Any], requested: dict[str, Any], score: int
) -> None:
    cluster = make_cluster([make_node("n", **room)], {"n": [make_pod("there", requests=used)]})
    found = Evaluation(make_plugin(NodeResourcesBalancedAllocation), make_pod(requests=requested), cluster)
    assert (found.scores(), found.scores_one_by_one()) == ([score], [score])


@pytest.mark.parametrize(
    ("used_gpus", "score"),
    [pytest.param(3, 75, id="some devices are used"), pytest.param(0, 76, id="no device is used")],
)
def test_score_of_three_resources(used_gpus: int, score: int) -> None:
    cluster = make_cluster(
        [make_node("n", **milli(3500, 40000, 8))],
        {"n": [make_pod("there", requests=milli(3000, 5000, used_gpus))]},
    )
    found = Evaluation(balancing("cpu", "memory", GPU), make_pod(requests=milli(0, 0, 1)), cluster)
    assert (found.scores(), found.scores_one_by_one()) == ([score], [score])


@pytest.mark.parametrize(
    ("pod", "skips"),
    [
        pytest.param(make_pod(), True, id="it requests nothing"),
        pytest.param(make_pod(cpu=0, memory=0), True, id="it requests nothing, explicitly"),
        pytest.param(make_pod(requests={GPU: 1}), True, id="it requests what is not scored"),
        pytest.param(make_pod(cpu="1m"), False, id="it requests cpu"),
        pytest.param(
            make_pod(init_containers=[make_container("init", memory=1)]), False, id="an init container does"
        ),
    ],
)
def test_pods_that_request_nothing_are_skipped(pod: Pod, skips: bool) -> None:
    found = Evaluation(make_plugin(NodeResourcesBalancedAllocation), pod, make_cluster([make_node("n")]))
    assert (found.pre_score is SKIP) is skips


def expected_score(cluster: Cluster, row: int, pod: Pod, resources: tuple[str, ...]) -> int:
    """The rule for one node, as the specification states it."""
    requested = V1_36.accounting.balance_requests(pod)
    room, before, after = [], [], []
    for resource in resources:
        amount = requested.get(resource, 0)
        columns = cluster.nodes.resource(resource)
        allocatable, used = int(columns.allocatable.cell[row]), int(columns.requested.cell[row])
        if allocatable and (amount or resource != GPU):
            room.append(allocatable)
            before.append(used)
            after.append(used + amount)

    def balance(amounts: list[int]) -> int:
        shares = [min(1.0, amount / size) for amount, size in zip(amounts, room, strict=True)]
        if len(shares) < 2:
            deviation = 0.0
        elif len(shares) == 2:
            deviation = abs((shares[0] - shares[1]) / 2)
        else:
            mean = sum(shares) / len(shares)
            deviation = math.sqrt(sum((share - mean) * (share - mean) for share in shares) / len(shares))
        return int((1 - deviation) * 100)

    return 50 + int((50 + balance(after) - balance(before)) / 2)


@settings(max_examples=examples(200), deadline=None)
@given(
    resource_clusters(),
    requests(),
    st.sampled_from(
        [
            ("cpu", "memory"),
            ("cpu",),
            ("memory", GPU),
            ("cpu", "memory", GPU),
            ("cpu", "memory", "ephemeral-storage", GPU),
        ]
    ),
)
def test_columns_agree_with_a_plain_rule(
    cluster: Cluster, requested: dict[str, int], resources: tuple[str, ...]
) -> None:
    pod = make_pod(requests=requested)
    found = Evaluation(balancing(*resources), pod, cluster)
    if found.pre_score is SKIP:
        assert not any(V1_36.accounting.balance_requests(pod).get(resource) for resource in resources)
        return
    expected = [expected_score(cluster, row, pod, resources) for row in range(len(found.nodes))]
    assert found.scores() == expected
    assert found.scores_one_by_one() == expected
