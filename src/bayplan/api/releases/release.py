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

from bayplan.api.releases.devices import DeviceRules
from bayplan.api.releases.features import Feature, default_gates
from bayplan.api.releases.metrics import MetricRules
from bayplan.api.releases.queueing import QueueRules
from bayplan.api.releases.server import ServerRules
from bayplan.api.requests import RequestAccounting


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
    has_pod_group_post_filter: bool = False
    """Whether a profile has the plugin set podGroupPostFilter."""
    preemption_success: str = ""
    """What PostFilter says if preemption found a node: `{node}`, `{victims}` (their number)."""
    accounting: RequestAccounting
    """What pods use on their nodes while they are resized."""
    budget_walk_stops: bool = False
    """Whether a pod whose eviction violates a PodDisruptionBudget uses no disruptions of further budgets. In
    v1.36 it uses one of every budget that protects it."""
    in_memory_preemption_activates: bool = False
    """Whether the preemptor is activated if its last victim was not bound yet, so that no deletion requeues
    it."""
    image_volumes_raise_limit: bool = False
    """Whether ImageLocality counts image volumes like containers when it limits the size of images. In v1.36
    their bytes count, but they do not raise the limit."""
    namespace_selectors_by_name: bool = False
    """Whether namespaceSelectors of an incoming pod select exactly the namespaces that they match. In v1.36
    selectors that match an empty set of labels (NotIn, DoesNotExist) select all namespaces."""
    anti_affinity_hint_any_term: bool = False
    """Whether a pod that any anti-affinity term selects requeues a pod when it is deleted or relabelled. In
    v1.36 all terms have to select it."""
    queue: QueueRules
    """Rules of the scheduling queue."""
    devices: DeviceRules
    """Rules of device allocation."""
    metrics: MetricRules
    """The metrics that the release has."""
    server: ServerRules
    """What else API servers of this release do."""
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

    def with_min_compatibility(self, minor: int) -> Self:
        """This release for clusters without components older than this minor version."""
        features = {
            name: replace(feature, enabled=True)
            if feature.compatible_from is not None and feature.compatible_from <= minor
            else feature
            for name, feature in self.features.items()
        }
        return replace(self, features=features, gates=default_gates(features))

    def __str__(self) -> str:
        return self.version
