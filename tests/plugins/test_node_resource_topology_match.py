"""NodeResourceTopologyMatch: which NUMA nodes pods fit into, and which nodes are preferred."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.api.decode import parse_objects
from bayplan.api.meta import ObjectMeta, ResourceList
from bayplan.api.node import (
    NodeResourceTopology,
    TopologyAttribute,
    Zone,
    ZoneResource,
)
from bayplan.api.pod import Pod
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.state import CycleState
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.plugins.library import node_resource_topology_match
from bayplan.plugins.library.node_resource_topology_match import (
    BALANCED_ALLOCATION,
    MOST_ALLOCATED,
    NodeResourceTopologyMatch,
    NodeResourceTopologyMatchArgs,
    NumaScoringStrategy,
    ResourceWeight,
    Topology,
    misfit,
    parse,
)
from bayplan.scheduler.core import SchedulingCore
from bayplan.state.view import NodeColumns
from bayplan.testing.builders import make_container, make_node, make_pod
from bayplan.testing.calling import make_plugin
from bayplan.testing.plugin_checks import check_plugin
from bayplan.testing.samples import Samples, make_samples

PLUGINS: list[type[Plugin]] = [*BUILTIN_PLUGINS, NodeResourceTopologyMatch]
GPU = "example.com/gpu"


def make_topology(
    name: str, *zones: ResourceList, policy: str = "single-numa-node", scope: str = "container"
) -> NodeResourceTopology:
    return NodeResourceTopology(
        metadata=ObjectMeta(name=name, uid=f"nrt-{name}"),
        attributes=(
            TopologyAttribute(name="topologyManagerPolicy", value=policy),
            TopologyAttribute(name="topologyManagerScope", value=scope),
        ),
        zones=tuple(
            Zone(
                name=f"node-{number}",
                type="Node",
                resources=tuple(
                    ZoneResource(name=resource, capacity=amount, allocatable=amount, available=amount)
                    for resource, amount in available.items()
                ),
            )
            for number, available in enumerate(zones)
        ),
    )


def guaranteed(name: str = "p", gpus: int = 0, **resources: Any) -> Pod:
    amounts: ResourceList = {"cpu": "2", "memory": "1Gi", **resources}
    if gpus:
        amounts[GPU] = gpus
    return make_pod(name, requests=amounts, limits=amounts)


def decide(pod: Pod, *topologies: NodeResourceTopology) -> str:
    core = SchedulingCore(plugins=PLUGINS)
    core.load([make_node("n", cpu="8", resources={GPU: 2}), *topologies])
    decision = core.decide(pod)
    return decision.node_name or decision.message


HALVES: tuple[ResourceList, ResourceList] = ({"cpu": "4", "memory": "8Gi"}, {"cpu": "4", "memory": "8Gi"})


def test_it_passes_the_checks() -> None:
    check_plugin(NodeResourceTopologyMatch)
    samples = make_samples(2)
    topologies = [
        make_topology(f"node-{number}", *HALVES, scope=scope)
        for number, scope in enumerate(("pod", "container", "pod"))
    ]
    pods = [*samples.pods, guaranteed("g"), guaranteed("large", cpu="5"), make_pod("b", cpu="6")]
    check_plugin(NodeResourceTopologyMatch, samples=[Samples([*samples.objects, *topologies], pods)])


@pytest.mark.parametrize(
    ("pod", "topology", "expected"),
    [
        (guaranteed(cpu="4"), make_topology("n", *HALVES), "n"),
        (guaranteed(cpu="5"), make_topology("n", *HALVES), "cannot align container"),
        (guaranteed(cpu="5"), make_topology("n", *HALVES, scope="pod"), "cannot align pod"),
        (guaranteed(cpu="5"), make_topology("n", *HALVES, policy="restricted"), "n"),
        (guaranteed(cpu="5"), make_topology("other", *HALVES), "n"),
        (guaranteed(memory="9Gi"), make_topology("n", *HALVES), "cannot align container"),
        (make_pod("burstable", cpu="5"), make_topology("n", *HALVES), "n"),
        (make_pod("best-effort"), make_topology("n"), "n"),
        (guaranteed(cpu="1"), make_topology("n", {"memory": "8Gi"}), "cannot align container"),
        (guaranteed(gpus=1), make_topology("n", *HALVES), "n"),
    ],
)
def test_what_fits_into_a_numa_node(pod: Pod, topology: NodeResourceTopology, expected: str) -> None:
    assert expected in decide(pod, topology)


def test_devices_and_cpus_must_be_in_the_same_numa_node() -> None:
    topology = make_topology(
        "n", {"cpu": "1", "memory": "8Gi", GPU: 2}, {"cpu": "4", "memory": "8Gi", GPU: 0}
    )
    assert "cannot align container" in decide(guaranteed(cpu="2", gpus=1), topology)
    assert decide(guaranteed(cpu="1", gpus=1), topology) == "n"
    # A burstable pod shares cpus, but needs its device.
    assert decide(make_pod("b", requests={"cpu": "2", GPU: 1}, limits={GPU: 1}), topology) == "n"
    assert decide(make_pod("d", requests={GPU: 1}, limits={GPU: 1}), topology) == "n"


def several(*cpus: str, init: str = "") -> Pod:
    def amounts(cpu: str) -> ResourceList:
        return {"cpu": cpu, "memory": "1Gi"}

    containers = [
        make_container(f"c{number}", requests=amounts(cpu), limits=amounts(cpu))
        for number, cpu in enumerate(cpus)
    ]
    first = [make_container("i", requests=amounts(init), limits=amounts(init))] if init else []
    return make_pod("p", containers=containers, init_containers=first)


def test_containers_are_aligned_one_after_the_other() -> None:
    topology = make_topology("n", *HALVES)
    assert decide(several("3", "3"), topology) == "n"
    assert "cannot align container" in decide(several("3", "3", "2"), topology)
    assert "cannot align init container" in decide(several("1", init="5"), topology)
    assert decide(several("4", "4", init="4"), topology) == "n"


def test_in_the_scope_of_a_pod_all_containers_share_a_numa_node() -> None:
    assert "cannot align pod" in decide(several("3", "3"), make_topology("n", *HALVES, scope="pod"))


def scores(
    pod: Pod, args: NodeResourceTopologyMatchArgs | None, *topologies: NodeResourceTopology
) -> list[int]:
    core = SchedulingCore(plugins=PLUGINS)
    core.load([*(make_node(item.name, cpu="16") for item in topologies), *topologies])
    plugin = make_plugin(NodeResourceTopologyMatch, args)
    view = NodeColumns(core.cluster, core.cluster.order)
    found: list[int] = plugin.score(CycleState(), pod, view).tolist()
    return found


def with_strategy(type_: str, *weights: tuple[str, int]) -> NodeResourceTopologyMatchArgs:
    resources = tuple(ResourceWeight(name=name, weight=weight) for name, weight in weights)
    return NodeResourceTopologyMatchArgs(
        scoring_strategy=NumaScoringStrategy(type=type_, resources=resources)
    )


SMALL = make_topology("small", {"cpu": "4", "memory": "4Gi"})
LARGE = make_topology("large", {"cpu": "8", "memory": "8Gi"}, {"cpu": "10", "memory": "10Gi"})


def test_strategies() -> None:
    pod = guaranteed(cpu="2", memory="2Gi")
    assert scores(pod, None, SMALL, LARGE) == [50, 75]
    assert scores(pod, with_strategy(MOST_ALLOCATED), SMALL, LARGE) == [50, 20]
    assert scores(pod, with_strategy(BALANCED_ALLOCATION), SMALL, LARGE) == [100, 100]
    lopsided = guaranteed(cpu="4", memory="1Gi")
    assert scores(lopsided, with_strategy(BALANCED_ALLOCATION), SMALL) == [71]
    assert scores(lopsided, with_strategy("LeastAllocated", ("memory", 3)), SMALL) == [56]


def test_only_guaranteed_pods_are_compared() -> None:
    assert scores(make_pod("b", cpu="1"), None, SMALL, LARGE) == [100, 100]


def test_nodes_without_policy_have_the_lowest_score() -> None:
    none = make_topology("none", {"cpu": "4", "memory": "4Gi"}, policy="none")
    assert scores(guaranteed(), None, SMALL, none) == [62, 0]


def test_a_changed_topology_is_seen() -> None:
    core = SchedulingCore(plugins=PLUGINS)
    core.load([make_node("n", cpu="8"), make_topology("n", {"cpu": "1", "memory": "8Gi"})])
    assert not core.decide(guaranteed()).fits
    core.cluster.objects.put(make_topology("n", *HALVES))
    assert core.decide(guaranteed()).fits


def test_a_changed_topology_costs_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    core = SchedulingCore(plugins=PLUGINS)
    for number in range(20):
        core.load([make_node(f"n{number}", cpu="8"), make_topology(f"n{number}", {"cpu": "1"})])
    evaluated: list[str] = []

    def counted(pod: Pod, quality: int, topology: Topology, allocatable: Any) -> str:
        evaluated.append(pod.name)
        return misfit(pod, quality, topology, allocatable)

    monkeypatch.setattr(node_resource_topology_match, "misfit", counted)
    assert not core.decide(guaranteed("first")).fits
    assert evaluated == ["first"] * 20
    assert not core.decide(guaranteed("second")).fits
    assert len(evaluated) == 20
    core.cluster.objects.put(make_topology("n7", *HALVES))
    assert core.decide(guaranteed("third")).node_name == "n7"
    assert len(evaluated) == 21
    core.cluster.objects.remove(make_topology("n8", *HALVES))
    core.cluster.objects.put(make_topology("n7", {"cpu": "1"}))
    assert core.decide(guaranteed("fourth")).node_name == "n8"
    assert len(evaluated) == 22
    core.cluster.objects.put(make_topology("unknown", *HALVES))
    assert core.decide(guaranteed("fifth")).node_name == "n8"
    assert len(evaluated) == 22


def test_parsing() -> None:
    (found,) = parse_objects(
        b"""
apiVersion: topology.node.k8s.io/v1alpha2
kind: NodeResourceTopology
metadata: {name: a}
topologyPolicies: [SingleNUMANodePodLevel]
zones:
- name: node-1
  type: Node
  resources:
  - {name: cpu, capacity: "4", allocatable: "4", available: 1500m}
- {name: core-0, type: Core}
- {name: node-x, type: Node}
- {name: node-999, type: Node}
"""
    )
    assert isinstance(found, NodeResourceTopology)
    topology = parse(found)
    assert (topology.policy, topology.scope) == ("single-numa-node", "pod")
    assert topology.numa_nodes == {1: {"cpu": 1500}}


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (with_strategy("LeastNUMANodes"), "scoringStrategy.type: Unsupported value"),
        (with_strategy(MOST_ALLOCATED, ("cpu", 0)), "resources[0].weight: Invalid value: 0"),
    ],
)
def test_arguments_are_validated(args: NodeResourceTopologyMatchArgs, problem: str) -> None:
    assert [problem in str(error) for error in args.validate("", frozenset())] == [True]
