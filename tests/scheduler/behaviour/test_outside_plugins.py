"""Plugins from outside: the example of the docs, and those that break the rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.framework.args import FieldError, Gates, PluginArgs, at, invalid
from bayplan.framework.plugin_api import NodePlugin, Plugin, Reject
from bayplan.framework.status import unschedulable
from bayplan.scheduler.plugin_sources import load_plugin
from bayplan.testing.builders import make_node, make_pod
from tests.locations import without_location

from .running import PROFILE, plugin, running, virtual

EXAMPLE = Path(__file__).parents[3] / "examples" / "prefer_zone.py"
ZONE = "topology.kubernetes.io/zone"

BOTH = pytest.mark.parametrize("name", ["PreferZone", "PreferZoneColumns"], ids=["one node", "columns"])


def example(name: str) -> type[Plugin]:
    return load_plugin(f"{EXAMPLE}:{name}")


def zones(**labels: str) -> list[Object]:
    """Three nodes of the same size in three zones."""
    return [make_node(f"n-{zone}", labels={ZONE: zone, **labels}) for zone in "abc"]


def wanting(zone: str, name: str = "p", **fields: Any) -> Pod:
    return make_pod(name, annotations={"preferred-zone": zone}, **fields)


# The example


@BOTH
@pytest.mark.parametrize("cache", [True, False], ids=["cached", "uncached"])
@virtual
async def test_pods_land_in_the_zone_that_they_name(name: str, cache: bool) -> None:
    pods = [wanting(zone, f"p-{zone}-{i}") for i in range(3) for zone in "cab"]
    async with running(*zones(), *pods, plugins=[example(name)], cache=cache) as world:
        assert {pod: world.node_of(pod) for pod in world.names()} == {
            f"p-{zone}-{i}": f"n-{zone}" for zone in "abc" for i in range(3)
        }


@BOTH
@virtual
async def test_a_pod_that_names_no_zone_does_not_prefer_nodes_without_one(name: str) -> None:
    nodes = [make_node("n-a", labels={ZONE: "a"}), make_node("without")]
    async with running(*nodes, make_pod("p"), plugins=[example(name)]) as world:
        assert world.node_of("p") == "n-a"


@BOTH
@virtual
async def test_gpu_pods_are_scheduled_only_on_gpu_nodes(name: str) -> None:
    gpu_node = make_node("gpu", labels={"hardware": "gpu", ZONE: "z"})
    pod = wanting("a", labels={"workload": "gpu"})
    async with running(*zones(), gpu_node, pod, plugins=[example(name)]) as world:
        assert world.node_of("p") == "gpu"


@BOTH
@virtual
async def test_a_gpu_pod_without_gpus_is_reported_and_preemption_is_not_tried(name: str) -> None:
    victims = [make_pod(f"v-{zone}", node=f"n-{zone}", priority=-1) for zone in "abc"]
    pod = wanting("a", labels={"workload": "gpu"}, priority=9)
    async with running(*zones(), *victims, pod, plugins=[example(name)]) as world:
        assert world.message("p") == (
            "0/3 nodes are available: 3 node has no GPU. preemption: 0/3 nodes "
            "are available: 3 Preemption is not helpful for scheduling."
        )
        assert world.cluster.written("delete") == []


@BOTH
@virtual
async def test_a_gpu_pod_is_scheduled_when_a_gpu_comes(name: str) -> None:
    async with running(*zones(), wanting("a", labels={"workload": "gpu"}), plugins=[example(name)]) as world:
        assert world.node_of("p") == ""
        await world.create(make_node("gpu", labels={"hardware": "gpu"}))
        assert world.node_of("p") == "gpu"


# Its configuration


@BOTH
@pytest.mark.parametrize(
    ("config", "node"),
    [
        pytest.param("", "n-c", id="it runs unless the configuration names it"),
        pytest.param(
            "profiles: [{plugins: {multiPoint: {disabled: [{name: X}]}}}]", "n-a", id="disabled everywhere"
        ),
        pytest.param(
            "profiles: [{plugins: {score: {disabled: [{name: X}]}}}]", "n-a", id="disabled at Score"
        ),
        pytest.param(
            "profiles: [{plugins: {filter: {enabled: [{name: X}]}}}]", "n-a", id="enabled at Filter only"
        ),
        pytest.param(
            "profiles: [{plugins: {score: {enabled: [{name: X}]}}}]", "n-c", id="enabled at Score only"
        ),
    ],
)
@virtual
async def test_the_configuration_decides_where_it_runs(name: str, config: str, node: str) -> None:
    config = config.replace("X", name)
    async with running(*zones(), wanting("c"), plugins=[example(name)], config=config) as world:
        assert world.node_of("p") == node


@BOTH
@pytest.mark.parametrize(("weight", "node"), [(1, "n-b"), (100, "n-a")], ids=["light", "heavy"])
@virtual
async def test_its_weight_decides_against_other_scores(name: str, weight: int, node: str) -> None:
    """A node that is nearly full against one in the right zone."""
    scores = f"[{{name: {name}, weight: {weight}}}, {{name: NodeResourcesFit, weight: 10}}]"
    config = f"profiles: [{{plugins: {{score: {{enabled: {scores}}}}}}}]"
    nodes = [make_node("n-a", cpu="8", labels={ZONE: "a"}), make_node("n-b", cpu="64", labels={ZONE: "b"})]
    full = make_pod("full", cpu="7", memory="30Gi", node="n-a")
    pod = wanting("a", cpu="1", memory="1Gi")
    async with running(*nodes, full, pod, plugins=[example(name)], config=config) as world:
        assert world.node_of("p") == node


@virtual
async def test_the_configuration_orders_it_among_filters() -> None:
    """The first plugin that rejects a node is named."""
    no = plugin("Never", NodePlugin, filter_node=lambda state, pod, node: None if pod.name == "q" else 1 / 0)
    pod = make_pod("p", cpu="64")
    async with running(make_node("n"), pod, plugins=[no]) as world:
        assert "1 Insufficient cpu" in world.message("p")
    first = "profiles: [{plugins: {filter: {enabled: [{name: Never}], disabled: [{name: '*'}]}}}]"
    async with running(make_node("n"), pod, plugins=[no], config=first) as world:
        text = 'running "Never" filter plugin: ZeroDivisionError: division by zero'
        assert without_location(world.message("p")) == text


class CrowdArgs(PluginArgs, frozen=True):
    most_pods: int = 3

    def validate(self, path: str, gates: Gates) -> Iterator[FieldError]:
        if self.most_pods < 1:
            yield invalid(at(path, "mostPods"), self.most_pods, "must be at least 1")


class Crowd(Plugin):
    args_type = CrowdArgs
    args: CrowdArgs

    def events_to_register(self) -> list[Any]:
        return []

    def filter(self, state: Any, pod: Pod, nodes: Any) -> Iterator[Reject]:
        yield Reject(nodes.pod_count >= self.args.most_pods, unschedulable("node(s) were crowded"))


@pytest.mark.parametrize(
    ("config", "scheduled"),
    [
        pytest.param("", 3, id="its own defaults"),
        pytest.param(
            "profiles: [{pluginConfig: [{name: Crowd, args: {mostPods: 2}}]}]", 2, id="that of the file"
        ),
    ],
)
@virtual
async def test_the_configuration_gives_it_arguments(config: str, scheduled: int) -> None:
    pods = [make_pod(f"p{i}") for i in range(5)]
    async with running(make_node("n"), *pods, plugins=[Crowd], config=config) as world:
        assert sum(1 for name in world.names() if world.node_of(name)) == scheduled


# Plugins that break the rules

FILTER_NODE = "filter_node returned 'no'; return unschedulable(\"reason\") or None"
SHAPE = "an array of shape (7,) for 2 rows"


async def strange(*_: Any) -> Any:
    return "fine"


NONSENSE = [
    pytest.param({"pre_filter": lambda *_: "fine"}, "X", "'fine'", id="PreFilter answers with a text"),
    pytest.param(
        {"filter": lambda *_: 7}, "X", "filter returned 7; yield Reject(", id="Filter answers with a number"
    ),
    pytest.param(
        {"filter": lambda *_: [True]},
        "X",
        "filter returned True; yield Reject(",
        id="Filter returns masks",
    ),
    pytest.param(
        {"filter": lambda *_: [Reject(np.zeros(7, dtype=np.bool_), unschedulable("no"))]},
        "X",
        "7",
        id="Filter answers for other rows",
    ),
    pytest.param({"filter_node": lambda *_: "no"}, "X", FILTER_NODE, id="filter_node answers with a text"),
    pytest.param(
        {"pre_score": lambda *_: "fine"},
        "X",
        "fine",
        id="PreScore answers with a text",
    ),
    pytest.param(
        {"score": lambda *_: None},
        "X",
        "score returned None; return one integer for each row",
        id="Score answers with nothing",
    ),
    pytest.param({"score": lambda *_: np.zeros(7, dtype=np.int64)}, "X", SHAPE, id="Score for other rows"),
    pytest.param({"score": lambda *_: np.array([0.5, 0.5])}, "X", "float64", id="Score with fractions"),
    pytest.param(
        {"score": lambda *_: np.array([0, 101])},
        "X",
        "returns an invalid score 101, it should in the range of [0, 100] after normalizing",
        id="Score above 100",
    ),
    pytest.param(
        {"score": lambda *_: np.array([-1, 0])},
        "X",
        "returns an invalid score -1, it should in the range of [0, 100] after normalizing",
        id="Score below 0",
    ),
    pytest.param(
        {"filter_node": lambda *_: False},
        "X",
        'filter_node returned False; return unschedulable("reason") or None (running.py:',
        id="filter_node answers with a truth",
    ),
    pytest.param(
        {"score_node": lambda *_: 7.9},
        "X",
        "score_node returned 7.9; return an integer from 0 to 100",
        id="score_node answers with a fraction",
    ),
    pytest.param({"score_node": lambda *_: 101}, "X", "an invalid score 101", id="score_node above 100"),
    pytest.param({"score_node": lambda *_: "fine"}, "X", "fine", id="score_node answers with a text"),
    pytest.param({"score_node": lambda *_: None}, "X", "None", id="score_node answers with nothing"),
    pytest.param(
        {"score": lambda *_: np.zeros(2, dtype=np.int64), "normalize": lambda *_: np.zeros(7)},
        "X",
        SHAPE,
        id="NormalizeScore for other rows",
    ),
    pytest.param(
        {"score": lambda *_: np.zeros(2, dtype=np.int64), "normalize": lambda *_: np.array([0.5, 1.5])},
        "X",
        "float64",
        id="NormalizeScore with fractions",
    ),
    pytest.param(
        {"reserve": lambda *_: "fine", "unreserve": lambda *_: None},
        "X",
        "reserve returned 'fine'; return None, ",
        id="Reserve answers with a text",
    ),
    pytest.param(
        {"permit": lambda *_: 60}, "X", "permit returned 60; return None, ", id="Permit answers with a number"
    ),
    pytest.param(
        {"pre_bind_pre_flight": lambda *_: True, "pre_bind": strange},
        "X",
        "pre_bind_pre_flight returned True; return None, SKIP ",
        id="PreBindPreFlight answers with a truth",
    ),
    pytest.param(
        {"pre_bind_pre_flight": lambda *_: None, "pre_bind": strange},
        "X",
        "pre_bind returned 'fine'; return None, ",
        id="PreBind answers with a text",
    ),
    pytest.param(
        {"bind": strange}, "X", "bind returned 'fine'; return None, ", id="Bind answers with a text"
    ),
]


@pytest.mark.parametrize(("methods", "name", "text"), NONSENSE)
@virtual
async def test_a_plugin_that_answers_nonsense_is_reported(
    methods: dict[str, Any], name: str, text: str
) -> None:
    """The attempt fails and names it; the scheduler continues, pods of other profiles are not affected."""
    base = NodePlugin if {"filter_node", "score_node"} & methods.keys() else Plugin
    profile = "plugins: {multiPoint: {disabled: [{name: X}]}}"
    bind = "plugins: {bind: {enabled: [{name: X}], disabled: [{name: '*'}]}}" if "bind" in methods else ""
    config = f"profiles: [{{schedulerName: {PROFILE}, {bind}}}, {{schedulerName: other, {profile}}}]"
    x = plugin("X", base, **methods)
    async with running(make_node("a"), make_node("b"), plugins=[x], config=config) as world:
        await world.create(make_pod("p"), make_pod("q", scheduler_name="other"))
        condition = world.condition("p")
        assert condition is not None
        assert condition[:2] == ("False", "SchedulerError")
        assert f'"{name}"' in condition[2]
        assert text in condition[2]
        assert world.sub_queue("p") == "backoff"
        assert world.node_of("q") != ""


@virtual
async def test_a_postfilter_that_answers_nonsense_is_reported() -> None:
    config = "profiles: [{plugins: {postFilter: {enabled: [{name: X}], disabled: [{name: '*'}]}}}]"
    x = plugin("X", post_filter=lambda *_: None)
    async with running(make_node("n"), make_pod("p", cpu="9"), plugins=[x], config=config) as world:
        assert without_location(world.message("p")) == (
            '0/1 nodes are available: 1 Insufficient cpu. running PostFilter plugin "X": '
            "post_filter returned None; return a PostFilterResult with a Status"
        )


@virtual
async def test_a_preenqueue_that_raises_gates_only_that_pod(caplog: pytest.LogCaptureFixture) -> None:
    def gate(pod: Pod) -> None:
        if pod.name == "p":
            raise RuntimeError("jammed")

    async with running(make_node("n"), plugins=[plugin("X", pre_enqueue=gate)]) as world:
        await world.create(make_pod("p"), make_pod("q"))
        assert world.node_of("q") == "n"
        assert world.condition("p") is None
    assert 'pod default/p stays gated: running PreEnqueue plugin "X": RuntimeError: jammed' in caplog.text


@virtual
async def test_a_preenqueue_that_answers_nonsense_keeps_only_that_pod_out() -> None:
    gate = plugin("X", pre_enqueue=lambda pod: "jammed" if pod.name == "p" else None)
    async with running(make_node("n"), plugins=[gate]) as world:
        await world.create(make_pod("p"), make_pod("q"))
        assert (world.node_of("p"), world.node_of("q")) == ("", "n")
