"""Executes a preemption: evicts the victims of a decision.

They are evicted in a task beside the loop, all but the last at once and the last at the end: its deletion is
the event that requeues the preemptor, which stays out of the queue until then (`queue/nominations.py`). If an
eviction fails the preemptor is activated; from v1.37 also if the last victim was not deleted, because it was
not bound yet.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from enum import Enum, auto
from typing import Final

from bayplan.api.cluster_api import PodStatusPatch
from bayplan.api.meta import Condition
from bayplan.api.pod import Pod
from bayplan.errors import APIError, NotFoundError
from bayplan.framework.outcome import Eviction
from bayplan.framework.plugin_api import Plugin
from bayplan.scheduler.context import Context
from bayplan.scheduler.failure import patch_status
from bayplan.scheduling_queue.nominations import Preemption

REASON: Final = "PreemptionByScheduler"

_log = logging.getLogger(__name__)


class _Result(Enum):
    FAILED = auto()
    EVICTED = auto()
    IN_MEMORY = auto()
    """It was not bound yet, and will not be."""


class Evictions:
    """Evicts the victims of preemption."""

    def __init__(self, context: Context, plugins: Iterable[Plugin]) -> None:
        self._context = context
        self._nominations = context.queue.nominations
        self._preempting_plugins = {plugin.name for plugin in plugins if plugin.preempts}

    def start(self, preemptor: Pod, eviction: Eviction, plugin: str) -> None:
        """Starts the eviction that this plugin requested; returns at once."""
        victims = [victim for victim in eviction.victims if not victim.is_terminating]
        if victims or self._context.cluster.release.metrics.counts_terminating_victims:
            self._context.metrics.preemption(len(eviction.victims))
        if not victims:
            return
        preemption = self._nominations.preemption_started(preemptor, plugin)
        self._context.tasks.start(
            self._run(preemption, victims, eviction.node_name), "preemption for pod", preemptor.key
        )

    async def _run(self, preemption: Preemption, victims: list[Pod], node_name: str) -> None:
        context, preemptor = self._context, preemption.preemptor
        context.metrics.preemption_task_started()
        started = context.stopwatch()
        failed, in_memory = True, False
        try:
            cleared = await self._clear_nominations(preemptor, node_name)
            *others, last = victims
            results = await context.tasks.together(
                [self._evict(victim, preemption, node_name) for victim in others]
            )
            if _Result.FAILED not in results:
                self._nominations.waits_for_victim(preemption, last)
                result = await self._evict(last, preemption, node_name)
                failed, in_memory = result is _Result.FAILED or not cleared, result is _Result.IN_MEMORY
        finally:
            self._nominations.preemption_ended(preemption, victims[-1])
            last = victims[-1]
            activates = in_memory and context.cluster.release.in_memory_preemption_activates
            if activates and self._is_on(node_name, last):
                # kube-scheduler activates it now, and a quick attempt then deletes the victim after all.
                context.preemptors[last.uid] = preemptor
            elif failed or activates or self._missed_last_deletion(preemptor, last, node_name):
                context.queue.activate([preemptor])
                context.wake()
            context.metrics.preemption_task_ended(
                "error" if failed else "success", context.stopwatch() - started
            )

    def _missed_last_deletion(self, preemptor: Pod, last_victim: Pod, node_name: str) -> bool:
        """Whether the preemptor is still gated although its last victim is gone.

        The deletion of the last victim requeues it, but not if that happened before the others were evicted.
        """
        waiting = self._context.queue.find(preemptor.key)
        is_gated = waiting is not None and waiting.gating_plugin in self._preempting_plugins
        return is_gated and not self._is_on(node_name, last_victim)

    def _is_on(self, node_name: str, victim: Pod) -> bool:
        assigned = self._context.cluster.assigned_pod(victim.uid)
        return assigned is not None and assigned[1] == node_name

    async def _clear_nominations(self, preemptor: Pod, node_name: str) -> bool:
        """Clears the nominations of lower-priority pods to this node. False if a write failed."""
        context, worked = self._context, True
        for pod in self._nominations.pods_on(node_name):
            if pod.priority >= preemptor.priority or not pod.status.nominated_node_name:
                continue
            try:
                await patch_status(context, pod, PodStatusPatch(nominated_node_name=""))
            except NotFoundError:
                continue
            except APIError as error:
                _log.warning("cannot clear the nomination of pod %s: %s", pod.key, error)
                worked = False
        return worked

    async def _evict(self, victim: Pod, preemption: Preemption, node_name: str) -> _Result:
        context, preemptor = self._context, preemption.preemptor
        profile = preemptor.spec.scheduler_name
        if not self._is_on(node_name, victim):
            # Its binding failed meanwhile, or another client deleted it. It may be pending again.
            return _Result.EVICTED
        result = self._stop_binding(victim, preemption.plugin)
        if result is not _Result.FAILED:
            context.recorder.preempted(victim, preemptor, node_name, profile, in_memory=True)
            return result
        try:
            await self._set_disruption_target(victim, profile)
            await context.api.delete_pod(victim)
        except NotFoundError:
            return _Result.EVICTED
        except APIError as error:
            _log.warning("cannot evict pod %s for %s: %s", victim.key, preemptor.key, error)
            return _Result.FAILED
        context.recorder.preempted(victim, preemptor, node_name, profile)
        return _Result.EVICTED

    def _stop_binding(self, victim: Pod, plugin: str) -> _Result:
        """A victim that is not bound yet is not deleted: its binding is stopped and it is requeued."""
        waiting = self._context.waiting.get(victim.uid)
        if waiting is not None:
            return _Result.IN_MEMORY if waiting.preempt(plugin, "preempted") else _Result.FAILED
        pre_binding = self._context.pre_binding.get(victim.uid)
        is_stopped = pre_binding is not None and pre_binding.cancel(f"preempted by {plugin}")
        return _Result.IN_MEMORY if is_stopped else _Result.FAILED

    async def _set_disruption_target(self, victim: Pod, profile: str) -> None:
        message = f"{profile}: preempting to accommodate a higher priority pod"
        for known in victim.status.conditions:
            if known.type == "DisruptionTarget" and (known.status, known.reason, known.message) == (
                "True",
                REASON,
                message,
            ):
                return
        condition = Condition(
            type="DisruptionTarget",
            status="True",
            reason=REASON,
            message=message,
            observed_generation=victim.metadata.generation,
        )
        await patch_status(self._context, victim, PodStatusPatch(condition))
