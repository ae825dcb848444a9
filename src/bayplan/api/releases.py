"""The releases of Kubernetes that bayplan implements, and how one is chosen.

The first release is written in full; each later one is its predecessor with the fields that changed. The
meaning of the fields is in `release.py`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from bayplan.api.release import (
    DeviceRules,
    Feature,
    GatedPlugin,
    MetricRules,
    QueueRules,
    Release,
    ServerRules,
    Stage,
    default_gates,
    device_features,
    off,
    on,
)
from bayplan.api.requests import ContainerAccounting, PodAccounting
from bayplan.errors import ConfigError

__all__ = [
    "DEFAULT_DEVICE_FEATURES",
    "DEFAULT_RELEASE",
    "RELEASES",
    "V1_36",
    "V1_37",
    "DeviceRules",
    "Feature",
    "GatedPlugin",
    "QueueRules",
    "Release",
    "Stage",
    "nearest_release",
    "parse_release",
]

_FILTERING: Final = frozenset({"PreFilter", "Filter"})
_SCORING: Final = frozenset({"PreScore", "Score"})

_FEATURES_1_36: Final[dict[str, Feature]] = {
    "SchedulerQueueingHints": on(Stage.LOCKED),
    "SchedulerPopFromBackoffQ": on(Stage.BETA),
    "SchedulerAsyncPreemption": on(Stage.BETA),
    "SchedulerAsyncAPICalls": off(Stage.BETA),
    "OpportunisticBatching": on(Stage.BETA),
    "NominatedNodeNameForExpectation": on(Stage.BETA),
    "ClearingNominatedNodeNameAfterBinding": on(Stage.BETA),
    "NodeDeclaredFeatures": on(Stage.BETA),
    "TaintTolerationComparisonOperators": off(Stage.ALPHA),
    "MatchLabelKeysInPodTopologySpread": on(Stage.BETA),
    "MatchLabelKeysInPodTopologySpreadSelectorMerge": on(Stage.BETA, "MatchLabelKeysInPodTopologySpread"),
    "NodeInclusionPolicyInPodTopologySpread": on(Stage.LOCKED),
    "MatchLabelKeysInPodAffinity": on(Stage.LOCKED),
    "PodSchedulingReadiness": on(Stage.LOCKED),
    "SidecarContainers": on(Stage.LOCKED),
    "InPlacePodVerticalScaling": on(Stage.LOCKED),
    "PodObservedGenerationTracking": on(Stage.LOCKED),
    "PodLevelResources": on(Stage.BETA),
    "InPlacePodLevelResourcesVerticalScaling": on(Stage.BETA, "NodeDeclaredFeatures", "PodLevelResources"),
    "PodTopologyLabelsAdmission": on(Stage.BETA),
    "StorageCapacityScoring": off(Stage.ALPHA),
    "VolumeAttributesClass": on(Stage.LOCKED),
    "MutableCSINodeAllocatableCount": on(Stage.LOCKED),
    "VolumeLimitScaling": off(Stage.ALPHA),
    "DynamicResourceAllocation": on(Stage.LOCKED),
    "DRAAdminAccess": on(Stage.LOCKED),
    "DRAPrioritizedList": on(Stage.GA),
    "DRAPartitionableDevices": on(Stage.BETA),
    "DRAConsumableCapacity": on(Stage.BETA),
    "DRADeviceTaints": on(Stage.BETA),
    "DRADeviceTaintRules": off(Stage.BETA, "DRADeviceTaints"),
    "DRAExtendedResource": on(Stage.BETA),
    "DRAResourceClaimDeviceStatus": on(Stage.BETA),
    "DRADeviceBindingConditions": on(Stage.BETA, "DRAResourceClaimDeviceStatus"),
    "DRASchedulerFilterTimeout": on(Stage.BETA),
    "DRAResourceClaimGranularStatusAuthorization": on(Stage.BETA),
    "DRAListTypeAttributes": off(Stage.ALPHA),
    "DRANodeAllocatableResources": off(Stage.ALPHA),
    "DRAWorkloadResourceClaims": off(Stage.ALPHA, "DynamicResourceAllocation", "GenericWorkload"),
    "GenericWorkload": off(Stage.ALPHA),
    "GangScheduling": off(Stage.ALPHA, "GenericWorkload"),
    "TopologyAwareWorkloadScheduling": off(Stage.ALPHA, "GenericWorkload"),
    "WorkloadAwarePreemption": off(Stage.ALPHA, "GangScheduling"),
    "CoordinatedLeaderElection": off(Stage.BETA),
    "ComponentStatusz": on(Stage.BETA),
    "ComponentFlagz": on(Stage.BETA),
    "WatchListClient": on(Stage.BETA),
}

V1_36: Final = Release(
    minor=36,
    patch_version="1.36.4",
    features=_FEATURES_1_36,
    gates=default_gates(_FEATURES_1_36),
    default_plugins=(
        ("SchedulingGates", 0),
        ("PrioritySort", 0),
        ("NodeUnschedulable", 0),
        ("NodeName", 0),
        ("TaintToleration", 3),
        ("NodeAffinity", 2),
        ("NodePorts", 0),
        ("NodeResourcesFit", 1),
        ("VolumeRestrictions", 0),
        ("NodeVolumeLimits", 0),
        ("VolumeBinding", 0),
        ("VolumeZone", 0),
        ("PodTopologySpread", 2),
        ("InterPodAffinity", 2),
        ("DynamicResources", 2),
        ("DefaultPreemption", 0),
        ("NodeResourcesBalancedAllocation", 1),
        ("ImageLocality", 1),
        ("DefaultBinder", 0),
    ),
    gated_plugins=(
        GatedPlugin("NodeDeclaredFeatures", 0, "NodeDeclaredFeatures"),
        GatedPlugin("GangScheduling", 0, "GangScheduling"),
        GatedPlugin("TopologyPlacementGenerator", 0, "TopologyAwareWorkloadScheduling"),
        GatedPlugin("PodGroupPodsCount", 1, "TopologyAwareWorkloadScheduling"),
    ),
    registry={
        "SchedulingGates": frozenset({"PreEnqueue"}),
        "PrioritySort": frozenset({"QueueSort"}),
        "NodeUnschedulable": frozenset({"Filter"}),
        "NodeName": frozenset({"Filter"}),
        "TaintToleration": _SCORING | {"Filter"},
        "NodeAffinity": _FILTERING | _SCORING,
        "NodePorts": _FILTERING,
        "NodeResourcesFit": _FILTERING | _SCORING | {"PlacementScore"},
        "VolumeRestrictions": _FILTERING,
        "NodeVolumeLimits": _FILTERING,
        "VolumeBinding": _FILTERING | _SCORING | {"Reserve", "PreBind"},
        "VolumeZone": _FILTERING,
        "PodTopologySpread": _FILTERING | _SCORING,
        "InterPodAffinity": _FILTERING | _SCORING,
        "DynamicResources": _FILTERING | {"PreEnqueue", "PostFilter", "Score", "Reserve", "PreBind"},
        "DefaultPreemption": frozenset({"PreEnqueue", "PostFilter"}),
        "NodeResourcesBalancedAllocation": _SCORING,
        "ImageLocality": frozenset({"Score"}),
        "DefaultBinder": frozenset({"Bind"}),
        "NodeDeclaredFeatures": _FILTERING,
        "GangScheduling": frozenset({"PreEnqueue", "Permit"}),
        "TopologyPlacementGenerator": frozenset({"PlacementGenerate"}),
        "PodGroupPodsCount": frozenset({"PlacementScore"}),
    },
    accounting=ContainerAccounting(),
    queue=QueueRules(),
    devices=DeviceRules(),
    metrics=MetricRules(),
    server=ServerRules(),
)


_REMOVED_GATES: Final = frozenset(
    {"SchedulerQueueingHints", "GangScheduling", "WorkloadAwarePreemption", "SidecarContainers"}
)
_CHANGED_GATES: Final[dict[str, Feature]] = {
    "NodeDeclaredFeatures": on(Stage.LOCKED),
    "InPlacePodVerticalScalingInitContainers": on(Stage.LOCKED),
    "InPlacePodVerticalScalingSchedulerPreemption": off(Stage.ALPHA, "InPlacePodVerticalScaling"),
    "PodLevelResourcesFixDefaulting": on(Stage.BETA, "PodLevelResources"),
    "StorageCapacityScoring": on(Stage.BETA),
    "VolumeLimitScaling": on(Stage.BETA),
    "DRAPrioritizedList": on(Stage.LOCKED),
    "DRADeviceTaints": on(Stage.GA),
    "DRADeviceTaintRules": on(Stage.GA, "DRADeviceTaints"),
    "DRAExtendedResource": on(Stage.LOCKED),
    "DRAResourceClaimDeviceStatus": on(Stage.LOCKED),
    "DRAFractionalCapacityRange": Feature(Stage.BETA, False, ("DRAConsumableCapacity",), compatible_from=37),
    "DRADerivedAttributes": off(Stage.ALPHA),
    "DRADeviceCompatibilityGroups": off(Stage.ALPHA, "DRAPartitionableDevices"),
    "DRAOptionalNodeOperations": off(Stage.ALPHA, "NodeDeclaredFeatures"),
    "DRAWorkloadResourceClaims": off(Stage.BETA, "DynamicResourceAllocation", "GenericWorkload"),
    "GenericWorkload": off(Stage.BETA),
    "CompositePodGroup": off(Stage.ALPHA, "GenericWorkload", "TopologyAwareWorkloadScheduling"),
    "PodGroupPreemptionPolicy": off(Stage.ALPHA, "GenericWorkload"),
    "SchedulerPreQueueingHints": off(Stage.ALPHA),
    "InterPodAffinityHostnameFastPath": off(Stage.ALPHA),
}

_FEATURES_1_37: Final[dict[str, Feature]] = {
    **{name: feature for name, feature in V1_36.features.items() if name not in _REMOVED_GATES},
    **_CHANGED_GATES,
}

V1_37: Final = replace(
    V1_36,
    minor=37,
    patch_version="1.37.1",
    features=_FEATURES_1_37,
    gates=default_gates(_FEATURES_1_37),
    gated_plugins=(
        GatedPlugin("NodeDeclaredFeatures", 0, "NodeDeclaredFeatures"),
        GatedPlugin("GangScheduling", 0, "GenericWorkload"),
        GatedPlugin("TopologyPlacementGenerator", 0, "TopologyAwareWorkloadScheduling"),
        GatedPlugin("PodGroupPodsCount", 1, "TopologyAwareWorkloadScheduling"),
    ),
    new_kinds=frozenset({"DeviceTaintRule"}),
    server=ServerRules(
        statuses=frozenset({"CSINode"}),
        generations=frozenset({"HorizontalPodAutoscaler"}),
        selectable={"ResourceSlice": ("spec.pool.name",)},
        defaults={
            "CSIDriver": {"spec": {"preventPodSchedulingIfMissing": False}},
            "CSINode": {"status": {}},
            "StatefulSet": {"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 1}}}},
        },
    ),
    default_plugins=(
        ("SchedulingGates", 0),
        ("PrioritySort", 0),
        ("NodeName", 0),
        ("NodeUnschedulable", 0),
        *V1_36.default_plugins[4:],
    ),
    registry={
        **V1_36.registry,
        "NodeUnschedulable": V1_36.registry["NodeUnschedulable"] | {"PreFilter"},
        "NodeName": V1_36.registry["NodeName"] | {"PreFilter"},
        "TaintToleration": V1_36.registry["TaintToleration"] | {"PreFilter"},
        "DynamicResources": V1_36.registry["DynamicResources"] | {"PodGroupPostFilter"},
        "DefaultPreemption": V1_36.registry["DefaultPreemption"] | {"PodGroupPostFilter"},
        # Does nothing while InPlacePodVerticalScalingSchedulerPreemption is off.
        "DeferredPodScheduling": frozenset({"PreFilter", "Filter", "Permit"}),
    },
    has_pod_group_post_filter=True,
    preemption_success=(
        "preemption: found a potential placement for pod on node {node}, preempting {victims} victims"
    ),
    accounting=PodAccounting(),
    budget_walk_stops=True,
    in_memory_preemption_activates=True,
    image_volumes_raise_limit=True,
    namespace_selectors_by_name=True,
    anti_affinity_hint_any_term=True,
    queue=QueueRules(
        pending_pod="UnscheduledPod",
        own_update="TargetPod",
        has_scale_up=True,
        node_add_implies_taints=False,
        shares_own_updates=True,
        nominates_gated_pods=True,
        unknown_update_adds=True,
        counts_every_deletion=True,
        counts_flushed_pods=True,
        group_queues=("incomplete", "pending"),
        dump_label="unschedulableEntities",
    ),
    devices=DeviceRules(
        distinct_over_all_devices=True,
        all_includes_exhausted_devices=True,
        counter_slices_by_node=True,
        share_without_capacity_is_use=True,
        uncomputable_capacity_is_error=True,
        device_limit_names_request=True,
        cel_error_names_device=True,
        config_entries_once=True,
        consumed_capacity_format_of_step=True,
        ignores_compatibility_groups=True,
        claim_delete_requeues=True,
        reserve_requires_claim=True,
        in_flight_until_bound=True,
        taint_rule_without_selector_matches_all=False,
        post_filter_without_message=True,
    ),
    metrics=MetricRules(
        families=frozenset(
            {
                "dynamic_resource_allocation_resourceclaim_creates_total",
                "informer_processing_latency_seconds",
                "informer_queued_items",
                "informer_store_resource_version",
                "scheduler_batch_rescore_attempts_total",
                "scheduler_batch_rescore_duration_seconds",
                "scheduler_pre_queueing_hint_evaluations_total",
                "scheduler_queue_incoming_entities_total",
                "scheduler_queued_entities",
            }
        ),
        beta=frozenset(
            {"scheduler_plugin_execution_duration_seconds", "scheduler_scheduling_algorithm_duration_seconds"}
        ),
        hidden=frozenset({"scheduler_preemption_goroutines_duration_seconds"}),
        batch_flush_reasons=(
            *("pod_skipped", "pod_failed", "pod_nominated", "pod_incompatible", "expired", "node_missing"),
            *("pod_not_batchable", "empty_list"),
            *("filter_error", "prescore_error", "rescore_error", "normalize_error"),
        ),
        measures_preemption_tasks=True,
        counts_terminating_victims=True,
    ),
)


RELEASES: Final[dict[str, Release]] = {release.version: release for release in (V1_36, V1_37)}
"""All releases by version, oldest first."""

DEFAULT_RELEASE: Final = V1_37
"""The release of what does not name one."""

DEFAULT_DEVICE_FEATURES: Final = device_features(DEFAULT_RELEASE)

_VERSION: Final = re.compile(r"(?:kube[=:])?v?(\d+)\.(\d+)(?:\.\d+)?")
_SERVER_MINOR: Final = re.compile(r"\d+")


def parse_release(text: str) -> Release:
    """The release that a flag names: `1.36`; also `v1.36`, `1.36.4`, and `kube=1.36` as in kube-scheduler.

    Raises:
        ConfigError: it is not a version, or not one of a release that bayplan implements.
    """
    match = _VERSION.fullmatch(text.strip())
    release = RELEASES.get(f"{int(match[1])}.{int(match[2])}") if match else None
    if release is None:
        known = " and ".join(RELEASES)
        raise ConfigError(f"{text!r} is not a supported Kubernetes version; bayplan implements {known}")
    return release


def nearest_release(major: str, minor: str) -> tuple[Release, bool]:
    """The release nearest to the version of an API server, and whether it is that version.

    `minor` may have a suffix, as some providers have it (`36+`). For a version that is not a number or not
    1.N, it is the newest release.
    """
    number = _SERVER_MINOR.match(minor)
    if major != "1" or number is None:
        return max(RELEASES.values(), key=lambda release: release.minor), False
    wanted = int(number[0])
    release = min(RELEASES.values(), key=lambda release: abs(release.minor - wanted))
    return release, release.minor == wanted
