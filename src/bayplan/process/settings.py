"""Flags and configuration file combined into the settings of the process.

Precedence, as in kube-scheduler:

    with --config       file and defaults  <  --leader-elect*                     then validated
                        (--kubeconfig counts if the file names none, unlike in kube-scheduler)
    without             defaults  <  --kubeconfig, --kube-api-*, --profiling …  <  --leader-elect*

Values set by flag without a file are taken unchanged: they are neither defaulted nor validated again, and
fail where they are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from bayplan.api.releases import DEFAULT_RELEASE, Release, parse_release
from bayplan.client.access import Access
from bayplan.client.kubeconfig import load_access
from bayplan.client.leader_election import ElectionSettings
from bayplan.config import (
    KubeSchedulerConfiguration,
    OwnFlags,
    build_profiles,
    completed,
    default_config,
    load_config,
    load_own_settings,
    own_wire,
    to_yaml,
)
from bayplan.config.features import parse_feature_gates
from bayplan.config.output import Wire
from bayplan.config.validation import validate
from bayplan.errors import ConfigError
from bayplan.files import create_private, replace_content
from bayplan.framework.args import aggregate, invalid
from bayplan.framework.plugin_api import Plugin
from bayplan.net.http_logs import shown_url
from bayplan.process.command_line import FlagValues
from bayplan.process.logs import LogSettings
from bayplan.scheduler.plugin_sources import (
    catalog_with,
    enable_everywhere,
    installed_plugins,
    load_plugin,
    only_where_named,
)

_ONLY_PREVIOUS: Final = "only the previous minor version is allowed"

_LEADER_ELECTION: Final = {
    "leader-elect": "leader_elect",
    "leader-elect-lease-duration": "lease_duration",
    "leader-elect-renew-deadline": "renew_deadline",
    "leader-elect-retry-period": "retry_period",
    "leader-elect-resource-lock": "resource_lock",
    "leader-elect-resource-name": "resource_name",
    "leader-elect-resource-namespace": "resource_namespace",
}
_CONNECTION: Final = {
    "kubeconfig": "kubeconfig",
    "kube-api-qps": "qps",
    "kube-api-burst": "burst",
    "kube-api-content-type": "content_type",
}
_PROFILING: Final = {
    "profiling": "enable_profiling",
    "contention-profiling": "enable_contention_profiling",
}
_ALPHA_LOG_FLAGS: Final = {
    "log-text-split-stream": "options.text.splitStream",
    "log-text-info-buffer-size": "options.text.infoBufferSize",
    "log-json-split-stream": "options.json.splitStream",
    "log-json-info-buffer-size": "options.json.infoBufferSize",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings that a process needs to start."""

    flags: FlagValues
    config: KubeSchedulerConfiguration
    """Including everything that flags changed, for /configz."""
    plugins: tuple[type[Plugin], ...]
    """Besides the built-in ones; the configuration enables all of them."""
    access: Access

    @property
    def serves(self) -> bool:
        """Whether there is a server for probes and metrics."""
        return bool(self.flags["secure-port"])

    @property
    def for_scheduler(self) -> KubeSchedulerConfiguration:
        """The scheduler's part. The rest is not validated again (see above)."""
        plain = default_config(release=self.config.release)
        return replace(
            self.config, leader_election=plain.leader_election, client_connection=plain.client_connection
        )

    def election(self) -> ElectionSettings | None:
        """The leader election settings; None without leader election."""
        election = self.config.leader_election
        if not election.leader_elect:
            return None
        if election.resource_lock != "leases":
            raise ConfigError(f"couldn't create resource lock: Invalid lock-type {election.resource_lock}")
        return ElectionSettings(
            lease_duration=election.lease_duration.seconds,
            renew_deadline=election.renew_deadline.seconds,
            retry_period=election.retry_period.seconds,
            namespace=election.resource_namespace,
            name=election.resource_name,
        )

    def completed(self) -> Wire:
        """The configuration with every default, as `--write-config-to` and /configz show it."""
        catalog = catalog_with(self.plugins, self.config.release)
        build_profiles(enable_everywhere(self.for_scheduler, self.plugins), catalog)
        return completed(enable_everywhere(self.config, self.plugins), catalog, check=False)


def log_settings(flags: FlagValues) -> LogSettings:
    """The log settings of the flags.

    Raises:
        ConfigError: they are invalid.
    """
    settings = LogSettings(flags["logging-format"], flags["v"], flags["vmodule"])
    settings.check()
    problems = [
        f"{field}: Forbidden: Feature LoggingAlphaOptions is disabled"
        for flag, field in _ALPHA_LOG_FLAGS.items()
        if flags[flag] not in (False, "0")
    ]
    if problems:
        raise ConfigError(aggregate(problems))
    return settings


def make_release(flags: FlagValues, release: Release = DEFAULT_RELEASE) -> Release:
    """The release of Kubernetes to decide as, with the feature gates of the flags.

    `release` is the one to use if no flag names one.

    Raises:
        ConfigError: the version is not supported, or a gate cannot be set.
    """
    for text in flags["emulated-version"]:
        try:
            release = parse_release(text)
        except ConfigError as error:
            raise ConfigError(f"--emulated-version: {error}") from None
    for text in flags["min-compatibility-version"]:
        minor = _minor_of(text)
        if minor is not None:
            release = release.with_min_compatibility(minor)
    return release.with_gates(parse_feature_gates(flags["feature-gates"], release))


def make_settings(flags: FlagValues, release: Release = DEFAULT_RELEASE) -> Settings:
    """Combines flags, configuration file and kubeconfig; `release` is for flags that name none.

    Raises:
        BayplanError: one of them is wrong.
    """
    release = make_release(flags, release)
    problems = [
        *_version_problems(flags, release),
        *_port_problems(flags),
        *_metric_problems(flags, release),
    ]
    if problems:
        raise ConfigError(aggregate(problems))
    given = tuple(load_plugin(spec) for spec in flags["plugin"])
    installed = {name: plugin for name, plugin in installed_plugins().items() if plugin not in given}
    catalog = catalog_with((*installed.values(), *given), release)
    if flags["config"]:
        config = _with(
            load_config(flags["config"], catalog, release), flags, leader_election=_LEADER_ELECTION
        )
        if not config.client_connection.kubeconfig:
            # kube-scheduler ignores the flag here, and then finds no cluster.
            config = _with(config, flags, client_connection={"kubeconfig": "kubeconfig"})
        validate(config)
    else:
        config = _with(
            default_config(catalog, release),
            flags,
            client_connection=_CONNECTION,
            leader_election=_LEADER_ELECTION,
        )
        config = replace(config, **_given(flags, _PROFILING))
    config = _own_flags(flags).apply(config)
    config, used = only_where_named(config, installed)
    access = load_access(config.client_connection.kubeconfig, flags["master"])
    return Settings(flags, config, (*used, *given), access)


def _own_flags(flags: FlagValues) -> OwnFlags:
    file = flags["bayplan-config"]
    return OwnFlags(
        load_own_settings(file) if file else None,
        flags["tie-break"] if "tie-break" in flags.given else None,
        flags["slow-cycle-threshold"] if "slow-cycle-threshold" in flags.given else None,
    )


def write_config(settings: Settings, path: str) -> None:
    """Writes the complete configuration atomically to the file that the user named.

    It may contain keys of extenders, so a new file is readable only by its owner.
    """
    content = _as_yaml(settings, settings.completed()).encode()
    target = Path(path)
    if not target.exists():
        create_private(target.resolve(), content)
    elif target.is_file() and not path.startswith("/dev/"):
        replace_content(target.resolve(), content)
    else:  # a pipe, or /dev/stdout
        target.write_bytes(content)


def shown_config(settings: Settings) -> str:
    """The complete configuration for a log: without the keys and passwords of extenders."""
    wire = settings.completed()
    extenders: Any = wire.get("extenders", ())
    for extender in extenders:
        extender["urlPrefix"] = shown_url(extender.get("urlPrefix", ""))
        if "keyData" in extender.get("tlsConfig", {}):
            extender["tlsConfig"] = {**extender["tlsConfig"], "keyData": "(not shown)"}
    return _as_yaml(settings, wire)


def _as_yaml(settings: Settings, wire: Wire) -> str:
    return to_yaml(wire, own_wire(settings.config.bayplan))


def _with(
    config: KubeSchedulerConfiguration, flags: FlagValues, **parts: dict[str, str]
) -> KubeSchedulerConfiguration:
    """The configuration with the given flags applied to these parts."""
    changed = {part: replace(getattr(config, part), **_given(flags, names)) for part, names in parts.items()}
    return replace(config, **changed)


def _given(flags: FlagValues, names: dict[str, str]) -> dict[str, object]:
    return {field: flags[flag] for flag, field in names.items() if flag in flags.given}


def _port_problems(flags: FlagValues) -> Iterator[str]:
    port = flags["secure-port"]
    if port < 0:
        yield f"--secure-port {port} must be between 0 and 65535, inclusive. 0 for turning off secure port"
    elif port > 65535:
        yield f"--secure-port {port} must be between 1 and 65535, inclusive. It cannot be turned off with 0"


def _version_problems(flags: FlagValues, release: Release) -> Iterator[str]:
    for text in flags["min-compatibility-version"]:
        minor = _minor_of(text)
        if minor is None or minor > release.minor:
            yield f"--min-compatibility-version {text}: should be 1.N, up to {release}"


def _minor_of(text: str) -> int | None:
    """36 for `1.36`, `v1.36` and `kube=1.36`; None if it is not a version 1.N."""
    version = text.removeprefix("kube=").removeprefix("kube:").removeprefix("v")
    major, _, minor = version.partition(".")
    return int(minor) if major == "1" and minor.isdecimal() else None


def _metric_problems(flags: FlagValues, release: Release) -> Iterator[str]:
    wanted = flags["show-hidden-metrics-for-version"]
    if wanted not in ("", release.previous_version):
        detail = f"must be omitted or have the value '{release.previous_version}'; {_ONLY_PREVIOUS}"
        yield str(invalid("metrics.showHiddenMetricsForVersion", wanted, detail))
    for name in ("allow-metric-labels", "allow-metric-labels-manifest"):
        if flags[name]:
            yield f"--{name}: not implemented yet"
