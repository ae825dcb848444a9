"""The cluster: what each event changes, and what is left after additions and deletions in any order."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NoReturn

import pytest

from bayplan.api.pod import Affinity, ContainerPort
from bayplan.plugin import Cluster, Pod, PodQuery, PodSelector, compile_selector
from bayplan.state import counts as counts_module
from bayplan.state import pods as pods_module
from bayplan.state import terms
from bayplan.state.nodes import NodeTree
from bayplan.state.terms import TermKind
from bayplan.testing.builders import (
    make_namespace,
    make_node,
    make_pod,
    make_pod_affinity,
    make_pod_term,
    make_selector,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def cluster_of(*names: str) -> Cluster:
    cluster = Cluster()
    for name in names:
        cluster.set_node(make_node(name))
    return cluster


def row(cluster: Cluster, name: str) -> int:
    return cluster.nodes.row_of[name]


def names_on(cluster: Cluster, name: str) -> list[str]:
    return [pod.name for pod in cluster.pods_on(row(cluster, name))]


# Pods


def test_a_pod_takes_what_it_requests_and_gives_it_back() -> None:
    cluster = cluster_of("a")
    pod = make_pod("p", cpu="500m", requests={"example.com/gpu": 2})
    cluster.add_pod(pod, "a")
    nodes = cluster.nodes
    assert (nodes.pod_count.cell[0], nodes.resource("cpu").requested.cell[0]) == (1, 500)
    assert (nodes.nonzero_cpu_milli.cell[0], nodes.nonzero_memory_bytes.cell[0]) == (500, 200 * 2**20)
    assert nodes.resource("example.com/gpu").requested.cell[0] == 2
    assert cluster.free(0) == (3500, 32 * 2**30)
    cluster.remove_pod(pod.uid)
    assert (nodes.pod_count.cell[0], nodes.resource("cpu").requested.cell[0]) == (0, 0)
    assert (nodes.nonzero_cpu_milli.cell[0], nodes.nonzero_memory_bytes.cell[0]) == (0, 0)
    assert cluster.assigned_pod(pod.uid) is None


def test_the_last_pod_moves_to_the_slot_of_a_removed_one() -> None:
    cluster = cluster_of("a")
    for name in "vwxyz":
        cluster.add_pod(make_pod(name), "a")
    cluster.remove_pod(make_pod("w").uid)
    assert names_on(cluster, "a") == ["v", "z", "x", "y"]
    cluster.remove_pod(make_pod("y").uid)
    assert names_on(cluster, "a") == ["v", "z", "x"]
    positions = [cluster.pods.position.cell[slot] for slot in cluster.row_pods[0]]
    assert positions == [0, 1, 2]


class TestUpdatedPods:
    def test_a_changed_request_is_counted(self) -> None:
        cluster = cluster_of("a")
        cluster.add_pod(make_pod("p", cpu=1), "a")
        cluster.update_pod(make_pod("p", cpu=3))
        assert cluster.nodes.resource("cpu").requested.cell[0] == 3000
        assert cluster.nodes.pod_count.cell[0] == 1

    @pytest.mark.parametrize(
        ("after", "seen"),
        [
            pytest.param(make_pod("p"), False, id="nothing that plugins read"),
            pytest.param(make_pod("p", annotations={"a": "b"}), True, id="its annotations"),
            pytest.param(make_pod("p", deleted=NOW), True, id="it is being deleted"),
            pytest.param(make_pod("p", labels={"a": "b"}), True, id="its labels"),
            pytest.param(make_pod("p", started=NOW), True, id="its start"),
            pytest.param(make_pod("p", priority=5), True, id="its priority"),
        ],
    )
    def test_the_row_changed_only_where_a_rule_could_see_it(self, after: Pod, seen: bool) -> None:
        cluster = cluster_of("a")
        cluster.add_pod(make_pod("p"), "a")
        before = cluster.changes.clock.now
        cluster.update_pod(after)
        assert bool(cluster.changes.usage.since(before)) is seen
        assert cluster.assigned_pod(after.uid) == (after, "a")

    @pytest.mark.parametrize("after", [make_pod("x", annotations={"a": "b"}), make_pod("x", cpu=1)])
    def test_it_moves_to_the_end_of_its_nodes_list(self, after: Pod) -> None:
        """As upstream, which takes it off the node and puts it back."""
        cluster = cluster_of("a")
        for name in "wxyz":
            cluster.add_pod(make_pod(name), "a")
        cluster.update_pod(after)
        assert names_on(cluster, "a") == ["w", "z", "y", "x"]
        assert [cluster.pods.position.cell[slot] for slot in cluster.row_pods[0]] == [0, 1, 2, 3]

    def test_the_last_pod_of_a_node_that_is_gone(self) -> None:
        """It holds the row, and still does when it changes."""
        cluster = cluster_of("a")
        cluster.add_pod(make_pod("p"), "a")
        cluster.remove_node("a")
        cluster.update_pod(make_pod("p", cpu=2))
        assert cluster.assigned_pod(make_pod("p").uid) == (make_pod("p", cpu=2), "a")
        cluster.set_node(make_node("a"))
        assert cluster.nodes.resource("cpu").requested.cell[row(cluster, "a")] == 2000


# Nodes that are not there, yet or any more


def test_a_pod_may_come_before_its_node() -> None:
    cluster = Cluster()
    cluster.add_pod(make_pod("p", cpu=1), "late")
    assert (cluster.node_count, cluster.order.tolist()) == (0, [])
    assert not cluster.nodes.exists.cell[0]
    cluster.set_node(make_node("late", cpu=4))
    assert cluster.free(row(cluster, "late"))[0] == 3000
    assert cluster.order.tolist() == [0]


def test_pods_stay_when_their_node_is_deleted_and_are_there_when_it_comes_back() -> None:
    cluster = cluster_of("a", "b")
    cluster.add_pod(make_pod("p", cpu=1), "a")
    cluster.remove_node("a")
    assert cluster.node_count == 1
    assert names_on(cluster, "a") == ["p"]
    cluster.set_node(make_node("a", cpu=2))
    assert cluster.free(row(cluster, "a"))[0] == 1000


def test_a_row_is_given_up_when_neither_node_nor_pods_are_left() -> None:
    cluster = cluster_of("a", "b")
    cluster.add_pod(make_pod("p"), "a")
    cluster.remove_node("a")
    assert "a" in cluster.nodes.row_of
    cluster.remove_pod(make_pod("p").uid)
    assert "a" not in cluster.nodes.row_of
    cluster.set_node(make_node("c", cpu=7))
    assert (row(cluster, "c"), cluster.nodes.high) == (0, 2)
    assert cluster.free(0)[0] == 7000


def test_a_pod_that_is_expected_holds_a_row_too() -> None:
    cluster = cluster_of("a")
    cluster.nominate(make_pod("p"), "gone")
    assert "gone" in cluster.nodes.row_of
    cluster.remove_nomination(make_pod("p").uid)
    assert "gone" not in cluster.nodes.row_of


def test_a_row_that_is_used_again_holds_nothing_of_the_node_before() -> None:
    cluster = Cluster()
    zone = cluster.nodes.label("zone")
    old = make_node(
        "old", labels={"zone": "z"}, taints=["x:NoSchedule"], unschedulable=True, images={"i": 5}, pods=3
    )
    cluster.set_node(old)
    pod = make_pod(
        "p", cpu=1, host_ports=[80], affinity=make_pod_affinity(anti_required=[make_pod_term("zone", {})])
    )
    cluster.add_pod(pod, "old")
    cluster.remove_pod(pod.uid)
    cluster.remove_node("old")
    cluster.add_pod(make_pod("q"), "new")
    nodes = cluster.nodes
    assert row(cluster, "new") == 0
    assert (nodes.exists.cell[0], nodes.unschedulable.cell[0], nodes.allowed_pods.cell[0]) == (
        False,
        False,
        0,
    )
    assert (zone.column.cell[0], nodes.taint_set.cell[0], nodes.pod_count.cell[0]) == (-1, -1, 1)
    assert (nodes.images, cluster.ports.on_row, len(cluster.terms)) == ({}, {}, 0)


# Changes


Change = Callable[[Cluster], Any]


@pytest.mark.parametrize(
    ("change", "usage", "nodes", "nominations"),
    [
        pytest.param(lambda c: c.add_pod(make_pod("q"), "a"), [0], [], [], id="a pod was added"),
        pytest.param(lambda c: c.remove_pod(make_pod("p").uid), [1], [], [], id="a pod was deleted"),
        pytest.param(lambda c: c.set_node(make_node("a", cpu=9)), [], [0], [], id="a node changed"),
        pytest.param(lambda c: c.set_node(make_node("a")), [], [], [], id="a node stayed the same"),
        pytest.param(lambda c: c.set_node(make_node("c")), [], [2], [], id="a node was added"),
        pytest.param(lambda c: c.remove_node("b"), [], [1], [], id="a node was deleted"),
        pytest.param(lambda c: c.nominate(make_pod("q"), "a"), [], [], [0], id="a pod is expected"),
        pytest.param(
            lambda c: c.remove_nomination(make_pod("q").uid),
            [],
            [],
            [],
            id="one that was not expected is not any more",
        ),
        pytest.param(lambda c: c.objects.put(make_namespace("x")), [], [], [], id="anything else"),
    ],
)
def test_which_rows_changed(
    change: Change, usage: list[int], nodes: list[int], nominations: list[int]
) -> None:
    cluster = cluster_of("a", "b")
    cluster.add_pod(make_pod("p"), "b")
    changes = cluster.changes
    before = changes.clock.now
    change(cluster)
    logs = (changes.usage, changes.nodes, changes.nominations)
    assert [log.since(before) for log in logs] == [usage, nodes, nominations]


@pytest.mark.parametrize(
    ("change", "topology", "images"),
    [
        pytest.param(lambda c: c.set_node(make_node("b")), True, True, id="a node was added"),
        pytest.param(lambda c: c.remove_node("a"), True, True, id="a node was deleted"),
        pytest.param(lambda c: c.set_node(make_node("a", labels={"x": "y"})), True, False, id="its labels"),
        pytest.param(
            lambda c: c.set_node(make_node("a", taints=["x:NoSchedule"])), True, False, id="its taints"
        ),
        pytest.param(lambda c: c.set_node(make_node("a", unschedulable=True)), True, False, id="a cordon"),
        pytest.param(lambda c: c.set_node(make_node("a", images={"i": 1})), False, True, id="its images"),
        pytest.param(lambda c: c.set_node(make_node("a", cpu=9)), False, False, id="its room"),
        pytest.param(lambda c: c.add_pod(make_pod("p"), "a"), False, False, id="a pod was added"),
        pytest.param(lambda c: c.add_pod(make_pod("p"), "unseen"), True, False, id="the table grew"),
    ],
)
def test_topics(change: Change, topology: bool, images: bool) -> None:
    cluster = cluster_of("a")
    before, changes = cluster.changes.clock.now, cluster.changes
    change(cluster)
    assert (changes.topology.changed_at > before, changes.images.changed_at > before) == (topology, images)


# Ports and claims


def port(number: int, ip: str = "", protocol: str = "TCP") -> ContainerPort:
    return ContainerPort(container_port=number, host_port=number, host_ip=ip, protocol=protocol)


class TestPorts:
    def test_ports_are_used_and_freed(self) -> None:
        cluster = cluster_of("a")
        pod = make_pod("p", host_ports=[port(80, "10.0.0.1"), port(53, protocol="UDP")])
        cluster.add_pod(pod, "a")
        assert {(used.ip, used.protocol, used.port) for used in cluster.ports.on_row[0]} == {
            ("10.0.0.1", "TCP", 80),
            ("0.0.0.0", "UDP", 53),
        }
        assert set(cluster.ports.rows) == {("TCP", 80), ("UDP", 53)}
        cluster.remove_pod(pod.uid)
        assert cluster.ports.on_row == {}
        assert not any(cluster.ports.rows.values())

    def test_two_pods_with_one_port_leave_together(self) -> None:
        """Upstream keeps a set: the first of them that is deleted frees the port."""
        cluster = cluster_of("a")
        for name in ("p", "q"):
            cluster.add_pod(make_pod(name, host_ports=[80]), "a")
        cluster.remove_pod(make_pod("p").uid)
        assert cluster.ports.on_row.get(0, set()) == set()
        cluster.remove_pod(make_pod("q").uid)
        assert cluster.ports.on_row == {}
        assert not any(cluster.ports.rows.values())

    def test_other_ports_of_the_one_that_stays_are_kept(self) -> None:
        cluster = cluster_of("a")
        cluster.add_pod(make_pod("p", host_ports=[80, 81]), "a")
        cluster.add_pod(make_pod("q", host_ports=[80]), "a")
        cluster.remove_pod(make_pod("q").uid)
        assert {used.port for used in cluster.ports.on_row[0]} == {81}

    def test_a_pod_that_names_a_port_twice(self) -> None:
        cluster = cluster_of("a")
        cluster.add_pod(make_pod("p", host_ports=[80, 80]), "a")
        cluster.remove_pod(make_pod("p").uid)
        assert cluster.ports.on_row == {}
        assert not any(cluster.ports.rows.values())


def test_claims_in_use_are_counted_over_all_nodes() -> None:
    cluster = cluster_of("a", "b")
    cluster.add_pod(make_pod("p", claims=["data", "more"]), "a")
    cluster.add_pod(make_pod("q", claims=["data"]), "b")
    cluster.add_pod(make_pod("r", claims=["data"], namespace="other"), "b")
    assert cluster.claim_uses == {"default/data": 2, "default/more": 1, "other/data": 1}
    cluster.remove_pod(make_pod("p").uid)
    assert cluster.claim_uses == {"default/data": 1, "other/data": 1}


# Nominations


class TestNominations:
    def test_a_pod_is_nominated_to_one_node(self) -> None:
        cluster = cluster_of("a", "b")
        pod = make_pod("p")
        cluster.nominate(pod, "a")
        cluster.nominate(pod, "b")
        assert cluster.nominated_node(pod.uid) == "b"
        assert list(cluster.nominated) == [1]

    def test_nominated_pods_are_in_the_order_of_their_nomination(self) -> None:
        cluster = cluster_of("a")
        for name in "xyz":
            cluster.nominate(make_pod(name), "a")
        cluster.nominate(make_pod("x"), "a")
        pods = [cluster.pods.pod[slot] for slot in cluster.nominated[0]]
        assert [pod.name for pod in pods if pod is not None] == ["y", "z", "x"]

    @pytest.mark.parametrize(
        ("new", "recorded"),
        [
            pytest.param(make_pod("p", cpu=1, nominated_node="a"), [], id="only its status"),
            pytest.param(make_pod("p", cpu=2), [0, 0], id="its requests"),
            pytest.param(make_pod("p", cpu=1, priority=1), [0, 0], id="its priority"),
            pytest.param(make_pod("p", cpu=1, annotations={"x": "y"}), [0, 0], id="an annotation"),
            pytest.param(make_pod("p", cpu=1, deleted=NOW), [0, 0], id="being deleted"),
        ],
    )
    def test_a_new_version_changes_the_row_only_if_plugins_can_tell(
        self, new: Pod, recorded: list[int]
    ) -> None:
        cluster = cluster_of("a")
        cluster.nominate(make_pod("p", cpu=1), "a")
        before = cluster.changes.clock.now
        cluster.nominate(new, "a")
        assert cluster.changes.nominations.since(before) == recorded
        assert cluster.pods.pod[cluster.nominated_slot(new.uid)] is new

    def test_they_take_no_room_and_are_not_counted(self) -> None:
        cluster = cluster_of("a")
        cluster.nominate(make_pod("p", cpu=1, host_ports=[80], claims=["data"]), "a")
        assert (cluster.nodes.pod_count.cell[0], cluster.free(0)[0]) == (0, 4000)
        assert (cluster.ports.on_row, cluster.claim_uses, names_on(cluster, "a")) == ({}, {}, [])

    def test_a_pod_may_be_there_and_expected_elsewhere(self) -> None:
        """Until its status is seen to have changed."""
        cluster = cluster_of("a", "b")
        pod = make_pod("p")
        cluster.nominate(pod, "b")
        cluster.add_pod(pod, "a")
        cluster.remove_nomination(pod.uid)
        assert cluster.assigned_pod(pod.uid) == (pod, "a")

    def test_withdrawing_twice(self) -> None:
        cluster = cluster_of("a")
        cluster.nominate(make_pod("p"), "a")
        for _ in range(2):
            cluster.remove_nomination(make_pod("p").uid)
        assert cluster.nominated == {}


def test_labels_of_unknown_namespaces() -> None:
    cluster = Cluster()
    assert cluster.namespace_labels("x") == {}
    cluster.objects.put(make_namespace("x", labels={"a": "b"}))
    assert cluster.namespace_labels("x") == {"a": "b"}


# Labels and terms that come and go


def repels(*labels: dict[str, str]) -> Affinity:
    return make_pod_affinity(anti_required=[make_pod_term("zone", one) for one in labels])


def about(labels: dict[str, str]) -> PodQuery:
    return PodQuery((PodSelector(None, compile_selector(make_selector(labels))),))


def test_labels_and_terms_of_deleted_pods_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each Job has labels of its own, in months millions; those of templates that are kept are enough."""
    monkeypatch.setattr(pods_module, "MAX_SIGNATURES", 20)
    cluster = cluster_of("a")
    cluster.add_pod(make_pod("stays", labels={"job": "stays"}, affinity=repels({"job": "stays"})), "a")
    for number in range(500):
        own = {"job": str(number)}
        pod = make_pod(f"p{number}", labels=own, affinity=repels(own))
        cluster.add_pod(pod, "a")
        assert cluster.count(about(own)).column.read.tolist() == [1]
        cluster.remove_pod(pod.uid)
    assert len(cluster.label_sets) <= 22
    assert len(cluster.term_sets) <= 23
    assert len(cluster.terms) == 1


@pytest.mark.parametrize("seed", range(10))
def test_reused_ids_do_not_mix_up_pods(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """What is counted, carried and found in tables by id follows from the pods that are there."""
    monkeypatch.setattr(pods_module, "MAX_SIGNATURES", 2)
    monkeypatch.setattr(counts_module, "MAX_QUERIES", 6)
    monkeypatch.setattr(terms, "MAX_MATCHED", 2)
    rng = random.Random(seed)
    cluster = cluster_of("a", "b")
    there: dict[int, tuple[Pod, str, list[str]]] = {}
    """By slot each pod, its node, and the apps that it repels."""
    for step in range(200):
        own = {"app": rng.choice("01234"), "time": str(step // 30)}
        if rng.random() < 0.5 + 0.1 * (len(there) < 10):
            repelled = rng.sample("01234", rng.randint(1, 3))
            pod = make_pod(f"p{step}", labels=own, affinity=repels(*({"app": app} for app in repelled)))
            node = rng.choice("ab")
            there[cluster.add_pod(pod, node)] = pod, node, repelled
        elif there:
            gone, _, _ = there.pop(rng.choice(list(there)))
            cluster.remove_pod(gone.uid)

        queried = rng.choice(({"app": own["app"]}, {"time": own["time"]}, own, {}))
        matching = {slot for slot, (pod, _, _) in there.items() if queried.items() <= pod.labels.items()}
        count = cluster.count(about(queried))
        nodes = [there[slot][1] for slot in matching]
        assert count.column.read.tolist() == [nodes.count("a"), nodes.count("b")]
        table = count.matches_set(len(cluster.label_sets))
        assert {slot for slot in there if table[cluster.pods.label_set.cell[slot]]} == matching

        newcomer = cluster.label_sets.intern("default", own)
        found = cluster.terms.matching(newcomer, {})[TermKind.REQUIRED_ANTI_AFFINITY]
        nodes = [node for _, node, repelled in there.values() if own["app"] in repelled]
        counts = [term.column.read.tolist() for term in found]
        assert counts == ([[nodes.count("a"), nodes.count("b")]] if nodes else [])
        for term in found:
            times = cluster.term_sets.multiplicity(term.carried)
            assert sum(times[cluster.pods.terms.cell[slot]] for slot in there) == len(nodes)
    assert len(cluster.label_sets) < 30, "hardly any id was given out again"


def test_after_an_exception_the_order_of_nodes_is_still_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_of("a")
    assert cluster.order.tolist() == [0]
    cluster.set_node(make_node("b"))

    def fail(_: NodeTree) -> NoReturn:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(NodeTree, "names", fail)
        with pytest.raises(ZeroDivisionError):
            _ = cluster.order
    assert cluster.order.tolist() == [0, 1]
