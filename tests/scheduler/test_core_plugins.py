"""A plugin that is passed in runs, unless the configuration disables it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bayplan.config import parse_config
from bayplan.errors import ConfigError
from bayplan.framework.plugin_args.base import Gates, PluginArgs
from bayplan.framework.plugin_args.field_errors import FieldError, at, invalid
from bayplan.framework.points import Point
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

    def score_node(self, pod: Pod, node: NodeInfo) -> int:
        return 100 if node.name == self.args.node else 0


class Demanding(NodePlugin):
    """Cannot do without arguments."""

    class Args(PluginArgs, frozen=True):
        wanted: int

    args_type = Args

    def score_node(self, pod: Pod, node: NodeInfo) -> int:
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

        def score_node(self, pod: Pod, node: NodeInfo) -> int:
            return 0

    with pytest.raises(ConfigError, match="a plugin named ImageLocality already exists"):
        SchedulingCore(plugins=[*BUILTIN_PLUGINS, Mine])
