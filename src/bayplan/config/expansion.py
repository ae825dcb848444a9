"""Which plugins run at which point, in which order and with which weight.

A profile's `multiPoint` list speaks for every point its plugins implement, and each point can add, reorder
and leave out. The order at a point is:

1. plugins that the point lists itself and that multiPoint has too, in the point's order;
2. the rest of multiPoint, in its order, except what the point disables;
3. the rest of the point's own list. A plugin that the point both disables and enables is here.

`*` among the disabled leaves exactly the point's own list.
"""

from __future__ import annotations

from collections.abc import Iterable

from bayplan.config.catalog import PluginCatalog
from bayplan.config.model import ALL, PluginRef, Plugins
from bayplan.errors import ConfigError
from bayplan.framework.plugin_args.field_errors import quoted
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
    """The weights of the scoring plugins: what the point says, else what multiPoint says, else 1.

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
        raise ConfigError(f"{point.type_word} {quoted(plugin.name)} does not exist")


def _add_once(name: str, names: list[str], point: Point) -> None:
    if name in names:
        raise ConfigError(f'plugin {quoted(name)} already registered as "{point.type_word}"')
    names.append(name)
