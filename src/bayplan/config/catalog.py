"""Names, extension points and argument types of plugins, as far as the configuration needs them.

The configuration is read without importing plugins. Code that adds plugins passes a catalog that has them,
too. A test compares the registry of the release with the plugin classes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.config.library import LIBRARY, LibraryPlugin
from bayplan.errors import ConfigError
from bayplan.framework.plugin_args.args import BUILTIN_ARGS
from bayplan.framework.points import Point


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
