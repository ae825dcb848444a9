"""Kubernetes v1.37: what changed since v1.36."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from bayplan.api.releases.devices import DeviceRules
from bayplan.api.releases.features import Feature, Stage, default_gates, off, on
from bayplan.api.releases.metrics import MetricRules
from bayplan.api.releases.queueing import QueueRules
from bayplan.api.releases.release import GatedPlugin
from bayplan.api.releases.server import ServerRules
from bayplan.api.releases.v1_36 import V1_36
from bayplan.api.requests import PodAccounting

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
    "DRAWorkloadResourceClaims": off(Stage.BETA, "GenericWorkload"),
    "GenericWorkload": off(Stage.BETA),
    "CompositePodGroup": off(Stage.ALPHA, "GenericWorkload", "TopologyAwareWorkloadScheduling"),
    "PodGroupPreemptionPolicy": off(Stage.ALPHA, "GenericWorkload"),
    "SchedulerPreQueueingHints": off(Stage.ALPHA),
    "InterPodAffinityHostnameFastPath": off(Stage.ALPHA),
}

_FEATURES: Final[dict[str, Feature]] = {
    **{name: feature for name, feature in V1_36.features.items() if name not in _REMOVED_GATES},
    **_CHANGED_GATES,
}

V1_37: Final = replace(
    V1_36,
    minor=37,
    patch_version="1.37.1",
    features=_FEATURES,
    gates=default_gates(_FEATURES),
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
