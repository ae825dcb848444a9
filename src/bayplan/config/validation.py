"""Validates the values of a configuration with kube-scheduler's rules, in its order and with its messages.

Whether plugins exist and implement the extension points at which they are listed is checked when the profiles
are built (`build.py`), and reported only if all values are valid. `apply_extenders` sets what depends on the
extenders of a configuration (their timeout, and the resources that NodeResourcesFit leaves to them) and
checks their TLS settings; the protocol itself is in `bayplan.extender`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from bayplan.api.quantity import is_extended_resource
from bayplan.api.selectors import qualified_name_problems
from bayplan.config.model import (
    API_VERSION,
    ClientConnection,
    Extender,
    ExtenderTLSConfig,
    KubeSchedulerConfiguration,
    LeaderElection,
    PluginConfig,
    PluginSet,
    Profile,
)
from bayplan.errors import ConfigError
from bayplan.framework.args import (
    Duration,
    FieldError,
    Gates,
    PluginArgs,
    aggregate,
    at,
    duplicate,
    invalid,
    required,
)
from bayplan.framework.builtin_args import NodeResourcesFitArgs
from bayplan.framework.points import Point

REMOVED_PLUGINS: Final = frozenset({"AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"})
"""Plugins of earlier versions, replaced by NodeVolumeLimits."""

_UNCHECKED_POINTS: Final = (Point.PLACEMENT_GENERATE, Point.PLACEMENT_SCORE)
_NOT_A_PERCENTAGE: Final = "not in valid range [0-100]"
_MISSPELLED_PLUGIN: Final = "NodeResourcesFitArgs"
"""Upstream's list of arguments to check has this name for NodeResourcesFit, so it never matches."""


def validate(config: KubeSchedulerConfiguration) -> None:
    """Raises ConfigError with all problems unless the configuration is valid."""
    text = aggregate(problems(config))
    if text:
        raise ConfigError(text)


def problems(config: KubeSchedulerConfiguration) -> Iterator[FieldError]:
    """All problems in the values of a configuration."""
    yield from _client_connection_problems(config.client_connection, "clientConnection")
    yield from _leader_election_problems(config.leader_election, "leaderElection")
    if config.parallelism <= 0:
        yield invalid("parallelism", config.parallelism, "should be an integer value greater than zero")
    names: set[str] = set()
    for i, profile in enumerate(config.profiles):
        path = at("profiles", i)
        yield from _profile_problems(profile, path, config.gates)
        if profile.scheduler_name in names:
            # Upstream means to show where the name stood first, but that value prints as an empty object.
            yield duplicate(at(path, "schedulerName"), {})
        names.add(profile.scheduler_name)
    yield from _queue_sort_problems(config.profiles)
    if not 0 <= config.percentage_of_nodes_to_score <= 100:
        yield invalid("percentageOfNodesToScore", config.percentage_of_nodes_to_score, _NOT_A_PERCENTAGE)
    initial, max_seconds = config.pod_initial_backoff_seconds, config.pod_max_backoff_seconds
    if initial <= 0:
        yield invalid("podInitialBackoffSeconds", initial, "must be greater than 0")
    if max_seconds < initial:
        detail = "must be greater than or equal to PodInitialBackoffSeconds"
        yield invalid("podMaxBackoffSeconds", max_seconds, detail)
    yield from _extender_problems(config.extenders)


def _client_connection_problems(connection: ClientConnection, path: str) -> Iterator[FieldError]:
    if connection.burst < 0:
        yield invalid(at(path, "burst"), connection.burst, "must be non-negative")


def _leader_election_problems(election: LeaderElection, path: str) -> Iterator[FieldError]:
    if not election.leader_elect:
        return
    for key, duration in (
        ("leaseDuration", election.lease_duration),
        ("renewDeadline", election.renew_deadline),
        ("retryPeriod", election.retry_period),
    ):
        if duration.nanoseconds <= 0:
            yield invalid(at(path, key), duration, "must be greater than zero")
    if election.lease_duration <= election.renew_deadline:
        # Upstream prints the value of the other field.
        where = at(path, "leaseDuration")
        yield invalid(where, election.renew_deadline, "must be greater than `RenewDeadline`")
    for key, text in (
        ("resourceLock", election.resource_lock),
        ("resourceNamespace", election.resource_namespace),
        ("resourceName", election.resource_name),
    ):
        if not text:
            yield required(at(path, key))
    if election.resource_lock != "leases":
        detail = 'resourceLock value must be "leases"'
        yield invalid(at(path, "resourceLock"), election.resource_lock, detail)


def _profile_problems(profile: Profile, path: str, gates: Gates) -> Iterator[FieldError]:
    if not profile.scheduler_name:
        yield required(at(path, "schedulerName"))
    percentage = profile.percentage_of_nodes_to_score
    if percentage is not None and not 0 <= percentage <= 100:
        yield invalid(at(path, "percentageOfNodesToScore"), percentage, _NOT_A_PERCENTAGE)
    for point in Point:
        if point in _UNCHECKED_POINTS:
            continue
        for i, plugin in enumerate(profile.plugins.at(point).enabled):
            if plugin.name in REMOVED_PLUGINS:
                yield _removed(at(path, "plugins", point.config_key, "enabled", i), plugin.name)
    seen: set[str] = set()
    for i, entry in enumerate(profile.plugin_config):
        where = at(path, "pluginConfig", i)
        if entry.name in seen:
            yield duplicate(where, entry.name)
        seen.add(entry.name)
        if entry.name in REMOVED_PLUGINS:
            yield _removed(where, entry.name)
        elif entry.name == _MISSPELLED_PLUGIN:
            yield invalid(at(where, "args"), entry.args, "has to match plugin args")
        elif isinstance(entry.args, PluginArgs):
            yield from entry.args.validate(at(where, "args"), gates)


def _removed(path: str, name: str) -> FieldError:
    return invalid(
        path, name, f'was invalid in version "v1" (KubeSchedulerConfiguration is version "{API_VERSION}")'
    )


def _queue_sort_problems(profiles: Sequence[Profile]) -> Iterator[FieldError]:
    """All profiles share one queue, so their QueueSort must be the same."""
    if not profiles:
        return
    first = profiles[0].plugins.queue_sort
    name = first.enabled[0].name if first.enabled else ""
    if len(first.enabled) > 1:
        where = at("profiles", 0, "plugins", "queueSort", "Enabled")
        yield invalid(where, len(first.enabled), "only one queue sort plugin can be enabled")
    first_args = _last_args(profiles[0], name) if name else None
    for i, profile in enumerate(profiles[1:], start=1):
        plugin_set = profile.plugins.queue_sort
        if plugin_set != first:
            where = at("profiles", i, "plugins", "queueSort")
            yield invalid(where, _capitalised(plugin_set), "must be the same for all profiles")
        for entry in profile.plugin_config:
            if entry.name == name and entry.args != first_args:
                where = at("profiles", i, "pluginConfig", "args")
                yield invalid(where, entry.args, "queueSort must be the same for all profiles")


def _last_args(profile: Profile, name: str) -> object:
    return next((entry.args for entry in reversed(profile.plugin_config) if entry.name == name), None)


def _capitalised(plugin_set: PluginSet) -> dict[str, object]:
    """The set as upstream prints it: a list without elements is null."""
    return {"Enabled": plugin_set.enabled or None, "Disabled": plugin_set.disabled or None}


def _extender_problems(extenders: Sequence[Extender]) -> Iterator[FieldError]:
    managed: set[str] = set()
    for i, extender in enumerate(extenders):
        path = at("extenders", i)
        if extender.prioritize_verb and extender.weight <= 0:
            yield invalid(at(path, "weight"), extender.weight, "must have a positive weight applied to it")
        for j, resource in enumerate(extender.managed_resources):
            where = at(path, "managedResources", j, "name")
            yield from _resource_name_problems(resource.name, where)
            if resource.name in managed:
                yield invalid(where, resource.name, "duplicate extender managed resource name")
            managed.add(resource.name)
    binders = sum(bool(extender.bind_verb) for extender in extenders)
    if binders > 1:
        found = f"found {binders} extenders implementing bind"
        yield invalid("extenders", found, "only one extender can implement bind")


def _resource_name_problems(name: str, path: str) -> Iterator[FieldError]:
    texts = qualified_name_problems(name)
    if not texts and not is_extended_resource(name):
        texts = ["is an invalid extended resource name"]
    for text in texts:
        yield invalid(path, name, text)


DEFAULT_TIMEOUT: Final = Duration.of(seconds=5)

_PEM: Final = b"-----BEGIN "


def apply_extenders(config: KubeSchedulerConfiguration) -> KubeSchedulerConfiguration:
    """The configuration with the effects of its extenders; it is idempotent.

    Raises:
        ConfigError: an extender's TLS settings cannot work.
    """
    for extender in config.extenders:
        try:
            _check_tls(extender)
        except ConfigError as error:
            raise ConfigError(f"couldn't build extenders: {error}") from None
    ignored = tuple(
        resource.name
        for extender in config.extenders
        for resource in extender.managed_resources
        if resource.ignored_by_scheduler
    )
    profiles = config.profiles
    if ignored:
        profiles = tuple(_ignoring(profile, ignored) for profile in profiles)
    return msgspec.structs.replace(
        config, extenders=tuple(map(_with_timeout, config.extenders)), profiles=profiles
    )


def _with_timeout(extender: Extender) -> Extender:
    return (
        extender if extender.http_timeout else msgspec.structs.replace(extender, http_timeout=DEFAULT_TIMEOUT)
    )


def _ignoring(profile: Profile, resources: tuple[str, ...]) -> Profile:
    """The profile with NodeResourcesFit ignoring these resources, instead of those in its arguments."""
    changed: list[PluginConfig] = []
    found = False
    for entry in profile.plugin_config:
        if not found and isinstance(entry.args, NodeResourcesFitArgs):
            found = True
            changed.append(
                PluginConfig(entry.name, msgspec.structs.replace(entry.args, ignored_resources=resources))
            )
        else:
            changed.append(entry)
    if not found:
        raise ConfigError("couldn't build extenders: can't find NodeResourcesFitArgs in plugin config")
    return msgspec.structs.replace(profile, plugin_config=tuple(changed))


def _check_tls(extender: Extender) -> None:
    tls = extender.tls_config or ExtenderTLSConfig()
    has_ca = bool(tls.ca_file or tls.ca_data)
    # HTTPS without any CA disables verification.
    insecure = tls.insecure or (extender.enable_https and not has_ca)
    has_certificate = bool(tls.cert_file or tls.cert_data) and bool(tls.key_file or tls.key_data)
    if not (has_ca or has_certificate or insecure or tls.server_name):
        return
    if has_ca and insecure:
        raise ConfigError("specifying a root certificates file with the insecure flag is not allowed")
    ca, certificate, key = (
        data or _file_content(path)
        for path, data in (
            (tls.ca_file, tls.ca_data),
            (tls.cert_file, tls.cert_data),
            (tls.key_file, tls.key_data),
        )
    )
    if has_ca and _PEM not in ca:
        raise ConfigError("unable to load root certificates: unable to parse bytes as PEM block")
    # Certificates from files are read again for every connection, and not checked here.
    if has_certificate and (tls.cert_data or tls.key_data):
        if _PEM not in certificate:
            raise ConfigError("tls: failed to find any PEM data in certificate input")
        if _PEM not in key:
            raise ConfigError("tls: failed to find any PEM data in key input")


def _file_content(path: str) -> bytes:
    if not path:
        return b""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"open {path}: {(error.strerror or 'failed').lower()}") from None
