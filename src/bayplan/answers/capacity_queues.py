"""Capacity queues of a loaded cluster: what each uses, and why a pod waits.

The tree, its limits and its order are those of `bayplan.queues`, filled with the pods of the cluster: pods
with a node are charged, pending ones are active. So an answer is what the scheduler would find now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bayplan.answers.must_end import MAX_NAMED, MustEnd, what_must_end
from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.api.pod import Pod
from bayplan.config import QueuesConfiguration
from bayplan.printable import printable
from bayplan.queues import tree, victims
from bayplan.queues.active import CapacityQueues
from bayplan.queues.amounts import Amounts, readable, total
from bayplan.queues.ceilings import room_for
from bayplan.queues.tree import Blocking, Group, Queue
from bayplan.queues.yunikorn.placement import PlacementError
from bayplan.queues.yunikorn.pods import application_id
from bayplan.queues.yunikorn.task_groups import group_name, task_groups_of, task_groups_problem
from bayplan.scheduler.capacity import make_queues, show_queues
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduling_queue.queued import QueuedPod, members_of


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue of the tree."""

    queue: Queue
    depth: int
    share: float
    pending: int
    """The number of pods that wait there."""

    def described(self) -> dict[str, Any]:
        queue = self.queue
        return {
            "queue": queue.path,
            "leaf": queue.is_leaf,
            "state": queue.state.value,
            "used": dict(queue.used),
            "guaranteed": dict(queue.guaranteed or {}),
            "max": dict(queue.ceiling or {}),
            "share": round(self.share, 6),
            "pendingPods": self.pending,
            "runningApplications": queue.running,
            "maxApplications": queue.max_groups or None,
        }


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """Where a pending pod stands in its capacity queue."""

    queue: str
    """Empty if no queue takes its application."""
    application: str
    user: str
    user_groups: tuple[str, ...]
    blocking: Blocking | None
    problem: str
    """Why no queue takes it."""
    position: int
    """Among the active pods of its queue, counted from 1."""
    length: int
    overall: int
    """Among the active pods of all queues, in the order of their shares now."""
    waiting: int
    before: tuple[str, ...]
    """Applications that are tried before its own, with the reason."""
    used_by: tuple[str, ...]
    """Applications that use what it waits for, the largest first."""
    also_blocking: tuple[Blocking, ...]
    """Further limits that keep it out."""
    must_end: MustEnd | None
    """How the limit can be lifted that it waits for."""
    preemption: str
    """Whether taking from other queues would help."""
    standing: str = ""
    """What its queue has, in the dialect's words."""
    task_groups_problem: str = ""
    """Why its task groups are ignored."""
    gang: str = ""
    """With how many others it is scheduled together, where its task group is one in this cluster."""

    @property
    def waits(self) -> bool:
        """Whether it is not tried because of its queue."""
        return not self.queue or self.blocking is not None

    def text(self, key: str) -> Iterator[str]:
        """The answer, a sentence in each line; what follows is the decision about nodes."""
        if not self.queue:
            yield f"{key} has no capacity queue: {self.problem}"
        else:
            yield f"{key} waits for quota" if self.waits else f"{key} has room in its capacity queue"
            yield from (f"  {line}" for line in self._lines())
        yield "Without the limits of queues:" if self.waits else "With room in its queue:"

    def _lines(self) -> Iterator[str]:
        has_groups = self.user_groups and self.user_groups != (self.user,)
        who = f"user {self.user}" + (f" of {', '.join(self.user_groups)}" if has_groups else "")
        yield f"queue {self.queue}, application {self.application}, counts for {who}"
        if self.task_groups_problem:
            yield f"its task groups are ignored: {printable(self.task_groups_problem)}"
        if self.gang:
            yield self.gang
        if self.blocking is not None:
            yield self.blocking.sentence()
        overall = f"{self.overall} of {self.waiting} in all queues"
        yield f"position {self.position} of {self.length} in its queue, {overall}"
        yield from self._what_helps()

    def _what_helps(self) -> Iterator[str]:
        yield from (f"before it: {each}" for each in self.before)
        yield from (f"uses what it waits for: {each}" for each in self.used_by)
        if self.must_end is not None:
            yield from self.must_end.lines()
            yield from (f"after that: {each.sentence()}" for each in self.also_blocking)
            if self.position > 1:
                yield "freed resources are offered first to pods before it in its queue"
        yield self.preemption

    def described(self) -> dict[str, Any]:
        blocking = self.blocking
        return {
            "queue": self.queue,
            "application": self.application,
            "user": self.user,
            "groups": list(self.user_groups),
            "problem": self.problem,
            "blockedBy": None if blocking is None else _described(blocking),
            "alsoBlockedBy": [_described(each) for each in self.also_blocking],
            "position": self.position,
            "length": self.length,
            "overallPosition": self.overall,
            "waitingPods": self.waiting,
            "before": list(self.before),
            "usedBy": list(self.used_by),
            "mustEnd": None if self.must_end is None else self.must_end.described(),
            "preemption": self.preemption,
            "taskGroupsProblem": self.task_groups_problem,
            "gang": self.gang,
        }


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods of a task group without a node, which are scheduled together."""

    role: str
    least: int
    members: Sequence[Pod]

    def sentence(self) -> str:
        exist = len(self.members)
        missing = f", but only {exist} exist" if exist < self.least else ""
        return (
            f"task group {self.role} needs {self.least} pods at once{missing} "
            "(with the feature gate GenericWorkload)"
        )


def waiting_gangs(pods: Iterable[Pod]) -> Mapping[tuple[str, str], Gang]:
    """By namespace and name of the group: the task groups that have no pod with a node yet."""
    members: dict[tuple[str, str], list[Pod]] = {}
    least: dict[tuple[str, str], int] = {}
    for pod in pods:
        for defined in task_groups_of(pod):
            key = (pod.namespace, f"{application_id(pod)}:{defined.name}")
            least[key] = max(least.get(key, 1), defined.min_member)
        if name := group_name(pod):
            members.setdefault((pod.namespace, name), []).append(pod)
    return {
        key: Gang(key[1].rpartition(":")[2], least[key], found)
        for key, found in members.items()
        if least.get(key, 1) > 1 and not any(pod.spec.node_name for pod in found)
    }


class QueueQuestions:
    """Answers questions about the capacity queues of a cluster.

    Raises:
        ConfigError: the configuration of the queues is invalid.
    """

    waiting_type: ClassVar[type[WaitingPod]] = WaitingPod
    has_task_groups: ClassVar = True
    word: ClassVar = "application"
    """What the dialect calls a group."""

    def __init__(
        self, loaded: LoadedCluster, settings: QueuesConfiguration, core: SchedulingCore | None = None
    ) -> None:
        settings.check_is_read()
        core = loaded.core() if core is None else core
        self.queues: CapacityQueues = make_queues(settings, core.cluster)
        show_queues(self.queues, core)
        pods = [item for item in loaded.objects if isinstance(item, Pod) and not item.is_finished]
        for pod in pods:
            if pod.spec.node_name and core.framework_for(pod) is not None:
                self.queues.charge(pod, pod.spec.node_name)
        self._names = {pod.uid: pod.key for pod in pods}
        self._gangs = waiting_gangs(pods) if self.has_task_groups else {}
        self._waiting: dict[str, QueuedPod] = {}
        for number, pod in enumerate(loaded.pending(core)):
            info = self._waiting[pod.key] = QueuedPod(pod, pod.key, 0.0, number)
            self.queues.push(info, (-pod.priority,))
        self.queues.capacity_changed()
        self.queues.refresh()

    def rows(self) -> list[QueueRow]:
        """All queues, parents first."""
        root = self.queues.partition.root
        counts: dict[str, int] = {}
        for pod in self._active():
            group = self.queues.group_if_known(pod)
            for queue in group.queue.upwards() if group is not None else ():
                counts[queue.path] = counts.get(queue.path, 0) + 1
        return [
            QueueRow(queue, queue.path.count("."), self.queues.share(queue), counts.get(queue.path, 0))
            for queue in root.downwards()
        ]

    def _active(self) -> Iterator[Pod]:
        """The pending pods in order."""
        for entity in self.queues:
            yield from (member.pod for member in members_of(entity))

    def group(self, waiting: Sequence[Pod], least: int) -> WaitingPod:
        """Where a pod group stands, and what it waits for.

        Args:
            waiting: its members without a node, in order.
            least: how many of them have to be scheduled together.
        """
        return self.pod(waiting[0], total(self.queues.amounts_of(pod) for pod in waiting[:least]))

    def pod(self, pod: Pod, together: Amounts | None = None) -> WaitingPod:
        """Where a pending pod stands, and what it waits for.

        Args:
            together: what its group asks for, if it is scheduled with it.
        """
        queues = self.queues
        gang = self._gang(pod) if together is None else None
        if gang is not None:
            together = total(queues.amounts_of(member) for member in gang.members[: gang.least])
        asked = queues.amounts_of(pod) if together is None else together
        try:
            group = queues.group_of(pod)
        except PlacementError as error:
            return self.waiting_type(
                "", "", "", (), None, error.explained(), 0, 0, 0, 0, (), (), (), None, ""
            )
        found = queues.blocking(pod, asked)
        blocking = found if isinstance(found, Blocking) else None
        leaf = group.queue
        everyone = list(self._active())
        order = [each for each in everyone if queues.group_if_known(each) in leaf.groups.values()]
        position = next((place for place, each in enumerate(order, 1) if each.key == pod.key), 0)
        return self.waiting_type(
            self.queues.name_of(leaf),
            group.name,
            group.user,
            group.user_groups,
            blocking,
            "",
            position,
            len(order),
            next((place for place, each in enumerate(everyone, 1) if each.key == pod.key), 0),
            len(everyone),
            tuple(self._before(group)),
            () if blocking is None else tuple(self._users_of(blocking)),
            () if blocking is None else tuple(queues.further_blocking(pod, asked, blocking)),
            None if blocking is None else self._must_end(blocking),
            self._preemption(pod, asked, leaf, blocking),
            self._standing(leaf),
            self._task_groups_problem(pod),
            "" if gang is None else gang.sentence(),
        )

    def _gang(self, pod: Pod) -> Gang | None:
        """The task group that a pod is scheduled with, where the scheduler has pod groups."""
        return self._gangs.get((pod.namespace, group_name(pod))) if self._gangs else None

    def _task_groups_problem(self, pod: Pod) -> str:
        """Why the task groups of a pod are ignored, where the dialect has them."""
        return task_groups_problem(pod)

    def _standing(self, leaf: Queue) -> str:
        """What a queue has, in the words of the dialect."""
        return ""

    def _before(self, group: Group) -> Iterator[str]:
        leaf = group.queue
        ahead = []
        for other in self.queues.ordered_groups(leaf):
            if other is group:
                break
            ahead.append(other)
        for other in ahead[:MAX_NAMED]:
            yield f"{self.word} {other.name}, {self._reason(other, group)}"
        if len(ahead) > MAX_NAMED:
            yield f"{len(ahead) - MAX_NAMED} more {self.word}s"
        for queue in leaf.upwards():
            if queue.parent is None:
                return
            for sibling in self.queues.ordered_children(queue.parent):
                if sibling is queue:
                    break
                yield f"queue {self.queues.name_of(sibling)}, {self._queue_reason(sibling, queue)}"

    def _queue_reason(self, first: Queue, second: Queue) -> str:
        """Why a queue is before another one."""
        name, shares = self.queues.name_of(second), [self.queues.share(each) for each in (first, second)]
        return f"share {shares[0]:.2f} ({name} has {shares[1]:.2f})"

    def not_admitted(self, group: str) -> str:
        """Why a group whose pods do not exist yet waits for its queue; "" if it does not."""
        return ""

    def _reason(self, first: Group, second: Group) -> str:
        if first.priority != second.priority:
            return f"priority {first.priority} (this one has {second.priority})"
        if first.queue.policy.order is tree.Order.FAIR:
            return "which uses less"
        return "which was submitted earlier"

    def _users_of(self, blocking: Blocking) -> Iterator[str]:
        queue = self.queues.partition.find(blocking.queue)
        if queue is None or blocking.kind == "applications":
            return
        users = [
            (group.used.get(blocking.kind, 0), group)
            for leaf in queue.downwards()
            for group in leaf.groups.values()
            if group.used.get(blocking.kind) and blocking.user in ("", group.user)
        ]
        for amount, group in sorted(users, key=lambda each: (-each[0], each[1].name))[:MAX_NAMED]:
            shown = readable("vcore" if blocking.kind == "cpu" else blocking.kind, amount)
            yield f"{self.word} {group.name} in {self.queues.name_of(group.queue)}, {blocking.kind} {shown}"

    def _must_end(self, blocking: Blocking) -> MustEnd:
        return what_must_end(self.queues, blocking, self._names)

    def _preemption(self, pod: Pod, asked: Amounts, leaf: Queue, blocking: Blocking | None) -> str:
        found = victims.candidates(leaf, asked, pod.priority)
        if not victims.is_entitled(found, asked):
            return f"preemption would not help: {_why_not_entitled(leaf, asked)}"
        if not found.by_queue:
            return "preemption would not help: no other queue is above its guarantee"
        delay = leaf.policy.preemption_delay
        if blocking is not None:
            is_above = blocking.queue != leaf.path and not blocking.user and not blocking.user_group
            chosen = room_for(leaf, asked, pod.priority) if is_above else None
            if not chosen:
                return "preemption would not help: other queues cannot lose enough below this limit"
            names = ", ".join(sorted(self._names.get(task.key, task.key) for task in chosen))
            return (
                f"its queue is entitled to this: after {delay:g} s it evicts {names} "
                "(others where a budget or a node requires it), if a node fits then"
            )
        paths = ", ".join(sorted(found.by_queue))
        return f"its queue is entitled to this: it may preempt pods of {paths} after {delay:g} s"


def _described(blocking: Blocking) -> dict[str, Any]:
    return {
        "queue": blocking.queue,
        "user": blocking.user,
        "group": blocking.user_group,
        "resource": blocking.kind,
        "used": blocking.used,
        "asked": blocking.asked,
        "max": blocking.limit,
    }


def _why_not_entitled(leaf: Queue, asked: Amounts) -> str:
    entitled = tree.entitlement(leaf)
    if not entitled:
        return f"queue {leaf.path} has no guarantee"
    for kind, amount in asked.items():
        limit, used = entitled.get(kind), leaf.used.get(kind, 0)
        if limit is not None and used + amount > limit:
            shown = (readable(kind, each) for each in (used, amount, limit))
            return "queue {}: {} {} used, {} asked, {} guaranteed".format(leaf.path, kind, *shown)
    return f"queue {leaf.path} is within its guarantee, but its parents are not"
