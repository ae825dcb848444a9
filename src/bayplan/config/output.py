"""A complete configuration as a file, as kube-scheduler's `--write-config-to` writes it.

It contains all defaults and the merged plugin sets, but no arguments of plugins that no profile uses. Reading
the output gives the same configuration.
"""

from __future__ import annotations

import base64

import msgspec
import yaml

from bayplan.api.meta import OWN_API_VERSION
from bayplan.api.releases import Release
from bayplan.config.build import build_profiles, needed_plugins
from bayplan.config.catalog import PluginCatalog, default_catalog
from bayplan.config.model import (
    API_VERSION,
    BAYPLAN_KIND,
    KIND,
    BayplanConfiguration,
    ClientConnection,
    DescheduleConfiguration,
    Extender,
    KubeSchedulerConfiguration,
    LeaderElection,
    PluginConfig,
    PluginRef,
    Plugins,
    PluginSet,
    Profile,
)
from bayplan.config.validation import apply_extenders
from bayplan.framework.args import Duration, PluginArgs
from bayplan.framework.builtin_args import BUILTIN_ARGS
from bayplan.framework.points import Point

Wire = dict[str, object]


def completed(
    config: KubeSchedulerConfiguration, catalog: PluginCatalog | None = None, *, check: bool = True
) -> Wire:
    """The configuration with all defaults, as plain data.

    Pass `check=False` if it has been checked already.

    Raises:
        ConfigError: it is invalid; only valid configurations are written.
    """
    catalog = default_catalog(config.release) if catalog is None else catalog
    if check:
        build_profiles(config, catalog)
    config = apply_extenders(config)
    wire: Wire = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "clientConnection": _client_connection(config.client_connection),
        "leaderElection": _leader_election(config.leader_election),
        "parallelism": config.parallelism,
        "percentageOfNodesToScore": config.percentage_of_nodes_to_score,
        "podInitialBackoffSeconds": config.pod_initial_backoff_seconds,
        "podMaxBackoffSeconds": config.pod_max_backoff_seconds,
        "enableProfiling": config.enable_profiling,
        "enableContentionProfiling": config.enable_contention_profiling,
        "profiles": [_profile(profile, catalog, config.release) for profile in config.profiles],
    }
    if config.extenders:
        wire["extenders"] = [_extender(extender) for extender in config.extenders]
    if config.delay_cache_until_active:
        wire["delayCacheUntilActive"] = True
    return wire


def to_yaml(*wires: Wire | None) -> str:
    """Plain data as YAML, keys sorted; several are several documents, and None is left out."""
    documents = [wire for wire in wires if wire is not None]
    return yaml.safe_dump_all(
        documents, sort_keys=True, default_flow_style=False, allow_unicode=True, width=1000
    )


def own_wire(settings: BayplanConfiguration) -> dict[str, object] | None:
    """The settings as plain data; None if all have their defaults."""
    if settings == BayplanConfiguration():
        return None
    values: dict[str, object] = msgspec.to_builtins(settings)
    values["slowCycleThreshold"] = str(settings.slow_cycle_threshold)
    if settings.queues is None:
        del values["queues"]
    if settings.deschedule == DescheduleConfiguration():
        del values["deschedule"]
    else:
        found = settings.deschedule
        durations = {"interval": str(found.interval), "replacementTimeout": str(found.replacement_timeout)}
        values["deschedule"] = {**msgspec.to_builtins(found), **durations}
    if settings.pod_groups == BayplanConfiguration().pod_groups:
        del values["podGroups"]
    return {"apiVersion": OWN_API_VERSION, "kind": BAYPLAN_KIND} | values


def _client_connection(connection: ClientConnection) -> Wire:
    wire: Wire = msgspec.to_builtins(connection)
    if connection.qps.is_integer():
        wire["qps"] = int(connection.qps)
    return wire


def _leader_election(election: LeaderElection) -> Wire:
    wire: Wire = msgspec.to_builtins(election)
    return wire | {
        "leaseDuration": str(election.lease_duration),
        "renewDeadline": str(election.renew_deadline),
        "retryPeriod": str(election.retry_period),
    }


def _extender(extender: Extender) -> Wire:
    plain: Wire = msgspec.to_builtins(
        msgspec.structs.replace(extender, tls_config=None, http_timeout=Duration())
    )
    wire = {key: value for key, value in plain.items() if value}
    if "managedResources" in wire:
        wire["managedResources"] = [
            {"name": resource.name} | ({"ignoredByScheduler": True} if resource.ignored_by_scheduler else {})
            for resource in extender.managed_resources
        ]
    if extender.tls_config is not None:
        settings = msgspec.to_builtins(extender.tls_config, builtin_types=(bytes,))
        wire["tlsConfig"] = {key: _text(value) for key, value in settings.items() if value}
    return wire | {"urlPrefix": extender.url_prefix, "httpTimeout": str(extender.http_timeout)}


def _text(value: str | bool | bytes) -> str | bool:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _profile(profile: Profile, catalog: PluginCatalog, release: Release) -> Wire:
    wire: Wire = {"schedulerName": profile.scheduler_name, "plugins": _plugins(profile.plugins, release)}
    if profile.percentage_of_nodes_to_score is not None:
        wire["percentageOfNodesToScore"] = profile.percentage_of_nodes_to_score
    used = needed_plugins(profile).intersection(catalog.names)
    entries = [entry for entry in profile.plugin_config if entry.name in used and entry.args is not None]
    if entries:
        wire["pluginConfig"] = [
            {"name": entry.name, "args": _args(entry)} for entry in sorted(entries, key=lambda e: e.name)
        ]
    return wire


def _plugins(plugins: Plugins, release: Release) -> Wire:
    names = zip(plugins.__struct_encode_fields__, plugins.__struct_fields__, strict=True)
    wire: Wire = {key: _plugin_set(getattr(plugins, name)) for key, name in names}
    if not release.has_pod_group_post_filter:
        del wire[Point.POD_GROUP_POST_FILTER.config_key]
    return wire


def _plugin_set(plugin_set: PluginSet) -> Wire:
    wire: Wire = {}
    if plugin_set.enabled:
        wire["enabled"] = [_reference(plugin) for plugin in plugin_set.enabled]
    if plugin_set.disabled:
        wire["disabled"] = [_reference(plugin) for plugin in plugin_set.disabled]
    return wire


def _reference(plugin: PluginRef) -> Wire:
    return {"name": plugin.name, "weight": plugin.weight}


def _args(entry: PluginConfig) -> object:
    args = entry.args
    if not isinstance(args, PluginArgs):
        return msgspec.to_builtins(args)
    wire = args.to_wire()
    if type(args) is BUILTIN_ARGS.get(entry.name):
        wire |= {"apiVersion": API_VERSION, "kind": type(args).__name__}
    return wire
