"""The families that only some releases of Kubernetes have; `Release.metrics.families` names them."""

from __future__ import annotations

from typing import Any, Final

from bayplan.metrics.instruments import Level, Spec, counter, exponential, gauge, histogram

ALPHA: Final = Level.ALPHA

# Informers

_INFORMER_LABELS: Final = ("name", "group", "version", "resource")
_PROCESSING_SECONDS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

INFORMER_QUEUED: Final = gauge(
    "informer_queued_items",
    ALPHA,
    "Changes that wait for their handlers. Always 0: bayplan handles changes as it receives them.",
    *_INFORMER_LABELS,
)
INFORMER_SECONDS: Final = histogram(
    "informer_processing_latency_seconds",
    ALPHA,
    "Time to handle a list, or changes that were received together.",
    *_INFORMER_LABELS,
    buckets=_PROCESSING_SECONDS,
)
INFORMER_VERSION: Final = gauge(
    "informer_store_resource_version",
    ALPHA,
    "The last 15 digits of the resourceVersion up to which all changes are handled.",
    *_INFORMER_LABELS,
)

# Queue

QUEUED_ENTITIES: Final = gauge(
    "scheduler_queued_entities",
    ALPHA,
    "Pending pods by queue. bayplan has no pod groups, so the type is always pod.",
    "queue",
    "type",
)
QUEUE_INCOMING_ENTITIES: Final = counter(
    "scheduler_queue_incoming_entities_total",
    ALPHA,
    "Pods added to their first queue, or to another one than was decided for them, by event.",
    "queue",
    "event",
    "type",
)
PRE_HINTS: Final = counter(
    "scheduler_pre_queueing_hint_evaluations_total",
    ALPHA,
    "Evaluations of PreQueueingHints. Never counted: SchedulerPreQueueingHints is off.",
    "plugin",
    "result",
)

# Batching, which bayplan does not have

BATCH_RESCORES: Final = counter(
    "scheduler_batch_rescore_attempts_total",
    ALPHA,
    "Nodes scored again for the next pod of a batch. Always 0.",
    "profile",
)
BATCH_RESCORE_SECONDS: Final = histogram(
    "scheduler_batch_rescore_duration_seconds",
    ALPHA,
    "Time to score a node again for the next pod of a batch. Always empty.",
    "profile",
    buckets=exponential(0.00001, 2, 12),
)

# Devices

CLAIM_CREATES: Final = counter(
    "scheduler_resourceclaim_creates_total",
    ALPHA,
    "ResourceClaims created for extended resources.",
    "status",
)
CLAIM_CREATES_BY_OWNER: Final = counter(
    "dynamic_resource_allocation_resourceclaim_creates_total",
    ALPHA,
    "ResourceClaims created for extended resources, by the owner of the claim.",
    "status",
    "admin_access",
    "owner_api_group",
    "owner_api_kind",
)

# Every spec above: a list written by hand would one day miss one.
RELEASE_SPECS: Final[tuple[Spec[Any], ...]] = tuple(
    spec for spec in list(globals().values()) if isinstance(spec, Spec)
)
