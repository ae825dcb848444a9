"""The scheduler configuration and the plugins with which a loaded cluster is evaluated.

A kube-scheduler configuration may name plugins and extenders that exist only in another scheduler. A plugin
that is not there is left out, an extender is not called, and a warning says so by name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from bayplan.answers.sources.warnings import Reason, Warning
from bayplan.api.releases import DEFAULT_RELEASE, RELEASES, Release
from bayplan.config import (
    KubeSchedulerConfiguration,
    OwnFlags,
    Profile,
    TableCatalog,
    build_profiles,
    default_config,
    parse_config,
)
from bayplan.config.load import read_config_text
from bayplan.config.model import ALL, PluginSet
from bayplan.errors import ConfigError
from bayplan.framework.plugin_api import Plugin
from bayplan.scheduler.plugin_sources import catalog_with, installed_plugins, load_plugin, only_where_named

_ABSENT: Final = "plugin {name} of the configuration is not available: evaluated without it"
_EXTENDER: Final = "extender {url} is not called: its filters and scores are missing from the result"


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """A configuration, plugins besides the built-in ones, and what of the configuration is not used."""

    config: KubeSchedulerConfiguration | None = None
    """None: the default configuration, or that of a scenario."""
    own_flags: OwnFlags = field(default_factory=OwnFlags)
    """Single settings of bayplan's own, which change the configuration of a scenario, too."""
    plugins: tuple[type[Plugin], ...] = ()
    warnings: tuple[Warning, ...] = ()
    release: Release | None = None
    """`--emulated-version`; None: that of the cluster."""
    reload: Callable[[Release], SchedulerSettings] | None = None
    """Reads the configuration file as another release."""

    def for_release(self, release: Release) -> SchedulerSettings:
        """These settings as a release reads them: it decides what the configuration leaves out."""
        if self.reload is None or self.config is None or self.config.release == release:
            return self
        return self.reload(release)

    def config_for(
        self, scenario: KubeSchedulerConfiguration | None, release: Release
    ) -> KubeSchedulerConfiguration | None:
        """The configuration to use, where a scenario may bring one; None: the default one."""
        if self.config is not None:
            return self.config
        if self.own_flags == OwnFlags():
            return scenario
        return self.own_flags.apply(scenario or default_config(release=release))


def load_settings(
    config_file: str | None = None,
    plugin_specs: Sequence[str] = (),
    own_flags: OwnFlags | None = None,
    release: Release | None = None,
) -> SchedulerSettings:
    """Reads `--config FILE` and `--plugin SOURCE:CLASS`; `release` is `--emulated-version`.

    Raises:
        InputError: the file is missing or malformed, or a plugin cannot be loaded.
        ConfigError: the configuration is invalid.
    """
    plugins = tuple(dict.fromkeys(load_plugin(spec) for spec in plugin_specs))
    own = own_flags or OwnFlags()
    if config_file is None:
        return SchedulerSettings(plugins=plugins, own_flags=own, release=release)
    text = read_config_text(config_file)

    def read(as_release: Release) -> SchedulerSettings:
        settings = _read_settings(text, config_file, plugins, own, as_release)
        return dataclasses.replace(settings, release=release, reload=read)

    if release is not None:
        return read(release)
    # The release of the cluster is not known yet, and `for_release` reads the file again as that release: a
    # configuration that is valid only as another release than the default one is no error here.
    problem: ConfigError | None = None
    for assumed in (DEFAULT_RELEASE, *RELEASES.values()):
        try:
            return read(assumed)
        except ConfigError as error:
            problem = problem or error
    assert problem is not None
    raise problem


def _read_settings(
    text: str, source: str, plugins: tuple[type[Plugin], ...], own: OwnFlags, release: Release
) -> SchedulerSettings:
    installed = installed_plugins()
    catalog = catalog_with((*plugins, *installed.values()), release)
    config, absent = without_absent_plugins(own.apply(parse_config(text, source, catalog, release)), catalog)
    try:
        build_profiles(config, catalog)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    given = {plugin.name for plugin in plugins}
    config, used = only_where_named(
        config, {name: plugin for name, plugin in installed.items() if name not in given}
    )
    warnings = (
        *(Warning(_ABSENT.format(name=name), reason=Reason.ABSENT_PLUGIN, object=name) for name in absent),
        *extender_warnings(config),
    )
    return SchedulerSettings(config, own, (*plugins, *used), warnings)


def extender_warnings(config: KubeSchedulerConfiguration | None) -> list[Warning]:
    """A warning for each extender of the configuration: none is called."""
    extenders = () if config is None else config.extenders
    return [
        Warning(_EXTENDER.format(url=one.url_prefix), reason=Reason.NOT_RUN, object=one.url_prefix)
        for one in extenders
    ]


def without_absent_plugins(
    config: KubeSchedulerConfiguration, catalog: TableCatalog
) -> tuple[KubeSchedulerConfiguration, list[str]]:
    """The configuration without plugins that the catalog does not have, and the names of these."""
    absent = {
        name: None
        for profile in config.profiles
        for name in profile.plugins.enabled_names()
        if name not in catalog.names
    }
    if not absent:
        return config, []
    profiles = tuple(_without(profile, absent) for profile in config.profiles)
    return replace(config, profiles=profiles), list(absent)


def _without(profile: Profile, absent: Iterable[str]) -> Profile:
    gone = frozenset(absent)
    sets: dict[str, PluginSet] = {}
    for point in profile.plugins.__struct_fields__:
        plugins: PluginSet = getattr(profile.plugins, point)
        sets[point] = replace(
            plugins,
            enabled=tuple(one for one in plugins.enabled if one.name not in gone),
            disabled=tuple(one for one in plugins.disabled if one.name == ALL or one.name not in gone),
        )
    return replace(
        profile,
        plugins=replace(profile.plugins, **sets),
        plugin_config=tuple(entry for entry in profile.plugin_config if entry.name not in gone),
    )
