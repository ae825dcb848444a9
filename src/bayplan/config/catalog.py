"""Names, extension points and argument types of plugins, as far as the configuration needs them.

A configuration is checked without importing plugins, so the extension points of those that come with bayplan
and are off by default (`LIBRARY`) are written down here, and a plugin of the library is imported when its
arguments are needed. Those of kube-scheduler are in the registry of the release. Tests compare both with the
plugin classes. Code that adds plugins passes a catalog that has them, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Protocol

import msgspec

from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.errors import ConfigError
from bayplan.framework.builtin_args import BUILTIN_ARGS
from bayplan.framework.points import Point


@dataclass(frozen=True, slots=True)
class LibraryPlugin:
    """One plugin of the library: an entry of a `TableCatalog`."""

    name: str
    module: str
    points: frozenset[Point]

    def load(self) -> type[Any]:
        """Its class."""
        found: type[Any] = getattr(import_module(self.module), self.name)
        return found

    @property
    def args_type(self) -> type[msgspec.Struct] | None:
        found: type[msgspec.Struct] | None = self.load().args_type
        return found


_PREEMPTION: Final = (Point.PRE_ENQUEUE, Point.POST_FILTER)
_GPU_SHARING: Final = (Point.PRE_FILTER, Point.FILTER, Point.RESERVE)
_GPU_POLICY: Final = (*_GPU_SHARING, Point.PRE_SCORE, Point.SCORE)

_TABLE: Final[tuple[tuple[str, str, tuple[Point, ...]], ...]] = (
    ("Coscheduling", "coscheduling", (*_PREEMPTION, Point.PRE_FILTER, Point.RESERVE, Point.PERMIT)),
    ("QOSSort", "qos_sort", (Point.QUEUE_SORT,)),
    ("PreemptionToleration", "preemption_toleration", _PREEMPTION),
    ("CapacityScheduling", "capacity_scheduling", (*_PREEMPTION, Point.PRE_FILTER, Point.FILTER)),
    ("TargetLoadPacking", "load_aware", (Point.SCORE, Point.RESERVE)),
    ("LoadVariationRiskBalancing", "load_aware", (Point.SCORE,)),
    ("NodeResourceTopologyMatch", "node_resource_topology_match", (Point.FILTER, Point.SCORE)),
    ("GpuSharing", "gpu_sharing", _GPU_SHARING),
    ("FGD", "gpu_sharing", _GPU_POLICY),
    ("GpuBestFit", "gpu_sharing", _GPU_POLICY),
    ("GpuClustering", "gpu_sharing", _GPU_POLICY),
    ("GpuDotProd", "gpu_sharing", _GPU_POLICY),
    ("GpuPacking", "gpu_sharing", _GPU_POLICY),
    ("GpuRandom", "gpu_sharing", _GPU_POLICY),
)

LIBRARY: Final[Mapping[str, LibraryPlugin]] = {
    name: LibraryPlugin(name, f"bayplan.plugins.library.{module}", frozenset(points))
    for name, module, points in _TABLE
}


class PluginCatalog(Protocol):
    """The plugins that a configuration may name."""

    @property
    def names(self) -> Collection[str]:
        """All plugins, in the order in which they are built."""

    def points(self, name: str) -> frozenset[Point]:
        """The extension points that a plugin of the catalog implements."""

    def args_type(self, name: str) -> type[msgspec.Struct] | None:
        """The type of its arguments; None for plugins without arguments, and for unknown ones."""


@dataclass(frozen=True, slots=True)
class PluginEntry:
    """One plugin of a `TableCatalog`."""

    points: frozenset[Point]
    args_type: type[msgspec.Struct] | None = None


@dataclass(frozen=True, slots=True)
class TableCatalog:
    """A catalog from a table."""

    entries: Mapping[str, PluginEntry | LibraryPlugin]

    @property
    def names(self) -> Collection[str]:
        return self.entries.keys()

    def points(self, name: str) -> frozenset[Point]:
        return self.entries[name].points

    def args_type(self, name: str) -> type[msgspec.Struct] | None:
        entry = self.entries.get(name)
        return None if entry is None else entry.args_type

    def with_plugins(self, more: Mapping[str, PluginEntry]) -> TableCatalog:
        """This catalog with more plugins, which replace library plugins of the same name.

        Raises:
            ConfigError: one of them has a name that is taken.
        """
        for name in more:
            if name in self.entries and name not in LIBRARY:
                raise ConfigError(f"a plugin named {name} already exists")
        return TableCatalog({**self.entries, **more})


def builtin_catalog(release: Release = DEFAULT_RELEASE) -> TableCatalog:
    """The plugins of kube-scheduler in this release. Some do nothing while their gates are off."""
    return TableCatalog(
        {
            name: PluginEntry(frozenset(map(Point, points)), BUILTIN_ARGS.get(name))
            for name, points in release.registry.items()
        }
    )


def default_catalog(release: Release = DEFAULT_RELEASE) -> TableCatalog:
    """What every configuration may name: the plugins of kube-scheduler in this release, and the library."""
    return TableCatalog({**builtin_catalog(release).entries, **LIBRARY})
