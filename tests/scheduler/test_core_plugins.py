"""A plugin that is passed in runs, unless the configuration disables it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from bayplan.config import parse_config
from bayplan.errors import ConfigError
from bayplan.framework.args import FieldError, Gates, PluginArgs, at, invalid
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.points import Point
from bayplan.framework.state import CycleState
from bayplan.framework.status import Code, Status, failure, unschedulable
from bayplan.plugin import NodeInfo, NodePlugin, Pod
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.plugin_sources import catalog_with
from bayplan.testing.builders import make_node, make_pod

CONFIG = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"


class FavouriteArgs(PluginArgs, frozen=True):
    node: str = "b"

    def validate(self, path: str, gates: Gates) -> Iterator[FieldError]:
        if not self.node:
            yield invalid(at(path, "node"), self.node, "must not be empty")


class Favourite(NodePlugin):
    """Prefers the node that its arguments name."""

    args_type = FavouriteArgs

    def score_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        return 100 if node.name == self.args.node else 0


class Demanding(NodePlugin):
    """Cannot do without arguments."""

    class Args(PluginArgs, frozen=True):
        wanted: int

    args_type = Args

    def score_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        return 0


def make_core(profiles: str = "") -> SchedulingCore:
    plugins = [*BUILTIN_PLUGINS, Favourite]
    config = parse_config(CONFIG + profiles, catalog=catalog_with(plugins)) if profiles else None
    core = SchedulingCore(config, plugins=plugins)
    core.load([make_node("a"), make_node("b"), make_node("c")])
    return core


@pytest.mark.parametrize(
    ("profiles", "chosen"),
    [
        pytest.param("", "b", id="no configuration"),
        pytest.param("- schedulerName: default-scheduler\n", "b", id="a configuration that does not name it"),
        pytest.param(
            "- pluginConfig: [{name: Favourite, args: {node: c}}]\n", "c", id="arguments for it, and no more"
        ),
        pytest.param(
            "- plugins: {multiPoint: {disabled: [{name: Favourite}]}}\n",
            "a",
            id="disabled by the configuration",
        ),
        pytest.param(
            "- plugins: {score: {enabled: [{name: Favourite, weight: 3}]}}\n", "b", id="enabled at its point"
        ),
        pytest.param(
            "- plugins: {multiPoint: {enabled: [{name: Favourite, weight: 3}]}}\n",
            "b",
            id="enabled everywhere",
        ),
    ],
)
def test_it_runs(profiles: str, chosen: str) -> None:
    assert make_core(profiles).decide(make_pod()).node_name == chosen


def test_it_runs_last() -> None:
    framework = make_core().frameworks["default-scheduler"]
    assert framework.profile.plugins[Point.SCORE][-1].name == "Favourite"
    assert not any(plugin.name == "Favourite" for plugin in framework.profile.plugins[Point.FILTER]), (
        "it has no Filter"
    )


def test_wrong_arguments() -> None:
    with pytest.raises(ConfigError, match='node: Invalid value: "": must not be empty'):
        make_core("- pluginConfig: [{name: Favourite, args: {node: ''}}]\n")


def test_missing_arguments() -> None:
    with pytest.raises(ConfigError, match="its arguments must be given: wanted"):
        SchedulingCore(plugins=[*BUILTIN_PLUGINS, Demanding])


def test_a_built_in_plugin_is_not_replaced_in_passing() -> None:
    """A name means one plugin; for another rule, disable the first."""

    class Mine(NodePlugin):
        name = "ImageLocality"

        def score_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
            return 0

    with pytest.raises(ConfigError, match="a plugin named ImageLocality already exists"):
        SchedulingCore(plugins=[*BUILTIN_PLUGINS, Mine])


class Unreliable(Plugin):
    """Fails at Reserve as its class says, and in Unreserve, too."""

    name = "Unreliable"
    answer: ClassVar[Status | None] = None

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        if self.answer is None:
            raise ValueError("no luck")
        return self.answer

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        raise ValueError("no luck")


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        pytest.param(
            None, Code.ERROR, 'running Reserve plugin "Unreliable": ValueError: no luck', id="an exception"
        ),
        pytest.param(
            failure("broken"), Code.ERROR, 'running Reserve plugin "Unreliable": broken', id="an error"
        ),
        pytest.param(
            unschedulable("taken"), Code.UNSCHEDULABLE, "0/1 nodes are available: 1 taken.", id="a rejection"
        ),
    ],
)
def test_a_failed_reserve_is_undone(
    answer: Status | None, code: Code, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The texts are those of the scheduler; exceptions of Unreserve are only logged."""
    plugin = type("Unreliable", (Unreliable,), {"answer": answer})
    core = SchedulingCore(plugins=(*BUILTIN_PLUGINS, plugin))
    core.load([make_node("a")])
    pod = make_pod("p")
    decision = core.place(pod)
    assert (decision.fits, decision.status.code) == (False, code)
    assert decision.message.startswith(message)
    assert not core.cluster.has_pod(pod.uid)
    assert 'running Unreserve plugin "Unreliable" for pod default/p: ValueError: no luck' in caplog.text
