"""Handles failed attempts: requeues the pod, writes event and condition, and evicts victims of preemption.

Whatever the failure, the pod is requeued, unless it was deleted or bound by another client meanwhile.

schedule_one.go: handleSchedulingFailure; preemption/executor.go: prepareCandidateAsync
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from bayplan.api.cluster_api import PodStatusPatch
from bayplan.api.meta import Condition
from bayplan.api.pod import Pod
from bayplan.errors import APIError, ConflictError, NotFoundError, ServerError
from bayplan.framework.outcome import Diagnosis, Eviction, Nomination
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.status import Status
from bayplan.scheduler.context import Context
from bayplan.scheduling_queue.nominations import Preemption
from bayplan.scheduling_queue.queued import Entity, QueuedPod
from bayplan.state.cluster import Cluster
from bayplan.state.groups import Group

if TYPE_CHECKING:
    from bayplan.queues.blocked import Notice

POD_SCHEDULED: Final = "PodScheduled"
UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"
PATCH_TRIES: Final = 4
PATCH_WAIT_SECONDS: Final = 0.01
PATCH_WAIT_FACTOR: Final = 5.0
EVICTIONS_AT_ONCE: Final = 16
"""Victims of one preemptor that are evicted at a time: as many as in kube-scheduler by default. If it were
all of them, bindings would wait behind the thousand requests of a gang that evicts five hundred pods."""

NO_NODE: Final = Nomination("")

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
        *,
        is_cut_off: bool = False,
    ) -> None:
        """The attempt for `attempted` (with its node, if it had one) ended with this status.

        `plugins` rejected it; if there is a diagnosis, its plugins are used. After an attempt that was cut
        off the backoff is longer.
        """
        context = self._context
        pending: frozenset[str] = frozenset()
        if diagnosis is not None:
            plugins = frozenset(diagnosis.rejecting_plugins)
            pending = frozenset(diagnosis.pending_plugins)
        pod, requeued = attempted, False
        latest = context.pods.latest(attempted)
        if latest is not None and latest.uid != attempted.uid:
            context.queue.done(attempted.uid)
            return
        if latest is None or latest.spec.node_name:
            context.queue.done(attempted.uid)
        else:
            pod, requeued = latest, True
            context.queue.add_unschedulable_if_not_present(
                info, latest, plugins, pending, is_cut_off=is_cut_off
            )
        context.queue.nominations.add(pod if requeued else attempted, nomination)
        if not message:
            return  # all Bind plugins skipped it: there is no error to report
        context.recorder.failed_scheduling(pod, message, info.profile)
        reason = UNSCHEDULABLE if status.is_rejection else SCHEDULER_ERROR
        nominated = context.queue.nominations.node_to_write(info, pod, nomination)
        self._patch(info, pod, status_patch(pod, reason, message, nominated))

    def wait_for_quota(
        self, waiting: Iterable[tuple[QueuedPod, Notice]], *, keeps_nominations: bool = True
    ) -> None:
        """Reports that pods wait in their capacity queues, without an attempt.

        The reason is not Unschedulable, so that an autoscaler adds no nodes, unless they raise the limit.
        """
        nominations = self._context.queue.nominations
        for info, notice in waiting:
            pod, nominated, message = info.pod, None, notice.message
            reason = UNSCHEDULABLE if notice.grows_with_cluster else SKIPPED
            if not keeps_nominations and nominations.node_of(pod.uid):
                nominated = self._clear_nomination(info)
            self._context.recorder.waiting_for_quota(pod, message, info.profile)
            self._patch(info, pod, status_patch(pod, reason, message, nominated))

    def give_up_node(self, info: QueuedPod) -> None:
        """Clears the nomination of a pod that waits in its capacity queue."""
        nominated = self._clear_nomination(info)
        if nominated is not None:
            self._patch(info, info.pod, PodStatusPatch(nominated_node_name=nominated))

    def _clear_nomination(self, info: QueuedPod) -> str | None:
        """Returns what has to be written to the pod's status; None if it is cleared there already."""
        nominations = self._context.queue.nominations
        nominations.add(info.pod, NO_NODE)
        return nominations.node_to_write(info, info.pod, NO_NODE)

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


REASON: Final = "PreemptionByScheduler"
DEFAULT_PREEMPTION: Final = "DefaultPreemption"
QUOTA: Final = "quota of its queue"

SKIPPED: Final = "SchedulingSkipped"
"""YuniKorn's reason for pods that wait for quota."""
_WAITING: Final = ("waiting for quota of ", "waiting for queue ")


def waits_for_quota(condition: Condition) -> bool:
    """Whether a condition says that a pod waits in its capacity queue."""
    is_waiting = condition.reason == SKIPPED or condition.message.startswith(_WAITING)
    return condition.type == POD_SCHEDULED and is_waiting


class _Result(Enum):
    FAILED = auto()
    EVICTED = auto()
    IN_MEMORY = auto()
    """It was not bound yet, and will not be."""


@dataclass(frozen=True, slots=True)
class _Task:
    """One preemption: for whom, by which profile, and where."""

    preemption: Preemption
    profile: str
    node_name: str
    nodes: dict[str, str]
    """By uid: the nodes of victims, which need not be `node_name`."""


def pods_of(preemptor: Pod | Group, cluster: Cluster) -> list[Pod]:
    """The pods to activate for a preemptor: the pod itself, or the waiting members of the group."""
    if isinstance(preemptor, Pod):
        return [preemptor]
    members = () if cluster.groups is None else cluster.groups.states_below(preemptor)
    return [pod for state in members for pod in state.unscheduled()]


class Evictions:
    """Evicts the victims of preemption.

    Args:
        firm_nominations: nominations count against pods of any priority, so a preemptor takes no room that is
            kept for another pod, and the nominations of others stay.
    """

    def __init__(
        self, context: Context, plugins: Iterable[Plugin], *, firm_nominations: bool = False
    ) -> None:
        self._context = context
        self._firm_nominations = firm_nominations
        self._nominations = context.queue.nominations
        self._preempting_plugins = {plugin.name for plugin in plugins if plugin.preempts}

    def start(self, preemptor: Pod, eviction: Eviction, plugin: str) -> None:
        """Starts the eviction that this plugin requested; returns at once."""
        victims = [victim for victim in eviction.victims if not victim.is_terminating]
        if victims or self._context.cluster.release.metrics.counts_terminating_victims:
            self._context.metrics.preemption(len(eviction.victims))
            self._observe_disruptions(preemptor, eviction)
        if not victims:
            return
        self._start(preemptor, victims, eviction.node_name, plugin, preemptor.spec.scheduler_name)

    def start_for_group(self, group: Group, profile: str, eviction: Eviction, plugin: str) -> None:
        """Starts the eviction for a group of this profile; returns at once."""
        victims = [victim for victim in eviction.victims if not victim.is_terminating]
        if victims or self._context.cluster.release.metrics.counts_terminating_victims:
            self._context.metrics.group_victims(len(eviction.victims))
            self._observe_disruptions(group, eviction)
        if victims:
            self._start(group, victims, eviction.node_name, plugin, profile)

    def _observe_disruptions(self, preemptor: Pod | Group, eviction: Eviction) -> None:
        groups = self._context.cluster.groups
        if groups is None or not self._context.metrics.enabled:
            return
        units = set()
        for pod in eviction.victims:
            if pod.spec.scheduling_group is not None:
                group = groups.group_of(pod)
                whole = None if group is None else groups.evicted_as_one(group)
                units.add((whole or pod).uid)
        self._context.metrics.disruptions(_type_of(preemptor), len(units), eviction.pdb_violations)

    def start_for_quota(self, victims: Iterable[Pod], queue: str) -> None:
        """Starts the eviction of pods of a queue above its maximum; returns at once."""
        for victim in victims:
            if not victim.is_terminating:
                self._context.tasks.start(self._evict_for_quota(victim, queue), "quota of queue", victim.key)

    async def _evict_for_quota(self, victim: Pod, queue: str) -> None:
        context, profile = self._context, victim.spec.scheduler_name
        if self._stop_binding(victim, QUOTA) is _Result.FAILED:
            message = f"{profile}: preempting to enforce the maximum of queue {queue}"
            try:
                await self._set_disruption_target(victim, message)
                await context.api.delete_pod(victim)
            except NotFoundError:
                return
            except APIError as error:
                _log.warning("cannot evict pod %s above the maximum of %s: %s", victim.key, queue, error)
                return
        context.recorder.above_quota(victim, queue, profile)

    def _start(
        self, preemptor: Pod | Group, victims: list[Pod], node_name: str, plugin: str, profile: str
    ) -> None:
        preemption = self._nominations.preemption_started(preemptor, plugin)
        cluster, what = self._context.cluster, "pod" if isinstance(preemptor, Pod) else "pod group"
        # The pods of a unit, and those that make room in a queue, are evicted wherever they run.
        nodes = {victim.uid: cluster.node_of(victim.uid) for victim in victims}
        task = _Task(preemption, profile, node_name, nodes)
        self._context.tasks.start(self._run(task, victims), f"preemption for {what}", str(preemptor.key))

    async def _run(self, task: _Task, victims: list[Pod]) -> None:
        context, preemption = self._context, task.preemption
        preemptor = preemption.preemptor
        context.metrics.preemption_task_started()
        started = context.stopwatch()
        failed, in_memory = True, False
        try:
            cleared = self._firm_nominations or await self._clear_nominations(preemptor, task.node_name)
            *others, last = victims
            evictions = [self._evict(victim, task) for victim in others]
            results = await context.tasks.together(evictions, EVICTIONS_AT_ONCE)
            if _Result.FAILED not in results:
                self._nominations.waits_for_victim(preemption, last)
                result = await self._evict(last, task)
                failed, in_memory = result is _Result.FAILED or not cleared, result is _Result.IN_MEMORY
        finally:
            self._nominations.preemption_ended(preemption, victims[-1])
            last = victims[-1]
            activates = in_memory and context.cluster.release.in_memory_preemption_activates
            if activates and self._is_there(last, task):
                # kube-scheduler activates it now, and a quick attempt then deletes the victim after all.
                context.preemptors[last.uid] = preemptor
            elif failed or activates or self._missed_last_deletion(preemptor, last, task):
                context.queue.activate(pods_of(preemptor, context.cluster))
                context.wake()
            context.metrics.preemption_task_ended(
                _type_of(preemptor), "error" if failed else "success", context.stopwatch() - started
            )

    def _missed_last_deletion(self, preemptor: Pod | Group, last_victim: Pod, task: _Task) -> bool:
        """Whether the preemptor is still gated although its last victim is gone.

        The deletion of the last victim requeues it, but not if that happened before the others were evicted.
        """
        queue = self._context.queue
        waiting: Entity | None
        if isinstance(preemptor, Pod):
            waiting = queue.find(preemptor.key)
        else:
            waiting = None if queue.groups is None else queue.groups.entities.get(preemptor.key)
        is_gated = waiting is not None and waiting.gating_plugin in self._preempting_plugins
        return is_gated and not self._is_there(last_victim, task)

    def _is_there(self, victim: Pod, task: _Task) -> bool:
        """Whether the victim is still on the node where it was found."""
        assigned = self._context.cluster.assigned_pod(victim.uid)
        return assigned is not None and assigned[1] == task.nodes[victim.uid]

    async def _clear_nominations(self, preemptor: Pod | Group, node_name: str) -> bool:
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

    async def _evict(self, victim: Pod, task: _Task) -> _Result:
        context, preemption = self._context, task.preemption
        preemptor, profile = preemption.preemptor, task.profile
        if not self._is_there(victim, task):
            # Its binding failed meanwhile, or another client deleted it. It may be pending again.
            return _Result.EVICTED
        result = self._stop_binding(victim, preemption.plugin)
        if result is not _Result.FAILED:
            context.recorder.preempted(victim, preemptor, task.node_name, profile, in_memory=True)
            return result
        try:
            await self._set_disruption_target(victim, _reason_for(victim, task))
            await context.api.delete_pod(victim)
        except NotFoundError:
            return _Result.EVICTED
        except APIError as error:
            _log.warning("cannot evict pod %s for %s: %s", victim.key, preemptor.key, error)
            return _Result.FAILED
        context.recorder.preempted(victim, preemptor, task.node_name, profile)
        return _Result.EVICTED

    def _stop_binding(self, victim: Pod, plugin: str) -> _Result:
        """A victim that is not bound yet is not deleted: its binding is stopped and it is requeued."""
        waiting = self._context.waiting.get(victim.uid)
        if waiting is not None:
            return _Result.IN_MEMORY if waiting.preempt(plugin, "preempted") else _Result.FAILED
        pre_binding = self._context.pre_binding.get(victim.uid)
        is_stopped = pre_binding is not None and pre_binding.cancel(f"preempted by {plugin}")
        return _Result.IN_MEMORY if is_stopped else _Result.FAILED

    async def _set_disruption_target(self, victim: Pod, message: str) -> None:
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


def _reason_for(victim: Pod, task: _Task) -> str:
    """What a victim reads. Capacity queues also evict pods for others of the same or a lower priority."""
    preemptor, plugin = task.preemption.preemptor, task.preemption.plugin
    kind = _type_of(preemptor)
    if plugin == DEFAULT_PREEMPTION or victim.priority < preemptor.priority:
        return f"{task.profile}: preempting to accommodate a higher priority {kind}"
    return f"{task.profile}: preempting to accommodate a {kind}, by the rules of {plugin}"


def _type_of(preemptor: Pod | Group) -> str:
    """The word for it in messages and metrics."""
    return "pod" if isinstance(preemptor, Pod) else preemptor.key.kind
