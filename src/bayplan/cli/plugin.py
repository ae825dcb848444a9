"""`bayplan plugin`: which plugins there are, whether they keep the rules, and a package for a new one."""

from __future__ import annotations

import json
import re
import sys
import traceback as tracebacks
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from string import Template
from typing import Final

import click
from rich.table import Table

from bayplan import __version__
from bayplan.api.releases import DEFAULT_RELEASE
from bayplan.cli.errors import ExitStatus, did_you_mean, traceback_option
from bayplan.cli.options import SchedulerOptions, plugin_option, scheduler_options
from bayplan.cli.output import make_console
from bayplan.cli.terminal import echo, echo_json, echo_text
from bayplan.config import build_profiles, default_catalog, load_config
from bayplan.errors import BayplanError, InputError
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.points import PLUGIN_ENTRY_POINTS, Point
from bayplan.framework.status import describe
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.runtime.profile import points_of
from bayplan.scheduler.plugin_sources import library_plugins, load_entry, load_plugin

PLAIN_WIDTH = 150
"""Columns of a table that is written to a file or pipe."""

BUILT_IN = "built in"
LIBRARY = "library"
"""The source of plugins that come with bayplan and are off unless a configuration names them."""


@dataclass(frozen=True, slots=True)
class ListedPlugin:
    """One line of `bayplan plugin list`."""

    name: str
    source: str
    version: str
    points: list[str]
    error: str = ""
    """Why it cannot be loaded."""


@click.group()
def plugin() -> None:
    """List and check plugins, and start a new one."""


@plugin.command(name="list")
@plugin_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line instead of a table.")
@click.pass_context
def list_plugins(ctx: click.Context, plugin_specs: tuple[str, ...], as_json: bool) -> None:
    """List all plugins: built-in ones, the library, those of installed packages, and those of --plugin.

    All but the built-in ones are off unless a configuration names them or --plugin is given.

    The exit status is 2 if one cannot be loaded.
    """
    found = [*_bundled(), *_installed(), *_given(plugin_specs)]
    if as_json:
        for one in found:
            echo_json(json.dumps(asdict(one), ensure_ascii=False))
    else:
        _print(found)
    if any(one.error for one in found):
        ctx.exit(ExitStatus.FAILED)


def _bundled() -> Iterator[ListedPlugin]:
    for source, plugins in ((BUILT_IN, BUILTIN_PLUGINS), (LIBRARY, library_plugins().values())):
        for one in plugins:
            yield ListedPlugin(one.name, source, __version__, _points(one))


def _installed() -> Iterator[ListedPlugin]:
    for entry in _entries():
        source = entry.value if entry.dist is None else f"{entry.value} (package {entry.dist.name})"
        version = "" if entry.dist is None else entry.dist.version
        try:
            loaded = load_entry(entry)
        except BayplanError as error:
            yield ListedPlugin(entry.name, source, version, [], str(error))
        else:
            yield ListedPlugin(loaded.name, source, version, _points(loaded))


def _given(specs: tuple[str, ...]) -> Iterator[ListedPlugin]:
    for spec in specs:
        try:
            loaded = load_plugin(spec)
        except BayplanError as error:
            yield ListedPlugin(spec.rpartition(":")[2], spec, "", [], str(error))
        else:
            version = str(getattr(sys.modules.get(loaded.__module__), "__version__", ""))
            yield ListedPlugin(loaded.name, spec, version, _points(loaded))


def _entries() -> list[EntryPoint]:
    return sorted(entry_points(group=PLUGIN_ENTRY_POINTS), key=lambda entry: (entry.name, entry.value))


def _points(found: type[Plugin]) -> list[str]:
    own = points_of(found)
    return [str(point) for point in Point if point in own]


def _print(found: list[ListedPlugin]) -> None:
    table = Table(box=None)
    for heading in ("plugin", "from", "version", "extension points"):
        table.add_column(heading, overflow="fold")
    for one in found:
        table.add_row(one.name, one.source, one.version, one.error or ", ".join(one.points))
    make_console(PLAIN_WIDTH).print(table)


@plugin.command()
@click.argument("name")
@traceback_option
@scheduler_options
@click.pass_context
def check(ctx: click.Context, name: str, traceback: bool, scheduler: SchedulerOptions) -> None:
    """Check whether plugin NAME keeps the rules: the same results again, for few rows as for all, and so on.

    NAME is that of a plugin of bayplan or of an installed one, or SOURCE:CLASS. --config has its arguments,
    if it needs some. A check is not applicable if the plugin has nothing to which it applies on the sample
    clusters. The exit status is 1 if a check fails.
    """
    from bayplan.testing.calling import maker
    from bayplan.testing.plugin_checks import PLUGIN_CHECKS, SEEDS
    from bayplan.testing.samples import make_samples

    found = _find(name, scheduler)
    make = maker(found, _arguments(found, scheduler))
    samples = [make_samples(seed) for seed in SEEDS]
    failed = 0
    for one in PLUGIN_CHECKS:
        title = one.__name__.removeprefix("check_").replace("_", " ")
        try:
            applies = sum(one(make, sample) for sample in samples)
        except Exception as error:
            failed += 1
            expected = isinstance(error, AssertionError | BayplanError)
            echo(f"FAILED  {title}", f"        {error if expected else describe(error)}")
            if traceback:
                echo_text("".join(tracebacks.format_exception(error)), err=True)
        else:
            echo(f"ok      {title}" if applies else f"–       {title} (not applicable)")
    echo(f"{found.name}: {failed} of {len(PLUGIN_CHECKS)} checks failed" if failed else f"{found.name}: ok")
    if failed:
        ctx.exit(ExitStatus.NO)


def _find(name: str, scheduler: SchedulerOptions) -> type[Plugin]:
    """The plugin of this name or `SOURCE:CLASS`."""
    if ":" in name:
        return load_plugin(name)
    known = library_plugins() | {one.name: one for one in (*BUILTIN_PLUGINS, *scheduler.plugins())}
    entries = {entry.name: entry for entry in _entries()}
    if name in known:
        return known[name]
    if name in entries:
        return load_entry(entries[name])
    hint = did_you_mean(name, [*known, *entries])
    raise InputError(f"there is no plugin {name}.{hint} For a file, write path/to/file.py:Class")


def _arguments(found: type[Plugin], scheduler: SchedulerOptions) -> object:
    """The arguments of the plugin: of the first profile that uses it, or the default ones."""
    if scheduler.config_file is not None:
        available = dict.fromkeys((found, *scheduler.available()))
        catalog = scheduler.catalog([one for one in available if one not in BUILTIN_PLUGINS])
        config = load_config(scheduler.config_file, catalog, scheduler.release or DEFAULT_RELEASE)
        for plan in build_profiles(config, catalog):
            if found.name in plan.args:
                return plan.args[found.name]
    return None if found.args_type is None else found.args_type()


@plugin.command()
@click.argument("name")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to write the package. Must not exist. [default: NAME in lower case with dashes]",
)
def new(name: str, directory: Path | None) -> None:
    """Write a package for a new plugin NAME, such as PreferSsd: plugin, test, configuration and README."""
    written = write_package(name, directory)
    commands = (f"cd {written}", "pip install -e '.[test]'", "pytest", f"bayplan plugin check {name}")
    echo(f"{written}: written. Next:", "", *(f"    {one}" for one in commands))
    echo("    bayplan up --config scheduler.yaml")


_NAME: Final = re.compile(r"[A-Z][A-Za-z0-9]{1,62}")
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*")

_PYPROJECT: Final = Template("""\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "$package"
version = "0.1.0"
description = "A scheduler plugin for bayplan"
requires-python = ">=3.11"
dependencies = ["bayplan"]

[project.optional-dependencies]
test = ["pytest"]

# bayplan finds the plugin here. It runs where the configuration names it.
[project.entry-points."bayplan.plugins"]
$name = "$module:$name"

[tool.hatch.build.targets.wheel]
include = ["$module.py"]
""")

_PLUGIN: Final = Template('''\
"""$name: a scheduler plugin for bayplan."""

from __future__ import annotations

from collections.abc import Iterator

from bayplan.plugin import (
    Action,
    ClusterEventWithHint,
    CycleState,
    Dependencies,
    NodeInfo,
    NodePlugin,
    PluginArgs,
    Pod,
    Resource,
    Status,
    event_with_hint,
    unresolvable,
)
from bayplan.plugin.args import FieldError, Gates, at, required


class ${name}Args(PluginArgs, frozen=True):
    """The arguments in the configuration: pluginConfig, args."""

    label: str = "$label"  # label in the file

    def validate(self, path: str, gates: Gates) -> Iterator[FieldError]:
        if not self.label:
            yield required(at(path, "label"), "the label of the nodes")


class $name(NodePlugin):
    """Pods with the label go only to nodes with the same value, and other pods prefer nodes without it."""

    args_type = ${name}Args
    args: ${name}Args

    # What the results depend on: the labels of the pod, and the Node object. Results are cached accordingly.
    depends_on = Dependencies.of("labels")

    def filter_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status | None:
        wanted = pod.labels.get(self.args.label)
        if wanted is None or node.labels.get(self.args.label) == wanted:
            return None
        return unresolvable(f"node(s) didn't have {self.args.label}={wanted}")

    def score_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        return 100 if self.args.label in pod.labels or self.args.label not in node.labels else 0

    def events_to_register(self) -> list[ClusterEventWithHint]:
        """A pod that was rejected is tried again when a node is added or relabelled."""
        return [event_with_hint(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)]
''')

_TEST: Final = Template('''\
"""Tests of $name. `core.decide` runs a whole scheduling cycle, without a cluster."""

from __future__ import annotations

import pytest
from bayplan.testing import (
    BUILTIN_PLUGINS,
    SchedulingCore,
    catalog_with,
    check_plugin,
    load_config,
    make_node,
    make_pod,
)
from pathlib import Path

from $module import $name, ${name}Args

LABEL = "$label"


@pytest.fixture
def core() -> SchedulingCore:
    made = SchedulingCore(plugins=[*BUILTIN_PLUGINS, $name])
    made.load([make_node("plain"), make_node("special", labels={LABEL: "a"})])
    return made


def test_pods_with_the_label_go_to_nodes_with_the_same_value(core: SchedulingCore) -> None:
    assert core.decide(make_pod("p", labels={LABEL: "a"})).node_name == "special"


def test_other_values_fit_nowhere(core: SchedulingCore) -> None:
    decision = core.decide(make_pod("p", labels={LABEL: "b"}))
    assert not decision.fits
    assert f"2 node(s) didn't have {LABEL}=b" in decision.message


def test_other_pods_prefer_nodes_without_it(core: SchedulingCore) -> None:
    assert core.decide(make_pod("p")).node_name == "plain"


def test_it_keeps_the_rules_of_plugins() -> None:
    check_plugin($name, ${name}Args())


def test_the_configuration_is_valid() -> None:
    plugins = [*BUILTIN_PLUGINS, $name]
    config = load_config(Path(__file__).parents[1] / "scheduler.yaml", catalog_with(plugins))
    assert SchedulingCore(config, plugins=plugins).frameworks
''')

_CONFIG: Final = Template("""\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      enabled:
      - name: $name
  pluginConfig:
  - name: $name
    args:
      label: $label
""")

_README: Final = Template("""\
# $name

A scheduler plugin for bayplan.

    pip install -e '.[test]'
    pytest
    bayplan plugin list
    bayplan plugin check $name
    bayplan up --nodes 5 --config scheduler.yaml

While you work on it, let bayplan load the file again whenever you save it:

    bayplan up --nodes 5 --plugin ./$module.py:$name --reload

| file | |
|---|---|
| `$module.py` | the plugin |
| `scheduler.yaml` | a configuration that enables it, with its arguments |
| `tests/test_$module.py` | tests; they run without a cluster |
""")


def words_of(name: str) -> list[str]:
    """`PreferSSDNodes` → prefer, ssd, nodes."""
    return [word.lower() for word in _WORD.findall(name)]


def write_package(name: str, directory: Path | None = None) -> Path:
    """Writes the package into a new directory, and returns the directory.

    Raises:
        InputError: the name cannot be used, or the directory exists.
    """
    if not _NAME.fullmatch(name):
        raise InputError(f"{name!r} cannot be a plugin's name: use a name like PreferSsd")
    if name in default_catalog().names:
        raise InputError(f"bayplan has a plugin {name}; choose another name")
    words = words_of(name)
    module, package = "_".join(words), "-".join(words)
    target = Path(package) if directory is None else directory
    if target.exists():
        raise InputError(f"{target} exists already; nothing was written. Choose another --directory")
    names = {"name": name, "module": module, "package": package, "label": f"example.com/{package}"}
    files = {
        "pyproject.toml": _PYPROJECT,
        f"{module}.py": _PLUGIN,
        f"tests/test_{module}.py": _TEST,
        "scheduler.yaml": _CONFIG,
        "README.md": _README,
    }
    try:
        (target / "tests").mkdir(parents=True)
        for file, template in files.items():
            (target / file).write_text(template.substitute(names), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{error.strerror or error}".lower(), source=str(target)) from None
    return target
