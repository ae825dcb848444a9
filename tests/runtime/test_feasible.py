"""The nodes that fit are kept from pod to pod: whatever happens in between, the same node is chosen."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api.node import Node
from bayplan.config import default_config
from bayplan.plugin import Pod
from bayplan.runtime import feasible
from bayplan.runtime.feasible import Feasible
from bayplan.scheduler.core import SchedulingCore
from bayplan.testing.builders import (
    make_expression,
    make_node,
    make_node_affinity,
    make_node_term,
    make_pod,
    make_pod_affinity,
    make_pod_term,
    make_spread,
    make_toleration,
)

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"

SHAPES: dict[str, Callable[[], dict[str, Any]]] = {
    "plain": lambda: {"cpu": "300m", "memory": "1Gi"},
    "large": lambda: {"cpu": "1500m", "memory": "3Gi"},
    "apart": lambda: {
        "labels": {"app": "apart"},
        "affinity": make_pod_affinity(anti_required=[make_pod_term(HOST, {"app": "apart"})]),
    },
    "apart by zone": lambda: {
        "cpu": "100m",
        "labels": {"app": "zones"},
        "affinity": make_pod_affinity(anti_required=[make_pod_term(ZONE, {"app": "zones"})]),
    },
    "together": lambda: {
        "cpu": "200m",
        "labels": {"app": "together"},
        "affinity": make_pod_affinity(required=[make_pod_term(ZONE, {"app": "together"})]),
    },
    "drawn": lambda: {
        "cpu": "100m",
        "labels": {"app": "drawn"},
        "affinity": make_pod_affinity(
            preferred=[(30, make_pod_term(ZONE, {"app": "together"}))],
            anti_preferred=[(70, make_pod_term(HOST, {"app": "drawn"}))],
        ),
    },
    "spread": lambda: {
        "cpu": "100m",
        "labels": {"app": "spread"},
        "spread": [make_spread(ZONE, {"app": "spread"}, max_skew=2), make_spread(HOST, {"app": "spread"})],
    },
    "spread softly": lambda: {
        "cpu": "100m",
        "labels": {"app": "soft"},
        "spread": [make_spread(ZONE, {"app": "soft"}, hard=False)],
    },
    "picky": lambda: {
        "cpu": "900m",
        "tolerations": [make_toleration("dedicated")],
        "affinity": make_node_affinity(
            preferred=[
                (50, make_node_term(make_expression(ZONE, "In", "a"))),
                (20, make_node_term(make_expression(ZONE, "In", "b"))),
            ],
        ),
    },
}


class Twins:
    """Two cores on equal clusters: one with a cache, the other computes everything again."""

    def __init__(self, seed: int) -> None:
        self.cached, self.uncached = SchedulingCore(cache=True), SchedulingCore(cache=False)
        self._rng = random.Random(seed)
        self._number = 0
        self._nodes: dict[str, Node] = {}
        self._assigned: dict[str, str] = {}
        self._nominated: list[str] = []
        self._shape = "plain"
        for _ in range(8):
            self.add_node()

    def live(self) -> None:
        """One thing happens, then a pod is decided and, if it fits, assumed."""
        happen = self._rng.choices(
            (
                self.nothing,
                self.add_node,
                self.remove_node,
                self.change_node,
                self.remove_pods,
                self.nominate,
            ),
            (30, 1, 1, 2, 4, 1),
        )[0]
        happen()
        if self._rng.random() < 0.2:
            self._shape = self._rng.choice(list(SHAPES))
        self.decide()

    def nothing(self) -> None:
        pass

    def decide(self) -> None:
        pod = self._pod(self._shape)
        one, other = self.cached.decide(pod), self.uncached.decide(pod)
        assert (one.status, one.node_name) == (other.status, other.node_name)
        if one.found is not None and other.found is not None:
            assert one.found.feasible == other.found.feasible
            self._assigned[pod.uid] = one.node_name
            for core, decision in ((self.cached, one), (self.uncached, other)):
                core.assume(decision)

    def _pod(self, shape: str) -> Pod:
        self._number += 1
        return make_pod(f"p{self._number}", **SHAPES[shape]())

    def _set(self, node: Node) -> None:
        self._nodes[node.name] = node
        for core in (self.cached, self.uncached):
            core.cluster.set_node(node)

    def add_node(self) -> None:
        self._number += 1
        self._set(self._node(f"n{self._number}"))

    def _node(self, name: str) -> Node:
        rng = self._rng
        labels = {HOST: name} if rng.random() < 0.1 else {HOST: name, ZONE: rng.choice("abc")}
        taints = ["dedicated=x:NoSchedule"] if rng.random() < 0.15 else []
        return make_node(name, labels=labels, taints=taints, unschedulable=rng.random() < 0.1, pods=9)

    def remove_node(self) -> None:
        if len(self._nodes) > 3:
            name = self._rng.choice(sorted(self._nodes))
            del self._nodes[name]
            for core in (self.cached, self.uncached):
                core.cluster.remove_node(name)

    def change_node(self) -> None:
        self._set(self._node(self._rng.choice(sorted(self._nodes))))

    def remove_pods(self) -> None:
        for uid in self._rng.sample(
            sorted(self._assigned), k=min(len(self._assigned), self._rng.choice((1, 1, 2, 12)))
        ):
            del self._assigned[uid]
            for core in (self.cached, self.uncached):
                core.cluster.remove_pod(uid)

    def nominate(self) -> None:
        """A pod is nominated to a node, or its nomination is removed."""
        if self._nominated:
            uid = self._nominated.pop()
            for core in (self.cached, self.uncached):
                core.cluster.remove_nomination(uid)
            return
        pod = make_pod(f"nominated{self._number}", cpu="2", priority=10)
        self._nominated.append(pod.uid)
        node = self._rng.choice(sorted(self._nodes))
        for core in (self.cached, self.uncached):
            core.cluster.nominate(pod, node)


@pytest.mark.parametrize("seed", range(12))
def test_kept_or_created_again_the_same_node_is_chosen(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2:
        # As on clusters with many nodes.
        monkeypatch.setattr(feasible, "MANY_ROWS", 2)
    twins = Twins(seed)
    for _ in range(150):
        twins.live()


def test_nodes_that_fit_again_come_back_with_their_scores() -> None:
    """A pod leaves a zone, and nodes where nothing has happened fit again: one of them is the best."""
    core = SchedulingCore()
    for name, cpu in (("a0", "2"), ("a1", "64"), ("b0", "2"), ("b1", "2"), ("c0", "2")):
        core.cluster.set_node(make_node(name, labels={HOST: name, ZONE: name[0]}, cpu=cpu))
    alone = make_pod("alone", labels={"app": "zones"})
    core.cluster.add_pod(alone, "a0")
    core.cluster.add_pod(make_pod("stays", labels={"app": "zones"}), "c0")
    pod = make_pod(**SHAPES["apart by zone"]())
    assert core.decide(pod).node_name == "b0"
    core.cluster.remove_pod(alone.uid)
    assert core.decide(pod).node_name == "a1"


def test_a_search_that_evaluated_all_nodes_stops_early_once_enough_of_them_fit() -> None:
    decided = []
    for cache in (True, False):
        core = SchedulingCore(replace(default_config(), percentage_of_nodes_to_score=50), cache=cache)
        for number in range(220):
            core.cluster.set_node(make_node(f"n{number}", cpu="2"))
            if number % 2 or number > 210:
                core.cluster.add_pod(make_pod(f"full{number}", cpu="2"), f"n{number}")
        evaluated = []
        for number in range(8):
            core.cluster.remove_pod(make_pod(f"full{2 * number + 1}").uid)
            decision = core.decide(make_pod(f"p{number}", cpu="1"))
            assert decision.found is not None
            evaluated.append((decision.found.evaluated, decision.found.feasible, decision.node_name))
        decided.append(evaluated)
    assert decided[0] == decided[1]
    assert [feasible for _, feasible, _ in decided[0]] == [107, 108, 109, 110, 110, 110, 110, 110]


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param("plain", id="as long as all of them fit"),
        pytest.param("apart", id="though one after the other no longer does"),
    ],
)
def test_the_nodes_that_fit_are_not_put_together_again(monkeypatch: pytest.MonkeyPatch, shape: str) -> None:
    made: list[Feasible] = []
    begin = Feasible.__init__

    def counted(self: Feasible, *args: Any, **options: Any) -> None:
        made.append(self)
        begin(self, *args, **options)

    monkeypatch.setattr(Feasible, "__init__", counted)
    core = SchedulingCore()
    for number in range(40):
        core.cluster.set_node(make_node(f"n{number}", labels={HOST: f"n{number}", ZONE: "a"}))
    for number in range(2):
        core.assume(core.decide(make_pod(f"first{number}", **SHAPES[shape]())))
    assert made
    made.clear()
    for number in range(30):
        core.assume(core.decide(make_pod(f"p{number}", **SHAPES[shape]())))
    assert not made
