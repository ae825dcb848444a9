"""Binds a pod's claims: writes what DynamicResources decided, and waits for the devices.

    each claim: create (extended resources) ─► finalizer ─► allocation and reservation ─► assumed
          │ rejected, gone, allocated elsewhere                      │
          ▼                                                          ▼ binding conditions? every 5 s
       failure                                                    ready ─► None
                                                                  failed, bindingTimeout over ─► failure

After a failure, Unreserve of DynamicResources calls `release`, which removes the reservations. Allocations
that were written stay: the next attempt uses them. While a claim of the pod is still being unreserved or
deallocated, the next binding waits: otherwise it would find the claim reserved, and the pod would be bound
without it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from bayplan.api.cluster_api import PodStatusPatch
from bayplan.api.devices import ResourceClaim, ResourceClaimStatus
from bayplan.api.meta import ObjectMeta
from bayplan.api.pod import Pod, PodExtendedResourceClaimStatus
from bayplan.errors import APIError, BayplanError, NotFoundError, ServerError, UnknownOutcomeError
from bayplan.framework.binders import (
    ClaimPlan,
    DeviceBindingError,
    PlannedClaim,
    check_ready,
    is_overdue,
    results_with_conditions,
)
from bayplan.framework.status import Status, failure
from bayplan.scheduler.claim_writes import (
    ClaimWriteError,
    Reservation,
    deallocate_claim,
    delete_claim,
    read_claim,
)
from bayplan.scheduler.context import Context
from bayplan.scheduler.failure import patch_status
from bayplan.scheduler.handlers import ClaimHandler
from bayplan.state.devices import remove_in_flight

POLL_SECONDS: Final = 5.0
"""Interval between checks of binding conditions. The first check is immediate."""
ASSUME_SECONDS: Final = 1.0
"""Interval between checks whether the watch has delivered a claim that was created."""
MAX_ASSUME_SECONDS: Final = 120.0
IN_DOUBT_SECONDS: Final = 1.0
"""Delay before a claim is read whose write was interrupted, so that the write can take effect."""
RETRY_SECONDS: Final = 1.0
"""Delay before a pod is retried whose claim could not be deallocated."""

NOT_FOUND: Final = 'could not find ResourceClaim "{claim}"'
DEADLINE: Final = "device binding timeout: context deadline exceeded"

_log = logging.getLogger(__name__)


class OverdueError(BayplanError):
    """Devices did not become ready in time."""


class ClusterClaimBinder:
    """Executes plans on the scheduler's cluster (`framework.binders.ClaimBinder`)."""

    def __init__(self, context: Context, handler: ClaimHandler) -> None:
        self._context = context
        self._handler = handler
        self._in_flight_until_bound = context.cluster.release.devices.in_flight_until_bound
        self._being_taken: dict[tuple[str, str], asyncio.Event] = {}
        """Claims that are being taken from a pod, by the uids of claim and pod: set when that has ended."""

    # PreBind

    async def bind(
        self, pod: Pod, node_name: str, plan: ClaimPlan, timeout_seconds: float | None
    ) -> Status | None:
        bound: dict[str, ResourceClaim] = {}
        try:
            for planned in plan.claims:
                if planned.uid in bound:
                    # The pod names one claim twice: it is allocated and reserved once.
                    planned.claim = bound[planned.uid]
                elif not await self._is_reserved(pod, planned):
                    await self._bind_claim(pod, planned, plan)
                bound[planned.uid] = planned.claim
            if timeout_seconds is not None:
                await self._wait_for_devices(pod, node_name, plan, timeout_seconds)
            if self._in_flight_until_bound:
                context = self._context
                context.between_cycles(lambda: self._no_longer_in_flight(pod, *plan.claims))
        except (APIError, ClaimWriteError, DeviceBindingError, OverdueError) as error:
            return failure(str(error))
        return None

    async def _is_reserved(self, pod: Pod, planned: PlannedClaim) -> bool:
        """Whether the claim is reserved for the pod, and will be when it is bound."""
        key = planned.uid, pod.uid
        if key in self._being_taken:
            while (ended := self._being_taken.get(key)) is not None:
                await ended.wait()
            planned.claim = await read_claim(self._context.api, planned.claim)
        elif planned.claim.is_reserved_for_pod(pod):
            # It may have been released since the attempt began.
            claims = self._context.cluster.objects.of(ResourceClaim)
            known = claims.get(planned.claim.name, planned.claim.namespace)
            if known is not None and known.uid == planned.uid:
                planned.claim = known
        return planned.claim.is_reserved_for_pod(pod)

    async def _bind_claim(self, pod: Pod, planned: PlannedClaim, plan: ClaimPlan) -> None:
        context = self._context
        claim = planned.claim
        if planned.is_new:
            claim = planned.claim = await self._create(claim)
        reservation = Reservation(context.api, pod, planned.allocation, context.now, planned.consumer)
        planned.in_doubt = True
        try:
            written = planned.claim = await reservation.write(claim)
            planned.in_doubt = False
        except ClaimWriteError:
            planned.in_doubt = reservation.in_doubt
            raise
        if planned.is_new:
            await self._set_extended_claim_status(pod, written, plan)
            await self._assume_created(written)
        context.between_cycles(lambda: self._claim_written(pod, planned, written, reservation.replaced))

    def _claim_written(
        self, pod: Pod, planned: PlannedClaim, written: ResourceClaim, replaced: list[str]
    ) -> None:
        """The allocation that was in flight has been written."""
        self._handler.assume(written, replaced)
        if not self._in_flight_until_bound:
            self._no_longer_in_flight(pod, planned)
        self._context.wake()

    def _no_longer_in_flight(self, pod: Pod, *claims: PlannedClaim) -> None:
        for planned in claims:
            if planned.allocation is not None:
                remove_in_flight(self._context.cluster.objects, planned.uid, pod.uid)

    async def _create(self, claim: ResourceClaim) -> ResourceClaim:
        """Creates the claim for a pod's extended resources."""
        meta = claim.metadata
        new = ResourceClaim(
            metadata=ObjectMeta(
                namespace=meta.namespace,
                generate_name=meta.generate_name,
                annotations=meta.annotations,
                owner_references=meta.owner_references,
            ),
            spec=claim.spec,
            status=ResourceClaimStatus(),
        )
        try:
            created = await self._context.api.create(new)
        except APIError as error:
            self._context.metrics.claim_created("failure")
            text = f"create claim for extended resources {meta.namespace}/: {error}"
            raise ClaimWriteError(text) from error
        self._context.metrics.claim_created("success")
        assert isinstance(created, ResourceClaim)
        return created

    async def _set_extended_claim_status(self, pod: Pod, claim: ResourceClaim, plan: ClaimPlan) -> None:
        status = PodExtendedResourceClaimStatus(
            request_mappings=plan.request_mappings, resource_claim_name=claim.name
        )
        try:
            await patch_status(self._context, pod, PodStatusPatch(extended_resource_claim=status))
        except APIError as error:
            raise ClaimWriteError(f"update pod {pod.key} ExtendedResourceClaimStatus: {error}") from error

    async def _assume_created(self, claim: ResourceClaim) -> None:
        """Waits until the watch has delivered the claim; until then its devices stay in flight."""
        loop = self._context.loop
        end = loop.time() + MAX_ASSUME_SECONDS
        while not self._handler.assume(claim) and loop.time() < end:
            await asyncio.sleep(ASSUME_SECONDS)

    # Binding conditions

    async def _wait_for_devices(
        self, pod: Pod, node_name: str, plan: ClaimPlan, timeout_seconds: float
    ) -> None:
        if not any(list(results_with_conditions(planned.claim)) for planned in plan.claims):
            return
        context = self._context
        profile = pod.spec.scheduler_name
        context.recorder.binding_conditions_pending(pod, node_name, profile)
        started, outcome = context.loop.time(), "error"
        try:
            await self._until_ready(plan, timeout_seconds)
            outcome = "success"
        except OverdueError:
            outcome = "timeout"
            raise
        except DeviceBindingError:
            outcome = "failure"
            raise
        finally:
            seconds = context.loop.time() - started
            for planned in plan.claims:
                allocation = planned.claim.status.allocation
                for result in () if allocation is None else allocation.devices.results:
                    context.metrics.binding_conditions(
                        profile,
                        result.driver,
                        outcome,
                        seconds,
                        has_conditions=bool(result.binding_conditions),
                    )

    async def _until_ready(self, plan: ClaimPlan, timeout_seconds: float) -> None:
        loop = self._context.loop
        end = loop.time() + timeout_seconds
        poll = loop.time()
        while True:
            if self._are_ready(plan, timeout_seconds):
                return
            poll = max(poll + POLL_SECONDS, loop.time())
            await asyncio.sleep(min(poll, end) - loop.time())
            if poll >= end:
                raise OverdueError(DEADLINE)

    def _are_ready(self, plan: ClaimPlan, timeout_seconds: float) -> bool:
        claims = self._context.cluster.objects.of(ResourceClaim)
        for planned in plan.claims:
            if not planned.claim.uid or (planned.is_new and planned.allocation is None):
                continue
            claim = claims.get(planned.claim.name, planned.claim.namespace)
            if claim is None:
                raise ClaimWriteError(NOT_FOUND.format(claim=planned.claim.key))
            planned.claim = claim
            if not check_ready(claim):
                if is_overdue(claim, self._context.now(), timeout_seconds):
                    raise OverdueError(f"device binding timeout: claim={claim.name}")
                return False
        return True

    # Unreserve and PostFilter

    def release(self, pod: Pod, plan: ClaimPlan) -> None:
        for planned in plan.claims:
            claim = planned.claim
            if planned.in_doubt:
                self._take(pod, claim, partial(self._resolve_in_doubt, pod, planned))
                continue
            self._drop_allocation(pod, planned)
            if planned.is_new:
                if claim.metadata.resource_version:
                    self._start(self._delete_created(claim), pod)
            elif claim.status.allocation is not None and claim.is_reserved_for(pod.uid):
                self._take(pod, claim, partial(self._remove_reservation, claim, pod.uid))

    def _take(self, pod: Pod, claim: ResourceClaim, take: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Takes a claim from the pod between two cycles. Until then the next attempt for the pod waits."""
        key = claim.uid, pod.uid
        before, ended = self._being_taken.get(key), asyncio.Event()
        self._being_taken[key] = ended

        async def run() -> None:
            try:
                if before is not None:
                    await before.wait()
                await take()
            finally:
                if self._being_taken.get(key) is ended:
                    del self._being_taken[key]
                ended.set()

        self._start(run(), pod)

    def unreserve(self, pod: Pod, claim: ResourceClaim, uid: str) -> None:
        self._take(pod, claim, partial(self._remove_reservation, claim, uid))

    async def _remove_reservation(self, claim: ResourceClaim, uid: str) -> None:
        api = self._context.api
        try:
            try:
                released = await api.release_claim(claim, uid)
            except (ServerError, UnknownOutcomeError) as error:
                _log.warning("cannot unreserve ResourceClaim %s, reading it: %s", claim.key, error)
                released = await read_claim(api, claim)
        except NotFoundError:
            return
        except APIError as error:
            # The next attempt for the pod tries it again.
            _log.warning("cannot unreserve ResourceClaim %s: %s", claim.key, error)
            return
        await self._between_cycles(lambda: self._assume_and_wake(released))

    async def _delete_created(self, claim: ResourceClaim) -> None:
        try:
            await delete_claim(self._context.api, claim)
        except NotFoundError:
            pass
        except APIError as error:
            _log.warning("cannot delete ResourceClaim %s: %s", claim.key, error)

    def _drop_allocation(self, pod: Pod, planned: PlannedClaim) -> None:
        """Frees the devices of an allocation that is no longer in flight. No watch event will follow."""
        if planned.allocation is not None:
            dropped = remove_in_flight(self._context.cluster.objects, planned.uid, pod.uid)
            if dropped is not None:
                self._handler.freed(dropped)
                self._context.wake()

    async def _resolve_in_doubt(self, pod: Pod, planned: PlannedClaim) -> None:
        """Reads the claim to find out whether an interrupted write took effect; then releases it."""
        context, claim = self._context, planned.claim
        await asyncio.sleep(IN_DOUBT_SECONDS)
        try:
            written = await read_claim(context.api, claim)
        except APIError as error:
            _log.warning("cannot read ResourceClaim %s: %s", claim.key, error)
            written = claim
        planned.claim, planned.in_doubt = written, False

        def end() -> None:
            self._handler.assume(written)
            self.release(pod, ClaimPlan([planned]))

        await self._between_cycles(end)

    def deallocate(self, pod: Pod, claim: ResourceClaim) -> None:
        self._take(pod, claim, partial(self._deallocate, pod, claim))

    def delete(self, pod: Pod, claim: ResourceClaim) -> None:
        self._take(pod, claim, partial(self._delete, pod, claim))

    async def _deallocate(self, pod: Pod, claim: ResourceClaim) -> None:
        try:
            cleared = await deallocate_claim(self._context.api, claim)
        except APIError as error:
            self._retry_pod(pod, "deallocate", claim, error)
        else:
            await self._between_cycles(lambda: self._assume_and_wake(cleared))

    def _assume_and_wake(self, claim: ResourceClaim) -> None:
        self._handler.assume(claim)
        self._context.wake()

    async def _delete(self, pod: Pod, claim: ResourceClaim) -> None:
        try:
            await delete_claim(self._context.api, claim)
        except APIError as error:
            self._retry_pod(pod, "delete", claim, error)

    def _retry_pod(self, pod: Pod, verb: str, claim: ResourceClaim, error: APIError) -> None:
        """Activates the pod after a delay, because no event will requeue it."""
        _log.warning("cannot %s ResourceClaim %s for pod %s: %s", verb, claim.key, pod.key, error)
        context = self._context

        def activate() -> None:
            context.queue.activate([pod])
            context.wake()

        context.loop.call_later(RETRY_SECONDS, context.between_cycles, activate)

    async def _between_cycles(self, change: Callable[[], None]) -> None:
        """Runs a change of the columns between two cycles, and waits until it has run."""
        ended = asyncio.Event()

        def run() -> None:
            change()
            ended.set()

        self._context.between_cycles(run)
        await ended.wait()

    def _start(self, work: Coroutine[Any, Any, None], pod: Pod) -> None:
        """Runs a coroutine between two cycles."""
        context = self._context
        context.tasks.defer(work, "claims of pod", pod.key)
        context.loop.call_soon(context.tasks.run_deferred)
