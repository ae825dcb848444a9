"""Every metric of the scheduler by name: type, stability, labels, buckets and meaning.

Names, types, labels and buckets are kube-scheduler's, so that its dashboards and alerts keep working. Metrics
of features that are off by default (asynchronous API calls, pod groups) are absent, as upstream. Some metrics
exist only in some releases of Kubernetes (`Release.metrics` names them, and the stability levels that
changed) or with a feature gate; `specs_of` selects those of a release. Those of the process around the
scheduler are in `process_families.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from bayplan.api.releases import Release
from bayplan.metrics.instruments import Gauge, Level, Spec, counter, exponential, gauge, histogram, specs_in
from bayplan.metrics.process_families import PROCESS_SPECS

ALPHA, BETA, STABLE = Level.ALPHA, Level.BETA, Level.STABLE

_MILLISECONDS: Final = exponential(0.001, 2, 15)
_POINT_SECONDS: Final = exponential(0.0001, 2, 12)
_PLUGIN_SECONDS: Final = exponential(0.00001, 1.5, 20)
_HINT_SECONDS: Final = exponential(0.00001, 2, 12)

# Attempts

SCHEDULE_ATTEMPTS: Final = counter(
    "scheduler_schedule_attempts_total",
    STABLE,
    "Attempts to schedule a pod, by result: scheduled, unschedulable (no node fits) or error.",
    ("result", "profile"),
)
ATTEMPT_SECONDS: Final = histogram(
    "scheduler_scheduling_attempt_duration_seconds",
    STABLE,
    "Time from the start of an attempt to the pod's binding or the attempt's failure.",
    ("result", "profile"),
    buckets=_MILLISECONDS,
)
ALGORITHM_SECONDS: Final = histogram(
    "scheduler_scheduling_algorithm_duration_seconds", ALPHA, "Time to choose a node.", buckets=_MILLISECONDS
)
POD_SLI_SECONDS: Final = histogram(
    "scheduler_pod_scheduling_sli_duration_seconds",
    BETA,
    "Time from a pod's first attempt to its binding, by number of attempts.",
    ("attempts",),
    buckets=exponential(0.01, 2, 20),
)
POD_ATTEMPTS: Final = histogram(
    "scheduler_pod_scheduling_attempts",
    STABLE,
    "Attempts that it took to schedule a pod.",
    buckets=exponential(1, 2, 5),
)
SCHEDULED_AFTER_FLUSH: Final = counter(
    "scheduler_pod_scheduled_after_flush_total",
    ALPHA,
    "Pods scheduled after the periodic flush of long unschedulable pods. As v1.36 always 0.",
)

# Preemption

PREEMPTION_VICTIMS: Final = histogram(
    "scheduler_preemption_victims",
    STABLE,
    "The number of pods evicted for one pod.",
    buckets=exponential(1, 2, 7),
)
PREEMPTION_ATTEMPTS: Final = counter("scheduler_preemption_attempts_total", STABLE, "Preemption attempts.")
PREEMPTION_TASK_SECONDS: Final = histogram(
    "scheduler_preemption_goroutines_duration_seconds",
    ALPHA,
    "Duration of the background tasks that evict victims. As v1.36 always 0.",
    ("result",),
    buckets=exponential(0.01, 2, 20),
)
PREEMPTION_TASKS: Final = counter(
    "scheduler_preemption_goroutines_execution_total",
    ALPHA,
    "Background tasks that evict victims.",
    ("result",),
)

# Queue

PENDING_PODS: Final = gauge(
    "scheduler_pending_pods",
    STABLE,
    "Pending pods: in the active queue, in backoff, unschedulable, or gated.",
    ("queue",),
)
QUEUE_INCOMING: Final = counter(
    "scheduler_queue_incoming_pods_total",
    STABLE,
    "Pods that entered a queue, by the event that moved them.",
    ("queue", "event"),
)
UNSCHEDULABLE_PODS: Final = gauge(
    "scheduler_unschedulable_pods",
    BETA,
    "Unschedulable pods by the plugin that rejected them; a pod counts once for each such plugin.",
    ("plugin", "profile"),
)
INFLIGHT_EVENTS: Final = gauge(
    "scheduler_inflight_events",
    ALPHA,
    "Events recorded while pods are being scheduled that they may requeue.",
    ("event",),
)
HINT_SECONDS: Final = histogram(
    "scheduler_queueing_hint_execution_duration_seconds",
    ALPHA,
    "Time to evaluate the queueing hint of a plugin.",
    ("plugin", "event", "hint"),
    buckets=_PLUGIN_SECONDS,
)
EVENT_SECONDS: Final = histogram(
    "scheduler_event_handling_duration_seconds",
    ALPHA,
    "Time to handle an event of the cluster.",
    ("event",),
    buckets=_POINT_SECONDS,
)

# Framework

EXTENSION_POINT_SECONDS: Final = histogram(
    "scheduler_framework_extension_point_duration_seconds",
    STABLE,
    "Time to run all plugins of an extension point.",
    ("extension_point", "status", "profile"),
    buckets=_POINT_SECONDS,
)
PLUGIN_SECONDS: Final = histogram(
    "scheduler_plugin_execution_duration_seconds",
    ALPHA,
    "Time to run one plugin at an extension point, sampled in one attempt of ten.",
    ("plugin", "extension_point", "status"),
    buckets=_PLUGIN_SECONDS,
)
PLUGIN_EVALUATIONS: Final = counter(
    "scheduler_plugin_evaluation_total",
    BETA,
    "Attempts in which a plugin was evaluated at PreFilter, Filter, PreScore or Score.",
    ("plugin", "extension_point", "profile"),
)
PERMIT_WAIT_SECONDS: Final = histogram(
    "scheduler_permit_wait_duration_seconds",
    BETA,
    "Time that pods waited at Permit.",
    ("result",),
    buckets=_MILLISECONDS,
)
RUNNING: Final = gauge("scheduler_goroutines", BETA, "Running tasks by operation.", ("operation",))
CACHE_SIZE: Final = gauge(
    "scheduler_cache_size", ALPHA, "Nodes, pods and assumed pods in the scheduler cache.", ("type",)
)
UNREADABLE_OBJECTS: Final = gauge(
    "bayplan_unreadable_objects",
    ALPHA,
    "Objects of the cluster whose current version cannot be read, by kind.",
    ("kind",),
)

QUEUE_RESOURCE: Final = gauge(
    "yunikorn_queue_resource",
    ALPHA,
    "Resources of a capacity queue by state: allocated, guaranteed, max, pending, preempting.",
    ("queue", "state", "resource"),
)
QUEUE_APP: Final = gauge(
    "yunikorn_queue_app",
    ALPHA,
    "Applications of a capacity queue by state: accepted (no pod has a node yet), running.",
    ("queue", "state"),
)


def _of_volcano(name: str, text: str) -> Spec[Gauge]:
    return gauge(f"volcano_queue_{name}", ALPHA, f"{text} of one of Volcano's queues.", ("queue_name",))


VOLCANO_ALLOCATED_CPU: Final = _of_volcano("allocated_milli_cpu", "Allocated millicores")
VOLCANO_ALLOCATED_MEMORY: Final = _of_volcano("allocated_memory_bytes", "Allocated memory")
VOLCANO_REQUEST_CPU: Final = _of_volcano("request_milli_cpu", "Requested millicores")
VOLCANO_REQUEST_MEMORY: Final = _of_volcano("request_memory_bytes", "Requested memory")
VOLCANO_DESERVED_CPU: Final = _of_volcano("deserved_milli_cpu", "Deserved millicores")
VOLCANO_DESERVED_MEMORY: Final = _of_volcano("deserved_memory_bytes", "Deserved memory")
VOLCANO_SHARE: Final = _of_volcano("share", "Share")
VOLCANO_WEIGHT: Final = _of_volcano("weight", "Weight")
VOLCANO_OVERUSED: Final = _of_volcano("overused", "1 if it has all that it deserves, else 0,")

# Batching: bayplan does without (signatures do the same exactly), so these stay 0.

BATCH_ATTEMPTS: Final = counter(
    "scheduler_batch_attempts_total",
    ALPHA,
    "Attempts to reuse the nodes found for the previous pod. Always 0: bayplan caches results otherwise.",
    ("profile", "result"),
)
BATCH_FLUSHES: Final = counter(
    "scheduler_batch_cache_flushed_total",
    ALPHA,
    "Times that the nodes found for the previous pod could not be used. Always 0.",
    ("profile", "reason"),
)
NODE_HINT_SECONDS: Final = histogram(
    "scheduler_get_node_hint_duration_seconds",
    ALPHA,
    "Time to get a node found for the previous pod. Always empty.",
    ("hinted", "profile"),
    buckets=_HINT_SECONDS,
)
STORE_RESULTS_SECONDS: Final = histogram(
    "scheduler_store_schedule_results_duration_seconds",
    ALPHA,
    "Time to store the nodes for the next pod. Always empty.",
    ("profile",),
    buckets=_HINT_SECONDS,
)

# Devices and volumes

BINDING_CONDITIONS: Final = counter(
    "scheduler_dra_bindingconditions_allocations_total",
    ALPHA,
    "Allocations of devices that had to meet conditions before the pod was bound.",
    ("profile", "driver", "status"),
)
BINDING_CONDITIONS_SECONDS: Final = histogram(
    "scheduler_dra_bindingconditions_wait_duration_seconds",
    ALPHA,
    "Time spent waiting for the binding conditions of allocated devices.",
    ("profile", "driver", "status"),
    buckets=exponential(0.1, 2, 14),
)
VOLUME_BINDER_CACHE: Final = counter(
    "scheduler_volume_binder_cache_requests_total",
    ALPHA,
    "Requests to the volume binder's cache. Never counted, as in kube-scheduler.",
    ("operation",),
)
VOLUME_STAGE_ERRORS: Final = counter(
    "scheduler_volume_scheduling_stage_error_total",
    ALPHA,
    "Errors of volume scheduling, by stage.",
    ("operation",),
)

SCHEDULER_SPECS: Final = specs_in(globals())

# Only in some releases: informers

_INFORMER_LABELS: Final = ("name", "group", "version", "resource")
_PROCESSING_SECONDS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

INFORMER_QUEUED: Final = gauge(
    "informer_queued_items",
    ALPHA,
    "Changes that wait for their handlers. Always 0: bayplan handles changes as it receives them.",
    _INFORMER_LABELS,
)
INFORMER_SECONDS: Final = histogram(
    "informer_processing_latency_seconds",
    ALPHA,
    "Time to handle a list, or changes that were received together.",
    _INFORMER_LABELS,
    buckets=_PROCESSING_SECONDS,
)
INFORMER_VERSION: Final = gauge(
    "informer_store_resource_version",
    ALPHA,
    "The last 15 digits of the resourceVersion up to which all changes are handled.",
    _INFORMER_LABELS,
)

# Only in some releases: the queue

QUEUED_ENTITIES: Final = gauge(
    "scheduler_queued_entities",
    ALPHA,
    "Pending pods and pod groups by queue.",
    ("queue", "type"),
)
QUEUE_INCOMING_ENTITIES: Final = counter(
    "scheduler_queue_incoming_entities_total",
    ALPHA,
    "Pods added to their first queue, or to another one than was decided for them, by event.",
    ("queue", "event", "type"),
)
PRE_HINTS: Final = counter(
    "scheduler_pre_queueing_hint_evaluations_total",
    ALPHA,
    "Evaluations of PreQueueingHints. Never counted: SchedulerPreQueueingHints is off.",
    ("plugin", "result"),
)

# Only in some releases: batching, which bayplan does not have

BATCH_RESCORES: Final = counter(
    "scheduler_batch_rescore_attempts_total",
    ALPHA,
    "Nodes scored again for the next pod of a batch. Always 0.",
    ("profile",),
)
BATCH_RESCORE_SECONDS: Final = histogram(
    "scheduler_batch_rescore_duration_seconds",
    ALPHA,
    "Time to score a node again for the next pod of a batch. Always empty.",
    ("profile",),
    buckets=_HINT_SECONDS,
)

# Only in some releases: devices

CLAIM_CREATES: Final = counter(
    "scheduler_resourceclaim_creates_total",
    ALPHA,
    "ResourceClaims created for extended resources.",
    ("status",),
)
CLAIM_CREATES_BY_OWNER: Final = counter(
    "dynamic_resource_allocation_resourceclaim_creates_total",
    ALPHA,
    "ResourceClaims created for extended resources, by the owner of the claim.",
    ("status", "admin_access", "owner_api_group", "owner_api_kind"),
)

RELEASE_SPECS: Final = specs_in(globals(), *SCHEDULER_SPECS)

# Only with the feature gate GenericWorkload: pod groups

GROUP_ATTEMPTS: Final = counter(
    "scheduler_podgroup_schedule_attempts_total",
    ALPHA,
    "Attempts to schedule a pod group: scheduled, unschedulable, waiting_on_preemption or error.",
    ("result", "profile"),
)
GROUP_ATTEMPT_SECONDS: Final = histogram(
    "scheduler_podgroup_scheduling_attempt_duration_seconds",
    ALPHA,
    "Time from the start of an attempt for a pod group to the submission of its pods.",
    ("result", "profile"),
    buckets=_MILLISECONDS,
)
GROUP_ALGORITHM_SECONDS: Final = histogram(
    "scheduler_podgroup_scheduling_algorithm_duration_seconds",
    ALPHA,
    "Time to choose nodes for the pods of a group.",
    buckets=_MILLISECONDS,
)
GROUP_PREEMPTIONS: Final = counter(
    "scheduler_workload_preemption_attempts_total",
    ALPHA,
    "Preemptions for pod groups, by the status of the plugin.",
    ("result",),
)
GROUP_PREEMPTION_VICTIMS: Final = histogram(
    "scheduler_workload_preemption_victims",
    ALPHA,
    "The number of pods evicted for one pod group.",
    buckets=exponential(1, 2, 11),
)
GROUP_DISRUPTIONS: Final = histogram(
    "scheduler_preemption_workload_disruptions",
    ALPHA,
    "The number of pod groups, or of their members, that one preemption evicts, by the type of preemptor.",
    ("preemptor",),
    buckets=exponential(1, 2, 11),
)
PREEMPTION_EVALUATION_SECONDS: Final = histogram(
    "scheduler_preemption_evaluation_duration_seconds",
    ALPHA,
    "Time to find the victims of a preemption, by the type of preemptor and the status of the plugin.",
    ("preemptor", "result"),
    buckets=exponential(0.001, 2, 16),
)
PREEMPTION_EXECUTION_SECONDS: Final = histogram(
    "scheduler_preemption_execution_duration_seconds",
    ALPHA,
    "Time to evict the victims of a preemption: success or error.",
    ("preemptor", "result"),
    buckets=exponential(0.001, 2, 16),
)
BUDGET_VIOLATIONS: Final = counter(
    "scheduler_preemption_pdb_violations_total",
    ALPHA,
    "Evictions that violated a PodDisruptionBudget, by the type of preemptor.",
    ("preemptor",),
)

GROUP_SPECS: Final = specs_in(globals(), *SCHEDULER_SPECS, *RELEASE_SPECS)

# Only with the feature gate TopologyAwareWorkloadScheduling: placements of pod groups

PLACEMENTS: Final = counter(
    "scheduler_generated_placements_total",
    ALPHA,
    "Sets of nodes among which pod groups could be placed.",
    ("profile",),
)
PLACEMENT_EVALUATIONS: Final = counter(
    "scheduler_placement_evaluations_total",
    ALPHA,
    "Placements that were evaluated: feasible or infeasible.",
    ("result", "profile"),
)
PLACEMENT_EVALUATION_SECONDS: Final = histogram(
    "scheduler_placement_evaluation_duration_seconds",
    ALPHA,
    "Time to evaluate one placement: feasible or infeasible.",
    ("result", "profile"),
    buckets=_MILLISECONDS,
)

PLACEMENT_SPECS: Final = specs_in(globals(), *SCHEDULER_SPECS, *RELEASE_SPECS, *GROUP_SPECS)


def specs_of(release: Release, *, show_hidden: bool = False) -> Iterator[Spec[Any]]:
    """The metrics of a release, with their stability levels."""
    rules = release.metrics
    always = (*SCHEDULER_SPECS, *PROCESS_SPECS)
    if "GenericWorkload" in release.gates:
        always = (*always, *GROUP_SPECS)
    if "TopologyAwareWorkloadScheduling" in release.gates:
        always = (*always, *PLACEMENT_SPECS)
    for spec in (*always, *(spec for spec in RELEASE_SPECS if spec.name in rules.families)):
        if spec.name in rules.hidden:
            if show_hidden:
                yield replace(spec, help=f"(Deprecated since {release}.0) {spec.help}")
        elif spec.name in rules.beta:
            yield replace(spec, level=BETA)
        else:
            yield spec
