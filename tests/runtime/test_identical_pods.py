"""For one more identical pod only what has changed is computed again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bayplan.api.node import Namespace
from bayplan.plugin import (
    SKIP,
    Cluster,
    CycleState,
    Dependencies,
    IntColumn,
    NodeColumns,
    NodeNames,
    Plugin,
    Pod,
    Status,
    unresolvable,
)
from bayplan.runtime.feasible import Feasible
from bayplan.runtime.search import NotFound
from bayplan.scheduler.core import SchedulingCore
from bayplan.state.devices import put_in_flight
from bayplan.testing.builders import (
    make_device_request,
    make_node,
    make_pod,
    make_pod_affinity,
    make_pod_term,
    make_resource_claim,
    make_spread,
)
from bayplan.testing.calling import FakeHandle, make_plugin

from .profiles import found, make_framework

HOST = "kubernetes.io/hostname"


@pytest.fixture
def from_scratch(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows were evaluated, each time that the feasible rows were computed from scratch."""
    rows: list[int] = []
    make = Feasible.__init__

    def recorded(self: Feasible, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options)
        rows.append(len(self.evaluated))

    monkeypatch.setattr(Feasible, "__init__", recorded)
    return rows


def make_core() -> SchedulingCore:
    core = SchedulingCore()
    for name in ("n0", "n1", "n2"):
        core.cluster.set_node(make_node(name, labels={HOST: name}))
    return core


def schedule(core: SchedulingCore, name: str) -> str:
    decision = core.decide(make_pod(name, cpu="100m", labels={"app": "a"}))
    core.assume(decision)
    return decision.node_name


def test_placements_alone_compute_nothing_from_scratch(from_scratch: list[int]) -> None:
    core = make_core()
    assert len({schedule(core, name) for name in ("p0", "p1", "p2")}) == 3
    core.cluster.remove_pod(make_pod("p1").uid)
    schedule(core, "p3")
    assert from_scratch == [3]


ZONE = "topology.kubernetes.io/zone"
APP = {"app": "a"}
TOGETHER = make_pod_affinity(required=[make_pod_term(ZONE, APP)])
APART = make_pod_affinity(anti_required=[make_pod_term(HOST, APP)])
SCORED = make_pod_affinity(preferred=[(10, make_pod_term(ZONE, APP))])


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"affinity": TOGETHER}, id="affinity"),
        pytest.param({"affinity": APART}, id="anti-affinity"),
        pytest.param({"affinity": SCORED}, id="preferred affinity"),
        pytest.param({"spread": [make_spread(ZONE, APP, max_skew=9)]}, id="spreading"),
        pytest.param({"spread": [make_spread(ZONE, APP, hard=False)]}, id="preferred spreading"),
    ],
)
def test_nor_with_plugins_that_depend_on_other_pods(from_scratch: list[int], fields: dict[str, Any]) -> None:
    """The nodes are those that a core without a cache finds, which begins from scratch for each pod."""
    cached, uncached = SchedulingCore(), SchedulingCore(cache=False)
    made = []
    for core in (cached, uncached):
        for number in range(12):
            name = f"n{number}"
            core.cluster.set_node(make_node(name, labels={HOST: name, ZONE: f"z{number % 2}"}))
    for number in range(8):
        pod = make_pod(f"p{number}", cpu="100m", labels=APP, **fields)
        expected = uncached.decide(pod)
        from_scratch.clear()
        decision = cached.decide(pod)
        made.append(len(from_scratch))
        assert decision.node_name == expected.node_name
        cached.assume(decision)
        uncached.assume(expected)
    assert made[0] == 1
    assert made[-5:] == [0] * 5


def test_without_the_last_pod_that_satisfies_its_terms_a_pod_may_run_anywhere() -> None:
    core = make_core()
    affinity = make_pod_affinity(required=[make_pod_term(HOST, APP)])
    # Two nodes, because a search with one feasible node is not repeated.
    for name in ("n0", "n1"):
        core.cluster.add_pod(make_pod(f"on-{name}", labels=APP), name)

    def feasible() -> int:
        found = core.decide(make_pod("p", labels=APP, affinity=affinity)).found
        return 0 if found is None else found.feasible

    assert [feasible(), feasible()] == [2, 2]
    for name in ("n0", "n1"):
        core.cluster.remove_pod(make_pod(f"on-{name}").uid)
    assert [feasible(), feasible()] == [3, 3]
    core.cluster.add_pod(make_pod("on-n2", labels=APP), "n2")
    core.cluster.add_pod(make_pod("on-n0", labels=APP), "n0")
    assert [feasible(), feasible()] == [2, 2]


def avoid(cluster: Cluster) -> None:
    """A pod with anti-affinity to those of `schedule`."""
    term = make_pod_term(HOST, {"app": "a"})
    cluster.add_pod(make_pod("other", affinity=make_pod_affinity(anti_required=[term])), "n2")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda c: c.set_node(make_node("n3")), id="a new node"),
        pytest.param(lambda c: c.set_node(make_node("n0", labels={HOST: "n0"}, cpu="8")), id="another size"),
        pytest.param(lambda c: c.remove_node("n2"), id="a deleted node"),
        pytest.param(lambda c: c.nominate(make_pod("nominated", priority=9), "n0"), id="a nomination"),
        pytest.param(lambda c: c.objects.put(Namespace()), id="an object"),
        pytest.param(avoid, id="a term of anti-affinity"),
    ],
)
def test_any_other_change_is_noticed(change: Callable[[Cluster], None]) -> None:
    """The decision is that of a core which sees the cluster for the first time."""
    core = make_core()
    schedule(core, "p0")
    change(core.cluster)
    pod = make_pod("p1", cpu="100m", labels={"app": "a"})
    first = SchedulingCore(cluster=core.cluster, cache=False).decide(pod)
    second = core.decide(pod)
    assert (second.node_name, second.message) == (first.node_name, first.message)
    assert second.found is not None
    assert first.found is not None
    assert second.found.feasible == first.found.feasible


def test_claims_of_other_pods_change_nothing(from_scratch: list[int]) -> None:
    core = make_core()
    schedule(core, "p0")
    claim = make_resource_claim("c", make_device_request())
    core.cluster.objects.put(claim)
    put_in_flight(core.cluster.objects, claim.uid, claim)
    schedule(core, "p1")
    assert from_scratch == [3]


def test_a_nominated_pod_tries_its_node_first() -> None:
    core = make_core()
    schedule(core, "p0")
    pod = make_pod("p1", cpu="100m", labels={"app": "a"}, nominated_node="n0")
    assert core.decide(pod).node_name == "n0"


class Prefers(Plugin):
    """Scores all nodes equally, until it has a preferred node."""

    node = ""

    def has_uniform_score(self, state: CycleState, pod: Pod) -> bool:
        return not self.node

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        return np.where(nodes.is_named(self.node), 100, 0)


class Zero(Plugin):
    """Has the same score for every node."""

    depends_on = Dependencies.of()

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        return np.zeros(len(nodes), dtype=np.int64)


def test_a_plugin_that_scored_all_nodes_equally_may_distinguish_them_later() -> None:
    prefers = make_plugin(Prefers)
    framework = make_framework(prefers, make_plugin(Zero))
    assert [found(framework, make_pod(name)).node_name for name in ("p0", "p1")] == ["n0", "n0"]
    prefers.node = "n2"
    assert found(framework, make_pod("p2")).node_name == "n2"


class Gate(Plugin):
    """Skips every pod, until it is closed."""

    closed = False

    def __init__(self) -> None:
        super().__init__(None, FakeHandle())
        self.called: list[str] = []

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status:
        self.called.append(pod.name)
        return unresolvable("closed") if self.closed else SKIP


def test_a_plugin_that_skipped_each_pod_is_called_once_for_each() -> None:
    gate = Gate()
    framework = make_framework(gate, make_plugin(Zero))
    for name in ("p0", "p1"):
        assert found(framework, make_pod(name)).node_name == "n0"
    gate.closed = True
    assert isinstance(framework.find(make_pod("p2")), NotFound)
    assert gate.called == ["p0", "p1", "p2"]


class Narrows(Plugin):
    """Restricts the search to some nodes, once it has any."""

    names: frozenset[str] = frozenset()

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> NodeNames | None:
        return NodeNames(self.names) if self.names else None


def test_a_plugin_that_allowed_all_nodes_may_restrict_them_later() -> None:
    narrows = make_plugin(Narrows)
    framework = make_framework(narrows, make_plugin(Zero))
    assert [found(framework, make_pod(name)).node_name for name in ("p0", "p1")] == ["n0", "n0"]
    narrows.names = frozenset({"n2"})
    assert found(framework, make_pod("p2")).node_name == "n2"
    narrows.names = frozenset()
    assert found(framework, make_pod("p3")).feasible == 3
