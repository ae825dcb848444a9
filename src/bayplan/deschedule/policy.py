"""DeschedulerPolicy v1alpha2: read, checked and completed as descheduler v0.36 does.

    text ─► decode (lenient; arguments strict) ─► validate ─► defaults ─► `Policy`

Errors have descheduler's texts. The policy has no place for bayplan's own settings: how moves are decided and
made is in `BayplanConfiguration.deschedule` (`bayplan.config.model`) and in flags.

Two of upstream's pitfalls are kept, because a policy has to mean the same for both programs, and are reported
as warnings: a file without apiVersion is an empty policy, and unknown fields outside arguments are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import urlsplit

from msgspec.structs import replace

from bayplan.api.documents import read_file
from bayplan.api.yaml_reader import MAX_VALUES, PlainReader, yaml_errors
from bayplan.deschedule import args as plugin_args
from bayplan.deschedule.args import (
    KUBERNETES_METRICS,
    MAX_PRIORITY,
    PROMETHEUS,
    DefaultEvictorArgs,
    PriorityThreshold,
    go_wire,
)
from bayplan.deschedule.go_json import Int64, Uint, go_decode, go_kind
from bayplan.errors import DecodeError, InputError
from bayplan.framework.args import ArgsRecord, PluginArgs, aggregate, quoted

API_VERSION: Final = "descheduler/v1alpha2"
KIND: Final = "DeschedulerPolicy"
DEFAULT_EVICTOR: Final = "DefaultEvictor"
_GROUP: Final = "descheduler"
_INTERNAL: Final = "descheduler/__internal"
_IN_SCHEME: Final = 'in scheme "pkg/runtime/scheme.go:111"'
_TYPE_META_PROBLEM: Final = "couldn't get version/kind; json parse error: json: cannot unmarshal"

PriorityOf = Callable[[str], int | None]
"""The value of the PriorityClass with a name; None if there is none."""


class PluginSet(ArgsRecord, frozen=True):
    go_type = "v1alpha2.PluginSet"
    enabled: tuple[str, ...] | None = None
    disabled: tuple[str, ...] | None = None


class Plugins(ArgsRecord, frozen=True):
    go_type = "v1alpha2.Plugins"
    presort: PluginSet = PluginSet()
    sort: PluginSet = PluginSet()
    deschedule: PluginSet = PluginSet()
    balance: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    preevictionfilter: PluginSet = PluginSet()


class _FilePluginConfig(ArgsRecord, frozen=True):
    go_type = "v1alpha2.PluginConfig"
    name: str = ""
    args: Any = None


class _FileProfile(ArgsRecord, frozen=True):
    go_type = "v1alpha2.DeschedulerProfile"
    name: str = ""
    plugin_config: tuple[_FilePluginConfig, ...] = ()
    plugins: Plugins = Plugins()


class SecretReference(ArgsRecord, frozen=True):
    go_type = "v1alpha2.SecretReference"
    namespace: str = ""
    name: str = ""


class AuthToken(ArgsRecord, frozen=True):
    go_type = "v1alpha2.AuthToken"
    secret_reference: SecretReference | None = None


class Prometheus(ArgsRecord, frozen=True):
    go_type = "v1alpha2.Prometheus"
    url: str = ""
    auth_token: AuthToken | None = None


class MetricsProvider(ArgsRecord, frozen=True):
    go_type = "v1alpha2.MetricsProvider"
    source: Annotated[str, "v1alpha2.MetricsSource"] = ""
    prometheus: Prometheus | None = None


class MetricsCollector(ArgsRecord, frozen=True):
    go_type = "v1alpha2.MetricsCollector"
    enabled: bool = False


class _FilePolicy(ArgsRecord, frozen=True):
    profiles: tuple[_FileProfile, ...] = ()
    node_selector: str | None = None
    max_no_of_pods_to_evict_per_node: Uint | None = None
    max_no_of_pods_to_evict_per_namespace: Uint | None = None
    max_no_of_pods_to_evict_total: Uint | None = None
    eviction_failure_event_notification: bool | None = None
    metrics_collector: MetricsCollector | None = None
    metrics_providers: tuple[MetricsProvider, ...] = ()
    grace_period_seconds: Int64 | None = None


class PluginConfig(NamedTuple):
    name: str
    args: PluginArgs


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile with all defaults."""

    name: str
    plugin_config: tuple[PluginConfig, ...]
    plugins: Plugins

    def args_of(self, plugin: str) -> PluginArgs | None:
        """The first configuration of a plugin: later ones are checked, but not used."""
        return next((config.args for config in self.plugin_config if config.name == plugin), None)

    def to_wire(self) -> dict[str, Any]:
        sets = {name: getattr(self.plugins, name).enabled for name in Plugins.__struct_fields__}
        return {
            "name": self.name,
            "pluginConfig": [{"name": one.name, "args": go_wire(one.args)} for one in self.plugin_config],
            "enabled": {name: list(names) if names else None for name, names in sets.items()},
        }


@dataclass(frozen=True, slots=True)
class Limits:
    """The maximum number of evictions in a cycle; None: unlimited."""

    total: int | None = None
    node: int | None = None
    namespace: int | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy with all defaults."""

    profiles: tuple[Profile, ...] = ()
    node_selector: str = ""
    limits: Limits = Limits()
    reports_failures: bool = False
    """A Warning event for each failed eviction."""
    grace_period_seconds: int | None = None
    metrics_providers: tuple[MetricsProvider, ...] = ()
    collects_metrics: bool = False
    """The deprecated form of the provider KubernetesMetrics."""
    warnings: tuple[str, ...] = ()

    @property
    def uses_kubernetes_metrics(self) -> bool:
        named = any(one.source == KUBERNETES_METRICS for one in self.metrics_providers)
        return self.collects_metrics or named

    @property
    def prometheus(self) -> Prometheus | None:
        found = (one.prometheus for one in self.metrics_providers if one.source == PROMETHEUS)
        return next(found, None)

    def to_wire(self) -> dict[str, Any]:
        return {"profiles": [profile.to_wire() for profile in self.profiles] or None}


BUILTIN_ARGS: Final[Mapping[str, type[PluginArgs]]] = {
    name.removesuffix("Args"): value
    for name, value in vars(plugin_args).items()
    if name.endswith("Args") and name not in ("PluginArgs", "StrategyArgs", "NamespaceArgs", "PodArgs")
}


def load_policy(
    path: str,
    priority_of: PriorityOf,
    args_types: Mapping[str, type[PluginArgs]] = BUILTIN_ARGS,
) -> Policy:
    """Reads a file.

    Args:
        priority_of: finds the priority classes that thresholds name.
        args_types: the plugins that it may name, with the types of their arguments.

    Raises:
        DecodeError: it is not a valid policy; `problem` is descheduler's text.
        InputError: it cannot be read.
    """
    try:
        text = read_file(Path(path)).decode()
    except OSError as error:
        why = f"open {path}: {(error.strerror or 'cannot be read').lower()}"
        raise InputError(f"failed to read policy config file {quoted(path)}: {why}") from None
    except UnicodeDecodeError:
        raise DecodeError(f"failed decoding descheduler's policy config {quoted(path)}: not UTF-8") from None
    return parse_policy(text, path, priority_of, args_types)


def parse_policy(
    text: str,
    source: str,
    priority_of: PriorityOf,
    args_types: Mapping[str, type[PluginArgs]] = BUILTIN_ARGS,
) -> Policy:
    """Reads a text; the rest is as for `load_policy`."""
    try:
        file, profiles, warnings = _decode(text, args_types)
    except DecodeError as error:
        problem = f"failed decoding descheduler's policy config {quoted(source)}: {error.problem}"
        raise DecodeError(problem) from None
    problems = [*_profile_problems(profiles), *_metrics_problems(file)]
    if problems:
        raise DecodeError(aggregate(problems))
    return Policy(
        tuple(_completed(profile, priority_of) for profile in profiles),
        file.node_selector or "",
        Limits(
            file.max_no_of_pods_to_evict_total,
            file.max_no_of_pods_to_evict_per_node,
            file.max_no_of_pods_to_evict_per_namespace,
        ),
        bool(file.eviction_failure_event_notification),
        file.grace_period_seconds,
        file.metrics_providers,
        file.metrics_collector is not None and file.metrics_collector.enabled,
        warnings,
    )


# Decoding


class _FileConfig(NamedTuple):
    name: str
    args: PluginArgs | None
    """None: no plugin has this name."""


class _ReadProfile(NamedTuple):
    name: str
    config: tuple[_FileConfig, ...]
    plugins: Plugins


def _decode(
    text: str, args_types: Mapping[str, type[PluginArgs]]
) -> tuple[_FilePolicy, list[_ReadProfile], tuple[str, ...]]:
    value = _plain(text)
    if value is None:
        value = {}
    meta = _type_meta(value)
    version, kind = meta.get("apiversion", ""), meta.get("kind") or KIND
    warnings = []
    group, _, short = (version or _INTERNAL).rpartition("/")
    if "/" in group:
        raise DecodeError(f"unexpected GroupVersion string: {version}")
    if short == "__internal":
        if (group, kind) != (_GROUP, KIND):
            where = f"the internal version of group {quoted(group)}"
            raise DecodeError(f"no kind {quoted(kind)} is registered for {where} {_IN_SCHEME}")
        # The lower-case fields belong to v1alpha2: without a version nothing of the file is read.
        if len(value) > len(meta):
            warnings.append(f"the policy has no apiVersion ({API_VERSION}), so descheduler ignores all of it")
        return _FilePolicy(), [], tuple(warnings)
    if version != API_VERSION or kind != KIND:
        raise DecodeError(f"no kind {quoted(kind)} is registered for version {quoted(version)} {_IN_SCHEME}")
    ignored = sorted(set(value) - {"apiVersion", "kind", *_FilePolicy.__struct_encode_fields__})
    warnings += [f"descheduler ignores the unknown field {quoted(name)}" for name in ignored]
    file = go_decode(value, _FilePolicy, strict=False, name=KIND)
    profiles = [
        _ReadProfile(
            one.name, tuple(_decode_config(config, args_types) for config in one.plugin_config), one.plugins
        )
        for one in file.profiles
    ]
    return file, profiles, tuple(warnings)


def _decode_config(config: _FilePluginConfig, args_types: Mapping[str, type[PluginArgs]]) -> _FileConfig:
    into = args_types.get(config.name)
    if into is None:
        return _FileConfig(config.name, None)
    if config.args is not None:
        _type_meta(config.args)
    return _FileConfig(config.name, go_decode(config.args, into, strict=True))


def _plain(text: str) -> Any:
    """The value of a YAML or JSON text. The last of several equal keys wins; Go sorts the keys of YAML."""
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except ValueError as error:
            raise DecodeError(f"couldn't get version/kind; json parse error: {error}") from None
    with yaml_errors(text, ""):
        documents = PlainReader(text, max_values=MAX_VALUES, last_wins=True).documents()
        first = next(documents, None)
        return None if first is None else _sorted(first.value)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(each) for each in value] if isinstance(value, list) else value


def _type_meta(value: Any) -> dict[str, str]:
    """apiVersion and kind, of the policy or of the arguments of a plugin, by lower-case name.

    Go reads them before the rest, and unlike the rest in any case.

    Raises:
        DecodeError: the value is no mapping, or these are no strings.
    """
    if not isinstance(value, dict):
        place = (
            'value of type struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string '
            '"json:\\"kind,omitempty\\"" }'
        )
        raise DecodeError(f"{_TYPE_META_PROBLEM} {go_kind(value)} into Go {place}")
    names = {"apiversion": "apiVersion", "kind": "kind"}
    found = {}
    for key, given in value.items():
        name = names.get(key.lower())
        if name is not None and not isinstance(given, str | None):
            raise DecodeError(
                f"{_TYPE_META_PROBLEM} {go_kind(given)} into Go struct field .{name} of type string"
            )
        if name is not None:
            found[name.lower()] = given or ""
    return found


# Validation


def _profile_problems(profiles: Iterable[_ReadProfile]) -> Iterator[str]:
    for profile in profiles:
        for config in profile.config:
            if config.args is None:
                yield f"in profile {profile.name}: plugin {config.name} in pluginConfig not registered"
                continue
            found = aggregate(error.message for error in config.args.validate("", frozenset()))
            if found:
                yield f"in profile {profile.name}: {found}"


def _metrics_problems(file: _FilePolicy) -> Iterator[str]:
    seen: set[str] = set()
    for provider in file.metrics_providers:
        if provider.source in seen:
            yield (
                f"metric provider {quoted(provider.source)} is already configured, "
                "each source can be configured only once"
            )
        seen.add(provider.source)
    collects = file.metrics_collector is not None and file.metrics_collector.enabled
    if collects and KUBERNETES_METRICS in seen:
        yield "it is not allowed to combine metrics provider when metrics collector is enabled"
    for provider in file.metrics_providers:
        if provider.source == PROMETHEUS:
            yield from _prometheus_problems(provider.prometheus)
            break


def _prometheus_problems(prometheus: Prometheus | None) -> Iterator[str]:
    if prometheus is None:
        yield "prometheus configuration is required when prometheus source is enabled"
        return
    if not prometheus.url:
        yield "prometheus URL is required when prometheus is enabled"
    elif problem := _url_problem(prometheus.url):
        yield f"error parsing prometheus URL: {problem}"
    token = prometheus.auth_token
    if token is None:
        return
    secret = token.secret_reference
    if secret is None:
        yield "prometheus authToken secret is expected to be set when authToken field is"
    elif not secret.namespace or not secret.name:
        yield "prometheus authToken secret reference does not set both namespace and name"


def _url_problem(url: str) -> str:
    """What Go's url.Parse says, for its common errors."""
    scheme, colon, _ = url.partition(":")
    if not colon:
        return ""
    if not scheme:
        return f"parse {quoted(url)}: missing protocol scheme"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        port = url.partition("//")[2].partition("/")[0].rpartition("@")[2].rpartition(":")[2]
        return f"parse {quoted(url)}: invalid port {quoted(f':{port}')} after host"
    return ""


# Defaults


def _completed(profile: _ReadProfile, priority_of: PriorityOf) -> Profile:
    plugins = profile.plugins
    filters = {}
    for point in ("filter", "preevictionfilter"):
        chosen: PluginSet = getattr(plugins, point)
        names = chosen.enabled or ()
        if DEFAULT_EVICTOR not in names:
            names = (DEFAULT_EVICTOR, *names)
        filters[point] = replace(chosen, enabled=names)
    config = [(one.name, one.args) for one in profile.config]
    if all(name != DEFAULT_EVICTOR for name, _ in config):
        config.insert(0, (DEFAULT_EVICTOR, DefaultEvictorArgs()))
    completed = []
    for name, args in config:
        assert args is not None  # validated
        if isinstance(args, DefaultEvictorArgs):
            args = replace(args, priority_threshold=_threshold(args.priority_threshold, priority_of))
        completed.append(PluginConfig(name, args.completed(frozenset())))
    return Profile(profile.name, tuple(completed), replace(plugins, **filters))


def _threshold(threshold: PriorityThreshold | None, priority_of: PriorityOf) -> PriorityThreshold:
    value: int | None = None if threshold is None else threshold.value
    if value is None and threshold is not None and threshold.name:
        value = priority_of(threshold.name)
        if value is None:
            raise DecodeError(
                "unable to get priority value from the priority class: "
                f"priorityclasses.scheduling.k8s.io {quoted(threshold.name)} not found"
            )
    if value is not None and value > MAX_PRIORITY:
        raise DecodeError(f"priority threshold can't be greater than {MAX_PRIORITY}")
    return PriorityThreshold(value=MAX_PRIORITY if value is None else value)
