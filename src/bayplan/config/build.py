"""From a configuration to what each profile runs: which plugins, where, in which order and with which weight.

A profile's `multiPoint` list applies to every point that its plugins implement, and each point can add,
reorder and remove plugins. The order at a point is:

1. plugins that the point lists itself and that multiPoint has, too, in the point's order;
2. the rest of multiPoint, in its order, except what the point disables;
3. the rest of the point's own list. A plugin that the point both disables and enables is here.

`*` among the disabled leaves exactly the point's own list.

This is the last check: the plugins exist, implement the extension points at which they are enabled, and
accept their arguments, and each profile has exactly one QueueSort and at least one Bind plugin. The result
has names of plugins; the framework instantiates them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from bayplan.config.catalog import PluginCatalog, default_catalog
from bayplan.config.model import (
    ALL,
    BayplanConfiguration,
    KubeSchedulerConfiguration,
    PluginRef,
    Plugins,
    PluginSet,
    Profile,
)
from bayplan.config.validation import apply_extenders, validate
from bayplan.errors import ConfigError
from bayplan.framework.args import Gates, PluginArgs, aggregate, quoted
from bayplan.framework.points import BUILD_ORDER, Point

MAX_SCORE = 100
MAX_TOTAL = 2**63 - 1
"""Upstream adds scores in 64 bits, and rejects weights that could overflow them."""


def expand(plugins: Plugins, catalog: PluginCatalog) -> dict[Point, tuple[str, ...]]:
    """The plugins of every point, in the order in which they run.

    Raises:
        ConfigError: a plugin does not exist, does not fit its point, or is there twice.
    """
    # All own lists are checked before any expansion; users see the first mistake in this order.
    own = {point: _own_list(plugins, point, catalog) for point in BUILD_ORDER}
    if plugins.multi_point.enabled:
        for point in BUILD_ORDER:
            own[point] = _expanded(own[point], plugins, point, catalog)
    return {point: tuple(own[point]) for point in Point}


def weights(plugins: Plugins, point: Point, catalog: PluginCatalog) -> dict[str, int]:
    """The weights of the scoring plugins: the point's, else multiPoint's, else 1.

    Raises:
        ConfigError: the largest possible score does not fit into 64 bits.
    """
    found: dict[str, int] = {}
    for plugin in (*plugins.at(point).enabled, *plugins.multi_point.enabled):
        if plugin.name in catalog.names and point in catalog.points(plugin.name):
            found.setdefault(plugin.name, plugin.weight or 1)
    total = 0
    for weight in found.values():
        total += weight * MAX_SCORE
        if total > MAX_TOTAL:
            raise ConfigError("total score of Score plugins could overflow")
    return found


def _own_list(plugins: Plugins, point: Point, catalog: PluginCatalog) -> list[str]:
    names: list[str] = []
    for plugin in plugins.at(point).enabled:
        _require_known(plugin, point, catalog)
        if point not in catalog.points(plugin.name):
            raise ConfigError(f"plugin {quoted(plugin.name)} does not extend {point.type_word} plugin")
        _add_once(plugin.name, names, point)
    return names


def _expanded(own: list[str], plugins: Plugins, point: Point, catalog: PluginCatalog) -> list[str]:
    disabled = plugins.at(point).disabled_names
    if ALL in disabled:
        return own
    overridden: set[str] = set()
    rest: list[str] = []
    for plugin in plugins.multi_point.enabled:
        _require_known(plugin, point, catalog)
        if point not in catalog.points(plugin.name) or plugin.name in disabled:
            continue
        if plugin.name in own:
            overridden.add(plugin.name)
        else:
            _add_once(plugin.name, rest, point)
    return [*_only(own, overridden), *rest, *(name for name in own if name not in overridden)]


def _only(names: Iterable[str], wanted: set[str]) -> list[str]:
    return [name for name in names if name in wanted]


def _require_known(plugin: PluginRef, point: Point, catalog: PluginCatalog) -> None:
    if plugin.name not in catalog.names:
        text = f"{point.type_word} {quoted(plugin.name)} does not exist"
        raise ConfigError(text, unknown_plugin=plugin.name)


def _add_once(name: str, names: list[str], point: Point) -> None:
    if name in names:
        raise ConfigError(f'plugin {quoted(name)} already registered as "{point.type_word}"')
    names.append(name)


_PREFIX: Final = "initializing profiles: "
_GROUPS: Final = "GenericWorkload"


def _without_default_preemption(profile: Profile) -> Profile:
    """With capacity queues a pod takes only what its queue is entitled to, whatever its priority."""
    plugins = msgspec.structs.replace(
        profile.plugins,
        post_filter=_without(profile.plugins.post_filter, _DEFAULT_PREEMPTION),
        pod_group_post_filter=_without(profile.plugins.pod_group_post_filter, _DEFAULT_PREEMPTION),
    )
    return msgspec.structs.replace(profile, plugins=plugins)


def _without(plugins: PluginSet, name: str) -> PluginSet:
    return msgspec.structs.replace(
        plugins,
        enabled=tuple(plugin for plugin in plugins.enabled if plugin.name != name),
        disabled=(*plugins.disabled, PluginRef(name)),
    )


_DEFAULT_PREEMPTION: Final = "DefaultPreemption"


@dataclass(frozen=True, slots=True)
class ProfilePlan:
    """Everything that the framework needs to build one profile."""

    scheduler_name: str
    percentage_of_nodes_to_score: int
    """The profile's own, or else that of the configuration; 0 if neither is set."""
    plugins: dict[Point, tuple[str, ...]]
    """For every point the names of its plugins, in the order in which they run."""
    weights: dict[str, int]
    """Of the plugins at Score."""
    args: dict[str, object] = field(default_factory=dict)
    """Arguments by plugin, decoded where their type is known; plugins without arguments are not here."""
    placement_weights: dict[str, int] = field(default_factory=dict)
    """Of the plugins at PlacementScore."""


def build_profiles(
    config: KubeSchedulerConfiguration, catalog: PluginCatalog | None = None
) -> tuple[ProfilePlan, ...]:
    """What every profile of the configuration runs.

    Raises:
        ConfigError: the configuration is invalid, or a profile cannot be built from it.
    """
    catalog = default_catalog(config.release) if catalog is None else catalog
    validate(config)
    if config.bayplan.pod_groups != BayplanConfiguration().pod_groups and _GROUPS not in config.gates:
        text = f"podGroups of the BayplanConfiguration needs --feature-gates={_GROUPS}=true"
        raise ConfigError(text)
    config = apply_extenders(config)
    plans: list[ProfilePlan] = []
    for profile in config.profiles:
        if config.bayplan.queues is not None:
            profile = _without_default_preemption(profile)
        try:
            plan = _plan(profile, config, catalog)
        except ConfigError as error:
            place = f"creating profile for scheduler name {profile.scheduler_name}"
            raise error.within(f"{_PREFIX}{place}") from None
        _require_one_queue(plan, plans)
        plans.append(plan)
    return tuple(plans)


def needed_plugins(profile: Profile) -> frozenset[str]:
    """The plugins that a profile enables at any point; only these are instantiated."""
    return frozenset(profile.plugins.enabled_names())


def _plan(profile: Profile, config: KubeSchedulerConfiguration, catalog: PluginCatalog) -> ProfilePlan:
    name = quoted(profile.scheduler_name)
    args = _arguments(profile, catalog, config.gates)
    plugins = expand(profile.plugins, catalog)
    if len(plugins[Point.QUEUE_SORT]) != 1:
        raise ConfigError(
            f"only one queue sort plugin required for profile with scheduler name {name}, "
            f"but got {len(plugins[Point.QUEUE_SORT])}"
        )
    if not plugins[Point.BIND]:
        raise ConfigError(f"at least one bind plugin is needed for profile with scheduler name {name}")
    if len(plugins[Point.PLACEMENT_GENERATE]) > 1:
        raise ConfigError(
            f"at most one placement generate plugin is allowed for profile with scheduler name {name}"
        )
    percentage = profile.percentage_of_nodes_to_score
    return ProfilePlan(
        scheduler_name=profile.scheduler_name,
        percentage_of_nodes_to_score=config.percentage_of_nodes_to_score
        if percentage is None
        else percentage,
        plugins=plugins,
        weights=_weights(profile, Point.SCORE, plugins, catalog),
        placement_weights=_weights(profile, Point.PLACEMENT_SCORE, plugins, catalog),
        args=args,
    )


def _arguments(profile: Profile, catalog: PluginCatalog, gates: Gates) -> dict[str, object]:
    """The arguments of the plugins that are used, validated by their plugins."""
    given = {entry.name: entry.args for entry in profile.plugin_config if entry.args is not None}
    needed = needed_plugins(profile)
    used: dict[str, object] = {}
    for name in catalog.names:
        if name not in needed:
            continue
        args = given.get(name)
        args_type = catalog.args_type(name)
        if args is None and args_type is not None:
            missing = ", ".join(f.encode_name for f in msgspec.structs.fields(args_type) if f.required)
            raise ConfigError(f"initializing plugin {quoted(name)}: its arguments must be given: {missing}")
        if isinstance(args, PluginArgs) and (text := aggregate(args.validate_for_build(gates))):
            raise ConfigError(f"initializing plugin {quoted(name)}: {text}")
        if args is not None:
            used[name] = args
    return used


def _weights(
    profile: Profile, point: Point, plugins: dict[Point, tuple[str, ...]], catalog: PluginCatalog
) -> dict[str, int]:
    try:
        found = weights(profile.plugins, point, catalog)
    except ConfigError as error:
        prefix = "score plugins" if point is Point.SCORE else "placement score plugins"
        raise error.within(prefix) from None
    return {name: found[name] for name in plugins[point]}


def _require_one_queue(plan: ProfilePlan, earlier: Sequence[ProfilePlan]) -> None:
    """All profiles share one queue: reject a profile with another QueueSort plugin than the first."""
    if not earlier:
        return
    (own,), (first,) = plan.plugins[Point.QUEUE_SORT], earlier[0].plugins[Point.QUEUE_SORT]
    if own != first:
        raise ConfigError(
            f"{_PREFIX}different queue sort plugins for profile {quoted(plan.scheduler_name)}: "
            f"{quoted(own)}, first: {quoted(first)}"
        )
    if plan.args.get(own) != earlier[0].args.get(first):
        name = quoted(plan.scheduler_name)
        raise ConfigError(f"{_PREFIX}different queue sort plugin args for profile {name}")
