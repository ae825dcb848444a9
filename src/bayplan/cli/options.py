"""Options that several commands share, so that they have the same meaning everywhere.

`scheduler_options` adds the scheduler's configuration and plugins to a command, which gets them as one
`SchedulerOptions`; `source_options` also adds where the cluster comes from, and the command gets one
`SourceOptions`. `bayplan run` has kube-scheduler's flags instead (`process/flags.py`).

Everything that needs NumPy is imported late: `bayplan config` and `--help` work without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from bayplan.api.releases import DEFAULT_RELEASE, RELEASES, Release, parse_release
from bayplan.config import (
    KubeSchedulerConfiguration,
    OwnFlags,
    PluginCatalog,
    default_catalog,
    load_own_settings,
)
from bayplan.errors import ConfigError
from bayplan.framework.points import PLUGIN_ENTRY_POINTS, TieBreak

if TYPE_CHECKING:
    from bayplan.answers.sources.loading import SchedulerSettings, SourceOptions
    from bayplan.framework.plugin_api import Plugin

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_BOTH: Final = "a cluster comes from -f or from --kubeconfig and --context, not from both"


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


def _release_option(help_text: str, *, multiple: bool = False) -> Callable[[Any], Any]:
    return click.option(
        "--emulated-version",
        "release",
        type=ReleaseType(),
        multiple=multiple,
        metavar="|".join(RELEASES),
        help=help_text,
    )


release_option = _release_option("The Kubernetes version to behave as.")
_releases_option = _release_option(
    "The Kubernetes version to behave as. Two versions: show what changes from one to the other.",
    multiple=True,
)
plugin_option = click.option(
    "--plugin",
    "plugin_specs",
    multiple=True,
    metavar="SOURCE:CLASS",
    help="A plugin of your own, module:Class or path/to/file.py:Class, or the name of a library plugin. It "
    "runs at every extension point that it implements, after the built-in plugins, unless the configuration "
    "names it. Can be repeated.",
)
_SCHEDULER: Final = (
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


def _kubeconfig_option(default: str) -> Callable[[Any], Any]:
    help_text = f"Read the live cluster of this kubeconfig; nothing is written.{default}"
    return click.option("--kubeconfig", default="", metavar="FILE", help=help_text)


_FILES: Final = click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    metavar="FILE",
    help="The cluster: a YAML or JSON file of API objects (kubectl get … -o yaml), a snapshot, a "
    "directory, or - for standard input. Can be repeated; all of them are one cluster.",
)
_CONTEXT: Final = click.option(
    "--context", default="", metavar="NAME", help="The context of the kubeconfig to use."
)
_SOURCE: Final = (
    _FILES,
    _kubeconfig_option(" [default without -f: $KUBECONFIG or ~/.kube/config]"),
    _CONTEXT,
)
_OPTIONAL_SOURCE: Final = (_FILES, _kubeconfig_option(""), _CONTEXT)


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
        from bayplan.answers.sources.loading import load_settings

        if fresh:
            self.plugins(fresh=True)
        release = self.release or DEFAULT_RELEASE
        specs, flags = self.plugin_specs, self.own_flags
        settings = load_settings(self.config_file, specs, flags, release, allow_absent=False)
        return settings.config_for(None, release), settings.plugins

    def settings(self) -> SchedulerSettings:
        """Configuration and plugins for evaluating a cluster, where absent plugins are only a warning."""
        from bayplan.answers.sources.loading import load_settings

        return load_settings(self.config_file, self.plugin_specs, self.own_flags, self.release)


# Names as kubectl accepts them

KIND_NAMES: Final = {
    "pod": ("pods", "po"),
    "node": ("nodes", "no"),
    "deployment": ("deployments", "deploy", "deployment.apps", "deployments.apps"),
    "replicaset": ("replicasets", "rs", "replicaset.apps", "replicasets.apps"),
    "statefulset": ("statefulsets", "sts", "statefulset.apps", "statefulsets.apps"),
    "daemonset": ("daemonsets", "ds", "daemonset.apps", "daemonsets.apps"),
    "job": ("jobs", "job.batch", "jobs.batch"),
}
"""By the name of a command: other names of the kind."""


def kind_of(word: str) -> str:
    """The kind that a word of kubectl's names; "" if it names none."""
    lowered = word.lower()
    return next((kind for kind, names in KIND_NAMES.items() if lowered in (kind, *names)), "")


def without_kind(value: str, kind: str) -> str:
    """`node/n01` → `n01`; other values as they are."""
    prefix, slash, name = value.partition("/")
    return name if slash and kind_of(prefix) == kind else value


# Decorators


def scheduler_options(command: CommandT) -> CommandT:
    """Adds the options to a command, which gets them as `scheduler`."""
    return _with_options(command, (*_SCHEDULER, release_option, plugin_option), scheduler=_scheduler)


def source_options(command: CommandT) -> CommandT:
    """Adds the options to a command, which gets them as one `SourceOptions` named `source`."""
    return _with_options(command, (*_SOURCE, *_SCHEDULER, release_option, plugin_option), source=_source)


def optional_source_options(command: CommandT) -> CommandT:
    """The same for a command that needs no cluster: a kubeconfig is read only if it is named."""
    options = (*_OPTIONAL_SOURCE, *_SCHEDULER, release_option, plugin_option)
    return _with_options(command, options, source=_source)


def comparing_source_options(command: CommandT) -> CommandT:
    """The same for a command that also gets all versions that are given, as `releases`."""
    options = (*_SOURCE, *_SCHEDULER, _releases_option, plugin_option)
    return _with_options(command, options, releases=_releases, source=_source)


def _with_options(
    command: CommandT,
    options: Sequence[Callable[[Any], Any]],
    **arguments: Callable[[dict[str, Any]], object],
) -> CommandT:
    """Adds options to a command. It gets the arguments that are made from their values, not the values."""

    @wraps(command)
    def wrapper(*args: Any, **values: Any) -> Any:
        made = {name: make(values) for name, make in arguments.items()}
        return command(*args, **made, **values)

    decorated: Any = wrapper
    for option in reversed(options):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def _scheduler(values: dict[str, Any]) -> SchedulerOptions:
    tie_break = values.pop("tie_break")
    return SchedulerOptions(
        values.pop("config_file"),
        values.pop("own_file"),
        None if tie_break is None else TieBreak(tie_break),
        values.pop("plugin_specs"),
        values.pop("release"),
    )


def _releases(values: dict[str, Any]) -> tuple[Release, ...]:
    releases: tuple[Release, ...] = values["release"]
    values["release"] = releases[0] if len(releases) == 1 else None
    return releases


def _source(values: dict[str, Any]) -> SourceOptions:
    from bayplan.answers.sources.loading import SourceOptions

    scheduler = _scheduler(values)
    files, kubeconfig, context = values.pop("files"), values.pop("kubeconfig"), values.pop("context")
    if files and (kubeconfig or context):
        raise click.UsageError(_BOTH)
    return SourceOptions(
        files,
        kubeconfig,
        context,
        scheduler.config_file,
        tuple(scheduler.plugin_specs),
        scheduler.own_flags,
        scheduler.release,
    )
