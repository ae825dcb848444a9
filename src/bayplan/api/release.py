"""What differs between releases of Kubernetes, as one value.

A process decides as one release. The value is chosen when the process starts (`docs/versions.md`) and passed
to configuration, state, plugins, queue, preemption and metrics, which read the fields that concern them when
they are built. No code compares versions: where a rule differs between releases, the release has a field that
says which rule holds, or is the rule. The defaults of the rules are those of v1.36; `releases.py` has the
values.

`rule_changes` lists what changed between two releases. Every rule can be applied on its own to the older
release, so a decision that differs can be attributed to the rules that change it (`explain/upgrade.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple, Self

from bayplan.api.requests import RequestAccounting


class Stage(StrEnum):
    """The maturity of a feature; locked gates cannot be changed."""

    ALPHA = "alpha"
    BETA = "beta"
    GA = "GA"
    LOCKED = "GA locked"


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature gate, as a release has it."""

    stage: Stage
    enabled: bool
    """Whether it is on unless `--feature-gates` turns it off."""
    needs: tuple[str, ...] = ()
    """DeviceFeatures that must be on while this one is."""
    compatible_from: int | None = None
    """It is on by default if `--min-compatibility-version` is this minor version or a later one."""


def on(stage: Stage, *needs: str) -> Feature:
    """A feature that is on by default."""
    return Feature(stage, True, needs)


def off(stage: Stage, *needs: str) -> Feature:
    """A feature that is off by default."""
    return Feature(stage, False, needs)


def default_gates(features: Mapping[str, Feature]) -> frozenset[str]:
    """The gates that are on by default."""
    return frozenset(name for name, feature in features.items() if feature.enabled)


@dataclass(frozen=True, slots=True)
class DeviceRules:
    """The rules of the device allocator and of the plugin DynamicResources that differ between releases."""

    distinct_over_all_devices: bool = False
    """distinctAttribute compares with every device allocated so far under the constraint. v1.36 forgets all
    but the last device of a request with several devices."""
    all_includes_exhausted_devices: bool = False
    """A request for All devices includes those whose remaining capacity is too small, so that it cannot be
    satisfied there. v1.36 leaves them out and allocates the others."""
    counter_slices_by_node: bool = False
    """Slices with sharedCounters are visible on the nodes they select. In v1.36 every node sees them, and an
    incomplete pool makes requests fail on nodes for which it has nothing."""
    share_without_capacity_is_use: bool = False
    """A device that is shared without any capacity is in use, so further shares do not consume its counters
    again."""
    uncomputable_capacity_is_error: bool = False
    """A requested capacity that cannot be computed (overflow, negative) fails the attempt with an error. In
    v1.36 it makes the device unusable."""
    device_limit_names_request: bool = False
    """The error for too many devices names the request and the numbers."""
    cel_error_names_device: bool = False
    """CEL runtime errors name the device, and advise optional chaining for missing keys."""
    config_entries_once: bool = False
    """A config entry is listed once in the allocation result, and without requests if it applies to all
    requests of the claim."""
    consumed_capacity_format_of_step: bool = False
    """consumedCapacity that was rounded to a step is written in the number format of the step, not in binary
    format."""
    ignores_compatibility_groups: bool = False
    """Slices whose devices name compatibility groups are ignored, and requests with derivedAttributes are an
    error: both belong to features that are off."""
    claim_delete_requeues: bool = False
    """Pods wait for the deletion of allocated ResourceClaims, too."""
    reserve_requires_claim: bool = False
    """Reserve fails if the claim has been deleted in the meantime."""
    in_flight_until_bound: bool = False
    """An allocation is in flight until PreBind has succeeded. In v1.36 it is until the claim is written."""
    taint_rule_without_selector_matches_all: bool = True
    """Whether a DeviceTaintRule without deviceSelector applies to every device (v1.36) or to none."""
    post_filter_without_message: bool = False
    """PostFilter has no message unless it deallocates or deletes a claim."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceFeatures:
    """Which parts of the device API are on, and the rules of the release; made by `device_features`.

    Compared by identity, because results for devices are cached by it.
    """

    rules: DeviceRules
    prioritized_list: bool
    """DRAPrioritizedList: requests with alternatives (firstAvailable)."""
    partitionable_devices: bool
    """DRAPartitionableDevices: shared counters and node selection by device."""
    consumable_capacity: bool
    """DRAConsumableCapacity: devices that are allocated several times, and requests for capacity."""
    fractional_ranges: bool
    """DRAFractionalCapacityRange: requested capacity is rounded in thousandths."""
    device_taints: bool
    """DRADeviceTaints."""
    taint_rules: bool
    """DRADeviceTaintRules."""
    binding_conditions: bool
    """DRADeviceBindingConditions and DRAResourceClaimDeviceStatus, which it needs."""


def device_features(release: Release) -> DeviceFeatures:
    """The features of a release with its gates as they are set; the same object for the same release."""
    return _features(release.devices, release.gates)


@lru_cache(maxsize=16)
def _features(rules: DeviceRules, gates: frozenset[str]) -> DeviceFeatures:
    return DeviceFeatures(
        rules=rules,
        prioritized_list="DRAPrioritizedList" in gates,
        partitionable_devices="DRAPartitionableDevices" in gates,
        consumable_capacity="DRAConsumableCapacity" in gates,
        fractional_ranges="DRAFractionalCapacityRange" in gates,
        device_taints="DRADeviceTaints" in gates,
        taint_rules="DRADeviceTaintRules" in gates,
        binding_conditions={"DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"} <= gates,
    )


@dataclass(frozen=True, slots=True)
class QueueRules:
    """The rules of queue and queueing hints that differ between releases."""

    pending_pod: str = "UnschedulablePod"
    """The name of pods without a node in events and metrics."""
    own_update: str = "UnschedulablePod"
    """The name of a waiting pod's own update."""
    has_scale_up: bool = False
    """Whether a pod that requests more than before is an event of its own (UpdatePodScaleUp), instead of the
    general update."""
    node_add_implies_taints: bool = True
    """Whether plugins that wait for new nodes also get every change of taints."""
    shares_own_updates: bool = False
    """Whether a pod that comes back from an attempt takes the own updates of all pods in flight for its own:
    their uids are no longer compared."""
    nominates_gated_pods: bool = False
    """Whether a new pod with status.nominatedNodeName counts as nominated even if it is gated. In v1.36 it
    does so only after its first update."""
    unknown_update_adds: bool = False
    """Whether an update of a pod that is not in the queue (or is there with another uid) counts as an
    addition."""
    counts_every_deletion: bool = False
    """Whether pods that are deleted while they are active or back off are subtracted from
    unschedulable_pods."""
    counts_flushed_pods: bool = False
    """Whether pods that are scheduled after the periodic flush are counted. In v1.36 the mark is lost."""
    group_queues: tuple[str, ...] = ()
    """Queues of pod groups, which `pending_pods` shows from the beginning, with 0 pods."""
    dump_label: str = "unschedulablePods"
    """The name of unschedulable pods in the dump after SIGUSR2."""


@dataclass(frozen=True, slots=True)
class MetricRules:
    """Which metrics a release has, and how it counts where releases differ."""

    families: frozenset[str] = frozenset({"scheduler_resourceclaim_creates_total"})
    """Of the families that only some releases have: those of this release."""
    beta: frozenset[str] = frozenset()
    """Families whose stability level is BETA, and was ALPHA in the first release."""
    hidden: frozenset[str] = frozenset()
    """Deprecated families, which are shown only with --show-hidden-metrics-for-version."""
    batch_flush_reasons: tuple[str, ...] = (
        *("pod_skipped", "pod_failed", "pod_incompatible", "expired", "node_missing", "node_not_full"),
        *("pod_not_batchable", "empty_list"),
    )
    """Why kube-scheduler drops the results that it keeps for the next pod."""
    measures_preemption_tasks: bool = False
    """Whether the tasks that evict victims are recorded when they end, with their result. In v1.36 they are
    recorded when they start: as successful, with a duration of 0."""
    counts_terminating_victims: bool = False
    """Whether a preemption is counted although all its victims are already terminating."""


@dataclass(frozen=True, slots=True)
class ServerRules:
    """What API servers of a release do beyond those of the first one."""

    statuses: frozenset[str] = frozenset()
    """Kinds that have the subresource `status`."""
    generations: frozenset[str] = frozenset()
    """Kinds whose metadata.generation counts the changes of the spec."""
    selectable: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Fields that a field selector may name."""
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Values of fields that are absent, where the object around them is there."""


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


TITLES: Final = {
    "default_plugins": "the order of the default plugins",
    "preemption_success": "a preemption that finds victims has a message",
    "accounting": "requests of pods that are being resized",
    "budget_walk_stops": "a violated PodDisruptionBudget ends the walk over the budgets of a pod",
    "image_volumes_raise_limit": "ImageLocality counts image volumes like containers",
    "namespace_selectors_by_name": "namespaceSelectors of incoming pods select only namespaces they match",
    "queue.nominates_gated_pods": "gated pods count as nominated",
    "devices.distinct_over_all_devices": "distinctAttribute compares all devices",
    "devices.all_includes_exhausted_devices": "requests for All devices include exhausted ones",
    "devices.counter_slices_by_node": "slices with shared counters are visible only on their nodes",
    "devices.share_without_capacity_is_use": "a share without capacity uses the device",
    "devices.uncomputable_capacity_is_error": "a capacity that cannot be computed is an error",
    "devices.device_limit_names_request": "the message for too many devices",
    "devices.cel_error_names_device": "the message of CEL runtime errors",
    "devices.config_entries_once": "configuration entries in allocation results",
    "devices.consumed_capacity_format_of_step": "the number format of consumed capacity",
    "devices.ignores_compatibility_groups": "slices with compatibility groups are ignored",
    "devices.taint_rule_without_selector_matches_all": "DeviceTaintRules without a selector match nothing",
    "devices.post_filter_without_message": "DynamicResources has no message if it frees no claim",
}
"""The rules that can change a decision or its message, by field of `Release`. Others concern the queue, the
configuration and metrics."""


@dataclass(frozen=True, slots=True)
class RuleChange:
    """One rule that differs between two releases."""

    name: str
    """The field of `Release`, or `gate NAME`."""
    title: str
    gate: str = ""

    def applied(self, old: Release, new: Release) -> Release:
        """The older release with this one rule of the newer one."""
        if self.gate:
            features = {**old.features, self.gate: new.features[self.gate]}
            return dataclasses.replace(old, features=features, gates=old.gates ^ {self.gate})
        part, _, field = self.name.rpartition(".")
        if not part:
            return dataclasses.replace(old, **{field: getattr(new, field)})
        value = getattr(getattr(new, part), field)
        rules: Any = dataclasses.replace(getattr(old, part), **{field: value})
        return dataclasses.replace(old, **{part: rules})


def rule_changes(old: Release, new: Release) -> Iterator[RuleChange]:
    """The rules that differ and can change a decision or its message."""
    for gate in sorted(old.gates ^ new.gates):
        if gate in old.features and gate in new.features:
            state = "on" if gate in new.gates else "off"
            yield RuleChange(f"gate {gate}", f"feature gate {gate} is {state} by default", gate)
    for name, title in TITLES.items():
        part, _, field = name.rpartition(".")
        before, after = (getattr(one, part) if part else one for one in (old, new))
        if getattr(before, field) != getattr(after, field):
            yield RuleChange(name, title)
