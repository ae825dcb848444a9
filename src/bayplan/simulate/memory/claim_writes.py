"""Rules of the API server for writes to the status of a ResourceClaim, for the store in memory."""

from __future__ import annotations

from msgspec.structs import replace

from bayplan.api.resource_claims import ResourceClaim, ResourceClaimStatus
from bayplan.errors import APIError
from bayplan.simulate.memory import api_errors


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
        raise api_errors.another_uid(ResourceClaim, claim, claim_uid)
    left = tuple(consumer for consumer in claim.status.reserved_for if consumer.uid != uid)
    if len(left) == len(claim.status.reserved_for):
        return claim.status
    return replace(claim.status, reserved_for=left)


def _invalid(claim: ResourceClaim, problem: str) -> APIError:
    return APIError(f'ResourceClaim.resource.k8s.io "{claim.name}" is invalid: {problem}', code=422)
