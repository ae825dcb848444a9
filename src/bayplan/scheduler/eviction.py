"""Carrying a preemption out: the victims go, and the preemptor is kept out of the queue until they do.

The decision names node and victims; here they are evicted beside the loop, all but the last at once and the
last at the end, because its going is what wakes the preemptor. If anything fails the preemptor is tried anew.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from bayplan.api.meta import Condition
from bayplan.api.pod import Pod
from bayplan.errors import APIError, NotFoundError
from bayplan.framework.cluster_api import PodStatusPatch
from bayplan.framework.outcome import Eviction
from bayplan.framework.plugin_api import Plugin
from bayplan.scheduler.context import Context, Preempting
from bayplan.scheduler.failure import patch_status

REASON: Final = "PreemptionByScheduler"

_log = logging.getLogger(__name__)


class Evictions:
    """Evicts victims of preemption, which some of the plugins do."""

    def __init__(self, context: Context, plugins: Iterable[Plugin]) -> None:
        self._context = context
        self._preempting_plugins = {plugin.name for plugin in plugins if plugin.preempts}

    def start(self, preemptor: Pod, eviction: Eviction, plugin: str) -> None:
        """Begins to make room as this plugin wants it; returns at once."""
        victims = [victim for victim in eviction.victims if not victim.is_terminating]
        if not victims:
            return
        self._context.metrics.preemption(len(eviction.victims))
        under_way = self._context.preempting[preemptor.uid] = Preempting(preemptor, plugin)
        self._context.queue.hold(preemptor, plugin)
        self._context.tasks.start(
            self._carry_out(under_way, victims, eviction.node_name), "preemption for pod", preemptor.key
        )

    async def _carry_out(self, under_way: Preempting, victims: list[Pod], node_name: str) -> None:
        context, preemptor = self._context, under_way.pod
        context.metrics.preemption_task()
        failed = True
        try:
            cleared = await self._clear_nominations(preemptor, node_name)
            *others, last = victims
            results = await context.tasks.together(
                [self._evict(victim, under_way, node_name) for victim in others]
            )
            if all(results):
                self._wait_for(under_way, last)
                failed = not (await self._evict(last, under_way, node_name) and cleared)
        finally:
            # The answer to the last eviction may come so late that the next preemption has begun.
            if context.preempting.get(preemptor.uid) is under_way:
                del context.preempting[preemptor.uid]
                context.queue.release(preemptor)
            context.goes(victims[-1])
            if failed or (self._is_kept_out(preemptor) and not self._stands_on(node_name, victims[-1])):
                # The last victim, whose going wakes the preemptor, had gone before the others.
                context.queue.activate([preemptor])
                context.wake()

    def _wait_for(self, under_way: Preempting, last: Pod) -> None:
        """From now on the preemptor is kept out only until it is seen that this victim goes."""
        context, preemptor = self._context, under_way.pod
        under_way.last = last
        context.queue.release(preemptor)  # it may have been seen already
        context.queue.hold(preemptor, under_way.plugin)
        context.last_victims.setdefault(last.uid, []).append(preemptor)

    def _is_kept_out(self, preemptor: Pod) -> bool:
        """Whether the preemptor would have been tried if its victims had not been in the way."""
        waiting = self._context.queue.find(preemptor.key)
        return waiting is not None and waiting.gating_plugin in self._preempting_plugins

    def _stands_on(self, node_name: str, victim: Pod) -> bool:
        placed = self._context.cluster.assigned_pod(victim.uid)
        return placed is not None and placed[1] == node_name

    async def _clear_nominations(self, preemptor: Pod, node_name: str) -> bool:
        """Pods of lower priority can no longer count on this node."""
        context, worked = self._context, True
        for pod in context.queue.nominator.pods_on(node_name):
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

    async def _evict(self, victim: Pod, under_way: Preempting, node_name: str) -> bool:
        """False where it could not be evicted."""
        context, preemptor = self._context, under_way.pod
        profile = preemptor.spec.scheduler_name
        if not self._stands_on(node_name, victim):
            # Its binding failed meanwhile, or somebody else was faster. It may be waiting for its next turn.
            return True
        if self._stopped_in_memory(victim, under_way.plugin):
            context.recorder.preempted(victim, preemptor, node_name, profile, in_memory=True)
            return True
        try:
            await self._mark(victim, profile)
            await context.api.delete_pod(victim)
        except NotFoundError:
            return True
        except APIError as error:
            _log.warning("cannot evict pod %s for %s: %s", victim.key, preemptor.key, error)
            return False
        context.recorder.preempted(victim, preemptor, node_name, profile)
        return True

    def _stopped_in_memory(self, victim: Pod, plugin: str) -> bool:
        """A victim that is not bound yet does not have to be deleted: it goes back to the queue."""
        waiting = self._context.waiting.get(victim.uid)
        if waiting is not None:
            return waiting.preempt(plugin, "preempted")
        pre_binding = self._context.pre_binding.get(victim.uid)
        return pre_binding is not None and pre_binding.cancel(f"preempted by {plugin}")

    async def _mark(self, victim: Pod, profile: str) -> None:
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
