"""Capacity queues of a loaded cluster: what each uses, and why a pod waits.

The tree, its limits and its order are those of `bayplan.queues`, filled with the pods of the cluster: pods
with a node are charged, pending ones are active. So an answer is what the scheduler would find now.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, ClassVar, TypeVar

from bayplan.answers.must_end import MAX_NAMED, MustEnd, counted, what_must_end
from bayplan.answers.queue_preemption import whether_it_helps
from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.api.pod import Pod
from bayplan.config import QueuesConfiguration
from bayplan.printable import printable
from bayplan.queues import tree
from bayplan.queues.active import CapacityQueues
from bayplan.queues.amounts import Amounts, readable, total
from bayplan.queues.records import created_at
from bayplan.queues.tree import Blocking, Group, Queue
from bayplan.queues.users import APPLICATIONS
from bayplan.queues.yunikorn.placement import PlacementError
from bayplan.queues.yunikorn.pods import application_id
from bayplan.queues.yunikorn.task_groups import group_name, task_groups_of, task_groups_problem
from bayplan.scheduler.capacity import make_queues, show_queues
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduling_queue.queued import QueuedPod, members_of

ItemT = TypeVar("ItemT")


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
    offered_first: int = 0
    """How many pods before it ask for what it waits for, too."""

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
            if self.offered_first:
                yield f"freed resources are offered first to {_pods(self.offered_first)} before it"
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
            "offeredFirst": self.offered_first,
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
        for place, pod in enumerate(loaded.pending(core)):
            info = self._waiting[pod.key] = QueuedPod(pod, pod.key, 0.0, place)
            self.queues.push(info, (-pod.priority, created_at(pod)))
            if pod.status.nominated_node_name:
                self.queues.nominate(pod)
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
        together = total(self.queues.amounts_of(pod) for pod in waiting[:least])
        return self.pod(waiting[0], together, {pod.key for pod in waiting})

    def pod(self, pod: Pod, together: Amounts | None = None, peers: Container[str] = ()) -> WaitingPod:
        """Where a pending pod stands, and what it waits for.

        Args:
            together: what its group asks for, if it is scheduled with it.
            peers: keys of the pods of that group.
        """
        queues = self.queues
        gang = self._gang(pod) if together is None else None
        if gang is not None:
            together = total(queues.amounts_of(member) for member in gang.members[: gang.least])
            peers = {member.key for member in gang.members}
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
        leaves = {
            each.key: known.queue
            for each in self._active()
            if (known := queues.group_if_known(each)) is not None
        }
        everyone = list(leaves)
        order = [key for key in everyone if leaves[key] is leaf]
        return self.waiting_type(
            self.queues.name_of(leaf),
            group.name,
            group.user,
            group.user_groups,
            blocking,
            "",
            order.index(pod.key) + 1 if pod.key in order else 0,
            len(order),
            everyone.index(pod.key) + 1 if pod.key in leaves else 0,
            len(everyone),
            tuple(self._before(pod, group, peers)),
            () if blocking is None else tuple(self._users_of(blocking)),
            () if blocking is None else tuple(queues.further_blocking(pod, asked, blocking)),
            None if blocking is None else self._must_end(blocking),
            self._preemption(pod, asked, leaf, blocking),
            self._standing(leaf),
            self._task_groups_problem(pod),
            "" if gang is None else gang.sentence(),
            0 if blocking is None else self._first_offered(pod, group, blocking, peers),
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

    def _before(self, pod: Pod, group: Group, peers: Container[str]) -> Iterator[str]:
        """What is tried before a pod: pods of its application, other applications of its queue, other queues.

        Args:
            peers: keys of pods that are scheduled with it.
        """
        leaf = group.queue
        order = [each for each in self._active() if self.queues.group_if_known(each) is group]
        own = [each.key for each in takewhile(lambda each: each.key != pod.key, order)]
        own = [key for key in own if key not in peers]
        if own:
            yield f"{_pods(len(own))} of the same {self.word}"
        ahead = _until(self.queues.ordered_groups(leaf), group)
        for other in ahead[:MAX_NAMED]:
            yield f"{self.word} {other.name}, {self._reason(other, group)}"
        if len(ahead) > MAX_NAMED:
            yield f"{len(ahead) - MAX_NAMED} more {self.word}s"
        for queue in leaf.upwards():
            if queue.parent is None:
                return
            siblings = _until(self.queues.ordered_children(queue.parent), queue)
            for sibling in siblings[:MAX_NAMED]:
                yield f"queue {self.queues.name_of(sibling)}, {self._queue_reason(sibling, queue)}"
            if len(siblings) > MAX_NAMED:
                yield f"{len(siblings) - MAX_NAMED} more queues"

    def _queue_reason(self, first: Queue, second: Queue) -> str:
        """Why a queue is tried before its sibling, as `tree.queue_key` orders them."""
        assert second.parent is not None
        name = self.queues.name_of(second)
        shares = self._share_reason(first, second)
        priorities = (
            f"priority {first.priority} ({name} has {second.priority})"
            if first.priority != second.priority
            else ""
        )
        reasons = (priorities, shares) if second.parent.policy.by_priority else (shares, priorities)
        last = "which has more pending" if first.waiting > second.waiting else "which is first by name"
        return reasons[0] or reasons[1] or f"{last} (the shares are {self.queues.share(first):.2f})"

    def _share_reason(self, first: Queue, second: Queue) -> str:
        """ "" if their shares are equal."""
        one, other = self.queues.share(first), self.queues.share(second)
        if one == other:
            return ""
        digits = ".2f" if f"{one:.2f}" != f"{other:.2f}" else ".6g"
        return f"share {one:{digits}} ({self.queues.name_of(second)} has {other:{digits}})"

    def not_admitted(self, group: str) -> str:
        """Why a group whose pods do not exist yet waits for its queue; "" if it does not."""
        return ""

    def _reason(self, first: Group, second: Group) -> str:
        """Why a group is tried before another one of its queue, as `tree.group_key` orders them."""
        policy = first.queue.policy
        priority = shares = age = ""
        if first.priority != second.priority:
            priority = f"priority {first.priority} (this one has {second.priority})"
        if first.created != second.created:
            age = "which was submitted earlier"
        if policy.order is tree.Order.FAIR and tree.group_share(first) != tree.group_share(second):
            shares = f"which uses {_amounts_text(first.used)} (this one uses {_amounts_text(second.used)})"
        if policy.by_priority:
            reasons = (priority, shares, age)
        elif policy.order is tree.Order.FAIR:
            reasons = (shares, priority, age)
        else:
            reasons = (age, priority, shares)
        return next(filter(None, reasons), "which is first by name")

    def _users_of(self, blocking: Blocking) -> Iterator[str]:
        if blocking.kind == APPLICATIONS:
            return
        used = [
            (sum(task.amounts.get(blocking.kind, 0) for task in group.tasks.values()), group)
            for group in counted(self.queues, blocking)
        ]
        users = sorted((each for each in used if each[0]), key=lambda each: (-each[0], each[1].name))
        for amount, group in users[:MAX_NAMED]:
            shown = readable("vcore" if blocking.kind == "cpu" else blocking.kind, amount)
            yield f"{self.word} {group.name} in {self.queues.name_of(group.queue)}, {blocking.kind} {shown}"
        if len(users) > MAX_NAMED:
            yield f"{len(users) - MAX_NAMED} more {self.word}s"

    def _first_offered(self, pod: Pod, group: Group, blocking: Blocking, peers: Container[str]) -> int:
        """How many pods are offered what is freed below a limit before this one."""
        count, groups = 0, {id(each) for each in counted(self.queues, blocking)}
        for each in takewhile(lambda each: each.key != pod.key, self._active()):
            other = self.queues.group_if_known(each)
            if blocking.kind == APPLICATIONS:
                asks = other is not group and other is not None and not other.tasks
            else:
                asks = bool(self.queues.amounts_of(each).get(blocking.kind))
            count += id(other) in groups and asks and each.key not in peers
        return count

    def _must_end(self, blocking: Blocking) -> MustEnd:
        return what_must_end(self.queues, blocking, self._names)

    def _preemption(self, pod: Pod, asked: Amounts, leaf: Queue, blocking: Blocking | None) -> str:
        """Whether preemption would help a pod."""
        limits = [blocking, *self.queues.further_blocking(pod, asked, blocking)] if blocking else []
        return whether_it_helps(self.queues, pod, asked, limits, self._names)


def _until(items: Iterable[ItemT], end: ItemT) -> list[ItemT]:
    return list(takewhile(lambda each: each is not end, items))


def _pods(count: int) -> str:
    return f"{count:,} {'pod' if count == 1 else 'pods'}"


def _amounts_text(amounts: Amounts) -> str:
    parts = (f"{kind} {readable(kind, amount)}" for kind, amount in sorted(amounts.items()))
    return ", ".join(parts) or "nothing"


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
