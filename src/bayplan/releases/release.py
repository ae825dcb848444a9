"""What differs between releases of Kubernetes, as one value.

A process decides as one release. The value is chosen when the process starts (`docs/versions.md`) and handed
to configuration, snapshot, plugins, queue, preemption and metrics, which read the fields that concern them
when they are built. No code compares versions: where a rule differs between releases, the release has a field
that says which rule holds, or is the rule.

`v1_36.py` has the first release in full; each later release is its predecessor with the fields that changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from bayplan.releases.devices import DeviceRules
from bayplan.releases.features import Feature


class GatedPlugin(NamedTuple):
    """A plugin that is enabled by default if its feature gate is on."""

    name: str
    weight: int
    gate: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One release of Kubernetes as the scheduler implements it, with the feature gates that are on."""

    minor: int
    """The second number of the version: 36 in 1.36."""
    patch_version: str
    """The version whose decisions were recorded for comparison: `1.36.4`."""
    features: Mapping[str, Feature]
    """The feature gates that concern scheduling, with their defaults."""
    default_plugins: tuple[tuple[str, int], ...]
    """The plugins that are enabled by default, in order, with their weights."""
    gated_plugins: tuple[GatedPlugin, ...]
    """More default plugins, which follow those above."""
    registry: Mapping[str, frozenset[str]]
    """All plugins that kube-scheduler has, in the order in which they are built, with their extension
    points."""
    devices: DeviceRules
    """Rules of device allocation."""
    new_kinds: frozenset[str] = frozenset()
    """Kinds that API servers of this release serve, and those of the first release do not."""
    gates: frozenset[str]
    """The feature gates that are on: the defaults, unless `with_gates` changed them."""

    @property
    def version(self) -> str:
        """`1.36`."""
        return f"1.{self.minor}"

    @property
    def previous_version(self) -> str:
        """`1.35` for 1.36."""
        return f"1.{self.minor - 1}"

    def with_gates(self, gates: frozenset[str]) -> Self:
        """This release with exactly these feature gates on."""
        return replace(self, gates=gates)

    def __str__(self) -> str:
        return self.version
