"""The core: loading a cluster, deciding, assuming pods, and how much of it is computed again."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.api.meta import Object
from bayplan.api.node import Namespace
from bayplan.api.pod import Pod
from bayplan.api.releases import V1_36, V1_37, Release
from bayplan.config import parse_config
from bayplan.errors import ConfigError
from bayplan.framework.status import Code
from bayplan.scheduler.core import SchedulingCore
from bayplan.testing.builders import (
    make_namespace,
    make_node,
    make_pod,
    make_pod_affinity,
    make_pod_term,
    make_spread,
)

HOST = "kubernetes.io/hostname"


def core_of(nodes: int, *, cache: bool = True) -> SchedulingCore:
    core = SchedulingCore(cache=cache)
    for number in range(nodes):
        name = f"n{number}"
        core.cluster.set_node(make_node(name, cpu=64, labels={HOST: name, "zone": f"z{number % 3}"}))
    return core


def place(core: SchedulingCore, pod: Pod) -> str:
    decision = core.decide(pod)
    assert decision.fits, decision.message
    core.assume(decision)
    return decision.node_name


# Loading


@pytest.mark.parametrize(("release", "gated"), [(V1_36, None), (V1_37, "a")], ids=str)
def test_loading_adds_all_objects(release: Release, gated: str | None) -> None:
    """Assigned pods count, nominated pods are expected on their node, and no others."""
    objects: list[Object] = [
        make_pod("runs", node="a", cpu=1),
        make_pod("early", node="unseen"),
        make_pod("done", node="a", cpu=1, phase="Succeeded"),
        make_pod("failed", node="a", cpu=1, phase="Failed"),
        make_pod("expected", nominated_node="a"),
        make_pod("gated", nominated_node="a", gates=["wait"]),
        make_pod("foreign", nominated_node="a", scheduler_name="other"),
        make_pod("waits"),
        make_namespace("default"),
        make_node("a"),
    ]
    core = SchedulingCore(release=release)
    core.load(objects)
    cluster = core.cluster
    row = cluster.nodes.row_of["a"]
    assert [pod.name for pod in cluster.pods_on(row)] == ["runs"]
    names = ("expected", "gated", "foreign", "waits")
    nominated = [cluster.nominated_node(make_pod(name).uid) for name in names]
    assert nominated == ["a", gated, None, None]
    assert cluster.node_count == 1
    assert len(cluster.objects.of(Namespace)) == 1


# Deciding


def test_a_pod_without_a_profile_is_rejected() -> None:
    with pytest.raises(
        ConfigError, match="pod default/p: no profile is named 'other', only \\['default-scheduler'\\]"
    ):
        core_of(1).decide(make_pod("p", scheduler_name="other"))


def test_deciding_changes_nothing() -> None:
    core = core_of(3)
    pod = make_pod("p", cpu=1)
    assert core.decide(pod).node_name == core.decide(pod).node_name
    assert core.cluster.assigned_pod(pod.uid) is None


def test_assuming_counts_the_pod_and_withdraws_its_nomination() -> None:
    core = core_of(3)
    pod = make_pod("p", cpu=1)
    core.cluster.nominate(pod, "n1")
    name = place(core, pod)
    assert core.cluster.assigned_pod(pod.uid) == (pod, name)
    assert core.cluster.nominated_node(pod.uid) is None


def test_profiles_have_their_own_plugins_and_share_the_row_where_searches_begin() -> None:
    config = parse_config(
        """
        apiVersion: kubescheduler.config.k8s.io/v1
        kind: KubeSchedulerConfiguration
        profiles:
        - schedulerName: default-scheduler
        - schedulerName: careless
          plugins: {filter: {disabled: [{name: NodeResourcesFit}]}}
        """
    )
    core = SchedulingCore(config)
    core.cluster.set_node(make_node("small", cpu=1))
    assert core.decide(make_pod("a", cpu=2)).status.code is Code.UNSCHEDULABLE
    assert core.decide(make_pod("b", cpu=2, scheduler_name="careless")).node_name == "small"


def test_an_empty_cluster_and_a_pod_with_nothing_set() -> None:
    core = SchedulingCore()
    assert core.decide(make_pod("p")).message == "no nodes available to schedule pods"
    core.cluster.set_node(make_node("only"))
    assert core.decide(Pod(spec=make_pod().spec)).node_name == "only"


# How much is computed again


def rows_for(core: SchedulingCore, *pods: Pod) -> int:
    before = core.rows_computed
    for pod in pods:
        place(core, pod)
    return core.rows_computed - before


SHAPES: dict[str, dict[str, Any]] = {
    "plain": {"cpu": "100m"},
    "spread": {"labels": {"app": "x"}, "spread": [make_spread("zone", {"app": "x"})]},
    "anti-affinity": {
        "labels": {"app": "x"},
        "affinity": make_pod_affinity(anti_required=[make_pod_term(HOST, {"app": "x"})]),
    },
    "host ports": {"host_ports": [80]},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("nodes", [60, 600])
def test_a_run_of_equal_pods_evaluates_one_row_for_each(shape: str, nodes: int) -> None:
    """After the first, each pod costs the row where the one before it was assumed, however many there are."""
    core = core_of(nodes)
    place(core, make_pod("first", **SHAPES[shape]))
    pods = [make_pod(f"p{number}", **SHAPES[shape]) for number in range(30)]
    assert rows_for(core, *pods) == pytest.approx(30, abs=2)


def test_pods_of_another_shape_cost_the_rows_that_changed_meanwhile() -> None:
    core = core_of(100)
    shapes = [make_pod("a", cpu=1), make_pod("b", cpu=2)]
    assert rows_for(core, *shapes) >= 100
    for number in range(7):
        place(core, make_pod(f"a{number}", cpu=1))
    assert rows_for(core, make_pod("b2", cpu=2)) <= 8


@pytest.mark.parametrize("changed", [1, 5, 40])
def test_nodes_that_change_cost_a_row_each(changed: int) -> None:
    core = core_of(100)
    place(core, make_pod("first"))
    core.decide(make_pod("first"))
    for number in range(changed):
        core.cluster.set_node(make_node(f"n{number}", cpu=32, labels={HOST: f"n{number}"}))
    before = core.rows_computed
    core.decide(make_pod("next"))
    assert core.rows_computed - before == changed


def test_deleted_pods_cost_a_row_each() -> None:
    core = core_of(100)
    names = [make_pod(f"p{number}") for number in range(20)]
    for pod in names:
        place(core, pod)
    core.decide(make_pod("first"))
    for pod in names:
        core.cluster.remove_pod(pod.uid)
    before = core.rows_computed
    core.decide(make_pod("next"))
    assert core.rows_computed - before == 20


def test_pods_that_fit_nowhere_cost_nothing_while_nothing_changes() -> None:
    core = core_of(100)
    for _ in range(2):
        core.decide(make_pod("huge", cpu=999))
    before = core.rows_computed
    for number in range(10):
        core.decide(make_pod(f"huge-{number}", cpu=999))
    assert core.rows_computed == before
