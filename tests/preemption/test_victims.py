"""The victims on a node for a pod of higher priority."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from bayplan.framework.outcome import PASS, NodeStatuses
from bayplan.framework.status import Code, Status
from bayplan.go_sort import go_sort
from bayplan.plugin import Cluster, Pod
from bayplan.plugin.preemption import Hypothesis
from bayplan.preemption.victims import NO_VICTIMS, PRIORITY_OFFSET
from bayplan.testing.builders import make_node, make_pdb

from .clusters import FULL, crowded, low, room_for, run, statuses_without_victims, victims

WEB = {"app": "web"}


@pytest.mark.parametrize(
    ("pods", "cpu", "expected"),
    [
        pytest.param([low("a", cpu=4)], 1, ["a"], id="the only one"),
        pytest.param(
            [low("a", 3), low("b", 1), low("c", 2), low("d", 0)],
            1,
            ["d"],
            id="the least important is the victim",
        ),
        pytest.param(
            [low("a", 3), low("b", 1), low("c", 2), low("d", 0)],
            2,
            ["b", "d"],
            id="as many as are needed, the most important first",
        ),
        pytest.param(
            [low("a", 3), low("b", 1), low("c", 2), low("d", 10)],
            2,
            ["c", "b"],
            id="pods of higher priority stay",
        ),
        pytest.param([low("a", 5, cpu=3), low("b", 0)], 1, ["b"], id="of equal priority, too"),
        pytest.param(
            [low("a", started=3), low("b", started=1), low("c", started=2), low("d", started=0)],
            2,
            ["c", "a"],
            id="of equals those that started last are victims",
        ),
        pytest.param(
            [low("a", started=None), low("b", started=1), low("c", started=0), low("d", started=2)],
            1,
            ["a"],
            id="one that has not started counts as started now",
        ),
        pytest.param(
            [low("a", 1, cpu=3), low("b", 0)], 3, ["a"], id="a pod that fits beside the preemptor is spared"
        ),
        pytest.param([low("a", 1, cpu=2), low("b", 0, cpu=2)], 4, ["a", "b"], id="all of them"),
        pytest.param(
            [low("a"), low("b"), low("c"), low("d")],
            1,
            ["d"],
            id="of equal pods the last on the node is the victim",
        ),
    ],
)
def test_victims(pods: Sequence[Pod], cpu: int, expected: list[str]) -> None:
    cluster = crowded(n=pods)
    assert victims(cluster, run(cluster, 5, room_for(cpu))) == {"n": expected}


def test_without_pods_of_lower_priority_there_are_no_victims() -> None:
    cluster = crowded(empty=[], equals=[low("a", 5, cpu=4)], below=[low("b", 4, cpu=4)])
    found = run(cluster, 5, room_for(1))
    assert victims(cluster, found) == {"below": ["b"]}
    assert statuses_without_victims(cluster, found) == {"empty": NO_VICTIMS, "equals": NO_VICTIMS}


def test_the_status_when_the_pod_does_not_fit_on_the_empty_node() -> None:
    cluster = crowded(n=[low("a", 9, cpu=3), low("b", 0)])
    assert statuses_without_victims(cluster, run(cluster, 5, room_for(2))) == {"n": FULL}


def test_a_pod_without_priority_counts_as_zero() -> None:
    cluster = crowded(n=[low("a", 0, cpu=4)])
    assert victims(cluster, run(cluster, 1, room_for(1))) == {"n": ["a"]}
    assert victims(cluster, run(cluster, 0, room_for(1))) == {}


def test_negative_priorities() -> None:
    cluster = crowded(n=[low("a", -10, cpu=2), low("b", -5, cpu=2)])
    assert victims(cluster, run(cluster, 0, room_for(2))) == {"n": ["a"]}


@pytest.mark.parametrize(
    ("allowed", "expected", "violations"),
    [
        pytest.param(2, ["web-low", "web-lower"], 0, id="within the budget"),
        pytest.param(
            0, ["other", "web-lower"], 1, id="those whose eviction violates a budget are spared first"
        ),
    ],
)
def test_budgets_come_first(allowed: int, expected: list[str], violations: int) -> None:
    """Two of three are evicted. The important one stays only if it violates no budget to evict the others."""
    pods = [low("other", 3), low("web-low", 2, labels=WEB), low("web-lower", 1, labels=WEB), low("high", 9)]
    cluster = crowded(n=pods)
    cluster.objects.put(make_pdb("web", WEB, allowed=allowed))
    found = run(cluster, 5, room_for(2))
    assert (victims(cluster, found), found.violations.tolist()) == ({"n": expected}, [violations])


@pytest.mark.parametrize("nodes", [1, 12], ids=["few nodes", "many nodes"])
def test_of_equally_important_victims_those_that_violate_a_budget_come_first(nodes: int) -> None:
    """Importance comes before that: the pod of priority 1 and the one that started earlier stay ahead."""
    web = {"app": "web"}
    cluster = Cluster()
    for number in range(nodes):
        cluster.set_node(make_node(f"n{number}", cpu=5))
        for pod in (
            low("plain", started=5),
            low("web", started=5, labels=web),
            low("old", started=1),
            low("high", 1),
            low("last", started=5),
        ):
            name = f"{pod.name}-{number}"
            metadata = msgspec.structs.replace(pod.metadata, name=name, uid=name)
            cluster.add_pod(msgspec.structs.replace(pod, metadata=metadata), f"n{number}")
    cluster.objects.put(make_pdb("budget", web))
    found = victims(cluster, run(cluster, 5, room_for(5)))
    assert found == {
        f"n{number}": [f"{name}-{number}" for name in ("high", "old", "web", "plain", "last")]
        for number in range(nodes)
    }


def test_the_cost_on_each_node() -> None:
    """The columns by which nodes are compared."""
    cluster = crowded(
        a=[low("a1", 3, cpu=2, started=5), low("a2", 3, cpu=2, started=7)],
        b=[low("b1", 1, cpu=4, started=9)],
        c=[],
    )
    found = run(cluster, 5, room_for(4))
    minute = 60 * 10**9
    assert found.victim_count.tolist() == [2, 1, 0]
    assert found.highest_priority.tolist() == [3, 1, 0]
    assert found.priority_sum.tolist() == [2 * (PRIORITY_OFFSET + 3), PRIORITY_OFFSET + 1, 0]
    assert (found.earliest_start[1] - found.earliest_start[0]) == 4 * minute


def test_many_nodes_are_evaluated_as_few_are() -> None:
    """Beyond a few rows pods are collected from the whole table instead of from the rows' lists."""
    pods = {
        f"n{number}": [low(f"{number}-{i}", (number + i) % 4, started=i) for i in range(4)]
        for number in range(40)
    }
    cluster = crowded(**pods)
    together = victims(cluster, run(cluster, 3, room_for(1)))
    one_by_one = {}
    for name in pods:
        alone = crowded(**{name: pods[name]})
        one_by_one.update(victims(alone, run(alone, 3, room_for(1))))
    assert together == one_by_one


def test_pods_of_deleted_nodes_are_no_victims() -> None:
    cluster = crowded(a=[low("a", cpu=4)], b=[low("b", cpu=4)])
    cluster.remove_node("b")
    assert victims(cluster, run(cluster, 5, room_for(1))) == {"a": ["a"]}


def test_nominated_pods_are_no_victims() -> None:
    cluster = crowded(n=[low("a", cpu=3)])
    cluster.nominate(low("expected", cpu=1), "n")
    assert victims(cluster, run(cluster, 5, room_for(4))) == {"n": ["a"]}


def test_a_filter_with_contradictory_results_is_an_error() -> None:
    """The pod did not fit, and fits with all pods back: that cannot be."""

    def accept_all(view: Hypothesis) -> NodeStatuses:
        return NodeStatuses(np.full(len(view), PASS, dtype=np.int8), np.zeros(len(view), dtype=np.int64), {})

    cluster = crowded(n=[low("a")])
    found = run(cluster, 5, accept_all)
    text = 'expected at least one victim pod on node "n"'
    assert (victims(cluster, found), statuses_without_victims(cluster, found)) == (
        {},
        {"n": Status(Code.ERROR, (text,))},
    )


def test_the_cluster_stays_as_it_was() -> None:
    cluster = crowded(n=[low("a", 3), low("b", 1), low("c", 2), low("d", 0)])
    cluster.set_node(make_node("empty"))
    before = (
        cluster.nodes.pod_count.read.tolist(),
        [pod.name for pod in cluster.pods_on(0)],
        cluster.changes.clock.now,
    )
    run(cluster, 5, room_for(3))
    after = (
        cluster.nodes.pod_count.read.tolist(),
        [pod.name for pod in cluster.pods_on(0)],
        cluster.changes.clock.now,
    )
    assert after == before


CROWD = [(name, name % 3, name * 7 % 4) for name in range(20)]
"""Twenty pods of one node in its order: name, priority, start. Many are equally important."""


def crowd_on(nodes: int) -> Cluster:
    cluster = Cluster()
    for number in range(nodes):
        cluster.set_node(make_node(f"n{number}", cpu=20))
        for name, priority, started in CROWD:
            labels = WEB if name % 4 == 0 else None
            cluster.add_pod(low(f"{name}-{number}", priority, started=started, labels=labels), f"n{number}")
    return cluster


@pytest.mark.parametrize("nodes", [1, 12], ids=["few nodes", "many nodes"])
@pytest.mark.parametrize("with_budget", [False, True], ids=["no budget", "some violate a budget"])
def test_more_than_twelve_equally_important_victims_are_moved_as_go_moves_them(
    nodes: int, with_budget: bool
) -> None:
    """The order differs from a stable sort's. With a budget, victims are sorted twice."""
    cluster = crowd_on(nodes)

    def more_important(left: tuple[int, int, int], right: tuple[int, int, int]) -> bool:
        return (-left[1], left[2]) < (-right[1], right[2])

    expected = go_sort(CROWD, more_important)
    assert expected != sorted(CROWD, key=lambda pod: (-pod[1], pod[2]))
    if with_budget:
        cluster.objects.put(make_pdb("budget", WEB))
        violating = [pod for pod in expected if pod[0] % 4 == 0]
        expected = go_sort([*violating, *(pod for pod in expected if pod not in violating)], more_important)
    assert victims(cluster, run(cluster, 5, room_for(20))) == {
        f"n{number}": [f"{name}-{number}" for name, *_ in expected] for number in range(nodes)
    }


def test_pods_that_have_not_started_keep_the_order_of_the_node() -> None:
    """Each counts as started a moment after the one before it, so none are equal."""
    cluster = Cluster()
    cluster.set_node(make_node("n", cpu=20))
    pods = [low(f"{number}", number % 2, started=None) for number in range(20)]
    for pod in pods:
        cluster.add_pod(pod, "n")
    ordered = [pod.name for priority in (1, 0) for pod in pods if pod.priority == priority]
    assert victims(cluster, run(cluster, 5, room_for(20))) == {"n": ordered}
