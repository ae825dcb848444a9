"""Handles failed attempts: requeues the pod, writes an event and a condition.

Whatever the failure, the pod is requeued, unless it was deleted or bound by another client meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from bayplan.api.cluster_api import PodStatusPatch
from bayplan.api.meta import Condition
from bayplan.api.pod import Pod
from bayplan.errors import APIError, ConflictError, ServerError
from bayplan.framework.outcome import Diagnosis, Nomination
from bayplan.framework.status import Status
from bayplan.scheduler.context import Context
from bayplan.scheduling_queue.queued import QueuedPod

POD_SCHEDULED: Final = "PodScheduled"
PATCH_TRIES: Final = 4
PATCH_WAIT_SECONDS: Final = 0.01
PATCH_WAIT_FACTOR: Final = 5.0

_log = logging.getLogger(__name__)


class Failures:
    """Handles failed attempts."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._patching: dict[str, list[tuple[QueuedPod, Pod, PodStatusPatch]]] = {}
        self.writing: dict[str, asyncio.Event] = {}
        """By uid; set once everything in `_patching` is written."""

    def handle(
        self,
        info: QueuedPod,
        attempted: Pod,
        status: Status,
        message: str,
        nomination: Nomination | None,
        diagnosis: Diagnosis | None = None,
        plugins: frozenset[str] = frozenset(),
    ) -> None:
        """The attempt for `attempted` (with its node, if it had one) ended with this status.

        `plugins` rejected it; if there is a diagnosis, its plugins are used.
        """
        context = self._context
        pending: frozenset[str] = frozenset()
        if diagnosis is not None:
            plugins = frozenset(diagnosis.rejecting_plugins)
            pending = frozenset(diagnosis.pending_plugins)
        pod, requeued = attempted, False
        latest = context.pod_lister(attempted)
        if latest is not None and latest.uid != attempted.uid:
            context.queue.done(attempted.uid)
            return
        if latest is None or latest.spec.node_name:
            context.queue.done(attempted.uid)
        else:
            pod, requeued = latest, True
            context.queue.add_unschedulable_if_not_present(info, latest, plugins, pending)
        context.queue.nominations.add(pod if requeued else attempted, nomination)
        if not message:
            return  # all Bind plugins skipped it: there is no error to report
        context.recorder.failed_scheduling(pod, message, info.profile)
        reason = "Unschedulable" if status.is_rejection else "SchedulerError"
        nominated = context.queue.nominations.node_to_write(info, pod, nomination)
        self._patch(info, pod, status_patch(pod, reason, message, nominated))

    async def written(self, uid: str) -> None:
        """Waits for that. A pod is not bound before: the API server might bind it first, and then either
        reject the status or mark a bound pod as unschedulable."""
        written = self.writing.get(uid)
        if written is not None:
            await written.wait()

    def _patch(self, info: QueuedPod, pod: Pod, patch: PodStatusPatch | None) -> None:
        """Patches of one pod are written one after the other, in order."""
        if patch is None:
            return
        waiting = self._patching.get(pod.uid)
        if waiting is not None:
            waiting.append((info, pod, patch))
            return
        self._patching[pod.uid] = [(info, pod, patch)]
        self.writing[pod.uid] = asyncio.Event()
        self._context.tasks.start(self._write(pod.uid), "status of pod", pod.key)

    async def _write(self, uid: str) -> None:
        waiting = self._patching[uid]
        try:
            while waiting:
                info, pod, patch = waiting[0]
                try:
                    await patch_status(self._context, pod, patch)
                except APIError as error:
                    _log.warning("cannot write the status of pod %s: %s", pod.key, error)
                else:
                    if patch.nominated_node_name is not None:
                        self._context.queue.nominations.acknowledged(info, patch.nominated_node_name)
                waiting.pop(0)
        finally:
            del self._patching[uid]
            self.writing.pop(uid).set()


def status_patch(pod: Pod, reason: str, message: str, nominated: str | None) -> PodStatusPatch | None:
    """The change of the pod's status after a failed attempt, or None."""
    known = next((c for c in pod.status.conditions if c.type == POD_SCHEDULED), None)
    changed = known is None or (known.status, known.reason, known.message) != ("False", reason, message)
    if not changed and nominated is None:
        return None
    condition = Condition(
        type=POD_SCHEDULED,
        status="False",
        reason=reason,
        message=message,
        observed_generation=pod.metadata.generation,
    )
    return PodStatusPatch(condition if changed else None, nominated)


async def patch_status(context: Context, pod: Pod, patch: PodStatusPatch) -> None:
    """Writes a status, with retries where they can help."""
    wait = PATCH_WAIT_SECONDS
    for tries_left in range(PATCH_TRIES - 1, -1, -1):
        try:
            await context.api.patch_pod_status(pod, patch)
            return
        except (ConflictError, ServerError):
            if not tries_left:
                raise
        await asyncio.sleep(wait * (1 + 0.1 * context.rng.random()))
        wait *= PATCH_WAIT_FACTOR
