"""Many pods at once give the same columns as one after the other."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import numpy as np
import pytest

from bayplan.api.pod import Pod
from bayplan.state.cluster import Cluster
from bayplan.state.columns import Table
from bayplan.testing.builders import make_node, make_pod, make_pod_affinity, make_pod_term

AT = datetime(2026, 1, 1, tzinfo=UTC)


def random_pod(rng: random.Random, number: int) -> Pod:
    apart = make_pod_affinity(required=[make_pod_term("zone", {"app": "a"})])
    return make_pod(
        f"p{number}",
        cpu=rng.choice(["100m", "2", None]),
        memory=rng.choice(["1Gi", "400Ti", None]),
        requests=rng.choice([None, {"example.com/gpu": "3"}]),
        labels={"app": rng.choice("ab")},
        node=f"n{rng.randrange(5)}",
        priority=rng.choice([None, 7]),
        host_ports=rng.choice([(), (80,)]),
        claims=rng.choice([(), ("data",)]),
        affinity=rng.choice([None, apart]),
        started=rng.choice([None, AT]),
        deleted=rng.choice([None, None, AT]),
    )


def columns(table: Table) -> list[list[object]]:
    return [column.read.tolist() for column in table._columns]


@pytest.mark.parametrize("seed", range(20))
def test_the_same_as_one_by_one(seed: int) -> None:
    """Also for nodes without a Node object, sums too large for a column, and pods that were there."""
    rng = random.Random(seed)
    pods = [random_pod(rng, number) for number in range(40)]
    one_by_one, at_once = Cluster(), Cluster()
    for cluster in (one_by_one, at_once):
        for number in range(4):
            cluster.set_node(make_node(f"n{number}", cpu="64"))
        for pod in pods[:5]:
            cluster.add_pod(pod, pod.spec.node_name)
    for pod in pods[5:]:
        one_by_one.add_pod(pod, pod.spec.node_name)
    at_once.add_pods(pods[5:])
    assert columns(at_once.pods) == columns(one_by_one.pods)
    assert columns(at_once.nodes) == columns(one_by_one.nodes)
    for name in ("row_pods", "recounted_rows", "used_ports", "port_rows", "claim_uses", "_slot_of"):
        assert getattr(at_once, name) == getattr(one_by_one, name), name
    assert at_once.pods.pod == one_by_one.pods.pod
    assert at_once.pods.large == one_by_one.pods.large
    assert {*(at_once.changes.usage.since(0) or ())} == {*(one_by_one.changes.usage.since(0) or ())}
    for pod in pods:
        for cluster in (one_by_one, at_once):
            cluster.remove_pod(pod.uid)
    assert columns(at_once.nodes) == columns(one_by_one.nodes)
    assert not np.any(at_once.nodes.pod_count.read)
