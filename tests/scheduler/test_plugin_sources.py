"""Plugins come from files, modules, packages and Python, and run unless the configuration disables them."""

from __future__ import annotations

from functools import partial
from importlib.metadata import EntryPoint, distributions
from pathlib import Path

import pytest

from bayplan.answers.sources.loading import load_settings
from bayplan.api.releases import DEFAULT_RELEASE
from bayplan.config import LIBRARY, ProfilePlan, build_profiles, default_config, parse_config
from bayplan.errors import BayplanError, ConfigError, InputError
from bayplan.framework.args import PluginArgs
from bayplan.framework.points import Point
from bayplan.plugin import CycleState, NodeInfo, NodePlugin, Plugin, Pod, Status
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.plugins.node_name import NodeName
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.plugin_sources import (
    catalog_with,
    enable_everywhere,
    installed_plugins,
    known_plugins,
    load_plugin,
)

NO_SPEC = "should be module:Class, path.py:Class or the name of a library plugin"

SOURCE = """
from __future__ import annotations
from dataclasses import dataclass
from bayplan.plugin import NodePlugin, Plugin

@dataclass
class Setting:
    zone: str

class PreferZone(NodePlugin):
    def score_node(self, state, pod, node):
        return 0

class Renamed(PreferZone):
    name = "zone.example.com"

class NodeName(PreferZone):
    pass

class Idle(Plugin):
    pass

value = 5
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with files to load plugins from."""
    (tmp_path / "zones.py").write_text(SOURCE)
    (tmp_path / "broken.py").write_text("x = (\n")
    (tmp_path / "failing.py").write_text("raise RuntimeError('not today')\n")
    (tmp_path / "needy.py").write_text("import a_module_that_is_not_there\n")
    (tmp_path / "text.txt").write_text("")
    (tmp_path / "importable").mkdir()
    (tmp_path / "importable" / "zone_module.py").write_text(SOURCE)
    (tmp_path / "importable" / "needy_module.py").write_text("import a_module_that_is_not_there\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "importable")
    # Only what a test installs: the environment may have plugin packages of its own.
    monkeypatch.setattr("importlib.metadata.entry_points", partial(_entry_points, tmp_path / "importable"))
    return tmp_path


def _entry_points(folder: Path, *, group: str) -> list[EntryPoint]:
    found = (entry for package in distributions(path=[str(folder)]) for entry in package.entry_points)
    return [entry for entry in found if entry.group == group]


# Loading


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        pytest.param("zones.py:PreferZone", "PreferZone", id="a file"),
        pytest.param("./zones.py:PreferZone", "PreferZone", id="a path"),
        pytest.param("zones.py:Renamed", "zone.example.com", id="with a name of its own"),
        pytest.param("zone_module:PreferZone", "PreferZone", id="a module"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_plugin_is_found(spec: str, name: str) -> None:
    assert load_plugin(spec).name == name


def test_the_same_file_gives_the_same_class(folder: Path) -> None:
    assert load_plugin(f"{folder}/zones.py:PreferZone") is load_plugin("./zones.py:PreferZone")


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        pytest.param("zones.py", InputError, NO_SPEC, id="no class named"),
        pytest.param(":PreferZone", InputError, NO_SPEC, id="no source"),
        pytest.param("gone.py:X", InputError, "there is no file gone.py", id="no such file"),
        pytest.param(
            "./text.txt:X",
            InputError,
            "./text.txt is not a Python file: its name must end in .py",
            id="no Python file",
        ),
        pytest.param(
            "gone.module:X",
            InputError,
            "there is no module gone; for a file of your own, write path/to/file.py:Class",
            id="no such module",
        ),
        pytest.param(
            "zones.py:Zone",
            InputError,
            "zones.py has no class Zone, but Idle, NodeName, PreferZone, Renamed",
            id="no such class",
        ),
        pytest.param("zones.py:value", InputError, "5 is not a subclass of Plugin", id="no class"),
        pytest.param("zones.py:Setting", InputError, "Setting is not a subclass of Plugin", id="no plugin"),
        pytest.param(
            "zones.py:Plugin", InputError, "Plugin is not a subclass of Plugin", id="the base class"
        ),
        pytest.param("zones.py:Idle", InputError, "Idle implements no extension point", id="nothing to call"),
        pytest.param(
            "zones.py:NodeName", ConfigError, "a plugin named NodeName already exists", id="a built-in's name"
        ),
        pytest.param(
            "broken.py:X",
            InputError,
            "it cannot be imported: SyntaxError: '(' was never closed (broken.py, line 1)",
            id="a syntax error",
        ),
        pytest.param(
            "failing.py:X",
            InputError,
            "it cannot be imported: RuntimeError: not today (failing.py:1)",
            id="an error on import",
        ),
        pytest.param(
            "needy.py:X",
            InputError,
            "it cannot be imported: ModuleNotFoundError: No module named 'a_module_that_is_not_there' "
            "(needy.py:1)",
            id="a file that needs another module",
        ),
        pytest.param(
            "needy_module:X",
            InputError,
            "it cannot be imported: ModuleNotFoundError: No module named 'a_module_that_is_not_there' "
            "(needy_module.py:1)",
            id="a module that needs another module",
        ),
    ],
)
@pytest.mark.usefixtures("folder")
def test_the_reason_of_a_failed_load_is_reported(spec: str, error: type[BayplanError], message: str) -> None:
    with pytest.raises(error) as raised:
        load_plugin(spec)
    assert str(raised.value) == f"plugin {spec}: {message}"


def test_a_file_that_failed_can_be_put_right(folder: Path) -> None:
    with pytest.raises(InputError):
        load_plugin("failing.py:PreferZone")
    (folder / "failing.py").write_text(SOURCE)
    assert load_plugin("failing.py:PreferZone").name == "PreferZone"


def install(folder: Path, package: str, entries: str) -> None:
    info = folder / "importable" / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[bayplan.plugins]\n{entries}\n")


def test_installed_packages_offer_plugins(folder: Path) -> None:
    install(folder, "zones", "a = zone_module:PreferZone\nb = zone_module:Renamed")
    install(folder, "again", "a = zone_module:PreferZone")
    assert {name: plugin.__name__ for name, plugin in installed_plugins().items()} == {
        "PreferZone": "PreferZone",
        "zone.example.com": "Renamed",
    }


def test_an_installed_plugin_runs_only_in_the_profiles_that_name_it(folder: Path) -> None:
    install(folder, "zones", "a = zone_module:PreferZone\nb = zone_module:Renamed")
    file = folder / "config.yaml"
    file.write_text(
        """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: one
  plugins: {multiPoint: {enabled: [{name: PreferZone}]}}
- schedulerName: other
"""
    )
    settings = load_settings(str(file))
    core = SchedulingCore(settings.config, plugins=(*BUILTIN_PLUGINS, *settings.plugins))
    assert [plugin.name for plugin in settings.plugins] == ["PreferZone"]
    assert {
        name: "PreferZone" in {plugin.name for plugin in framework.profile.all_plugins()}
        for name, framework in core.frameworks.items()
    } == {"one": True, "other": False}


@pytest.mark.parametrize(
    ("entry", "error", "message"),
    [
        pytest.param(
            "a = zone_module:Setting", InputError, "Setting is not a subclass of Plugin", id="no plugin"
        ),
        pytest.param(
            "a = zone_module:NodeName",
            ConfigError,
            "a plugin named NodeName already exists",
            id="a built-in's name",
        ),
        pytest.param(
            "a = gone:X",
            InputError,
            "it cannot be imported: ModuleNotFoundError: No module named 'gone'",
            id="not there",
        ),
    ],
)
def test_a_package_with_a_bad_plugin_is_named(
    folder: Path, entry: str, error: type[BayplanError], message: str
) -> None:
    install(folder, "zones", entry)
    with pytest.raises(error) as raised:
        installed_plugins()
    assert str(raised.value) == f"plugin {entry.removeprefix('a = ')} (zones): {message}"


def test_two_packages_cannot_offer_plugins_of_one_name(folder: Path) -> None:
    (folder / "importable" / "other_module.py").write_text(SOURCE)
    install(folder, "zones", "a = zone_module:PreferZone")
    install(folder, "other", "a = other_module:PreferZone")
    with pytest.raises(ConfigError, match="a plugin named PreferZone already exists"):
        installed_plugins()


# What a configuration may name


class Filters(NodePlugin):
    def filter_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> None:
        return None


class Scores(NodePlugin):
    class Args(PluginArgs, frozen=True):
        zone: str = "a"

    args_type = Args

    def score_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        return 0


class Permits(Plugin):
    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        return None


class Same(Plugin):
    """Has the name of another."""

    name = "Permits"

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        return None


class Taken(Plugin):
    """Has the name of a plugin of upstream."""

    name = "GangScheduling"

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        return None


def test_a_catalog_has_points_and_arguments() -> None:
    catalog = catalog_with([Scores, *BUILTIN_PLUGINS, Scores])
    assert (catalog.points("Scores"), catalog.args_type("Scores"), len(catalog.names)) == (
        frozenset({Point.SCORE}),
        Scores.Args,
        1 + len(DEFAULT_RELEASE.registry) + len(LIBRARY),
    )


@pytest.mark.parametrize(
    ("plugins", "name"),
    [
        pytest.param([Permits, Same], "Permits", id="like another"),
        pytest.param([Taken], "GangScheduling", id="like one that upstream has"),
        pytest.param([type("NodeName", (NodeName,), {})], "NodeName", id="like a built-in one"),
    ],
)
def test_names_are_unique(plugins: list[type[Plugin]], name: str) -> None:
    with pytest.raises(ConfigError, match=f"^a plugin named {name} already exists$"):
        catalog_with(plugins)


def test_known_are_the_built_in_the_installed_and_the_given_each_once() -> None:
    known = known_plugins([Permits, Filters], {"Filters": Filters})
    assert known == (*BUILTIN_PLUGINS, Filters, Permits)


def test_a_given_plugin_cannot_be_called_like_an_installed_one() -> None:
    with pytest.raises(ConfigError, match="a plugin named Permits already exists"):
        known_plugins([Same], {"Permits": Permits})


# When they run

GIVEN = (Filters, Scores, Permits)


def plans(profiles: str) -> dict[str, ProfilePlan]:
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
    catalog = catalog_with(GIVEN)
    config = enable_everywhere(parse_config(head + profiles, catalog=catalog), GIVEN)
    return {plan.scheduler_name: plan for plan in build_profiles(config, catalog)}


def where(plan: ProfilePlan, plugin: str) -> set[str]:
    return {point.value for point, names in plan.plugins.items() if plugin in names}


@pytest.mark.parametrize(
    ("profiles", "filters", "scores"),
    [
        pytest.param("- {}", {"Filter"}, {"Score"}, id="not named: wherever it can"),
        pytest.param(
            "- pluginConfig: [{name: Scores, args: {zone: b}}]", {"Filter"}, {"Score"}, id="only arguments"
        ),
        pytest.param(
            "- plugins: {score: {enabled: [{name: Scores, weight: 3}]}}",
            {"Filter"},
            {"Score"},
            id="enabled at its point",
        ),
        pytest.param(
            "- plugins: {multiPoint: {disabled: [{name: Scores}]}}", {"Filter"}, set(), id="disabled"
        ),
        pytest.param(
            "- plugins: {filter: {disabled: [{name: Filters}]}}", set(), {"Score"}, id="disabled at its point"
        ),
        pytest.param(
            "- plugins: {score: {disabled: [{name: '*'}]}}",
            {"Filter"},
            set(),
            id="a point that takes only what it lists",
        ),
    ],
)
def test_a_given_plugin_runs_unless_the_configuration_names_it(
    profiles: str, filters: set[str], scores: set[str]
) -> None:
    plan = plans(profiles)["default-scheduler"]
    assert (where(plan, "Filters"), where(plan, "Scores")) == (filters, scores)


def test_it_runs_after_the_defaults() -> None:
    plan = plans("- {}")["default-scheduler"]
    assert (plan.plugins[Point.FILTER][-2:], plan.plugins[Point.PERMIT]) == (
        ("NodeDeclaredFeatures", "Filters"),
        ("Permits",),
    )


def test_every_profile_has_its_own_plugins() -> None:
    found = plans("- schedulerName: a\n- schedulerName: b\n  plugins: {score: {disabled: [{name: Scores}]}}")
    assert [where(plan, "Scores") for plan in found.values()] == [{"Score"}, set()]


@pytest.mark.parametrize(
    ("profiles", "zone", "weight"),
    [
        pytest.param("- {}", "a", 1, id="defaults where nothing is set"),
        pytest.param("- pluginConfig: [{name: Scores, args: {zone: b}}]", "b", 1, id="those that are given"),
        pytest.param(
            "- plugins: {multiPoint: {enabled: [{name: Scores, weight: 7}]}}", "a", 7, id="and the weight"
        ),
    ],
)
def test_arguments_and_weights_come_from_the_configuration(profiles: str, zone: str, weight: int) -> None:
    plan = plans(profiles)["default-scheduler"]
    assert (plan.args["Scores"], plan.weights["Scores"]) == (Scores.Args(zone=zone), weight)


def test_without_plugins_the_configuration_stays_as_it_is() -> None:
    assert enable_everywhere(default_config(), ()) == default_config()
