"""Nominations: which pods are nominated to which node, and the calls of the columns."""

from __future__ import annotations

import pytest

from bayplan.api.pod import Pod
from bayplan.framework.outcome import Nomination
from bayplan.scheduling_queue.nominations import Nominations
from bayplan.state.cluster import Cluster
from bayplan.testing.builders import make_node, make_pod

from .queues import Columns, NoPins, record


class Desk:
    """Nominations, their calls of the snapshot, and the pods that exist."""

    def __init__(self, *pods: Pod) -> None:
        self.columns = Columns()
        self.existing = {pod.key: pod for pod in pods}
        self.nominations = Nominations(self.columns, lambda pod: self.existing.get(pod.key), NoPins())


PLAIN = make_pod("p")
IN_STATUS = make_pod("p", nominated_node="a")


@pytest.mark.parametrize(
    ("pod", "nomination", "expected"),
    [
        pytest.param(PLAIN, Nomination("b"), "b", id="to the node that is named"),
        pytest.param(IN_STATUS, Nomination("b"), "b", id="whatever the status has"),
        pytest.param(IN_STATUS, None, "a", id="to the node of the status"),
        pytest.param(PLAIN, None, None, id="to no node without either"),
        pytest.param(IN_STATUS, Nomination(""), "", id="to no node where it is cleared"),
    ],
)
def test_add(pod: Pod, nomination: Nomination | None, expected: str | None) -> None:
    """Only nominations with a node reach the snapshot."""
    desk = Desk(pod)
    desk.nominations.add(pod, nomination)
    assert desk.nominations.node_of(pod.uid) == expected
    assert desk.columns.nodes() == ({"p": expected} if expected else {})


@pytest.mark.parametrize(
    "existing",
    [
        pytest.param([], id="a deleted pod"),
        pytest.param([make_pod("p", node="a")], id="a pod that has a node"),
    ],
)
def test_pods_that_cannot_be_nominated(existing: list[Pod]) -> None:
    """A nomination that it had before is removed all the same."""
    desk = Desk(PLAIN)
    desk.nominations.add(PLAIN, Nomination("a"))
    desk.existing = {pod.key: pod for pod in existing}
    desk.nominations.add(PLAIN, Nomination("b"))
    assert (desk.columns.nodes(), desk.nominations.node_of(PLAIN.uid)) == ({}, None)


def test_a_pod_is_nominated_once() -> None:
    desk = Desk(PLAIN)
    desk.nominations.add(PLAIN, Nomination("a"))
    desk.nominations.add(PLAIN, Nomination("b"))
    assert (desk.nominations.pods_on("a"), desk.nominations.pods_on("b")) == ((), (PLAIN,))
    assert desk.nominations.node_of(PLAIN.uid) == "b"


def test_pods_on_a_node_come_in_the_order_of_their_nomination() -> None:
    pods = [make_pod(name) for name in ("z", "a", "m")]
    desk = Desk(*pods)
    for pod in (*pods, pods[0]):
        desk.nominations.add(pod, Nomination("n"))
    assert [pod.name for pod in desk.nominations.pods_on("n")] == ["a", "m", "z"]


@pytest.mark.parametrize(
    ("known", "old", "new", "expected"),
    [
        pytest.param(
            "b", PLAIN, make_pod("p", labels={"x": "y"}), {"p": "b"}, id="one not yet in the status stays"
        ),
        pytest.param("b", PLAIN, IN_STATUS, {"p": "a"}, id="the status names a node now"),
        pytest.param("b", IN_STATUS, PLAIN, {}, id="the status names no node any more"),
        pytest.param(
            "a", IN_STATUS, make_pod("p", nominated_node="c"), {"p": "c"}, id="the status names another"
        ),
        pytest.param(None, PLAIN, make_pod("p", labels={"x": "y"}), {}, id="nothing is known of one"),
        pytest.param("", PLAIN, make_pod("p", labels={"x": "y"}), {}, id="a cleared one stays cleared"),
    ],
)
def test_update(known: str | None, old: Pod, new: Pod, expected: dict[str, str]) -> None:
    desk = Desk(new)
    if known is not None:
        desk.nominations.add(old, Nomination(known))
    desk.nominations.pod_updated(record(old), old, new)
    assert desk.columns.nodes() == expected
    assert all(pod is new for pod, _ in desk.columns.nominated.values())


def test_an_update_to_another_pod_of_the_same_name_withdraws_the_old_ones_nomination() -> None:
    """Its deletion was missed."""
    new = make_pod("p", uid="new", nominated_node="b")
    desk = Desk(new)
    desk.nominations.add(IN_STATUS, None)
    desk.nominations.pod_updated(record(IN_STATUS), IN_STATUS, new)
    assert (IN_STATUS.uid in desk.nominations.nodes, desk.nominations.node_of("new")) == (False, "b")


def test_delete() -> None:
    desk = Desk(PLAIN)
    desk.nominations.add(PLAIN, Nomination("a"))
    desk.nominations.remove(PLAIN.uid)
    desk.nominations.remove(PLAIN.uid)
    assert (len(desk.nominations.nodes), desk.columns.nodes(), desk.nominations.pods_on("a")) == (0, {}, ())


def test_a_pod_outside_the_queue_requests_nothing() -> None:
    pod = make_pod("p", cpu="1", priority=9, labels={"x": "y"}, nominated_node="a")
    desk = Desk(pod)
    desk.nominations.add(pod, None)
    desk.nominations.pod_popped(pod)
    (bare,) = desk.nominations.pods_on("a")
    assert (bare.key, bare.uid, bare.priority, bare.labels, bare.spec.containers) == (
        pod.key,
        pod.uid,
        0,
        {},
        (),
    )
    assert desk.columns.nominated[pod.uid] == (pod, "a"), "no other pod is scheduled meanwhile"
    desk.nominations.attempt_ended(pod.uid)
    assert desk.columns.nominated[pod.uid] == (bare, "a")
    desk.nominations.pod_requeued(pod)
    assert desk.columns.nominated[pod.uid] == (pod, "a")


def test_pods_without_a_nomination_are_not_added_to_the_snapshot() -> None:
    desk = Desk(PLAIN)
    desk.nominations.pod_popped(PLAIN)
    desk.nominations.pod_requeued(PLAIN)
    assert desk.columns.nominated == {}


def test_the_snapshot_can_be_changed_directly() -> None:
    cluster = Cluster()
    cluster.set_node(make_node("a"))
    nominations = Nominations(cluster, lambda pod: pod, NoPins())
    nominations.add(PLAIN, Nomination("a"))
    assert cluster.nominated_node(PLAIN.uid) == "a"
    nominations.add(PLAIN, Nomination(""))
    assert cluster.nominated_node(PLAIN.uid) is None
