"""What the configuration has to know about plugins, and what it knows about the built-in ones.

The configuration is read without importing a single plugin: it needs only names, extension points and types
of arguments. Code that adds plugins passes a catalog that has them, too. A test compares the table below
with the plugin classes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from bayplan.errors import ConfigError
from bayplan.framework.points import Point
from bayplan.plugin_args.args import BUILTIN_ARGS


class PluginCatalog(Protocol):
    """The plugins that a configuration may name."""

    @property
    def names(self) -> Collection[str]:
        """All plugins, in the order in which they are built."""

    def points(self, name: str) -> frozenset[Point]:
        """The extension points that a plugin of the catalog implements."""

    def args_type(self, name: str) -> type[msgspec.Struct] | None:
        """What its arguments are decoded into; None for plugins without, and for unknown ones."""


@dataclass(frozen=True, slots=True)
class PluginEntry:
    """One plugin of a `TableCatalog`."""

    points: frozenset[Point]
    args_type: type[msgspec.Struct] | None = None


@dataclass(frozen=True, slots=True)
class TableCatalog:
    """A catalog that is written down."""

    entries: Mapping[str, PluginEntry]

    @property
    def names(self) -> Collection[str]:
        return self.entries.keys()

    def points(self, name: str) -> frozenset[Point]:
        return self.entries[name].points

    def args_type(self, name: str) -> type[msgspec.Struct] | None:
        entry = self.entries.get(name)
        return None if entry is None else entry.args_type

    def with_plugins(self, more: Mapping[str, PluginEntry]) -> TableCatalog:
        """This catalog and more plugins.

        Raises:
            ConfigError: one of them has a name that is taken.
        """
        for name in more:
            if name in self.entries:
                raise ConfigError(f"a plugin named {name} already exists")
        return TableCatalog({**self.entries, **more})


def _builtin(*points: Point) -> frozenset[Point]:
    return frozenset(points)


_FILTERING: Final = _builtin(Point.PRE_FILTER, Point.FILTER)
_SCORING: Final = _builtin(Point.PRE_SCORE, Point.SCORE)

_BUILTIN_POINTS: Final[dict[str, frozenset[Point]]] = {
    "SchedulingGates": _builtin(Point.PRE_ENQUEUE),
    "PrioritySort": _builtin(Point.QUEUE_SORT),
    "NodeUnschedulable": _builtin(Point.FILTER),
    "NodeName": _builtin(Point.FILTER),
    "TaintToleration": _SCORING | {Point.FILTER},
    "NodeAffinity": _FILTERING | _SCORING,
    "NodePorts": _FILTERING,
    "NodeResourcesFit": _FILTERING | _SCORING | {Point.PLACEMENT_SCORE},
    "VolumeRestrictions": _FILTERING,
    "NodeVolumeLimits": _FILTERING,
    "VolumeBinding": _FILTERING | _SCORING | {Point.RESERVE, Point.PRE_BIND},
    "VolumeZone": _FILTERING,
    "PodTopologySpread": _FILTERING | _SCORING,
    "InterPodAffinity": _FILTERING | _SCORING,
    "DynamicResources": _FILTERING
    | {Point.PRE_ENQUEUE, Point.POST_FILTER, Point.SCORE, Point.RESERVE, Point.PRE_BIND},
    "DefaultPreemption": _builtin(Point.PRE_ENQUEUE, Point.POST_FILTER),
    "NodeResourcesBalancedAllocation": _SCORING,
    "ImageLocality": _builtin(Point.SCORE),
    "DefaultBinder": _builtin(Point.BIND),
    "NodeDeclaredFeatures": _FILTERING,
    "GangScheduling": _builtin(Point.PRE_ENQUEUE, Point.PERMIT),
    "TopologyPlacementGenerator": _builtin(Point.PLACEMENT_GENERATE),
    "PodGroupPodsCount": _builtin(Point.PLACEMENT_SCORE),
}

BUILTIN_CATALOG: Final = TableCatalog(
    {name: PluginEntry(points, BUILTIN_ARGS.get(name)) for name, points in _BUILTIN_POINTS.items()}
)
"""The 23 plugins of kube-scheduler v1.36. The last three do nothing while their gates are off."""
