"""Writes to ResourceClaims, each retried until its outcome is known.

A write that conflicts with a newer version (409) is repeated on that version, up to five times. A write
without a response may have taken effect, so the claim is read until the API server responds: a device that is
allocated to a claim must not look free.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from bayplan.api.cluster_api import ClusterAPI
from bayplan.api.devices import (
    CLAIM_FINALIZER,
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from bayplan.api.pod import Pod
from bayplan.errors import (
    APIError,
    BayplanError,
    ConflictError,
    NotFoundError,
    ServerError,
    UnknownOutcomeError,
)

TRIES: Final = 5
RETRY_SECONDS: Final = 0.01
READ_BACK_SECONDS: Final = 1.0
MAX_READ_BACK_SECONDS: Final = 30.0

_log = logging.getLogger(__name__)


class ClaimWriteError(BayplanError):
    """A claim could not be written. The text is upstream's."""


async def read_claim(api: ClusterAPI, claim: ResourceClaim) -> ResourceClaim:
    """Reads the claim until the API server responds. NotFoundError if it no longer exists."""
    wait = READ_BACK_SECONDS
    while True:
        try:
            found = await api.get(ResourceClaim, claim.name, claim.namespace)
        except NotFoundError:
            raise
        except (ServerError, UnknownOutcomeError) as error:
            _log.warning("cannot read ResourceClaim %s, trying again: %s", claim.key, error)
            await asyncio.sleep(wait)
            wait = min(2 * wait, MAX_READ_BACK_SECONDS)
            continue
        if found.uid != claim.uid:
            raise NotFoundError(f'resourceclaims.resource.k8s.io "{claim.name}" not found')
        return found


class Reservation:
    """Reserves a claim for a pod, or for its group, and allocates it if it has no allocation."""

    def __init__(
        self,
        api: ClusterAPI,
        pod: Pod,
        allocation: AllocationResult | None,
        now: Callable[[], float],
        consumer: ResourceClaimConsumerReference | None = None,
    ) -> None:
        own = ResourceClaimConsumerReference(resource="pods", name=pod.name, uid=pod.uid)
        self._consumer = own if consumer is None else consumer
        self._api = api
        self._pod = pod
        self._allocation = allocation
        self._now = now
        self.in_doubt = False
        """Whether a write got no response, so that it is not known whether it took effect."""
        self.replaced: list[str] = []
        """The versions that were read or written before the last write."""

    async def write(self, claim: ResourceClaim) -> ResourceClaim:
        """Returns the claim as it is stored afterwards.

        Raises:
            ClaimWriteError: it could not be written.
        """
        for tries_left in range(TRIES - 1, -1, -1):
            try:
                return await self._write_once(claim)
            except _NewerVersionError as error:
                if not tries_left:
                    raise ClaimWriteError(str(error)) from error
                await asyncio.sleep(RETRY_SECONDS)
                claim = await self._read(claim)
            except _NoResponseError as error:
                self.in_doubt = True
                claim = await self._read(claim)
                self.in_doubt = False
                if self._is_written(claim):
                    return claim
                if not tries_left:
                    raise ClaimWriteError(str(error)) from error
        raise AssertionError("the last try returns or raises")

    async def _read(self, claim: ResourceClaim) -> ResourceClaim:
        try:
            return await read_claim(self._api, claim)
        except APIError as error:
            raise ClaimWriteError(f"get updated claim {claim.key} after conflict: {error}") from error

    async def _write_once(self, claim: ResourceClaim) -> ResourceClaim:
        key, allocation = claim.key, self._allocation
        if self._is_allocated_by_sibling(claim):
            if claim.is_reserved_for(self._consumer.uid):
                return claim
            allocation = None
        if claim.metadata.deletion_timestamp is not None:
            raise ClaimWriteError(f"claim {key} got deleted in the meantime")
        if allocation is None:
            allocation = claim.status.allocation
            if allocation is None:
                raise ClaimWriteError(f"claim {key} got deallocated elsewhere in the meantime")
            what = f"add reservation to claim {key}"
        else:
            if claim.status.allocation is not None:
                raise ClaimWriteError(f"claim {key} got allocated elsewhere in the meantime")
            claim = await self._with_finalizer(claim)
            if allocation.allocation_timestamp is None:
                moment = datetime.fromtimestamp(int(self._now()), UTC)
                allocation = replace(allocation, allocation_timestamp=moment)
            what = f"add allocation and reservation to claim {key}"
        reserved = (*claim.status.reserved_for, self._consumer)
        status = replace(claim.status, allocation=allocation, reserved_for=reserved)
        self.replaced.append(claim.metadata.resource_version)
        return await _send(what, self._api.update_status(replace(claim, status=status)))

    async def _with_finalizer(self, claim: ResourceClaim) -> ResourceClaim:
        meta = claim.metadata
        if CLAIM_FINALIZER in meta.finalizers:
            return claim
        self.replaced.append(meta.resource_version)
        marked = replace(claim, metadata=replace(meta, finalizers=(*meta.finalizers, CLAIM_FINALIZER)))
        return await _send(f"add finalizer to claim {claim.key}", self._api.update(marked))

    def _is_written(self, claim: ResourceClaim) -> bool:
        """Whether our write without a response took effect."""
        stored, ours = claim.status.allocation, self._allocation
        if stored is None or not claim.is_reserved_for(self._consumer.uid):
            return False
        return ours is None or stored.devices == ours.devices

    def _is_allocated_by_sibling(self, claim: ResourceClaim) -> bool:
        """Whether a member of the same group, which shares the claim, has written its allocation already."""
        stored, ours = claim.status.allocation, self._allocation
        is_member = self._pod.spec.scheduling_group is not None
        return is_member and stored is not None and ours is not None and stored.devices == ours.devices


async def deallocate_claim(api: ClusterAPI, claim: ResourceClaim) -> ResourceClaim:
    """Clears allocation, reservations and device status, unless the claim has changed since it was read."""
    changed = await api.update_status(replace(claim, status=ResourceClaimStatus()))
    assert isinstance(changed, ResourceClaim)
    return changed


async def delete_claim(api: ClusterAPI, claim: ResourceClaim) -> None:
    """Deletes a claim that the scheduler created. The finalizer is removed first, so it is gone at once."""
    for tries_left in range(TRIES - 1, -1, -1):
        meta = claim.metadata
        left = tuple(name for name in meta.finalizers if name != CLAIM_FINALIZER)
        try:
            await api.update(replace(claim, metadata=replace(meta, finalizers=left)))
            break
        except ConflictError:
            if not tries_left:
                raise
        await asyncio.sleep(RETRY_SECONDS)
        claim = await read_claim(api, claim)
    await api.delete(claim)


class _NewerVersionError(BayplanError):
    """The claim has changed since it was read."""


class _NoResponseError(BayplanError):
    """Whether the write took effect is not known."""


async def _send(what: str, write: Awaitable[object]) -> ResourceClaim:
    try:
        answer = await write
    except ConflictError as error:
        raise _NewerVersionError(f"{what}: {error}") from error
    except (ServerError, UnknownOutcomeError) as error:
        raise _NoResponseError(f"{what}: {error}") from error
    except APIError as error:
        raise ClaimWriteError(f"{what}: {error}") from error
    assert isinstance(answer, ResourceClaim)
    return answer
