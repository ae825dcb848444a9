"""A history: any state can be shown again, in bounded memory; and the nodes at any point of it."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.releases import DEFAULT_RELEASE
from bayplan.process.history import Attempt, History, Result
from bayplan.scheduler.waiting import BindingProgress, BindingStep
from bayplan.testing import SchedulingCore, make_node, make_pod
from bayplan.ui.overview import CORDONED, READY, TAINTED, Overview
from tests.effort import examples

REQUESTS = DEFAULT_RELEASE.accounting.assigned_requests


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def on(pod: Pod, node: str) -> Pod:
    return replace(pod, spec=replace(pod.spec, node_name=node))


def test_every_state_can_be_shown_again() -> None:
    history = History(Clock())
    node, pod = make_node("a"), make_pod("web", cpu="1")
    states = [dict(history.objects)]
    steps: list[Callable[[], None]] = [
        lambda: history.put(node),
        lambda: history.put(pod),
        lambda: history.put(on(pod, "a")),
        lambda: history.remove((Pod, pod.key)),
        lambda: history.remove((Node, "a")),
    ]
    for step in steps:
        step()
        states.append(dict(history.objects))
    assert [history.objects_at(seq) for seq in range(6)] == states


def test_the_same_version_is_no_change() -> None:
    history = History(Clock())
    pod = replace(make_pod("web"), metadata=replace(make_pod("web").metadata, resource_version="5"))
    history.put(pod)
    history.put(pod)
    history.remove((Pod, "default/other"))
    assert history.last == 1


def test_old_entries_are_dropped() -> None:
    history = History(Clock(), max_entries=10)
    for number in range(100):
        history.put(make_pod(f"p{number}"))
    kept = list(history.entries(0))
    assert len(kept) <= 11
    assert history.dropped == kept[0].seq - 1
    assert len(history.objects_at(history.dropped)) == history.dropped
    assert history.clamp(3) == history.dropped
    assert history.clamp(None) == history.clamp(1000) == history.last == 100
    assert history.seq_at(history.time_of(95)) == 95
    assert history.seq_at(0) == history.dropped


def core_with(*nodes: Node) -> SchedulingCore:
    core = SchedulingCore()
    core.load(nodes)
    return core


def test_a_decision_counts_before_the_pod_is_bound() -> None:
    """As for its scheduler: the next pod is decided with the first one on its node."""
    history = History(Clock())
    core, pod = core_with(make_node("a", cpu="2")), make_pod("web", cpu="1")
    history.put(pod)
    history.decided(core.decide(pod))
    found = history.state_at(history.last)[Pod, pod.key]
    assert isinstance(found, Pod)
    assert found.spec.node_name == "a"
    history.progressed(BindingProgress(pod, "a", BindingStep.WAITING, plugins=("Gang",)))
    history.progressed(BindingProgress(pod, "a", BindingStep.BOUND))
    assert history.state_at(history.last)[Pod, pod.key] == found
    history.progressed(BindingProgress(pod, "a", BindingStep.REJECTED, "Permit", ("Gang",), "timeout"))
    assert history.state_at(history.last)[Pod, pod.key] == pod
    assert [one.result for one in history.attempts()] == ["rejected", "waiting", "scheduled"]
    assert [one.message for one in history.attempts()][:2] == [
        "Permit plugin Gang: timeout",
        "held by Gang at Permit",
    ]


def test_a_failed_attempt_has_its_reason_and_victims() -> None:
    history = History(Clock())
    core = core_with(make_node("a", cpu="1"))
    core.load([make_node("a", cpu="1"), make_pod("low", cpu="1", node="a", priority=0)])
    history.decided(core.decide(make_pod("high", cpu="1", priority=100)))
    (attempt,) = history.attempts()
    assert (attempt.result, attempt.node, attempt.victims) == (Result.UNSCHEDULABLE, "a", ("default/low",))
    assert "Insufficient cpu" in attempt.message
    assert (history.scheduled, history.failed) == (0, 1)


def test_attempts_of_another_scheduler_follow_from_the_status_of_pods() -> None:
    from bayplan.api.meta import Condition

    history = History(Clock())
    pod = make_pod("web")
    condition = Condition(type="PodScheduled", status="False", reason="Unschedulable", message="0/3 nodes")
    failed = replace(pod, status=replace(pod.status, conditions=(condition,)))
    history.observe(None, pod)
    history.observe(pod, failed)
    history.observe(failed, failed)
    history.observe(failed, on(pod, "a"))
    history.observe(None, on(pod, "a"))
    found = [(one.result.value, one.node, one.message, one.observed) for one in history.attempts()]
    assert found == [("scheduled", "a", "", True), ("unschedulable", "", "0/3 nodes", True)]


# Overviews


def plain(history: History, seq: int) -> dict[str, tuple[int, int]]:
    """For each node the number of pods and their cpu, counted from scratch."""
    objects = history.objects_at(seq).values()
    return {
        node.name: (
            sum(1 for pod in objects if isinstance(pod, Pod) and pod.spec.node_name == node.name),
            sum(
                REQUESTS(pod).get("cpu", 0)
                for pod in objects
                if isinstance(pod, Pod) and pod.spec.node_name == node.name
            ),
        )
        for node in objects
        if isinstance(node, Node)
    }


any_step = st.tuples(st.sampled_from("npbdr"), st.integers(0, 3), st.integers(0, 3))


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(any_step, max_size=30), st.lists(st.integers(0, 30), max_size=6))
def test_an_overview_moves_to_any_state(changes: list[tuple[str, int, int]], stops: list[int]) -> None:
    history = History(Clock())
    for kind, node, pod in changes:
        made = make_pod(f"p{pod}", cpu=f"{pod + 1}")
        match kind:
            case "n":
                history.put(make_node(f"n{node}"))
            case "p":
                history.put(made)
            case "b":
                history.put(on(made, f"n{node}"))
            case "d":
                history.remove((Pod, made.key))
            case _:
                history.remove((Node, f"n{node}"))
    overview = Overview(history, REQUESTS, 0)
    for stop in (*stops, history.last):
        seq = history.clamp(stop)
        before = plain(history, overview.seq)
        touched = overview.move(seq)
        now = {
            name: (row.pods, row.requested.get("cpu", 0))
            for name, row in overview.rows.items()
            if row.node is not None
        }
        expected = plain(history, seq)
        assert now == expected
        assert {name for name in {*before, *expected} if before.get(name) != expected.get(name)} <= touched
        assert overview.pending == sum(
            isinstance(pod, Pod) and not pod.spec.node_name for pod in history.objects_at(seq).values()
        )


def test_the_columns_of_a_cluster() -> None:
    history = History(Clock())
    zone = "topology.kubernetes.io/zone"
    history.begin(
        [
            make_node("a", cpu="4", labels={zone: "x", "kubernetes.io/hostname": "a"}),
            make_node("b", cpu="2", labels={zone: "x", "kubernetes.io/hostname": "b"}, unschedulable=True),
            make_node("c", cpu="2", labels={"kubernetes.io/hostname": "c"}, taints=["gpu=yes:NoSchedule"]),
            make_pod("one", cpu="3", node="a"),
            make_pod("two", cpu="1", node="b"),
            make_pod("waits"),
        ]
    )
    cluster = Overview(history, REQUESTS).cluster()
    nodes = cluster["nodes"]
    assert nodes["name"] == ["a", "b", "c"]
    assert cluster["resources"][:3] == ["cpu", "memory", "pods"]
    assert nodes["allocatable"][0] == [4000, 2000, 2000]
    assert nodes["requested"][0] == [3000, 1000, 0]
    assert nodes["requested"][2] == nodes["pods"] == [1, 1, 0]
    assert nodes["state"] == [READY, READY | CORDONED, READY | TAINTED]
    assert nodes["stranded"] == [0.5, 0.5, 0.5]  # a pod of 3 cpus fits nowhere, one of 1 cpu everywhere
    assert cluster["labels"] == {zone: {"values": ["x"], "index": [0, 0, -1]}}
    assert cluster["taints"] == {"values": ["gpu=yes:NoSchedule"], "index": [-1, -1, 0]}
    assert (cluster["totals"]["nodes"], cluster["totals"]["pending"], cluster["totals"]["assigned"]) == (
        3,
        1,
        2,
    )


def test_an_attempt_is_an_entry() -> None:
    history = History(Clock())
    history.restore(Attempt(7, 5.0, "default/p", "u", Result.SCHEDULED, "a"))
    history.restore(Attempt(9, 6.0, "default/p", "u", Result.WAITING, "a"))
    history.restore(Attempt(9, 6.0, "default/p", "u", Result.ERROR))
    assert [one.seq for one in history.entries(0)] == [1, 2, 3]
    assert (history.scheduled, history.failed) == (1, 1)
    assert history.entry(2) is not None
    assert history.entry(4) is None
