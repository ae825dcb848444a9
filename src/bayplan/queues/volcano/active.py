"""Volcano's queues in the scheduler: Queue objects as a tree, PodGroups as its groups.

The objects are read from the cluster. A Queue that is new, gone or has another parent rebuilds the tree, one
with other amounts does not; a changed PodGroup moves its group.
What queues deserve depends on what everybody requests (plugin proportion). Most changes concern one queue
(`proportion.py`); after others the cluster is distributed again, after a few changes where there are many
queues, and whenever nothing could be popped.

    Queue ──► QueueSpec ──► Account ─┐   deserved, share, room: `accounts.py`
    PodGroup ──► its queue, minimum and priority ──► Group in a leaf
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import inf
from typing import Final

from bayplan.api import volcano
from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.api.quantity import resource_amounts
from bayplan.api.workloads import PriorityClass
from bayplan.clock import Changes, Freshness
from bayplan.framework.plugin_api import SortKey
from bayplan.metrics.instruments import Gauge, Spec
from bayplan.queues import tree
from bayplan.queues.active import CapacityQueues
from bayplan.queues.amounts import Amounts, add_to, is_positive, readable, subtract_from
from bayplan.queues.tree import Blocking, GroupKey, Order, Queue, QueueKey
from bayplan.queues.usage import PodGroupOf, Requests, Shape
from bayplan.queues.users import UserLimits
from bayplan.queues.volcano import accounts as accounting
from bayplan.queues.volcano import drf, jobs
from bayplan.queues.volcano import resources as r
from bayplan.queues.volcano.accounts import OPEN, ROOT, Account, Entitlement, QueueSpec
from bayplan.queues.volcano.conf import Conf
from bayplan.queues.volcano.gauges import gauges_of
from bayplan.queues.volcano.proportion import Proportion
from bayplan.queues.volcano.resources import Resources
from bayplan.queues.yunikorn.placement import PlacementError
from bayplan.queues.yunikorn.pods import TaskFacts
from bayplan.scheduling_queue.queued import Entity
from bayplan.state.groups import GroupKey as PodGroupKey
from bayplan.state.objects import Objects

DEFAULT_QUEUE: Final = "default"
PENDING, INQUEUE = "Pending", "Inqueue"
"""Phases of PodGroups."""
EPOCH: Final = datetime.fromtimestamp(0, UTC)
CRITICAL: Final = frozenset({"system-cluster-critical", "system-node-critical"})
_QUEUES_PER_CHANGE: Final = 32
"""The cluster is distributed again after one change for so many queues that concerns others."""


@dataclass(frozen=True, slots=True)
class QueueLimit(Blocking):
    """The limit of one of Volcano's queues that keeps a pod out."""

    name: str = ""
    """The name of the queue."""
    word: str = "capability"
    """Which limit it is, as Volcano calls it."""
    note: str = ""

    def without_amounts(self) -> str:
        return f"waiting for queue {self.name}: {self.kind or self.note}"

    def sentence(self) -> str:
        if not self.kind:
            return self.without_amounts()
        kind = "vcore" if self.kind == "cpu" else self.kind
        used, asked, limit = (readable(kind, each) for each in (self.used, self.asked, self.limit))
        note = f" ({self.note})" if self.note else ""
        return f"{self.without_amounts()} {used} allocated, {asked} requested, {limit} {self.word}{note}"


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as `jobs.py` and `victims.py` see it."""

    name: str
    account: Account
    priority: int
    created: float
    min_available: int
    ready: int
    allocated: Resources
    capacity: Resources

    @property
    def is_ready(self) -> bool:
        return self.ready >= self.min_available

    @property
    def share(self) -> float:
        return drf.job_share(self.allocated, self.capacity)


class JobGroup(PodGroupOf):
    """A group with the queue that its pods name, which counts if there is no PodGroup."""

    __slots__ = ("own_queue",)

    def __init__(self, name: str, queue: Queue, created: float, own_queue: str) -> None:
        super().__init__(name, queue, "", (), created)
        self.own_queue = own_queue


class VolcanoTree:
    """The tree of queues, without limits by user."""

    def __init__(self) -> None:
        self.root = Queue(ROOT, leaf=False)
        self.user_limits = UserLimits()

    def find(self, path: str) -> Queue | None:
        return self.root.find(path)

    def remove_if_empty(self, queue: Queue) -> bool:
        return False


class VolcanoQueues(CapacityQueues):
    """Active pods in Volcano's queues.

    Args:
        conf: actions and plugins.
        objects: has Queues, PodGroups and PriorityClasses.
        changes: of the cluster that the objects are from.
    """

    def __init__(
        self,
        conf: Conf,
        requests: Requests,
        capacity: Callable[[], Mapping[str, int]],
        objects: Objects,
        changes: Changes,
        scheduled: Callable[[PodGroupKey], int] = lambda key: 0,
    ) -> None:
        self.conf = conf
        self.kind: Entitlement = conf.entitlement
        self.accounts: dict[str, Account] = {}
        self.problems: dict[str, str] = {}
        """By name of the queue: why it cannot be used."""
        self._by_path: dict[str, Account] = {}
        self._objects = objects
        self.order_of_jobs = jobs.job_order(conf)
        self._queues_log = objects.of(volcano.Queue).changes
        self._groups_log = objects.of(volcano.PodGroup).changes
        self._freshness = Freshness(changes.clock, objects=(self._queues_log, self._groups_log))
        self._lost = Queue("unknown")
        """Where pods are counted that run in a queue that does not exist."""
        self._pending: dict[str, dict[str, int]] = {}
        """By path of a leaf: what its active pods ask for."""
        self._touched: set[str] = set()
        """Paths of leaves whose use or pending pods have changed."""
        self._proportion: Proportion | None = None
        self._changes = 0
        """Changes since the last distribution that concern other queues, too."""
        self._is_open = False
        self._may_admit = True
        """Whether a PodGroup may be admitted that could not be before."""
        super().__init__(VolcanoTree(), requests, capacity, scheduled=scheduled)
        self._build()

    # From objects to the tree

    def refresh(self) -> None:
        if not self._freshness.is_current:
            changed = self._freshness.recorded(self._groups_log)
            queues = self._freshness.recorded(self._queues_log)
            if changed is None or queues is None or not self._update_queues(queues):
                self._rebuild()
            else:
                names = {
                    item.key
                    for old, new in changed
                    if not _same_spec(old, new)
                    for item in (old, new)
                    if item
                }
                self._move({name for name in names if name in self._groups})
            self._freshness.mark_current()
        if self._is_resized:
            self._is_open = False
        super().refresh()
        if self._touched:
            self._adjust()
        if not self._is_open or self._changes > len(self.accounts) // _QUEUES_PER_CHANGE:
            self._open()
        if self._stale:
            self._reorder_stale()

    def objects_changed(self) -> None:
        """A Queue or PodGroup has changed: the next pop finds out what that means."""
        self._may_admit = True
        self.count = self._size

    def capacity_changed(self) -> None:
        """Limits may follow the size of the cluster: the next pop finds out."""
        super().capacity_changed()
        self.count = self._size

    def pop(self) -> Entity | None:
        found = super().pop()
        if found is None and self._changes and self._size:
            self._open()
            found = super().pop()
        return found

    def _build(self) -> None:
        specs = {name: QueueSpec(name) for name in (ROOT, DEFAULT_QUEUE)}
        for item in self._objects.of(volcano.Queue):
            specs[item.name] = spec_of(item)
        if not self.conf.hierarchy:
            del specs[ROOT]
        self.accounts, self.problems = accounting.accounts_by_name(
            specs.values(), hierarchy=self.conf.hierarchy
        )
        for account in self.accounts.values():
            self._set_spec(account, account.spec)
            account.queue.policy.order = Order.FAIR  # the position of a group changes with its use
        self._by_path = {account.queue.path: account for account in self.accounts.values()}
        queue = next(iter(self.accounts.values())).queue
        self.partition.root = queue.path_up[-1]
        self._is_open = False

    def _set_spec(self, account: Account, spec: QueueSpec) -> None:
        problem = queue_problem(spec)
        if problem:
            # Only this queue is stopped: what it would be promised does not limit others.
            self.problems[spec.name] = problem
            spec = replace(spec, guarantee={}, deserved={}, weight=0)
        account.spec = spec
        account.queue.weight = spec.weight

    def _update_queues(self, changed: Iterable[tuple[Object | None, Object | None]]) -> bool:
        """Takes over new amounts, weights and states of queues. False if the tree is another one."""
        found: list[tuple[Account, QueueSpec]] = []
        for before, after in changed:
            if not isinstance(before, volcano.Queue) or not isinstance(after, volcano.Queue):
                return False
            account = self.accounts.get(after.name)
            if account is None or before.uid != after.uid:
                return False
            old, new = spec_of(before), spec_of(after)
            if old.parent != new.parent or queue_problem(old) or queue_problem(new):
                return False
            if old != new:
                found.append((account, new))
        for account, new in found:
            self._set_spec(account, new)
            self._is_open = False
        return True

    def use(self, conf: Conf) -> None:
        """Another configuration holds from now on: all groups enter the tree again."""
        self.conf, self.kind, self.order_of_jobs = conf, conf.entitlement, jobs.job_order(conf)
        self._rebuild()
        self.objects_changed()

    def _rebuild(self) -> None:
        """Queues have changed: all groups enter the tree again."""
        waiting = self._take_out(set(self._groups))
        self._nodes.clear()
        self._waiters.clear()
        self._stale.clear()
        self._lost = Queue("unknown")
        self._build()
        for group in self._groups.values():
            self._enter_tree(group)
        for info in waiting:
            self.push(info, info.sort_key)
        self.capacity_changed()

    def _move(self, names: set[str]) -> None:
        """PodGroups have changed: these groups leave their queues and enter them again."""
        waiting = self._take_out(names)
        for name in names:
            group = self._groups.get(name)
            if group is not None:
                for task in group.tasks.values():
                    tree.refund(group.queue, task.amounts)
                    if task.leaving:
                        tree.unmark_leaving(group.queue, task.amounts)
                if group.tasks:
                    tree.stop(group)
                    self._touched.add(group.queue.path)
                    self._freed(group)
                tree.remove_group(group)
                self._enter_tree(group)
                self._use_changed(group)
        for info in waiting:
            self.push(info, info.sort_key)

    def _take_out(self, names: set[str]) -> list[Entity]:
        """Removes the active pods of groups, and those that have no queue."""
        found = [info for info, _ in self._rejected.values()]
        for name in names:
            group = self._groups[name]
            for entries in group.classes.values():
                found.extend(entry[3] for entry in entries if self._is_current(entry))
        for info in found:
            self.remove(info)
        return found

    def _enter_tree(self, group: PodGroupOf) -> None:
        """Places a group that has nothing active."""
        assert isinstance(group, JobGroup)
        try:
            queue = self._leaf(self._queue_name(group.name, group.own_queue))
        except PlacementError:
            queue = self._lost
        group.queue, group.key = queue, ()
        tree.add_group(group)
        for task in group.tasks.values():
            tree.charge(queue, task.amounts)
            if task.leaving:
                tree.mark_leaving(queue, task.amounts)
        if group.tasks:
            tree.start(group)
        self._mark_stale(self._node(queue))

    # From pods to groups

    def _application(self, pod: Pod) -> str:
        name = group_name(pod)
        if name:
            return f"{pod.namespace}/{name}"
        owner = pod.metadata.controller()
        return f"{pod.namespace}/podgroup-{pod.uid if owner is None else owner.uid}"

    def _queue_name(self, group: str, own: str) -> str:
        found = self.pod_group(group)
        return (found.spec.queue if found is not None else own) or DEFAULT_QUEUE

    def pod_group(self, group: str) -> volcano.PodGroup | None:
        """The PodGroup object of a group, if it has one."""
        namespace, _, name = group.partition("/")
        return self._objects.of(volcano.PodGroup).get(name, namespace)

    def _leaf(self, name: str) -> Queue:
        account = self.accounts.get(name)
        if account is None or name in self.problems:
            raise PlacementError(self.problems.get(name) or f"queue {name} does not exist")
        if account.children:
            raise PlacementError(f"queue {name} has children: jobs belong to one of its leaves")
        return account.queue

    def _new_group(self, name: str, pod: Pod, created: float) -> PodGroupOf:
        own = pod.metadata.annotations.get(volcano.QUEUE_ANNOTATION, "")
        try:
            queue = self._leaf(self._queue_name(name, own))
        except PlacementError:
            if not pod.spec.node_name:
                raise
            queue = self._lost
        return JobGroup(name, queue, created, own)

    def _asked(self, info: Entity) -> tuple[PodGroupOf, Amounts, int, Shape]:
        found = super()._asked(info)
        if found[0].queue is self._lost:
            self._require_queue(found[0])
        return found

    def blocking(self, pod: Pod, asked: Amounts | None = None) -> Blocking | str | None:
        group = self.group_if_known(pod)
        if group is not None and group.queue is self._lost:
            try:
                self._require_queue(group)
            except PlacementError as error:
                return str(error)
        return super().blocking(pod, asked)

    def _require_queue(self, group: PodGroupOf) -> None:
        """Pods of a group may run where no queue is any more; others of it wait until there is one.

        Raises:
            PlacementError: the queue of the group cannot be used.
        """
        assert isinstance(group, JobGroup)
        self._leaf(self._queue_name(group.name, group.own_queue))

    def _facts(self, pod: Pod) -> TaskFacts:
        return TaskFacts(
            role=pod.metadata.annotations.get(volcano.TASK_ANNOTATION, ""),
            may_preempt=pod.spec.preemption_policy != "Never",
        )

    def _amounts(self, requests: Mapping[str, int]) -> dict[str, int]:
        amounts = {kind: amount for kind, amount in requests.items() if amount}
        amounts["pods"] = 1
        return amounts

    # Entitlement

    def _open(self) -> None:
        """Computes what all queues deserve, and compares them again."""
        self._changes, self._is_open, self._may_admit = 0, True, True
        capacity: Resources = self.partition.root.capacity
        guarantees = [account.spec.guarantee for account in self.accounts.values()]
        for account in self.accounts.values():
            if not account.children:
                account.request = self._request(account.queue)
        if self.kind is not Entitlement.PROPORTION:
            # Only configured limits keep a pod waiting: one that finds no node is unschedulable.
            promised = r.total(guarantees)
            capacity = {kind: amount if promised.get(kind) else inf for kind, amount in capacity.items()}
        root = self.accounts[ROOT] if self.conf.hierarchy else None
        rest = accounting.open_accounts(
            list(self.accounts.values()), self.kind, capacity, guarantees=guarantees, root=root
        )
        is_filled = self.kind is Entitlement.PROPORTION and root is None
        self._proportion = Proportion(capacity, rest) if is_filled else None
        self._touched.clear()
        for node in list(self._nodes.values()):
            if node.queue.is_leaf:
                self._mark_stale(node)
        self.wake_all()

    def _request(self, leaf: Queue) -> dict[str, float]:
        """What the pods of a leaf have, and what its active pods ask for."""
        return r.plus(leaf.used, self._pending.get(leaf.path, {}))

    def _adjust(self) -> None:
        """Changes what queues deserve whose requests have changed."""
        touched, self._touched = self._touched, set()
        for path in touched if self._proportion is not None else ():
            account = self._by_path.get(path)
            if account is None or (request := self._request(account.queue)) == account.request:
                continue
            assert self._proportion is not None
            if self._proportion.adjust(account, request):
                self._wake_leaf(self._node(account.queue))
            else:
                self._changes += 1

    def _use_changed(self, group: PodGroupOf) -> None:
        self._touched.add(group.queue.path)
        super()._use_changed(group)

    def _freed(self, group: PodGroupOf) -> None:
        self._may_admit = True
        super()._freed(group)

    def push(self, info: Entity, rank: SortKey) -> None:
        super().push(info, rank)
        entry = self._active.get(info.ticket)
        if entry is not None:
            path = entry[0].queue.path
            add_to(self._pending.setdefault(path, {}), entry[1])
            self._touched.add(path)

    def _leave(self, info: Entity) -> PodGroupOf:
        amounts, group = self._active[info.ticket][1], super()._leave(info)
        path = group.queue.path
        subtract_from(self._pending[path], amounts)
        self._touched.add(path)
        return group

    def account(self, queue: Queue) -> Account | None:
        return self._by_path.get(queue.path)

    def _blocking(self, group: PodGroupOf, amounts: Amounts, room: Amounts | None) -> Blocking | None:
        account = self._by_path.get(group.queue.path)
        if account is None:
            return None
        capacity = self.partition.root.capacity
        # What no node has and no queue limits is for the nodes to say, so that an autoscaler can help.
        asked = {
            kind: each for kind, each in amounts.items() if kind in capacity or kind in account.capability
        }
        lack = accounting.lacking(account, asked, self.kind)
        return None if lack is None else self.limit(lack, asked)

    def limit(self, lack: accounting.Lack, asked: Amounts) -> QueueLimit:
        """A limit in numbers."""
        account, spec = lack.account, lack.account.spec
        if not lack.kinds:
            note = f"it is {spec.state}, so it takes no pods"
            return QueueLimit(account.queue.path, "", 0, 0, 0, name=spec.name, word="state", note=note)
        kind = lack.kinds[0]
        limit = accounting.limit_of(account, self.kind).get(kind, 0.0)
        word, note = lack.limit, ""
        if word == "capability" and limit < spec.capability.get(kind, inf):
            word, note = "left by the guarantees of other queues", ""
        elif word == "deserved":
            note = f"weight {spec.weight}"
        used = int(account.allocated.get(kind, 0))
        return QueueLimit(
            account.queue.path,
            kind,
            used,
            int(asked.get(kind, 0)),
            int(limit),
            name=spec.name,
            word=word,
            note=note,
        )

    def gauges(self) -> Mapping[Spec[Gauge], Mapping[tuple[str, ...], float]]:
        return gauges_of(self.accounts.values(), self.kind)

    # Order

    def share(self, queue: Queue) -> float:
        account = self._by_path.get(queue.path)
        return 0.0 if account is None else accounting.share(account, self.kind)

    def _queue_key(self, queue: Queue) -> QueueKey:
        account = self._by_path.get(queue.path)
        if account is None:
            return (0.0, 0.0, 1.0, 0.0, queue.path)
        account.share = accounting.share(account, self.kind)
        share, has_none = accounting.standing(account, self.kind)
        spec = account.spec
        return (-float(spec.priority), share, float(has_none), spec.created, spec.name)

    def _group_key(self, group: PodGroupOf) -> GroupKey:
        return jobs.job_key(self.job(group), self.order_of_jobs)

    def job(self, group: PodGroupOf) -> JobView:
        """A group as a job."""
        found = self.pod_group(group.name)
        account = self._by_path.get(group.queue.path) or Account(QueueSpec("unknown"), group.queue)
        return JobView(
            group.name,
            account,
            self._priority(group, found),
            group.created,
            1 if found is None else found.spec.min_member,
            len(group.tasks),
            group.used,
            self.partition.root.capacity,
        )

    def _priority(self, group: PodGroupOf, found: volcano.PodGroup | None) -> int:
        if found is not None and found.spec.priority_class_name:
            known = self._objects.of(PriorityClass).get(found.spec.priority_class_name)
            if known is not None:
                return known.value
        if group.priorities:
            return group.priority
        return max((task.priority for task in group.tasks.values()), default=0)

    # Admission

    def admit(self) -> list[volcano.PodGroup]:
        """The pending PodGroups whose minimum has room now, in order.

        Admitted jobs reserve their minimum until their first attempt: one that cannot be placed is
        Unschedulable, and gives it back.
        """
        if not self._may_admit:
            return []
        self.refresh()
        self._may_admit = False
        waiting = []
        for account in self.accounts.values():
            account.inqueue = {}
        for item in self._objects.of(volcano.PodGroup):
            if item.status.phase in ("", PENDING):
                waiting.append(item)
            elif item.status.phase == INQUEUE and not is_unschedulable(item):
                self._reserve(item)
        admitted = []
        for item in sorted(waiting, key=lambda item: (item.metadata.creation_timestamp or EPOCH, item.key)):
            if self.not_admissible(item) is None:
                self._reserve(item)
                admitted.append(item)
        return admitted

    def _reserve(self, item: volcano.PodGroup) -> None:
        account = self.accounts.get(item.spec.queue or DEFAULT_QUEUE)
        group = self._groups.get(f"{item.namespace}/{item.name}")
        used: Resources = {} if group is None else group.used
        rest = accounting.inqueue_of(resource_amounts(item.spec.min_resources), used)
        for each in () if account is None else account.upwards():
            each.inqueue = r.plus(each.inqueue, rest)

    def not_admissible(self, item: volcano.PodGroup) -> QueueLimit | str | None:
        """What keeps a PodGroup from being admitted: a limit, or why no queue takes it; None if nothing."""
        try:
            queue = self._leaf(item.spec.queue or DEFAULT_QUEUE)
        except PlacementError as error:
            return str(error)
        account = self._by_path[queue.path]
        least = resource_amounts(item.spec.min_resources)
        if not is_positive(least) or self.kind is Entitlement.PROPORTION:
            # With proportion the limit is what the queue deserves, which follows from what it requests.
            lack = None if account.is_open else accounting.Lack(account, "state")
        else:
            lack = accounting.not_admissible(account, least, self.kind)
        return None if lack is None else self.limit(lack, least)


def _same_spec(old: Object | None, new: Object | None) -> bool:
    return isinstance(old, volcano.PodGroup) and isinstance(new, volcano.PodGroup) and old.spec == new.spec


def is_unschedulable(item: volcano.PodGroup) -> bool:
    """Whether an attempt to schedule the group has failed."""
    return any(one.type == "Unschedulable" and one.status == "True" for one in item.status.conditions)


def group_name(pod: Pod) -> str:
    """The PodGroup that a pod names; "" if it names none."""
    annotations = pod.metadata.annotations
    return annotations.get(volcano.GROUP_ANNOTATION) or annotations.get(volcano.OTHER_GROUP_ANNOTATION, "")


def spec_of(item: volcano.Queue) -> QueueSpec:
    """A Queue object in base units."""
    spec, meta = item.spec, item.metadata
    stamp = meta.creation_timestamp
    return QueueSpec(
        item.name,
        weight=spec.weight,
        capability=resource_amounts(spec.capability),
        deserved=resource_amounts(spec.deserved),
        guarantee=resource_amounts(spec.guarantee.resource),
        parent=spec.parent,
        priority=spec.priority,
        reclaimable=spec.reclaimable is not False,
        state=item.status.state or OPEN,
        created=0.0 if stamp is None else stamp.timestamp(),
        hierarchy=meta.annotations.get("volcano.sh/hierarchy", ""),
        hierarchy_weights=meta.annotations.get("volcano.sh/hierarchy-weights", ""),
    )


def queue_problem(spec: QueueSpec) -> str:
    """Why a queue cannot be used: what Volcano's webhook would reject; "" if it can."""
    if spec.weight < 1:
        return f"queue {spec.name} cannot be used: its weight is {spec.weight}, which must be positive"
    for lower, upper, small, large in (
        ("deserved", "guarantee", spec.guarantee, spec.deserved),
        ("capability", "deserved", spec.deserved, spec.capability),
        ("capability", "guarantee", spec.guarantee, spec.capability),
    ):
        for kind, amount in small.items():
            most = large.get(kind)
            if most is not None and amount > most:
                unit = "vcore" if kind == "cpu" else kind
                shown = (readable(unit, int(each)) for each in (most, amount))
                text = "queue {} cannot be used: {}[{}]={} must be >= {}[{}]={}"
                first, second = shown
                return text.format(spec.name, lower, kind, first, upper, kind, second)
    return ""
