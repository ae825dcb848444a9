"""Completes a configuration file with defaults.

It sets missing fields, and merges the plugin sets of a profile with the defaults (which are all in
`multiPoint`). Zero means "not set" for some fields and not for others, as in kube-scheduler. `build.py`
determines which plugins run at which point.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final, TypeVar

import msgspec

from bayplan.api.releases import Release
from bayplan.api.yaml_reader import Value
from bayplan.config.catalog import PluginCatalog
from bayplan.config.model import (
    ALL,
    ClientConnection,
    ConfigRecord,
    Extender,
    KubeSchedulerConfiguration,
    LeaderElection,
    PluginConfig,
    PluginRef,
    Plugins,
    PluginSet,
    Profile,
)
from bayplan.framework.args import Duration, Gates, Int32, Int64, PluginArgs

DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"


class FilePluginConfig(ConfigRecord, frozen=True):
    """An entry of `pluginConfig`; the arguments are decoded once the plugin's name is known."""

    name: str = ""
    args: Value | None = None


class FileProfile(ConfigRecord, frozen=True):
    scheduler_name: str | None = None
    percentage_of_nodes_to_score: Int32 | None = None
    plugins: Plugins = Plugins()
    plugin_config: tuple[FilePluginConfig, ...] = ()


class FileConfiguration(ConfigRecord, frozen=True):
    """The fields of a configuration file, as written."""

    api_version: str = ""
    kind: str = ""
    parallelism: Int32 = 16
    leader_election: LeaderElection = LeaderElection()
    client_connection: ClientConnection = ClientConnection()
    enable_profiling: bool = True
    enable_contention_profiling: bool | None = None
    percentage_of_nodes_to_score: Int32 = 0
    pod_initial_backoff_seconds: Int64 = 1
    pod_max_backoff_seconds: Int64 = 10
    profiles: tuple[FileProfile, ...] = ()
    extenders: tuple[Extender, ...] = ()
    delay_cache_until_active: bool = False


def complete(
    file: FileConfiguration,
    arguments: tuple[tuple[PluginConfig, ...], ...],
    catalog: PluginCatalog,
    release: Release,
) -> KubeSchedulerConfiguration:
    """The configuration of `file`; `arguments` are its plugin arguments, decoded, by profile."""
    profiles = file.profiles or (FileProfile(),)
    arguments = arguments or ((),)
    contention = file.enable_contention_profiling
    return KubeSchedulerConfiguration(
        parallelism=file.parallelism,
        leader_election=_with_defaults(file.leader_election, _LEADER_ELECTION),
        client_connection=_with_defaults(file.client_connection, _CLIENT_CONNECTION),
        enable_profiling=file.enable_profiling,
        enable_contention_profiling=file.enable_profiling if contention is None else contention,
        percentage_of_nodes_to_score=file.percentage_of_nodes_to_score,
        pod_initial_backoff_seconds=file.pod_initial_backoff_seconds,
        pod_max_backoff_seconds=file.pod_max_backoff_seconds,
        profiles=tuple(
            _complete_profile(profile, given, len(profiles) == 1, catalog, release)
            for profile, given in zip(profiles, arguments, strict=True)
        ),
        extenders=file.extenders,
        delay_cache_until_active=file.delay_cache_until_active,
        release=release,
    )


def default_plugins(release: Release) -> PluginSet:
    """The plugins that are enabled by default, as a `multiPoint` set."""
    gated = ((name, weight) for name, weight, gate in release.gated_plugins if gate in release.gates)
    names = (*release.default_plugins, *gated)
    return PluginSet(enabled=tuple(PluginRef(name=name, weight=weight) for name, weight in names))


def merge_plugin_set(defaults: PluginSet, custom: PluginSet) -> PluginSet:
    """The defaults with the user's changes.

    A default that the user enables too keeps its place and takes the user's weight; the user's other plugins
    follow in order. A name that is enabled twice stays twice, and is rejected when the profile is built.
    """
    disabled = custom.disabled_names
    mentioned = {plugin.name: i for i, plugin in enumerate(custom.enabled)}
    merged: list[PluginRef] = []
    replacing: set[int] = set()
    for plugin in () if ALL in disabled else defaults.enabled:
        if plugin.name in disabled:
            continue
        if plugin.name in mentioned:
            i = mentioned[plugin.name]
            replacing.add(i)
            merged.append(custom.enabled[i])
        else:
            merged.append(plugin)
    merged += [plugin for i, plugin in enumerate(custom.enabled) if i not in replacing]
    # What is disabled has no weight.
    return PluginSet(
        enabled=tuple(merged), disabled=tuple(PluginRef(name=plugin.name) for plugin in custom.disabled)
    )


def _complete_profile(
    profile: FileProfile,
    given: tuple[PluginConfig, ...],
    is_only: bool,
    catalog: PluginCatalog,
    release: Release,
) -> Profile:
    sets = {name: getattr(profile.plugins, name) for name in Plugins.__struct_fields__}
    defaults = {"multi_point": default_plugins(release)}
    plugins = Plugins(**{n: merge_plugin_set(defaults.get(n, PluginSet()), s) for n, s in sets.items()})
    name = profile.scheduler_name
    return Profile(
        scheduler_name=DEFAULT_SCHEDULER_NAME if name is None and is_only else name or "",
        percentage_of_nodes_to_score=profile.percentage_of_nodes_to_score,
        plugins=plugins,
        plugin_config=(*given, *_default_arguments(plugins, given, catalog, release.gates)),
    )


def _default_arguments(
    plugins: Plugins, given: tuple[PluginConfig, ...], catalog: PluginCatalog, gates: Gates
) -> Iterator[PluginConfig]:
    """Arguments for the enabled plugins that have some and were given none, by name."""
    for name in sorted(set(plugins.enabled_names()) - {config.name for config in given}):
        args = default_arguments(name, catalog, gates)
        if args is not None:
            yield PluginConfig(name, args)


def default_arguments(name: str, catalog: PluginCatalog, gates: Gates) -> msgspec.Struct | None:
    """The arguments of a plugin that was given none; None if it has none, or cannot do without."""
    args_type = catalog.args_type(name)
    if args_type is None or _has_required_fields(args_type):
        return None
    args = args_type()
    return args.completed(gates) if isinstance(args, PluginArgs) else args


@cache
def _has_required_fields(args_type: type[msgspec.Struct]) -> bool:
    return any(field.required for field in msgspec.structs.fields(args_type))


R = TypeVar("R", bound=ConfigRecord)

_LEADER_ELECTION: Final[dict[str, object]] = {
    "lease_duration": Duration.of(seconds=15),
    "renew_deadline": Duration.of(seconds=10),
    "retry_period": Duration.of(seconds=2),
    "resource_lock": "leases",
    "resource_name": "kube-scheduler",
    "resource_namespace": "kube-system",
}
_CLIENT_CONNECTION: Final[dict[str, object]] = {
    "content_type": "application/vnd.kubernetes.protobuf",
    "qps": 50.0,
    "burst": 100,
}


def _with_defaults(record: R, defaults: dict[str, object]) -> R:
    """The record with its empty and zero fields filled in."""
    return msgspec.structs.replace(record, **{k: v for k, v in defaults.items() if not getattr(record, k)})
