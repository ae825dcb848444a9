"""Preemption for room in queues, not on nodes: no attempt of a pod leads to it.

A pod that waits for the ceiling of a parent queue is not tried, so CapacityPreemption never sees it. If its
own queue is entitled to what it requests, this makes room below the parent (`queues/ceilings.py`), unless no
node would take the pod afterwards. And a queue whose maximum was lowered below what it uses loses pods after
its delay, if that is configured (`queues/quota.py`).

`check` is called after pods were popped. Nothing runs in between, except for a timer while a delay passes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from bayplan.api.pod import Pod
from bayplan.framework.outcome import Eviction, Nomination
from bayplan.queues.active import CapacityQueues, WaitingAbove
from bayplan.queues.ceilings import room_for
from bayplan.queues.preemption import CapacityPreemption, pods_together, unprotected_first
from bayplan.queues.quota import distribute, excess, quota_victims
from bayplan.queues.records import created_at
from bayplan.queues.tree import Queue, Task
from bayplan.runtime.search import run_through
from bayplan.scheduler.context import Context
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.cycle import scheduling_cycle
from bayplan.scheduler.failure import Evictions, Failures
from bayplan.scheduling_queue.object_events import QUEUES_CHANGED
from bayplan.scheduling_queue.queued import Entity, QueuedGroup, members_of
from bayplan.state.group_trees import invalid, tree_of

RETRY_SECONDS: Final = 15.0
"""Time between two attempts for one pod, as in YuniKorn; after one in vain, for all pods of its leaf."""
MAX_ATTEMPTS: Final = 10
"""In one check, as in YuniKorn."""


@dataclass(slots=True)
class Reserved:
    """What was freed for a pod or pod group that waits for a ceiling."""

    entity: Entity
    victims: Sequence[str]
    """Their uids."""
    until: float


class QueuePreemption:
    """Evicts pods where a queue has to give way to another, or to its own maximum."""

    def __init__(
        self,
        queues: CapacityQueues,
        core: SchedulingCore,
        context: Context,
        failures: Failures,
        evictions: Evictions,
    ) -> None:
        self._queues = queues
        self._core = core
        self._context = context
        self._failures = failures
        self._evictions = evictions
        self._tried: dict[str, tuple[float, str]] = {}
        """By path of a leaf: when the last attempt was, and the key of its entity; "" if it was in vain."""
        self._reserved: dict[str, Reserved] = {}
        """By key of the entity."""
        self._due: dict[str, float] = {}
        """By path: when the lowered maximum of a queue is enforced; infinite once it was."""
        self._seen_version = -1
        self._timer: asyncio.TimerHandle | None = None

    def check(self) -> None:
        """Evicts what has to go now, and sets a timer for what follows."""
        queues, now = self._queues, self._context.now()
        wait = inf
        if queues.version != self._seen_version or self._due:
            self._seen_version = queues.version
            wait = self._enforce(now)
        if queues.preempts:
            wait = min(wait, self._reclaim(now))
        if queues.unserved:
            wait = min(wait, self._try_again(now))
        if self._reserved or queues.nominated:
            wait = min(wait, self._end_reservations(now))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wait < inf:
            self._timer = self._context.loop.call_later(wait, self.check)

    def _try_again(self, now: float) -> float:
        """Tries pods again that their queue is entitled to, if pods were bound since: no event tells them.

        Returns the time until the next attempt. One pod or group of each leaf is tried.
        """
        wait = inf
        for path, unserved in list(self._queues.unserved.items()):
            due = unserved.at + RETRY_SECONDS
            if unserved.freshness.is_current:
                continue
            if due > now:
                wait = min(wait, due - now)
                continue
            del self._queues.unserved[path]
            self._context.queue.activate(unserved.pods)
            self._context.wake()
        return wait

    # Below the ceiling of a parent

    def _reclaim(self, now: float) -> float:
        """Makes room for the pods that are due. Returns the time until the next attempt."""
        left, wait = MAX_ATTEMPTS, inf
        for waiting in self._queues.waiting_above():
            due = self._due_at(waiting)
            if due > now:
                wait = min(wait, due - now)
            elif left:
                left -= 1
                key = waiting.entity.key if self._make_room(waiting, now) else ""
                self._tried[waiting.leaf.path] = (now, key)
        return wait

    def _due_at(self, waiting: WaitingAbove) -> float:
        oldest = min(created_at(member.pod) for member in members_of(waiting.entity))
        at, key = self._tried.get(waiting.leaf.path, (-inf, ""))
        is_next = bool(key) and key != waiting.entity.key
        return max(oldest + waiting.leaf.policy.preemption_delay, -inf if is_next else at + RETRY_SECONDS)

    def _make_room(self, waiting: WaitingAbove, now: float) -> bool:
        """Evicts what has to go for a pod or pod group. False if that is not possible."""
        pods = [member.pod for member in members_of(waiting.entity)][: waiting.least]
        framework = self._core.framework_for(pods[0])
        if framework is None or framework.extenders is not None:
            return False  # what an extender would answer is not known
        if any(pod.spec.preemption_policy == "Never" for pod in pods):
            return False
        if self._queues.blocking_besides(pods[0], waiting.amounts) is not None:
            return False
        if isinstance(waiting.entity, QueuedGroup) and self._is_invalid(waiting.entity, pods):
            return False
        for node_name in self._places(waiting):
            chosen = self._room_for(waiting, node_name, now)
            if not chosen:
                return False
            victims = [pod for task in chosen if (pod := self._pod(task)) is not None]
            places = self._nodes_without(victims, pods)
            if places:
                break
        else:
            return False
        self._queues.take((task.key for task in chosen), now)
        for pod, place in zip(pods, places, strict=True):
            self._context.queue.nominations.add(pod, Nomination(place))
        self._reserved[waiting.entity.key] = Reserved(
            waiting.entity, [task.key for task in chosen], now + RETRY_SECONDS
        )
        self._queues.changed(waiting.entity)
        eviction = Eviction(places[0], tuple(victims))
        if isinstance(waiting.entity, QueuedGroup):
            group, profile = waiting.entity.group, pods[0].spec.scheduler_name
            self._evictions.start_for_group(group, profile, eviction, CapacityPreemption.name)
        else:
            self._evictions.start(pods[0], eviction, CapacityPreemption.name)
        return True

    def _is_invalid(self, entity: QueuedGroup, pods: Sequence[Pod]) -> bool:
        """Whether an attempt would end with an error: its pods contradict the group, or each other."""
        cluster = self._core.cluster
        group = None if cluster.groups is None else cluster.groups.group(entity.group.key)
        if cluster.groups is None or group is None:
            return True
        has_own_policy = "PodGroupPreemptionPolicy" in cluster.release.gates
        return bool(invalid(tree_of(cluster.groups, group, pods), has_own_policy=has_own_policy))

    def _room_for(self, waiting: WaitingAbove, node_name: str, now: float) -> list[Task] | None:
        queues, cluster = self._queues, self._core.cluster

        def together(task: Task) -> Sequence[Task] | None:
            pod = self._pod(task)
            found = (
                [queues.task_of(uid) for uid in pods_together(pod, cluster)] if pod is not None else [None]
            )
            tasks = [each for each in found if each is not None]
            return tasks if len(tasks) == len(found) else None

        return room_for(
            waiting.leaf,
            waiting.amounts,
            waiting.priority,
            together=together,
            leaving=queues.taken(now),
            nominated=list(queues.nominated_amounts([member.pod for member in members_of(waiting.entity)])),
            preferred=lambda tasks: unprotected_first(tasks, cluster, node_name),
        )

    def _places(self, waiting: WaitingAbove) -> Iterator[str]:
        """Where victims are preferred: nowhere first, then node by node."""
        yield ""
        places = {
            task.place
            for queue in waiting.blocked_by.downwards()
            for group in queue.groups.values()
            for task in group.tasks.values()
        }
        yield from sorted(places)[:MAX_ATTEMPTS]

    def _pod(self, task: Task) -> Pod | None:
        assigned = self._core.cluster.assigned_pod(task.key)
        return None if assigned is None else assigned[0]

    def _nodes_without(self, victims: Sequence[Pod], pods: Sequence[Pod]) -> list[str]:
        """The nodes of these pods if all of them fit without the victims; none if not."""
        cluster, found = self._core.cluster, list[str]()
        cluster.undo.mark()
        try:
            for victim in victims:
                cluster.remove_pod(victim.uid)
            for pod in pods:
                framework = self._core.framework_for(pod)
                assert framework is not None
                decision = run_through(scheduling_cycle(framework, pod, runs_post_filter=False))
                if decision.found is None:
                    return []
                found.append(decision.node_name)
                cluster.add_pod(pod, decision.node_name)
        finally:
            cluster.undo.revert()
        return found

    def _end_reservations(self, now: float) -> float:
        """Gives up what is reserved for pods that still wait some time after their victims are gone.

        Returns the time until the next one.
        """
        wait, nominations = inf, self._context.queue.nominations
        for pod in [each.pod for each in self._queues.nominated]:
            entity = self._context.queue.find(pod.key)
            if entity is not None and entity.sub_queue is self._queues and pod.key not in self._reserved:
                self._reserved[pod.key] = Reserved(entity, (), now + RETRY_SECONDS)
        for key, reserved in list(self._reserved.items()):
            if reserved.entity.sub_queue is not self._queues:
                del self._reserved[key]  # it was tried, or is gone
                continue
            if any(self._queues.task_of(uid) is not None for uid in reserved.victims):
                reserved.until = now + RETRY_SECONDS
            elif reserved.until <= now:
                del self._reserved[key]
                for member in members_of(reserved.entity):
                    if nominations.node_of(member.pod.uid):
                        self._failures.give_up_node(member)
                self._context.queue.move_to_active_or_backoff(QUEUES_CHANGED)
                self._context.wake()
                continue
            wait = min(wait, reserved.until - now)
        return wait

    # Lowered maxima

    def _enforce(self, now: float) -> float:
        """Evicts from queues whose delay has passed. Returns the time until the next."""
        waits = [inf]

        def visit(queue: Queue) -> None:
            delay = queue.policy.quota_delay if queue.is_managed and queue.parent is not None else 0.0
            above = excess(queue) if delay and self._queues.enforces_quota else {}
            if not above:
                self._due.pop(queue.path, None)
            else:
                due = self._due.setdefault(queue.path, now + delay)
                if due <= now:
                    self._due[queue.path] = inf
                    self._evict_above(queue, above)
                    return
                waits.append(due - now)
            for child in queue.children.values():
                visit(child)

        visit(self._queues.partition.root)
        return min(waits)

    def _evict_above(self, queue: Queue, above: dict[str, int]) -> None:
        tasks = [task for leaf, part in distribute(queue, above) for task in quota_victims(leaf, part)]
        pods = [pod for task in tasks if (pod := self._pod(task)) is not None]
        self._evictions.start_for_quota(pods, queue.path)
