"""The scheduler's own metrics by name: type, stability, labels, buckets and what each says.

Names, types, labels and buckets are kube-scheduler's, so that its dashboards and alerts keep working. Metrics
of features that are off by default (asynchronous API calls, pod groups) are not there, as upstream. The order
here is by subject; a scrape shows them by name. Families that only some releases have are in
`release_families.py`, and `Release.metrics` says which stability levels changed.
"""

from __future__ import annotations

from typing import Any, Final

from bayplan.metrics.instruments import Level, Spec, counter, exponential, gauge, histogram

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
    "result",
    "profile",
)
ATTEMPT_SECONDS: Final = histogram(
    "scheduler_scheduling_attempt_duration_seconds",
    STABLE,
    "Time from the start of an attempt to the pod's binding or the attempt's failure.",
    "result",
    "profile",
    buckets=_MILLISECONDS,
)
ALGORITHM_SECONDS: Final = histogram(
    "scheduler_scheduling_algorithm_duration_seconds",
    ALPHA,
    "Time to choose a node.",
    buckets=_MILLISECONDS,
)
POD_SLI_SECONDS: Final = histogram(
    "scheduler_pod_scheduling_sli_duration_seconds",
    BETA,
    "Time from a pod's first attempt to its binding, by number of attempts.",
    "attempts",
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
PREEMPTION_ATTEMPTS: Final = counter(
    "scheduler_preemption_attempts_total",
    STABLE,
    "Preemption attempts.",
)
PREEMPTION_TASK_SECONDS: Final = histogram(
    "scheduler_preemption_goroutines_duration_seconds",
    ALPHA,
    "Duration of the background tasks that evict victims. As v1.36 always 0.",
    "result",
    buckets=exponential(0.01, 2, 20),
)
PREEMPTION_TASKS: Final = counter(
    "scheduler_preemption_goroutines_execution_total",
    ALPHA,
    "Background tasks that evict victims.",
    "result",
)

# Queue

PENDING_PODS: Final = gauge(
    "scheduler_pending_pods",
    STABLE,
    "Pending pods: in the active queue, in backoff, unschedulable, or gated.",
    "queue",
)
QUEUE_INCOMING: Final = counter(
    "scheduler_queue_incoming_pods_total",
    STABLE,
    "Pods that entered a queue, by the event that moved them.",
    "queue",
    "event",
)
UNSCHEDULABLE_PODS: Final = gauge(
    "scheduler_unschedulable_pods",
    BETA,
    "Unschedulable pods by the plugin that rejected them; a pod counts once for each such plugin.",
    "plugin",
    "profile",
)
INFLIGHT_EVENTS: Final = gauge(
    "scheduler_inflight_events",
    ALPHA,
    "Events recorded while pods are being scheduled that they may requeue.",
    "event",
)
HINT_SECONDS: Final = histogram(
    "scheduler_queueing_hint_execution_duration_seconds",
    ALPHA,
    "Time to evaluate the queueing hint of a plugin.",
    "plugin",
    "event",
    "hint",
    buckets=_PLUGIN_SECONDS,
)
EVENT_SECONDS: Final = histogram(
    "scheduler_event_handling_duration_seconds",
    ALPHA,
    "Time to handle an event of the cluster.",
    "event",
    buckets=_POINT_SECONDS,
)

# Framework

EXTENSION_POINT_SECONDS: Final = histogram(
    "scheduler_framework_extension_point_duration_seconds",
    STABLE,
    "Time to run all plugins of an extension point.",
    "extension_point",
    "status",
    "profile",
    buckets=_POINT_SECONDS,
)
PLUGIN_SECONDS: Final = histogram(
    "scheduler_plugin_execution_duration_seconds",
    ALPHA,
    "Time to run one plugin at an extension point, sampled in one attempt of ten.",
    "plugin",
    "extension_point",
    "status",
    buckets=_PLUGIN_SECONDS,
)
PLUGIN_EVALUATIONS: Final = counter(
    "scheduler_plugin_evaluation_total",
    BETA,
    "Attempts in which a plugin was evaluated at PreFilter, Filter, PreScore or Score.",
    "plugin",
    "extension_point",
    "profile",
)
PERMIT_WAIT_SECONDS: Final = histogram(
    "scheduler_permit_wait_duration_seconds",
    BETA,
    "Time that pods waited at Permit.",
    "result",
    buckets=_MILLISECONDS,
)
RUNNING: Final = gauge(
    "scheduler_goroutines",
    BETA,
    "Running tasks by operation.",
    "operation",
)
CACHE_SIZE: Final = gauge(
    "scheduler_cache_size",
    ALPHA,
    "Nodes, pods and assumed pods in the scheduler cache.",
    "type",
)
UNREADABLE_OBJECTS: Final = gauge(
    "bayplan_unreadable_objects",
    ALPHA,
    "Objects of the cluster whose current version cannot be read, by kind.",
    "kind",
)

# Batching: bayplan does without (signatures do the same exactly), so these stay 0.

BATCH_ATTEMPTS: Final = counter(
    "scheduler_batch_attempts_total",
    ALPHA,
    "Attempts to reuse the nodes found for the previous pod. Always 0: bayplan caches results otherwise.",
    "profile",
    "result",
)
BATCH_FLUSHES: Final = counter(
    "scheduler_batch_cache_flushed_total",
    ALPHA,
    "Times that the nodes found for the previous pod could not be used. Always 0.",
    "profile",
    "reason",
)
NODE_HINT_SECONDS: Final = histogram(
    "scheduler_get_node_hint_duration_seconds",
    ALPHA,
    "Time to get a node found for the previous pod. Always empty.",
    "hinted",
    "profile",
    buckets=_HINT_SECONDS,
)
STORE_RESULTS_SECONDS: Final = histogram(
    "scheduler_store_schedule_results_duration_seconds",
    ALPHA,
    "Time to store the nodes for the next pod. Always empty.",
    "profile",
    buckets=_HINT_SECONDS,
)

# Devices and volumes

BINDING_CONDITIONS: Final = counter(
    "scheduler_dra_bindingconditions_allocations_total",
    ALPHA,
    "Allocations of devices that had to meet conditions before the pod was bound.",
    "profile",
    "driver",
    "status",
)
BINDING_CONDITIONS_SECONDS: Final = histogram(
    "scheduler_dra_bindingconditions_wait_duration_seconds",
    ALPHA,
    "Time spent waiting for the binding conditions of allocated devices.",
    "profile",
    "driver",
    "status",
    buckets=exponential(0.1, 2, 14),
)
VOLUME_BINDER_CACHE: Final = counter(
    "scheduler_volume_binder_cache_requests_total",
    ALPHA,
    "Requests to the volume binder's cache. Never counted, as in kube-scheduler.",
    "operation",
)
VOLUME_STAGE_ERRORS: Final = counter(
    "scheduler_volume_scheduling_stage_error_total",
    ALPHA,
    "Errors of volume scheduling, by stage.",
    "operation",
)

# Every spec above: a list written by hand would one day miss one.
SCHEDULER_SPECS: Final[tuple[Spec[Any], ...]] = tuple(
    spec for spec in list(globals().values()) if isinstance(spec, Spec)
)
