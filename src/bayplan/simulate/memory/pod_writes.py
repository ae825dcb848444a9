"""A pod after a write of the API server, as pure functions: pod and time in, pod out.

The store sets the resourceVersion.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec.structs import replace

from bayplan.api.cluster_api import PodStatusPatch
from bayplan.api.defaults import DEFAULT_GRACE_PERIOD_SECONDS
from bayplan.api.meta import Condition
from bayplan.api.pod import Pod, PodStatus

POD_SCHEDULED: Final = "PodScheduled"
PENDING: Final = "Pending"
RUNNING: Final = "Running"

_GATED: Final = "SchedulingGated"
_GATED_MESSAGE: Final = "Scheduling is blocked due to non-empty scheduling gates"


def initial_status(pod: Pod, now: datetime) -> PodStatus:
    """The status of a new pod: as given, pending by default, and with the condition of its gates."""
    status = pod.status
    if not status.phase:
        status = replace(status, phase=PENDING)
    if pod.spec.scheduling_gates and all(known.type != POD_SCHEDULED for known in status.conditions):
        gated = Condition(
            type=POD_SCHEDULED,
            status="False",
            reason=_GATED,
            message=_GATED_MESSAGE,
            last_transition_time=now,
        )
        status = replace(status, conditions=(*status.conditions, gated))
    return status


def bound_status(status: PodStatus, now: datetime) -> PodStatus:
    """The status of a newly bound pod: scheduled, and no longer nominated."""
    condition = Condition(type=POD_SCHEDULED, status="True", last_transition_time=now)
    conditions = merge_condition(status.conditions, condition, now) if status.conditions else (condition,)
    return replace(status, conditions=conditions, nominated_node_name="")


def patched_status(status: PodStatus, patch: PodStatusPatch, now: datetime) -> PodStatus:
    """The status with the patch applied; the same object if nothing changes."""
    conditions, nominated = status.conditions, status.nominated_node_name
    if patch.condition is not None:
        conditions = merge_condition(conditions, patch.condition, now)
    if patch.nominated_node_name is not None:
        nominated = patch.nominated_node_name
    extended = patch.extended_resource_claim or status.extended_resource_claim_status
    if (
        conditions is status.conditions
        and nominated == status.nominated_node_name
        and extended == status.extended_resource_claim_status
    ):
        return status
    return replace(
        status,
        conditions=conditions,
        nominated_node_name=nominated,
        extended_resource_claim_status=extended,
    )


def merge_condition(
    conditions: tuple[Condition, ...], condition: Condition, now: datetime
) -> tuple[Condition, ...]:
    """The conditions with one of them replaced or added; the same tuple if nothing changes.

    The time of the last transition changes only with the condition's status. A new observedGeneration alone
    is no change.
    """
    for index, known in enumerate(conditions):
        if known.type != condition.type:
            continue
        if known.status != condition.status:
            since = condition.last_transition_time or now
        elif (known.reason, known.message, known.last_probe_time) == (
            condition.reason,
            condition.message,
            condition.last_probe_time,
        ):
            return conditions
        else:
            since = known.last_transition_time or now
        return (*conditions[:index], replace(condition, last_transition_time=since), *conditions[index + 1 :])
    return (*conditions, replace(condition, last_transition_time=condition.last_transition_time or now))


def grace_period(pod: Pod, requested: int | None) -> int:
    """The grace period of a pod in seconds; 0 if it never started, or has ended."""
    if not pod.spec.node_name or pod.is_finished:
        return 0
    period = pod.spec.termination_grace_period_seconds if requested is None else requested
    if period is None:
        return DEFAULT_GRACE_PERIOD_SECONDS
    return period if period >= 0 else 1
