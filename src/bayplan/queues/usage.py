"""The usage of the tree: which group each pod belongs to, and what pods with a node use.

Usage comes from the pods that have a node, assumed ones included, and groups exist while they have pods:
after a restart the same pods give the same tree. `active.py` orders the groups.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Final, Protocol

from bayplan.api.node import Namespace
from bayplan.api.pod import Pod
from bayplan.api.workloads import PriorityClass
from bayplan.metrics.families import QUEUE_APP, QUEUE_RESOURCE
from bayplan.metrics.instruments import Gauge, Spec
from bayplan.queues import tree
from bayplan.queues.amounts import Amounts, add_to, subtract_from, total
from bayplan.queues.records import Nominated, PodGroupOf, PodTask, Shape, Unserved
from bayplan.queues.tree import Queue, Task
from bayplan.queues.users import UserLimits
from bayplan.queues.yunikorn import pods as yunikorn
from bayplan.queues.yunikorn.build import Partition
from bayplan.queues.yunikorn.placement import PlacementError
from bayplan.queues.yunikorn.pods import TaskFacts
from bayplan.queues.yunikorn.task_groups import minimum_of, task_groups_of, task_groups_problem
from bayplan.state.pods import PodInfo

MAX_SHAPES: Final = 100_000
TAKEN_SECONDS: Final = 15.0
"""How long a victim that does not terminate counts as leaving: its eviction may have failed."""


class QueueTree(Protocol):
    """The queues of a dialect, and limits by user."""

    root: Queue
    user_limits: UserLimits

    def find(self, path: str) -> Queue | None:
        """A queue by its path."""

    def remove_if_empty(self, queue: Queue) -> bool:
        """Removes a queue that exists only as long as it has groups."""


class QueueUsage(ABC):
    """The groups of pods, and what they use.

    Args:
        partition: the tree with its placement rules and limits.
        infos: of a pod; pods with the same signature share one.
        namespace: finds a Namespace object.
    """

    def __init__(
        self,
        partition: QueueTree,
        infos: Callable[[Pod], PodInfo],
        namespace: Callable[[str], Namespace | None],
    ) -> None:
        self.partition = partition
        self._infos = infos
        self._namespace = namespace
        self._groups: dict[str, PodGroupOf] = {}
        self._tasks: dict[str, PodTask] = {}
        """By uid: pods that have a node."""
        self._known: dict[str, PodTask] = {}
        """By uid: pods that exist, once they were active or have a node."""
        self._ages: dict[str, list[tuple[float, str]]] = {}
        """By application: a heap of the creation times and uids of its pods, some of which have ended."""
        self._shapes: dict[tuple[tuple[str, int], ...], Shape] = {}
        self._shape_by_signature: dict[bytes, Shape] = {}
        self._nominated: dict[str, Nominated] = {}
        """By uid: pods that have preempted pods of other queues and have no node yet."""
        self._reserved: dict[str, dict[str, int]] = {}
        """By path of a queue: what is reserved for them."""
        self.unserved: dict[str, Unserved] = {}
        """By path of a leaf: the first pods that found nobody to evict; they are tried again."""
        self._taken: dict[str, float] = {}
        """By uid: when a pod was chosen as a victim."""
        self.on_task_groups: Callable[[Pod], None] | None = None
        """Called with the first pod of an application that has task groups."""
        self.on_invalid_task_groups: Callable[[Pod, str], None] | None = None
        """Called with the first pod of an application whose task groups are invalid, and what is wrong."""
        self.priority_class: Callable[[str], PriorityClass | None] = lambda name: None
        """Finds a PriorityClass object."""

    # What a dialect reads from pods

    def _application(self, pod: Pod) -> str:
        """The name of the group of a pod."""
        return yunikorn.application_id(pod)

    def _new_group(self, name: str, pod: Pod, created: float) -> PodGroupOf:
        """The group of a pod, which is its first.

        Raises:
            PlacementError: no queue takes it.
        """
        assert isinstance(self.partition, Partition)
        app = yunikorn.submission(pod, self._namespace(pod.namespace))
        task_groups = task_groups_of(pod)
        if task_groups and self.on_task_groups is not None:
            self.on_task_groups(pod)
        if self.on_invalid_task_groups is not None and (problem := task_groups_problem(pod)):
            self.on_invalid_task_groups(pod, problem)
        queue = self.partition.queue_for(app, minimum_of(task_groups))
        group = PodGroupOf(name, queue, app.user, app.groups, created)
        group.spares = self._is_spared
        return group

    def _unplaced_group(self, task: PodTask) -> PodGroupOf | None:
        """The group of a pod with a node that no queue takes; None if the dialect does not count it."""
        return None

    def _is_spared(self, task: PodTask) -> tuple[bool, bool]:
        first = self._first(task.application)
        return self._opts_out(task.pod), first is not None and first[1] == task.key

    def _opts_out(self, pod: Pod) -> bool:
        name = pod.spec.priority_class_name
        return yunikorn.opts_out(pod, self.priority_class(name) if name else None)

    def _facts(self, pod: Pod) -> TaskFacts:
        return yunikorn.facts(pod)

    def _amounts(self, requests: Mapping[str, int]) -> dict[str, int]:
        """Requests under the names that the queues use."""
        return yunikorn.amounts_of(requests)

    # What changes

    @abstractmethod
    def _use_changed(self, group: PodGroupOf) -> None:
        """A pod of the group got or lost its node."""

    @abstractmethod
    def _freed(self, group: PodGroupOf) -> None:
        """Something on the path of its queue is free again."""

    @abstractmethod
    def _group_ended(self, group: PodGroupOf) -> None:
        """The group has no pods any more."""

    def charge(self, pod: Pod, node_name: str, info: PodInfo | None = None) -> None:
        """A pod has a node, assumed or confirmed; or one that is charged already has changed.

        Args:
            info: of the pod, if it is known.
        """
        uid = pod.metadata.uid
        task = self._tasks.get(uid)
        if task is not None:
            task.place = node_name
            info = info or self._infos(pod)
            if info is task.info or self._shape(info) is task.shape:
                task.pod, task.info = pod, info
                if pod.metadata.deletion_timestamp is not None and not task.leaving:
                    self._mark_leaving(task)
                return
            self.refund(uid)
        task = self._known.get(uid)
        if task is None or task.pod is not pod:
            task = self._read(pod)
        try:
            group = self._groups.get(task.application) or self._group(task)
        except PlacementError:
            # Its queue may have gone while the pod was being bound.
            unplaced = self._unplaced_group(task)
            if unplaced is None:
                return
            group = self._add_group(task, unplaced)
        task.group = group
        task.place = node_name
        amounts = task.amounts
        self._tasks[uid] = task
        tree.charge(group.queue, amounts)
        if self.partition.user_limits.limits:
            self.partition.user_limits.charge(group, amounts)
        if not task.is_placeholder:
            add_to(group.used, amounts)
        if not group.tasks:
            tree.start(group)
        group.tasks[uid] = task
        if pod.metadata.deletion_timestamp is not None:
            self._mark_leaving(task)
        self._use_changed(group)

    def _mark_leaving(self, task: Task) -> None:
        task.leaving = True
        tree.mark_leaving(task.group.queue, task.amounts)

    def refund(self, uid: str) -> None:
        """A pod has lost its node, because its binding failed."""
        task = self._tasks.pop(uid, None)
        if task is None:
            return
        group = task.group
        assert isinstance(group, PodGroupOf)
        del group.tasks[uid]
        tree.refund(group.queue, task.amounts)
        task.place = ""
        if task.leaving:
            task.leaving = False
            tree.unmark_leaving(group.queue, task.amounts)
        if not task.is_placeholder:
            subtract_from(group.used, task.amounts)
        ended = not group.tasks
        if self.partition.user_limits.limits:
            self.partition.user_limits.refund(group, task.amounts, ended=ended)
        if ended:
            tree.stop(group)
        self._freed(group)
        self._use_changed(group)
        self._forget_if_empty(group)

    def pod_ended(self, uid: str) -> None:
        """A pod has completed or was deleted. If it has a node, `refund` follows."""
        known = self._known.pop(uid, None)
        if known is None:
            return
        oldest, group = self._oldest(known.application), self._groups.get(known.application)
        if oldest is not None and group is not None and oldest > group.created:
            group.created = oldest
            self._use_changed(group)

    def _oldest(self, application: str) -> float | None:
        """When the oldest pod of an application was created; None if none exists."""
        first = self._first(application)
        return None if first is None else first[0]

    def _first(self, application: str) -> tuple[float, str] | None:
        """When the oldest pod of an application was created, and its uid; None if none exists."""
        ages, known = self._ages.get(application, []), self._known
        while ages:
            created, uid = ages[0]
            task = known.get(uid)
            if task is not None and task.application == application:
                return created, uid
            heappop(ages)
        self._ages.pop(application, None)
        return None

    # What preemption has begun

    def nominate(self, pod: Pod) -> None:
        """Reserves what was freed for a pod with a nominated node: it counts as use of its queue."""
        self.remove_nomination(pod.uid)
        if not pod.spec.containers:
            return  # it is being scheduled, or deleted: see `scheduling_queue/nominations.py`
        try:
            group = self.group_of(pod)
        except PlacementError:
            return
        paths = tuple(queue.path for queue in group.queue.path_up)
        known = self._nominated[pod.uid] = Nominated(pod, group, self.amounts_of(pod), paths)
        for path in paths:
            add_to(self._reserved.setdefault(path, {}), known.amounts)
        self._forget_if_empty(group)

    def remove_nomination(self, uid: str) -> None:
        known = self._nominated.pop(uid, None)
        if known is not None:
            for path in known.paths:
                subtract_from(self._reserved[path], known.amounts)
            self._freed(known.group)

    @property
    def nominated(self) -> Collection[Nominated]:
        """The pods for which something is reserved."""
        return self._nominated.values()

    def reserved(self, besides: Iterable[Pod]) -> list[Nominated]:
        """The other pods for which something is reserved and that have no node yet."""
        own = {pod.uid for pod in besides} if self._nominated else ()
        return [each for uid, each in self._nominated.items() if uid not in own and uid not in self._tasks]

    def nominated_amounts(self, besides: Iterable[Pod]) -> Iterator[tuple[Queue, Amounts]]:
        """What is reserved for other pods, with their leaves."""
        return ((each.group.queue, each.amounts) for each in self.reserved(besides))

    def nominated_to(self, leaf: Queue, besides: Sequence[Pod]) -> dict[str, int]:
        """What is reserved for other pods of a leaf."""
        return total(amounts for queue, amounts in self.nominated_amounts(besides) if queue is leaf)

    def take(self, uids: Iterable[str], now: float) -> None:
        """Counts victims as leaving until they terminate, or until their eviction has failed."""
        self._taken.update((uid, now) for uid in uids)

    def taken(self, now: float) -> list[Task]:
        """The pods that were chosen as victims and are still there."""
        if not self._taken:
            return []
        self._taken = {uid: at for uid, at in self._taken.items() if at > now - TAKEN_SECONDS}
        return [task for uid in self._taken if (task := self._tasks.get(uid)) is not None]

    def group_of(self, pod: Pod) -> PodGroupOf:
        """The group of a pod, created with the first one.

        Raises:
            PlacementError: no queue accepts its application.
        """
        return self._group(self._look_up(pod))

    def name_of(self, queue: Queue) -> str:
        """A queue as the users of the dialect call it."""
        return queue.path

    def queue_of(self, pod: Pod) -> str:
        """The name of the queue of a pod; "" if no queue accepts its application."""
        try:
            group = self.group_of(pod)
        except PlacementError:
            return ""
        name = self.name_of(group.queue)
        self._forget_if_empty(group)
        return name

    def _group(self, task: PodTask) -> PodGroupOf:
        """The group of a pod, created with the first one, and as old as its oldest pod.

        Raises:
            PlacementError: no queue accepts its application.
        """
        group = self._groups.get(task.application)
        if group is None:
            group = self._add_group(task, self._new_group(task.application, task.pod, task.created))
        task.group = group
        return group

    def _add_group(self, task: PodTask, group: PodGroupOf) -> PodGroupOf:
        self._groups[task.application] = group
        tree.add_group(group)
        oldest = self._oldest(task.application)
        if oldest is not None and oldest < group.created:
            group.created = oldest
        return group

    def gauges(self) -> Mapping[Spec[Gauge], Mapping[tuple[str, ...], float]]:
        """What metrics show of the queues, under the names of the dialect."""
        resources: dict[tuple[str, ...], float] = {}
        applications: dict[tuple[str, ...], float] = {}
        for queue in self.partition.root.downwards():
            states: dict[str, Amounts | None] = {
                "allocated": queue.used,
                "pending": queue.pending,
                "preempting": queue.leaving,
                "guaranteed": queue.guaranteed,
                "max": queue.ceiling,
            }
            for state, amounts in states.items():
                for kind, amount in (amounts or {}).items():
                    resources[queue.path, state, kind] = float(amount)
            if queue.is_leaf:
                running = sum(bool(group.tasks) for group in queue.groups.values())
                applications[queue.path, "running"] = running
                applications[queue.path, "accepted"] = len(queue.groups) - running
        return {QUEUE_RESOURCE: resources, QUEUE_APP: applications}

    def task_of(self, uid: str) -> Task | None:
        """The task of a pod that has a node."""
        return self._tasks.get(uid)

    def info_of(self, pod: Pod) -> PodInfo | None:
        """What scheduling reads of a pod, if this version of it was read."""
        known = self._known.get(pod.metadata.uid)
        return known.info if known is not None and known.pod is pod else None

    def group_if_known(self, pod: Pod) -> PodGroupOf | None:
        return self._groups.get(self._look_up(pod).application)

    def amounts_of(self, pod: Pod) -> dict[str, int]:
        return self._look_up(pod).shape.amounts

    def total_shape(self, amounts: Sequence[Amounts]) -> Shape:
        """The shape of several pods together."""
        whole = total(amounts)
        items = (*whole.items(), ("", len(amounts)))
        return self._shapes.get(items) or self._new_shape(items, whole)

    def _read(self, pod: Pod) -> PodTask:
        """The task of a pod that exists; of one with a new version, another one."""
        uid = pod.metadata.uid
        known = self._known.get(uid)
        if known is not None and known.pod is pod:
            return known
        task = self._known[uid] = self._make_task(pod)
        if known is None or known.application != task.application:
            ages = self._ages.get(task.application)
            if ages is None:
                self._ages[task.application] = [(task.created, uid)]
            else:
                heappush(ages, (task.created, uid))
                group = self._groups.get(task.application)
                if group is not None and task.created < group.created:
                    group.created = task.created
        return task

    def _look_up(self, pod: Pod) -> PodTask:
        """The same for questions, which leave no trace."""
        known = self._known.get(pod.metadata.uid)
        return known if known is not None and known.pod is pod else self._make_task(pod)

    def _make_task(self, pod: Pod) -> PodTask:
        info = self._infos(pod)
        shape = self._shape_by_signature.get(info.key) or self._shape(info)
        return PodTask(pod, info, shape, self._application(pod), self._facts(pod))

    def _shape(self, info: PodInfo) -> Shape:
        shape = self._shape_by_signature.get(info.key)
        if shape is None:
            items = tuple(info.requests.items())
            shape = self._shapes.get(items) or self._new_shape(items, self._amounts(info.requests))
            self._shape_by_signature[info.key] = shape
        return shape

    def _new_shape(self, items: tuple[tuple[str, int], ...], amounts: dict[str, int]) -> Shape:
        if len(self._shapes) >= MAX_SHAPES:
            self._shapes.clear()
        if len(self._shape_by_signature) >= MAX_SHAPES:
            self._shape_by_signature.clear()
        shape = self._shapes[items] = Shape(amounts)
        return shape

    def _forget_if_empty(self, group: PodGroupOf) -> None:
        if not group.tasks and not group.active and self._groups.get(group.name) is group:
            tree.remove_group(group)
            self._groups.pop(group.name, None)
            self._group_ended(group)
