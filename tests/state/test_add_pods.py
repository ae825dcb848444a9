"""Many pods at once give the same columns as one after the other."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from bayplan.api.pod import Pod
from bayplan.plugin import PodQuery, PodSelector, compile_selector
from bayplan.state.cluster import Cluster
from bayplan.state.columns import Table
from bayplan.testing.builders import make_node, make_pod, make_pod_affinity, make_pod_term, make_selector

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
    for name in ("row_pods", "recounted_rows", "claim_uses", "_slot_of"):
        assert getattr(at_once, name) == getattr(one_by_one, name), name
    assert vars(at_once.ports) == vars(one_by_one.ports)
    assert at_once.pods.pod == one_by_one.pods.pod
    assert at_once.pods.large == one_by_one.pods.large
    assert {*(at_once.changes.usage.since(0) or ())} == {*(one_by_one.changes.usage.since(0) or ())}
    for pod in pods:
        for cluster in (one_by_one, at_once):
            cluster.remove_pod(pod.uid)
    assert columns(at_once.nodes) == columns(one_by_one.nodes)
    assert not np.any(at_once.nodes.pod_count.read)


WITH_A = PodQuery((PodSelector(None, compile_selector(make_selector({"app": "a"}))),))


def counted(cluster: Cluster) -> dict[str, Any]:
    """What decisions depend on but for the order of pods, by uid: slots may differ."""
    rows, nodes = range(len(cluster.row_pods)), cluster.nodes
    own = nodes.pod_count, nodes.nonzero_cpu_milli, nodes.nonzero_memory_bytes
    requested = [nodes.resource(name).requested for name in nodes.resource_names()]
    return {
        "sums": [column.read.tolist() for column in (*own, *requested, cluster.count(WITH_A).column)],
        "pods": [{pod.uid for pod in cluster.pods_on(row)} for row in rows],
        "assigned": {uid: cluster.node_of(uid) for uid in cluster._slot_of},
        "ports": {row: set(ports) for row, ports in cluster.ports.on_row.items()},
        "port rows": {port: dict(rows) for port, rows in cluster.ports.rows.items() if rows},
        "claims": dict(cluster.claim_uses),
        "recounted": set(cluster.recounted_rows),
        "carried": sorted(carriers.column.read.tolist() for carriers in cluster.terms._carriers.values()),
    }


@pytest.mark.parametrize("seed", range(20))
def test_pods_removed_together_are_gone_until_they_are_restored(seed: int) -> None:
    """Counts, ports, claims, terms and sums are those of removing the pods one by one. Meanwhile others may
    come and go."""
    rng = random.Random(seed)
    pods = [random_pod(rng, number) for number in range(30)]
    one_by_one, at_once = Cluster(), Cluster()
    for cluster in (one_by_one, at_once):
        for number in range(4):
            cluster.set_node(make_node(f"n{number}", cpu="64"))
        cluster.count(WITH_A)
        for pod in pods:
            cluster.add_pod(pod, pod.spec.node_name)
    before = counted(at_once), [list(map(at_once.pods.pod.__getitem__, row)) for row in at_once.row_pods]
    gone = rng.sample(pods, 20)
    for cluster in (one_by_one, at_once):
        cluster.undo.mark()
    for pod in gone:
        one_by_one.remove_pod(pod.uid)
    at_once.remove_pods([at_once.slot_of(pod.uid) for pod in gone])
    assert counted(at_once) == counted(one_by_one)
    changed = set(at_once.changes.usage.since(0) or ())
    assert changed >= {at_once.nodes.row_of[pod.spec.node_name] for pod in gone}
    for pod in rng.sample(gone, 10):
        at_once.add_pod(pod, f"n{rng.randrange(4)}")
    for pod in rng.sample(pods, 30):
        if at_once.has_pod(pod.uid):
            at_once.remove_pod(pod.uid)
    at_once.undo.revert()
    after = counted(at_once), [list(map(at_once.pods.pod.__getitem__, row)) for row in at_once.row_pods]
    assert after == before
    for pod in pods:
        at_once.remove_pod(pod.uid)
    assert not np.any(at_once.nodes.pod_count.read)
    assert not np.any(at_once.count(WITH_A).column.read)
