"""`bayplan plugin`: which plugins there are, whether they keep the rules, and a package for a new one."""

from __future__ import annotations

import json
import sys
import traceback as tracebacks
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import click
from rich.table import Table

from bayplan import __version__
from bayplan.cli.encoding import echo
from bayplan.cli.errors import FAILED, did_you_mean
from bayplan.cli.new_plugin import write_package
from bayplan.cli.options import SchedulerOptions, plugin_option, scheduler_options
from bayplan.cli.output import make_console
from bayplan.cli.plugin_failures import traceback_option
from bayplan.config import build_profiles
from bayplan.errors import BayplanError, InputError
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.points import PLUGIN_ENTRY_POINTS, Point
from bayplan.framework.status import describe
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.runtime.profile import points_of
from bayplan.scheduler.plugin_library import library_plugins
from bayplan.scheduler.plugin_sources import load_entry, load_plugin

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
            echo(json.dumps(asdict(one), ensure_ascii=False))
    else:
        _print(found)
    if any(one.error for one in found):
        ctx.exit(FAILED)


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
    if it needs some. The exit status is 2 if a check fails.
    """
    from bayplan.testing.plugin_checks import PLUGIN_CHECKS, SEEDS, make_samples, maker

    found = _find(name, scheduler)
    make = maker(found, _arguments(found, scheduler))
    samples = [make_samples(seed) for seed in SEEDS]
    failed = 0
    for one in PLUGIN_CHECKS:
        title = one.__name__.removeprefix("check_").replace("_", " ")
        try:
            for sample in samples:
                one(make, sample)
        except Exception as error:
            failed += 1
            expected = isinstance(error, AssertionError | BayplanError)
            echo(f"FAILED  {title}\n        {error if expected else describe(error)}")
            if traceback:
                echo("".join(tracebacks.format_exception(error)), err=True)
        else:
            echo(f"ok      {title}")
    echo(f"{found.name}: {failed} of {len(PLUGIN_CHECKS)} checks failed" if failed else f"{found.name}: ok")
    if failed:
        ctx.exit(FAILED)


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
    options = SchedulerOptions(
        scheduler.config_file, scheduler.own_file, scheduler.tie_break, (), scheduler.release
    )
    if scheduler.config_file is None:
        return None if found.args_type is None else found.args_type()
    plugins = tuple(dict.fromkeys((found, *options.available(), *scheduler.plugins())))
    given = tuple(one for one in plugins if one not in BUILTIN_PLUGINS)
    config = options.config(given)
    assert config is not None
    for plan in build_profiles(config, options.catalog(given)):
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
    echo(f"{written}: written. Next:\n")
    echo(f"    cd {written}\n    pip install -e '.[test]'\n    pytest\n    bayplan plugin check {name}")
    echo("    bayplan up --config scheduler.yaml")
