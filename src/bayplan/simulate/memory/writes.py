"""What the API server makes of writes to pods and claims, as pure functions, the end of pods, and its errors.

The errors are word for word those of the API server: people and scripts know these texts. The store
(`store.py`) finds the objects and sets the resourceVersion.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Final, Protocol

from msgspec.structs import replace

from bayplan.api.cluster_api import PodStatusPatch
from bayplan.api.devices import ResourceClaim, ResourceClaimStatus
from bayplan.api.kinds import KINDS
from bayplan.api.meta import Condition, Object
from bayplan.api.pod import Pod, PodStatus
from bayplan.api.pod_defaults import DEFAULT_GRACE_PERIOD_SECONDS
from bayplan.errors import APIError, ConflictError, GoneError, NotFoundError, ServerError

if TYPE_CHECKING:
    from bayplan.simulate.memory.store import MemoryStore

POD_SCHEDULED: Final = "PodScheduled"
PENDING: Final = "Pending"
RUNNING: Final = "Running"


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
    does not count as a change.
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


class Kubelet(Protocol):
    """Completes the deletion of running pods.

    The API server only marks such a pod; it is deleted when the kubelet of its node has stopped it. Called
    with each pod that begins to terminate; it has to call `store.delete(…, grace_period_seconds=0)`.
    """

    def __call__(self, store: MemoryStore, pod: Pod, grace_period_seconds: int, /) -> None: ...


def end_after_grace_period(store: MemoryStore, pod: Pod, grace_period_seconds: int) -> None:
    """A kubelet whose pods use their whole grace period, by the clock of the running loop."""

    def end() -> None:
        # The pod may be deleted already, and a new pod may have its name.
        with suppress(NotFoundError, ConflictError):
            store.delete(Pod, pod.name, pod.namespace, grace_period_seconds=0, uid=pod.uid)

    asyncio.get_running_loop().call_later(grace_period_seconds, end)


def checked_status(old: ResourceClaim, status: ResourceClaimStatus) -> ResourceClaimStatus:
    """The status as it is stored.

    Raises:
        APIError: 422, if an allocation would change, or a claim be reserved that is not allocated.
    """
    before, after = old.status, status
    if before.allocation is not None and after.allocation not in (None, before.allocation):
        raise _invalid(old, "status.allocation: Invalid value: field is immutable")
    if after.reserved_for and after.allocation is None:
        raise _invalid(old, "status.reservedFor: Forbidden: may not be specified when `allocated` is not set")
    uids = [consumer.uid for consumer in after.reserved_for]
    for i, uid in enumerate(uids):
        if uid in uids[:i]:
            raise _invalid(old, f'status.reservedFor[{i}]: Duplicate value: {{"uid":"{uid}"}}')
    known = {consumer.uid for consumer in before.reserved_for}
    if old.metadata.deletion_timestamp is not None and not known.issuperset(uids):
        raise _invalid(
            old,
            "status.reservedFor: Forbidden: new entries may not be added while `deletionTimestamp` is set",
        )
    if after.allocation is None:
        return replace(after, devices=())
    return after


def released_status(claim: ResourceClaim, uid: str, claim_uid: str) -> ResourceClaimStatus:
    """The status without one consumer; the same object if it has no such consumer."""
    if claim_uid and claim_uid != claim.uid:
        raise another_uid(ResourceClaim, claim, claim_uid)
    left = tuple(consumer for consumer in claim.status.reserved_for if consumer.uid != uid)
    if len(left) == len(claim.status.reserved_for):
        return claim.status
    return replace(claim.status, reserved_for=left)


def _invalid(claim: ResourceClaim, problem: str) -> APIError:
    return APIError(f'ResourceClaim.resource.k8s.io "{claim.name}" is invalid: {problem}', code=422)


_CHANGED_SINCE: Final = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


@cache
def resource_name(kind: type[Object]) -> str:
    """`pods`, `storageclasses.storage.k8s.io`: the resource as messages name it."""
    known = KINDS.find(kind)
    if known is None:
        return f"{kind.__name__.lower()}s"
    return f"{known.plural}.{known.group}" if known.group else known.plural


def not_found(kind: type[Object], name: str) -> NotFoundError:
    return NotFoundError(f'{resource_name(kind)} "{name}" not found')


def already_exists(kind: type[Object], name: str) -> ConflictError:
    return ConflictError(f'{resource_name(kind)} "{name}" already exists')


def nameless(kind: type[Object]) -> APIError:
    problem = "metadata.name: Required value: name or generateName is required"
    return APIError(f'{kind.__name__} "" is invalid: {problem}', code=422)


def changed_since(kind: type[Object], name: str) -> ConflictError:
    return ConflictError(f'Operation cannot be fulfilled on {resource_name(kind)} "{name}": {_CHANGED_SINCE}')


def another_uid(kind: type[Object], stored: Object, uid: str) -> ConflictError:
    """The request refers to an object of the same name that has been deleted since."""
    resource = resource_name(kind)
    return ConflictError(
        f'Operation cannot be fulfilled on {resource} "{stored.name}": StorageError: invalid object, '
        f"Code: 4, Key: /registry/{resource.partition('.')[0]}/{stored.key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, "
        f"UID in object meta: {stored.uid}"
    )


def patched_uid(stored: Pod, uid: str) -> APIError:
    """A patch refers to a pod of the same name that has been deleted since."""
    problem = f'metadata.uid: Invalid value: "{uid}": field is immutable'
    return APIError(f'Pod "{stored.name}" is invalid: {problem}', code=422)


def moved(pod: Pod) -> APIError:
    """An update may not bind a pod, nor move it to another node."""
    problem = "spec: Forbidden: pod updates may not change fields other than the mutable ones: spec.nodeName"
    return APIError(f'Pod "{pod.name}" is invalid: {problem}', code=422)


def too_old(version: str, oldest: int) -> GoneError:
    return GoneError(f"too old resource version: {version} ({oldest})")


def too_new(version: int, current: int) -> ServerError:
    return ServerError(f"Too large resource version: {version}, current: {current}", code=504)


def not_a_version(text: str) -> APIError:
    return APIError(f'resourceVersion: Invalid value: "{text}": it is not a number', code=400)
