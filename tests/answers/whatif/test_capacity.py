"""Capacity equals scheduling copies one by one."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from bayplan.answers.whatif import Cluster, machine
from bayplan.api.pod import Pod, TopologySpreadConstraint
from bayplan.errors import InputError
from bayplan.testing.builders import (
    make_node,
    make_pod,
    make_pod_affinity,
    make_pod_term,
    make_pvc,
    make_selector,
    make_storage_class,
)

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"


def random_cluster(rng: random.Random) -> Cluster:
    nodes = [
        make_node(
            f"n{i}",
            cpu=str(rng.choice((2, 4, 8))),
            memory=f"{rng.choice((4, 8, 16))}Gi",
            labels={ZONE: rng.choice("abc"), HOSTNAME: f"n{i}"},
        )
        for i in range(rng.randrange(1, 12))
    ]
    pods = [
        make_pod(f"q{i}", cpu=f"{rng.randrange(1, 9)}00m", memory="512Mi", node=rng.choice(nodes).name)
        for i in range(rng.randrange(20))
    ]
    return Cluster.from_objects([*nodes, *pods])


def random_pod(rng: random.Random, name: str) -> Pod:
    labels = {"app": name}
    memory = f"{rng.randrange(1, 20)}00Mi"
    pod = make_pod(name, cpu=f"{rng.randrange(2, 20)}00m", memory=memory, labels=labels)
    kind = rng.randrange(4)
    if kind == 1:
        anti = make_pod_affinity(anti_required=[make_pod_term(HOSTNAME, labels)])
        return replace(pod, spec=replace(pod.spec, affinity=anti))
    if kind == 2:
        spread = TopologySpreadConstraint(
            max_skew=1,
            topology_key=ZONE,
            when_unsatisfiable="DoNotSchedule",
            label_selector=make_selector(labels),
        )
        return replace(pod, spec=replace(pod.spec, topology_spread_constraints=(spread,)))
    if kind == 3:
        return make_pod(name, cpu="1", labels=labels, host_ports=[8080])
    return pod


@pytest.mark.parametrize("seed", range(25))
def test_it_equals_scheduling_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    cluster = random_cluster(rng)
    mix = [(random_pod(rng, "web"), rng.randrange(1, 4)), (random_pod(rng, "db"), 1)][: rng.randrange(1, 3)]
    counted = cluster.capacity(mix)
    by_node: dict[str, int] = {}
    with cluster.branch() as b:
        number = 0
        order = [pod for pod, share in mix for _ in range(share)]
        while True:
            pod = order[number % len(order)]
            fresh = replace(pod, metadata=replace(pod.metadata, name=f"{pod.name}-{number}", uid=""))
            result = b.schedule([fresh])
            if not result.fits:
                break
            by_node[result.pods[0].node] = by_node.get(result.pods[0].node, 0) + 1
            number += 1
    assert counted.is_limit
    assert (counted.count, counted.by_node) == (number, by_node)
    assert result.pods[0].reason.startswith(counted.reason)
    assert sum(counted.by_node.values()) == counted.count


def test_it_evicts_nothing() -> None:
    low = make_pod("low", cpu="3", node="n0", priority=0)
    cluster = Cluster.from_objects([make_node("n0", cpu="4"), low])
    assert int(cluster.capacity(make_pod("high", cpu="2", priority=1000))) == 0
    assert cluster.can_schedule(make_pod("high", cpu="2", priority=1000))


def test_it_ends_at_a_maximum() -> None:
    cluster = Cluster.from_objects([make_node("n0", cpu="4")])
    counted = cluster.capacity(make_pod("p", cpu="1m"), at_most=5)
    assert (counted.count, counted.is_limit, counted.reason) == (5, False, "")


def test_new_nodes_of_a_machine_shape() -> None:
    cluster = Cluster.from_objects([make_node("n0", cpu="4", memory="8Gi")])
    with cluster.branch() as b:
        assert b.add_nodes(2, like="cpu=8,memory=32Gi") == ["machine-new-0", "machine-new-1"]
        assert int(b.capacity(make_pod("p", cpu="4"))) == 5
    assert machine("cpu=2").status.allocatable == {"pods": "110", "cpu": "2"}


@pytest.mark.parametrize("text", ["cpu", "cpu=", "=4", "cpu=4,", "cpu=four"])
def test_a_malformed_machine_shape_is_an_error(text: str) -> None:
    with pytest.raises(InputError, match="not a machine shape"):
        machine(text)


def test_a_mix_needs_pods() -> None:
    with pytest.raises(InputError, match="at least one pod"):
        Cluster.from_objects([]).capacity([])


def test_no_node_fits_nothing() -> None:
    counted = Cluster.from_objects([]).capacity(make_pod("p"))
    assert (counted.count, counted.reason) == (0, "no nodes available to schedule pods")


def test_gates_are_ignored_with_a_warning() -> None:
    cluster = Cluster.from_objects([make_node("n0", cpu="2")])
    found = cluster.capacity(make_pod("p", cpu="1", gates=["wait"]))
    assert (found.count, [one.message for one in found.warnings]) == (2, ["its scheduling gates are ignored"])


def test_the_reason_does_not_mention_that_copies_may_not_preempt() -> None:
    """Also for pods that are bound one by one, because they have claims."""
    cluster = Cluster.from_objects([make_node("n0", cpu="2"), make_storage_class("c"), make_pvc("data")])
    found = cluster.capacity(make_pod("p", cpu="3", claims=["data"]))
    assert found.count == 0
    assert "preemption" not in found.reason
