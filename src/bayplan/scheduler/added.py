"""Plugins that are not built in: how the configuration comes to know them, and when they run unasked.

Whoever hands a plugin to the scheduler wants it to run. So a plugin that the configuration does not name is
enabled at every point it implements, after all others. One that it names anywhere, be it to disable it, is
left to the configuration.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from bayplan.config import BUILTIN_CATALOG, KubeSchedulerConfiguration, PluginEntry, Profile, TableCatalog
from bayplan.config.defaults import default_arguments
from bayplan.config.model import PluginConfig, PluginRef
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.profile import points_of


def catalog_of(plugins: Iterable[type[Plugin]]) -> TableCatalog:
    """What a configuration may name: the built-in plugins and these. Hand it to `load_config`."""
    added = {
        plugin.name: PluginEntry(points_of(plugin), plugin.args_type)
        for plugin in plugins
        if plugin.name not in BUILTIN_CATALOG.names
    }
    return BUILTIN_CATALOG.with_plugins(added)


def with_added(config: KubeSchedulerConfiguration, catalog: TableCatalog) -> KubeSchedulerConfiguration:
    """The configuration with all plugins of the catalog that are neither built in nor named in it."""
    added = [name for name in catalog.names if name not in BUILTIN_CATALOG.names]
    if not added:
        return config
    profiles = tuple(_with_added(profile, added, config, catalog) for profile in config.profiles)
    return msgspec.structs.replace(config, profiles=profiles)


def _with_added(
    profile: Profile, added: Iterable[str], config: KubeSchedulerConfiguration, catalog: TableCatalog
) -> Profile:
    plugins, given = profile.plugins, {entry.name for entry in profile.plugin_config}
    named = {
        plugin.name
        for point in plugins.__struct_fields__
        for plugin in (*getattr(plugins, point).enabled, *getattr(plugins, point).disabled)
    }
    unnamed = [name for name in added if name not in named]
    everywhere = msgspec.structs.replace(
        plugins.multi_point,
        enabled=(*plugins.multi_point.enabled, *(PluginRef(name=name) for name in unnamed)),
    )
    arguments = {name: default_arguments(name, catalog, config.gates) for name in added if name not in given}
    return msgspec.structs.replace(
        profile,
        plugins=msgspec.structs.replace(plugins, multi_point=everywhere),
        plugin_config=(
            *profile.plugin_config,
            *(PluginConfig(name, args) for name, args in arguments.items() if args is not None),
        ),
    )
