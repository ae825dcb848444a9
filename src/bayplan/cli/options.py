"""Options that several commands share: which configuration and which plugins a scheduler has.

`scheduler_options` adds them to a command, which gets one `SchedulerOptions`, so that they have the same
meaning everywhere. `bayplan run` has kube-scheduler's flags instead (`operating/flags.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bayplan.api.releases import DEFAULT_RELEASE, RELEASES, Release, parse_release
from bayplan.config import (
    KubeSchedulerConfiguration,
    OwnFlags,
    PluginCatalog,
    build_profiles,
    default_catalog,
    default_config,
    load_config,
    load_own_settings,
)
from bayplan.errors import ConfigError
from bayplan.framework.points import PLUGIN_ENTRY_POINTS, TieBreak

if TYPE_CHECKING:
    from bayplan.answers.sources.loading import SchedulerSettings
    from bayplan.framework.plugin_api import Plugin

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

plugin_option = click.option(
    "--plugin",
    "plugin_specs",
    multiple=True,
    metavar="SOURCE:CLASS",
    help="A plugin of your own, module:Class or path/to/file.py:Class, or the name of a library plugin. It "
    "runs at every extension point that it implements, after the built-in plugins, unless the configuration "
    "names it. Can be repeated.",
)


class ReleaseType(click.ParamType[Release]):
    """A Kubernetes version as a `Release`."""

    name = "version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Release:
        if isinstance(value, Release):
            return value
        try:
            return parse_release(value)
        except ConfigError as error:
            self.fail(str(error), param, ctx)


_RELEASE_FLAG = ("--emulated-version", "release")
release_option = click.option(
    *_RELEASE_FLAG,
    type=ReleaseType(),
    metavar="|".join(RELEASES),
    help="The Kubernetes version to behave as.",
)
releases_option = click.option(
    *_RELEASE_FLAG,
    type=ReleaseType(),
    multiple=True,
    metavar="|".join(RELEASES),
    help="The Kubernetes version to behave as. Two versions: show what changes from one to the other.",
)
"""For commands that can compare versions: they get all that are given."""

_OPTIONS = (
    click.option(
        "--config",
        "config_file",
        metavar="FILE",
        help="A kube-scheduler configuration file; may also contain a BayplanConfiguration.",
    ),
    click.option(
        "--bayplan-config",
        "own_file",
        metavar="FILE",
        help="A file with a BayplanConfiguration. Replaces the one in the file of --config.",
    ),
    click.option(
        "--tie-break",
        type=click.Choice([rule.value for rule in TieBreak]),
        help="Which of several nodes with the same score is chosen: as in kube-scheduler (the default), or "
        "the first in the node list.",
    ),
)


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """The values of the options, and the resulting configuration and plugins."""

    config_file: str | None = None
    own_file: str | None = None
    tie_break: TieBreak | None = None
    plugin_specs: Sequence[str] = ()
    release: Release | None = None
    """None: that of the cluster, or the default."""

    def arguments(self) -> list[str]:
        """The same options for another command line."""
        given = {
            "--config": self.config_file,
            "--bayplan-config": self.own_file,
            "--tie-break": self.tie_break,
            "--emulated-version": None if self.release is None else self.release.version,
        }
        words = [word for flag, value in given.items() if value is not None for word in (flag, str(value))]
        return [*words, *(word for spec in self.plugin_specs for word in ("--plugin", spec))]

    @property
    def own_flags(self) -> OwnFlags:
        """bayplan's own settings on the command line."""
        return OwnFlags(None if self.own_file is None else load_own_settings(self.own_file), self.tie_break)

    def plugins(self, *, fresh: bool = False) -> tuple[type[Plugin], ...]:
        """The plugins of `--plugin`; `fresh` reads their files again."""
        if not self.plugin_specs:
            return ()
        # Imported here: commands that need no plugin, such as `bayplan config`, do not need NumPy either.
        from bayplan.scheduler.plugin_sources import load_plugin

        return tuple(dict.fromkeys(load_plugin(spec, fresh=fresh) for spec in self.plugin_specs))

    def available(self) -> tuple[type[Plugin], ...]:
        """What a configuration may name besides bayplan's plugins: those of `--plugin` and of installed
        packages."""
        from importlib.metadata import entry_points

        given = self.plugins()
        if not entry_points(group=PLUGIN_ENTRY_POINTS):
            return given
        from bayplan.scheduler.plugin_sources import installed_plugins

        return tuple(dict.fromkeys((*given, *installed_plugins().values())))

    def catalog(self, plugins: Sequence[type[Plugin]]) -> PluginCatalog:
        """What a configuration may name."""
        release = self.release or DEFAULT_RELEASE
        if not plugins:
            return default_catalog(release)
        from bayplan.scheduler.plugin_sources import catalog_with

        return catalog_with(plugins, release)

    def load(
        self, *, fresh: bool = False
    ) -> tuple[KubeSchedulerConfiguration | None, tuple[type[Plugin], ...]]:
        """The configuration, checked (None: the default), and the plugins that it uses: those of `--plugin`,
        and those of installed packages that it names. `fresh` reads files of plugins again.

        Raises:
            BayplanError: a file or plugin cannot be loaded or is invalid.
        """
        if fresh:
            self.plugins(fresh=True)
        if self.config_file is None:
            plugins = self.plugins()
            return self.config(plugins), plugins
        available = self.available()
        config = self.config(available)
        assert config is not None
        from bayplan.scheduler.plugin_sources import only_where_named

        given = self.plugins()
        config, used = only_where_named(config, {one.name: one for one in available if one not in given})
        return config, (*given, *used)

    def settings(self) -> SchedulerSettings:
        """Configuration and plugins for evaluating a cluster, where absent plugins are only a warning."""
        from bayplan.answers.sources.loading import load_settings

        return load_settings(self.config_file, self.plugin_specs, self.own_flags, self.release)

    def config(self, plugins: Sequence[type[Plugin]]) -> KubeSchedulerConfiguration | None:
        """The configuration that the options describe, checked; None if they say nothing about it.

        Raises:
            BayplanError: a file cannot be read or is invalid.
        """
        flags = self.own_flags
        release = self.release or DEFAULT_RELEASE
        if self.config_file is None:
            return None if flags == OwnFlags() else flags.apply(default_config(release=release))
        catalog = self.catalog(plugins)
        config = flags.apply(load_config(self.config_file, catalog, release))
        try:
            build_profiles(config, catalog)
        except ConfigError as error:
            raise ConfigError(f"{self.config_file}: {error}") from None
        return config


def scheduler_options(command: CommandT) -> CommandT:
    """Adds the options to a command, which gets them as `scheduler`."""
    decorated: CommandT = _decorated(_with_scheduler(command), release_option)
    return decorated


def comparing_scheduler_options(command: CommandT) -> CommandT:
    """The same for a command that also gets all versions that are given, as `releases`."""
    inner = _with_scheduler(command)

    @wraps(command)
    def with_releases(*args: Any, release: tuple[Release, ...], **kwargs: Any) -> Any:
        return inner(*args, releases=release, release=release[0] if len(release) == 1 else None, **kwargs)

    decorated: CommandT = _decorated(with_releases, releases_option)
    return decorated


def _with_scheduler(command: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(command)
    def wrapper(
        *args: Any,
        config_file: str | None,
        own_file: str | None,
        tie_break: str | None,
        release: Release | None,
        plugin_specs: tuple[str, ...],
        **kwargs: Any,
    ) -> Any:
        tie = None if tie_break is None else TieBreak(tie_break)
        options = SchedulerOptions(config_file, own_file, tie, plugin_specs, release)
        return command(*args, scheduler=options, **kwargs)

    return wrapper


def _decorated(command: Callable[..., Any], version: Callable[[Any], Any]) -> Any:
    for option in reversed((*_OPTIONS, version, plugin_option)):
        command = option(command)
    return command
