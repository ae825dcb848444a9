"""The library: questions about a cluster, and branches that leave no trace."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.answers.whatif import Cluster, Outcome
from bayplan.api.meta import OwnerReference
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.config import parse_config
from bayplan.errors import InputError
from bayplan.testing.builders import make_node, make_pod

HOSTNAME = "kubernetes.io/hostname"


def owned(pod: Pod, kind: str = "ReplicaSet", name: str = "web") -> Pod:
    owner = OwnerReference(api_version="apps/v1", kind=kind, name=name, uid=f"{kind}-{name}", controller=True)
    return replace(pod, metadata=replace(pod.metadata, owner_references=(owner,)))


def cluster_of(*objects: Any, **options: Any) -> Cluster:
    return Cluster.from_objects(objects, **options)


def small(count: int = 3) -> list[Node]:
    return [make_node(f"n{i}", cpu="4", memory="8Gi", labels={HOSTNAME: f"n{i}"}) for i in range(count)]


def test_pods_are_scheduled_one_after_the_other() -> None:
    cluster = cluster_of(*small(2), *(make_pod(f"p{i}", cpu="3") for i in range(3)))
    result = cluster.schedule()
    assert [one.outcome for one in result] == [Outcome.SCHEDULED, Outcome.SCHEDULED, Outcome.UNSCHEDULABLE]
    assert sorted(result.nodes.values()) == ["n0", "n1"]
    assert result["p2"].reason.startswith("0/2 nodes are available: 2 Insufficient cpu.")
    assert not result.fits
    assert [pod.name for pod in cluster.pending] == ["p2"]


def test_a_branch_leaves_no_trace() -> None:
    cluster = cluster_of(*small(), *(make_pod(f"p{i}", cpu="1", node=f"n{i}") for i in range(3)))
    before = (cluster.nodes, cluster.pods, repr(cluster))
    with cluster.branch() as b:
        b.add_nodes(2, like="n0")
        b.remove_node("n1")
        b.drain("n2")
        assert b.schedule([make_pod("new", cpu="2")]).fits
        with b.branch() as inner:
            inner.add(make_pod("other"), replicas=3)
            inner.schedule()
            inner.commit()
        assert len(b.pods) > 4
    assert (cluster.nodes, cluster.pods, repr(cluster)) == before
    with cluster.branch() as b:
        b.cordon("n0")
        b.commit()
    assert cluster.node("n0").spec.unschedulable
    cluster.uncordon("n0")
    assert not cluster.node("n0").spec.unschedulable


def test_the_same_branch_gives_the_same_result_again() -> None:
    cluster = cluster_of(*small(8), *(owned(make_pod(f"p{i}", cpu="1", node=f"n{i % 8}")) for i in range(12)))

    def evaluate() -> Any:
        with cluster.branch() as b:
            b.drain("n3")
            b.remove_node("n5")
            b.add(make_pod("big", cpu="3"), replicas=6)
            return b.schedule()

    assert evaluate() == evaluate() == evaluate()


def test_drained_pods_move_and_bare_ones_are_lost() -> None:
    cluster = cluster_of(
        *small(2),
        owned(make_pod("web-1", cpu="1", node="n0")),
        owned(make_pod("agent", cpu="1", node="n0"), kind="DaemonSet"),
        make_pod("bare", cpu="1", node="n0"),
    )
    displaced = cluster.drain("n0")
    assert [pod.name for pod in displaced] == ["web-1"]
    result = cluster.schedule()
    assert (result["web-1"].was_on, result["web-1"].node) == ("n0", "n1")
    assert result["bare"].outcome is Outcome.NOT_RECREATED
    assert not result.fits
    assert [pod.name for pod in cluster.pods_of("n0")] == ["agent"]


def test_a_pod_preempts_and_its_victim_is_created_again() -> None:
    cluster = cluster_of(
        *small(1),
        owned(make_pod("low-1", cpu="3", node="n0", priority=1)),
        make_pod("high", cpu="2", priority=100),
    )
    result = cluster.schedule()
    assert result["high"].node == "n0"
    assert result["high"].evicted == ("default/low-1",)
    assert result.evicted == ("default/low-1",)
    again = result.pods[-1]
    assert again.pod.startswith("default/web-")
    assert (again.outcome, again.was_on) == (Outcome.UNSCHEDULABLE, "n0")
    assert [pod.name for pod in cluster.pods_of("n0")] == ["high"]


def test_a_pod_that_another_one_makes_schedulable() -> None:
    """The queue runs: the first pod waits for the second one, and is tried again after it."""
    from bayplan.testing.builders import make_pod_affinity, make_pod_term

    near = make_pod_affinity(required=[make_pod_term(HOSTNAME, {"app": "db"})])
    cluster = cluster_of(
        *small(3), make_pod("a", affinity=near), make_pod("db", labels={"app": "db"}), make_pod("z")
    )
    result = cluster.schedule()
    assert result.fits
    assert result["a"].node == result["db"].node


def test_can_schedule_changes_nothing() -> None:
    cluster = cluster_of(*small(1), make_pod("there", cpu="1", node="n0"))
    answer = cluster.can_schedule(make_pod("p", cpu="3"))
    assert answer
    assert answer.node == "n0"
    assert not cluster.can_schedule(make_pod("p", cpu="3500m"))
    assert "Insufficient cpu" in cluster.can_schedule(make_pod("p", cpu="4")).reason
    assert len(cluster.pods) == 1


def test_a_gated_pod_and_one_of_another_scheduler_have_their_own_outcomes() -> None:
    gated = make_pod("gated", gates=["wait"])
    other = make_pod("other", scheduler_name="mine")
    result = cluster_of(*small(1), gated, other).schedule()
    assert result["gated"].outcome is Outcome.GATED
    assert result["other"].outcome is Outcome.SKIPPED
    assert "mine" in result["other"].reason


def test_explain_has_every_filter_and_score() -> None:
    cluster = cluster_of(*small(2), make_pod("there", cpu="3", node="n0"))
    explained = cluster.explain(make_pod("p", cpu="2"))
    assert (explained.feasible, explained.chosen) == (("n1",), "n1")
    assert explained.node_status["n0"].reasons == ("Insufficient cpu",)
    assert "NodeResourcesFit" in explained.scores
    assert len(cluster.pods) == 1
    with pytest.raises(InputError, match="no profile is named 'mine'"):
        cluster.explain(make_pod("p", scheduler_name="mine"))


def test_extenders_and_pods_that_are_being_deleted_are_named() -> None:
    config = parse_config(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "extenders: [{urlPrefix: 'http://127.0.0.1:1/x', filterVerb: filter}]\n"
    )
    going = make_pod("going", cpu="3", node="n0", deleted=datetime(2026, 1, 1, tzinfo=UTC))
    result = cluster_of(*small(1), going, make_pod("p", cpu="2"), config=config).schedule()
    texts = [warning.message for warning in result.warnings]
    assert any("extender http://127.0.0.1:1/x is not called" in text for text in texts)
    assert any("being deleted (1) still count" in text for text in texts)
    assert not result.fits


def test_a_parent_is_not_used_while_a_branch_is_open() -> None:
    cluster = cluster_of(*small(1))
    branch = cluster.branch()
    with pytest.raises(InputError, match="a branch of this cluster is open"):
        cluster.schedule()
    branch.revert()
    cluster.schedule()
    with pytest.raises(InputError, match="closed"):
        branch.schedule()


def test_unknown_names_are_errors() -> None:
    cluster = cluster_of(*small(1), make_pod("p"))
    with pytest.raises(InputError, match="no node 'x'"):
        cluster.drain("x")
    with pytest.raises(InputError, match="no pod nope/p"):
        cluster.pod("nope/p")
    with pytest.raises(InputError, match="already a Pod default/p"):
        cluster.add(make_pod("p"))


def test_it_works_where_a_loop_runs_already() -> None:
    """As in a notebook."""

    async def cell() -> bool:
        cluster = cluster_of(
            *small(1), make_pod("low", cpu="3", node="n0"), make_pod("h", cpu="2", priority=9)
        )
        return cluster.schedule()["h"].fits

    assert asyncio.run(cell())


def test_results_render_as_html() -> None:
    cluster = cluster_of(*small(1), make_pod("<p>", cpu="1"))
    assert "&lt;p&gt;" in cluster.schedule()._repr_html_()
    assert "<table>" in cluster._repr_html_()
    assert "3 fit" in cluster.capacity(make_pod("x", cpu="1"))._repr_html_()


def test_branches_of_a_large_cluster_are_cheap() -> None:
    """A thousand branches a second on 5,000 nodes; here a tenth of that is required, on any machine."""
    cluster = cluster_of(*(make_node(f"n{i}", cpu="16", memory="64Gi") for i in range(5000)))
    pod = make_pod("p", cpu="1")
    cluster.can_schedule(pod)
    started = time.process_time()
    for _ in range(100):
        with cluster.branch() as b:
            assert b.schedule([pod]).fits
    assert time.process_time() - started < 1.0
