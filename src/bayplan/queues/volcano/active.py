"""Volcano's queues in the scheduler: Queue objects as a tree, PodGroups as its groups.

The objects are read from the cluster. A Queue that is new, gone or has another parent rebuilds the tree, one
with other amounts does not; a changed PodGroup moves its group.
What a queue deserves depends on what all queues request (plugin proportion). Most changes concern one queue
(`proportion.py`); after others the cluster is distributed again, after a few changes where there are many
queues, and whenever nothing could be popped.

    Queue ──► QueueSpec ──► Account ─┐   deserved, share, room: `accounts.py`
    PodGroup ──► its queue, minimum and priority ──► Group in a leaf
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from math import inf
from operator import attrgetter
from typing import ClassVar, Final

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
from bayplan.queues.amounts import Amounts, add_to, is_positive, subtract_from
from bayplan.queues.records import PodClass, PodEntry, PodGroupOf, PodTask, Request
from bayplan.queues.tree import Blocking, GroupKey, Order, Queue, QueueKey
from bayplan.queues.volcano import accounts as accounting
from bayplan.queues.volcano import jobs
from bayplan.queues.volcano import resources as r
from bayplan.queues.volcano.accounts import ROOT, Account, Entitlement, QueueSpec
from bayplan.queues.volcano.conf import Conf
from bayplan.queues.volcano.gauges import gauges_of
from bayplan.queues.volcano.objects import (
    JobGroup,
    JobView,
    QueueLimit,
    VolcanoTree,
    amounts_of,
    is_unschedulable,
    job_name,
    limit_beside_pipelined,
    limit_for_job,
    limit_of,
    queue_problem,
    same_spec,
    spec_of,
)
from bayplan.queues.volcano.proportion import Proportion
from bayplan.queues.volcano.resources import Resources
from bayplan.queues.yunikorn.placement import PlacementError
from bayplan.queues.yunikorn.pods import TaskFacts
from bayplan.scheduling_queue.queued import Entity
from bayplan.state.groups import GroupKey as PodGroupKey
from bayplan.state.objects import Objects
from bayplan.state.pods import PodInfo

_log = logging.getLogger(__name__)

DEFAULT_QUEUE: Final = "default"
PENDING, INQUEUE = "Pending", "Inqueue"
"""Phases of PodGroups."""
EPOCH: Final = datetime.fromtimestamp(0, UTC)
_PRIORITY: Final = attrgetter("priority")
_QUEUES_PER_CHANGE: Final = 32
"""Changes that concern other queues are collected, one for this many queues, before the next distribution."""


@lru_cache(maxsize=1024)
def _task_facts(role: str, may_preempt: bool) -> TaskFacts:
    return TaskFacts(role=role, may_preempt=may_preempt)


class VolcanoQueues(CapacityQueues):
    """Active pods in Volcano's queues.

    Args:
        conf: actions and plugins.
        objects: has Queues, PodGroups and PriorityClasses.
        changes: of the cluster that the objects are from.
    """

    waits_with_nomination: ClassVar[bool] = False  # it had room beside its victims, and has lost it

    def __init__(
        self,
        conf: Conf,
        infos: Callable[[Pod], PodInfo],
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
        self._reported: dict[str, set[str]] = {}
        """By name of the queue: fields of which a warning said that they are not used."""
        self._by_path: dict[str, Account] = {}
        self._objects = objects
        self.order_of_jobs = jobs.job_order(conf)
        self._queues_log = objects.of(volcano.Queue).changes
        self._groups_log = objects.of(volcano.PodGroup).changes
        self._freshness = Freshness(changes.clock, objects=(self._queues_log, self._groups_log))
        self._lost = Queue("unknown")
        """Counts running pods whose queue does not exist."""
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
        super().__init__(VolcanoTree(), infos, capacity, scheduled=scheduled)
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
                    item.key for old, new in changed if not same_spec(old, new) for item in (old, new) if item
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
        """A Queue or PodGroup has changed; the next pop applies it."""
        self._may_admit = True
        self.count = self._size

    def capacity_changed(self) -> None:
        """Limits may depend on the size of the cluster; the next pop updates them."""
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
            # Only this queue is stopped: its guarantee does not limit others.
            self.problems[spec.name] = problem
            spec = replace(spec, guarantee={}, deserved={}, weight=0)
        for field in set(spec.not_used) - self._reported.setdefault(spec.name, set()):
            self._reported[spec.name].add(field)
            _log.warning("queue %s: %s is not used", spec.name, field)
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
        """Applies another configuration: all groups enter the tree again."""
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
            for pods in group.classes.values():
                found.extend(entry[3] for entry in pods.entries if entry[3].ticket is entry)
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
        group.queue, group.node, group.key = queue, None, ()
        group.pod_group = self.pod_group(group.name)
        group.classes.clear()
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
        return job_name(pod)

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
        queue = self._leaf(self._queue_name(name, own))
        return JobGroup(name, queue, created, own, self.pod_group(name))

    def _unplaced_group(self, task: PodTask) -> PodGroupOf:
        own = task.pod.metadata.annotations.get(volcano.QUEUE_ANNOTATION, "")
        name = task.application
        return JobGroup(name, self._lost, task.created, own, self.pod_group(name))

    def _asked(self, info: Entity) -> Request:
        found = super()._asked(info)
        if found.group.queue is self._lost:
            self._require_queue(found.group)
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
        return _task_facts(
            pod.metadata.annotations.get(volcano.TASK_ANNOTATION, ""), pod.spec.preemption_policy != "Never"
        )

    def _amounts(self, requests: Mapping[str, int]) -> dict[str, int]:
        return amounts_of(requests)

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
            guaranteed = r.total(guarantees)
            kinds = {kind for account in self.accounts.values() for kind in account.spec.capability}
            capacity = {
                kind: capacity.get(kind, 0) if guaranteed.get(kind) else inf for kind in {*capacity, *kinds}
            }
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
        if info.key not in self._rejected:
            request: Request = info.ticket[-1]
            path = request.group.queue.path
            add_to(self._pending.setdefault(path, {}), request.amounts)
            self._touched.add(path)

    def _leave(self, entry: PodEntry, pod_class: PodClass) -> None:
        super()._leave(entry, pod_class)
        request = entry[-1]
        path = request.group.queue.path
        subtract_from(self._pending[path], request.amounts)
        self._touched.add(path)

    def name_of(self, queue: Queue) -> str:
        return queue.name

    def account(self, queue: Queue) -> Account | None:
        return self._by_path.get(queue.path)

    def _blocking(self, group: PodGroupOf, amounts: Amounts) -> Blocking | None:
        account = self._by_path.get(group.queue.path)
        if account is None or accounting.has_room(account, amounts, self.kind):
            return None
        capacity = self.partition.root.capacity
        # What no node has and no queue limits is for the nodes to say, so that an autoscaler can help.
        limits = account.capability if self.kind is Entitlement.CAPACITY else ("cpu", "memory")
        asked = {kind: each for kind, each in amounts.items() if kind in capacity or kind in limits}
        lack = accounting.lacking(account, asked, self.kind)
        return None if lack is None else limit_of(lack, asked, self.kind)

    def _blocking_reserved(self, group: PodGroupOf, amounts: Amounts, pods: Iterable[Pod]) -> Blocking | None:
        account, pipelined = self._by_path.get(group.queue.path), dict[str, Resources]()
        for other in self.reserved(pods):
            its_account = self._by_path.get(other.group.queue.path)
            for each in () if its_account is None else its_account.upwards():
                pipelined[each.name] = r.plus(pipelined.get(each.name, {}), other.amounts)
        if account is None or not pipelined:
            return None
        lack = accounting.lacking(account, amounts, self.kind, pipelined)
        return None if lack is None else limit_beside_pipelined(lack, amounts, self.kind, pipelined)

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
        if not group.priorities:
            return ()  # nothing of it is active: its next pod finds its position
        return jobs.job_key(self.job(group), self.order_of_jobs)

    def job(self, group: PodGroupOf, asking: Pod | None = None) -> JobView:
        """A group as a job.

        Args:
            asking: its pod that is being tried, and is not active meanwhile.
        """
        assert isinstance(group, JobGroup)
        found = group.pod_group
        account = self._by_path.get(group.queue.path) or Account(QueueSpec("unknown"), group.queue)
        stamp = None if found is None else found.metadata.creation_timestamp
        return JobView(
            group.name,
            account,
            self._priority(group, found, asking),
            group.created if stamp is None else stamp.timestamp(),
            1 if found is None else found.spec.min_member,
            len(group.tasks),
            group.used,
            self.partition.root.capacity,
        )

    def _priority(self, group: PodGroupOf, found: volcano.PodGroup | None, asking: Pod | None) -> int:
        if found is not None and found.spec.priority_class_name:
            known = self._objects.of(PriorityClass).get(found.spec.priority_class_name)
            if known is not None:
                return known.value
        if asking is not None:
            return max(group.priority, asking.priority)
        if group.priorities:
            return group.priority
        return max(map(_PRIORITY, group.tasks.values()), default=0)

    # Admission

    def admit(self) -> list[tuple[volcano.PodGroup, QueueLimit | str | None]]:
        """The pending PodGroups in order, each with what keeps it waiting; None: its minimum has room now.

        Admitted jobs reserve their minimum until their first attempt: a job that cannot be placed is
        Unschedulable, and its reservation ends.
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
        found = []
        for item in sorted(waiting, key=lambda item: (item.metadata.creation_timestamp or EPOCH, item.key)):
            limit = self.not_admissible(item)
            if limit is None:
                self._reserve(item)
            found.append((item, limit))
        return found

    def _reserve(self, item: volcano.PodGroup) -> None:
        account = self.accounts.get(item.spec.queue or DEFAULT_QUEUE)
        group = self._groups.get(f"{item.namespace}/{item.name}")
        used: Resources = {} if group is None else group.used
        rest = accounting.inqueue_of(resource_amounts(item.spec.min_resources), used)
        for each in () if account is None else account.upwards():
            each.inqueue = r.plus(each.inqueue, rest)

    def not_admissible(self, item: volcano.PodGroup) -> QueueLimit | str | None:
        """What keeps a PodGroup from being admitted: a limit, or why no queue accepts it; None: nothing."""
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
        return None if lack is None else limit_for_job(lack, least, self.kind)
