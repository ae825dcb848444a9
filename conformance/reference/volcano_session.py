"""One session of Volcano: its loops over jobs and nodes, on bayplan's functions for queues.

What is here is what bayplan replaces by kube-scheduler's cycle: the actions, statements that are committed or
discarded, and nodes with idle and releasing amounts. What a queue deserves, its share and room, admission,
the order of queues and jobs and the choice of victims are those of `bayplan.queues.volcano`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from bayplan.api.quantity import resource_amounts
from bayplan.queues import tree
from bayplan.queues.volcano import accounts as accounting
from bayplan.queues.volcano import drf, jobs, victims
from bayplan.queues.volcano import resources as r
from bayplan.queues.volcano.accounts import ROOT, Account
from bayplan.queues.volcano.conf import Conf, load
from bayplan.queues.volcano.resources import Resources
from conformance.reference.volcano_model import ALLOCATED, Heap, Job, Json, Node, Task, queue_spec


def candidates(tasks: Sequence[Task]) -> victims.Candidates:
    """Tasks on one node as columns."""
    found = list(dict.fromkeys(task.job for task in tasks))
    return victims.Candidates(
        victims.JobTable(found),
        [task.asked for task in tasks],
        place=np.zeros(len(tasks), dtype=np.intp),
        job=np.array([found.index(task.job) for task in tasks], dtype=np.intp),
        shape=np.arange(len(tasks)),
        priority=np.array([task.priority for task in tasks], dtype=np.int64),
        is_critical=np.array([task.is_critical for task in tasks], dtype=np.bool_),
    )


@dataclass
class Statement:
    session: Session
    operations: list[tuple[str, Task]] = field(default_factory=list)

    def evict(self, task: Task) -> None:
        self.session.change(task, "Releasing", task.node)
        self.operations.append(("evict", task))

    def place(self, task: Task, node: str, status: str) -> None:
        self.session.change(task, status, node)
        self.session.order.pop(task.name, None)
        self.session.order[task.name] = task
        self.operations.append(("place", task))

    def discard(self) -> None:
        for name, task in reversed(self.operations):
            if name == "evict":
                self.session.change(task, "Running", task.node)
            else:
                self.session.change(task, "Pending", "")
                self.session.order.pop(task.name, None)
        self.operations.clear()

    def commit(self) -> None:
        for name, task in self.operations:
            if name == "evict":
                self.session.evicted.append(task.name)
            elif task.status == "Allocated":
                task.status = "Binding"
        self.operations.clear()


class Session:
    """Replays one scenario."""

    def __init__(self, scenario: Json) -> None:
        self.conf: Conf = load(scenario["conf"])
        self.kind = self.conf.entitlement
        self.nodes = {
            node["name"]: Node(node["name"], resource_amounts(node["allocatable"]))
            for node in scenario["nodes"]
        }
        self.capacity = r.total(node.allocatable for node in self.nodes.values())
        specs = [queue_spec(queue, number) for number, queue in enumerate(scenario["queues"])]
        self.accounts, _ = accounting.accounts_by_name(specs, hierarchy=self.conf.hierarchy)
        classes = scenario.get("priorityClasses") or {}
        self.jobs: dict[str, Job] = {}
        for group in scenario["podGroups"]:
            account = self.accounts[group["queue"]]
            priority = classes.get(group.get("priorityClass"), 0)
            self.jobs[group["name"]] = Job(group, account, priority, self.capacity)
        for pod in scenario["pods"]:
            job = self.jobs[pod["group"]]
            task = Task(pod, job)
            job.tasks.append(task)
            if task.node:
                self.nodes[task.node].tasks[task.name] = task
                tree.charge(job.account.queue, task.asked)
        # As upstream: one job in a queue with children stops all allocations.
        self.stopped = any(job.account.children for job in self.jobs.values())
        self.job_order = jobs.job_order(self.conf)
        self.order: dict[str, Task] = {}
        self.evicted: list[str] = []
        self.opened = self._open()

    def _open(self) -> list[Account]:
        by_queue: dict[str, list[Job]] = {}
        for job in self.jobs.values():
            for account in job.account.upwards():
                by_queue.setdefault(account.name, []).append(job)
        for name, members in by_queue.items():
            account = self.accounts[name]
            account.request = r.total(
                task.asked for job in members for task in job.tasks if task.status in ("Pending", *ALLOCATED)
            )
            account.inqueue = r.total(job.inqueue for job in members)
            account.elastic = r.total(r.exceeding(job.allocated, job.min_resources or {}) for job in members)
        root = self.accounts[ROOT] if self.conf.hierarchy else None
        opened = [
            account for account in self.accounts.values() if root is not None or account.name in by_queue
        ]
        accounting.open_accounts(
            opened,
            self.kind,
            self.capacity,
            guarantees=[account.spec.guarantee for account in self.accounts.values()],
            root=root,
        )
        return opened

    def result(self) -> Json:
        at_open = {}
        if self.kind is not accounting.Entitlement.NONE:
            at_open = {account.name: self._described(account) for account in self.opened}
        self.overcommitted = self._overcommit()
        for action in self.conf.actions:
            getattr(self, action)()
        placed = self.order.values()
        return {
            "allocated": {task.name: task.node for task in placed if task.status in ALLOCATED},
            "pipelined": {task.name: task.node for task in placed if task.status == "Pipelined"},
            "evicted": sorted(self.evicted),
            "order": [task.name for task in placed],
            "podGroups": {job.name: job.phase for job in self.jobs.values()},
            "queuesAtOpen": at_open,
        }

    def _described(self, account: Account) -> Json:
        shown: Json = {
            "deservedCPU": account.deserved.get("cpu", 0.0),
            "deservedMemory": account.deserved.get("memory", 0.0),
            "allocatedCPU": account.allocated.get("cpu", 0),
            "requestCPU": account.request.get("cpu", 0.0),
            "inqueueCPU": account.inqueue.get("cpu", 0.0),
            "share": account.share,
        }
        if self.kind is accounting.Entitlement.CAPACITY:
            limit = account.real_capability.get("cpu", 0.0)
            shown["realCapabilityCPU"] = "infinite" if limit > 1e300 else limit
        return shown

    # Changes

    def change(self, task: Task, status: str, node: str) -> None:
        before, after = task.status in (*ALLOCATED, "Pipelined"), status in (*ALLOCATED, "Pipelined")
        if task.node:
            self.nodes[task.node].tasks.pop(task.name, None)
        task.status, task.node = status, node
        if node:
            self.nodes[node].tasks[task.name] = task
        account = task.job.account
        if before and not after:
            tree.refund(account.queue, task.asked)
        elif after and not before:
            tree.charge(account.queue, task.asked)
        # As upstream: the shares of ancestors stay as they were when the session was opened.
        account.share = accounting.share(account, self.kind)

    # Order

    def queue_before(self, left: Account, right: Account) -> bool:
        return self.compare_queues(left, right) < 0

    def compare_queues(self, left: Account, right: Account) -> int:
        for option in (option for tier in self.conf.tiers for option in tier):
            one: tuple[Any, ...] = ()
            other: tuple[Any, ...] = ()
            if not option.enabled("enableQueueOrder"):
                continue
            if option.name == "drf" and self.conf.hierarchical_drf:
                root = drf.hierarchical_shares((job.use for job in self.jobs.values()), self.capacity)
                one, other = (drf.compare(root, left.spec.hierarchy, right.spec.hierarchy),), (0,)
            elif option.name == self.kind.value:
                first, second = accounting.below_common(left, right)
                one = (-left.spec.priority, accounting.standing(first, self.kind))
                other = (-right.spec.priority, accounting.standing(second, self.kind))
            if one != other:
                return -1 if one < other else 1
        one, other = (left.spec.created, left.name), (right.spec.created, right.name)
        return (one > other) - (one < other)

    def job_before(self, left: Job, right: Job) -> bool:
        return jobs.job_key(left, self.job_order) < jobs.job_key(right, self.job_order)

    def task_before(self, left: Task, right: Task) -> bool:
        if self.conf.has("priority", "enableTaskOrder") and left.priority != right.priority:
            return left.priority > right.priority
        if left.index is not None and right.index is not None and left.index != right.index:
            return left.index < right.index
        return (left.created, left.name) < (right.created, right.name)

    def victims_first(self, asking: Task) -> Callable[[Task, Task], bool]:
        def before(left: Task, right: Task) -> bool:
            if left.job is right.job:
                return not self.task_before(left, right)
            one, other = left.job.account, right.job.account
            if one is not other:
                own = asking.job.account
                if self.conf.hierarchy:
                    near, nearer = victims.nearness(own, one), victims.nearness(own, other)
                    if near != nearer:
                        return near < nearer
                return not self.queue_before(one, other)
            ranks = [jobs.standing(task.job, self.job_order) for task in (left, right)]
            return ranks[0] > ranks[1] if ranks[0] != ranks[1] else not self.task_before(left, right)

        return before

    def in_victim_order(self, asking: Task, tasks: Iterable[Task]) -> list[Task]:
        heap = Heap(self.victims_first(asking), tasks)
        return heap.drain()

    # Jobs

    def ready(self, job: Job) -> bool:
        return job.is_ready or not self.conf.has("gang", "enableJobReady")

    def pipelined(self, job: Job) -> bool:
        return job.is_pipelined or not self.conf.has("gang", "enableJobPipelined")

    def valid(self, job: Job) -> bool:
        return job.is_valid or not self.conf.has("gang")

    def starving(self, job: Job) -> bool:
        for tier in self.conf.tiers:
            asked = [
                option.name
                for option in tier
                if option.name in ("gang", "priority") and option.enabled("enableJobStarving")
            ]
            if asked:
                waiting = job.count("Pipelined")
                return all(
                    jobs.is_starving(job.ready, waiting, len(job.tasks), job.min_available, by=name)
                    for name in asked
                )
        return False

    def lacks_room(self, job: Job, task: Task) -> bool:
        if not self.conf.has(self.kind.value, "enabledAllocatable"):
            return False
        return self.stopped or accounting.lacking(job.account, task.asked, self.kind) is not None

    def may_reclaim(self, account: Account, task: Task) -> bool:
        if not self.conf.has(self.kind.value, "enablePreemptive"):
            return True
        levels = self._levels
        return not self.stopped and accounting.may_reclaim(account, task.asked, self.kind, levels=levels)

    # Actions

    def _overcommit(self) -> Resources:
        used = r.total(node.used for node in self.nodes.values())
        self.admitted = r.total(
            job.min_resources or {} if job.phase == "Inqueue" else job.inqueue for job in self.jobs.values()
        )
        return r.minus(r.times(self.capacity, self.conf.overcommit or 1.0), used)

    def enqueue(self) -> None:
        waiting = {
            name: Heap(
                self.job_before,
                [job for job in self.jobs.values() if job.phase == "Pending" and job.account is account],
            )
            for name, account in self._accounts_with_jobs().items()
        }
        queues = Heap(self.queue_before, self._accounts_with_jobs().values())
        while len(queues):
            account = queues.pop()
            if not len(waiting[account.name]):
                continue
            job = waiting[account.name].pop()
            if job.min_resources is None or self._enqueueable(job, job.min_resources):
                job.phase = "Inqueue"
                if job.min_resources is not None:
                    self.admitted = r.plus(self.admitted, job.min_resources)
                    for each in account.upwards():
                        each.inqueue = r.plus(each.inqueue, job.min_resources)
            queues.push(account)

    def _accounts_with_jobs(self) -> dict[str, Account]:
        return {job.account.name: job.account for job in self.jobs.values()}

    def _enqueueable(self, job: Job, least: Resources) -> bool:
        for tier in self.conf.tiers:
            permitted = False
            for option in tier:
                if not option.enabled("enableJobEnqueued"):
                    continue
                if option.name == self.kind.value:
                    if self.stopped or accounting.not_admissible(job.account, least, self.kind) is not None:
                        return False
                    permitted = True
                elif option.name == "overcommit":
                    if r.exceeded(r.plus(self.admitted, least), self.overcommitted, least):
                        return False
                    permitted = True
            if permitted:
                return True
        return True

    def _considered(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.phase != "Pending" and self.valid(job)]

    def allocate(self) -> None:
        for job in self.jobs.values():
            if job.phase == "Pending" and "enqueue" not in self.conf.actions:
                job.phase = "Inqueue"
        tasks = {
            job.name: Heap(
                self.task_before,
                [task for task in job.tasks if task.status == "Pending" and not task.is_best_effort],
            )
            for job in self._considered()
        }
        by_queue: dict[str, Heap[Job]] = {}
        for job in self._considered():
            if len(tasks[job.name]):
                by_queue.setdefault(job.account.name, Heap(self.job_before)).push(job)
        queues = Heap(self.queue_before, [self.accounts[name] for name in by_queue])
        overused_asked = self.conf.has(self.kind.value, "enabledOverused")
        while len(queues):
            account = queues.pop()
            if overused_asked and accounting.overused(account, self.kind):
                continue
            if not len(by_queue[account.name]):
                continue
            job = by_queue[account.name].pop()
            statement = self._allocate_tasks(job, tasks[job.name])
            if self.ready(job) and statement is not None:
                statement.commit()
                if len(tasks[job.name]):
                    by_queue[account.name].push(job)
            queues.push(account)

    def _allocate_tasks(self, job: Job, tasks: Heap[Task]) -> Statement | None:
        statement = Statement(self)
        while len(tasks):
            task = tasks.pop()
            if self.lacks_room(job, task):
                continue
            nodes = [node for node in self.nodes.values() if r.at_most(task.asked, node.future_idle)]
            if not nodes:
                if job.min_available >= len(job.tasks):
                    break
                continue
            idle = [node for node in nodes if r.at_most(task.asked, node.idle)]
            best = max(idle or nodes, key=lambda node: node.score(task))
            statement.place(task, best.name, "Allocated" if idle else "Pipelined")
            if self.ready(job):
                break
        if self.ready(job) or self.pipelined(job):
            return statement
        statement.discard()
        return None

    def backfill(self) -> None:
        # backfill.go: pickUpPendingTasks. Tasks that wait for a node with victims are placed again.
        tasks, by_queue = dict[str, Heap[Task]](), dict[str, Heap[Job]]()
        for job in self._considered():
            waiting = [
                task for task in job.tasks if task.status in ("Pending", "Pipelined") and task.is_best_effort
            ]
            if waiting:
                tasks[job.name] = Heap(self.task_before, waiting)
                by_queue.setdefault(job.account.name, Heap(self.job_before)).push(job)
        queues = Heap(self.queue_before, [self.accounts[name] for name in by_queue])
        for jobs_of_queue in (by_queue[account.name] for account in queues.drain()):
            for task in [task for job in jobs_of_queue.drain() for task in tasks[job.name].drain()]:
                statement = Statement(self)
                statement.place(task, next(iter(self.nodes)), "Allocated")
                statement.commit()

    def _starving_jobs(self) -> tuple[dict[str, list[Job]], dict[str, Heap[Task]]]:
        by_queue: dict[str, list[Job]] = {}
        tasks = {}
        for job in self._considered():
            by_queue.setdefault(job.account.name, [])
            if self.starving(job):
                by_queue[job.account.name].append(job)
                tasks[job.name] = Heap(
                    self.task_before, [task for task in job.tasks if task.status == "Pending"]
                )
        return by_queue, tasks

    def reclaim(self) -> None:
        by_queue, tasks = self._starving_jobs()
        queues = Heap(self.queue_before, [self.accounts[name] for name in by_queue])
        asking = {name: Heap(self.job_before, found) for name, found in by_queue.items()}
        overused_asked = self.conf.has(self.kind.value, "enabledOverused")
        while len(queues):
            account = queues.pop()
            if overused_asked and accounting.overused(account, self.kind):
                continue
            while len(asking[account.name]):
                job, statement = asking[account.name].pop(), Statement(self)
                while self.starving(job) and len(tasks[job.name]):
                    task = tasks[job.name].pop()
                    if self.may_reclaim(account, task):
                        self._take(statement, task, "reclaim", list(self.nodes.values()))
                if self.pipelined(job):
                    statement.commit()
                else:
                    statement.discard()

    @property
    def _levels(self) -> int:
        return self.conf.reclaim_levels if self.conf.hierarchy else 0

    def _take(
        self, statement: Statement, task: Task, action: str, nodes: Sequence[Node], *, within: bool = False
    ) -> bool:
        for node in nodes:
            found = [each for each in node.tasks.values() if self._candidate(task, each, action, within)]
            if action == "reclaim" and not found:
                continue
            allowed = victims.decide(self._plugins(task, action), found)
            if not r.at_most(task.asked, r.plus(node.future_idle, r.total(each.asked for each in allowed))):
                continue
            mine = Statement(self)
            leaving = self.in_victim_order(task, allowed)
            while leaving and not self._fits(task, node, action):
                mine.evict(leaving.pop(0))
            if not self._fits(task, node, action):
                mine.discard()
                continue
            mine.place(task, node.name, "Pipelined")
            statement.operations.extend(mine.operations)
            return True
        return False

    def _fits(self, task: Task, node: Node, action: str) -> bool:
        if action == "preempt" and self.lacks_room(task.job, task):
            return False
        return r.at_most(task.asked, node.future_idle)

    def _candidate(self, asking: Task, task: Task, action: str, within: bool) -> bool:
        if task.status != "Running" or not task.preemptable:
            return False
        own, other = asking.job, task.job
        if action == "reclaim":
            return own.account is not other.account and other.account.spec.reclaimable
        if asking.is_best_effort and not task.is_best_effort:
            return False
        return own is other if within else own.account is other.account and own is not other

    def _plugins(self, asking: Task, action: str) -> Iterable[list[victims.TaskPlugin[Task]]]:
        switch = "enableReclaimable" if action == "reclaim" else "enablePreemptable"
        for tier in self.conf.tiers:
            asked = (self._plugin(each.name, asking, action) for each in tier if each.enabled(switch))
            yield [plugin for plugin in asked if plugin is not None]

    def _plugin(self, name: str, asking: Task, action: str) -> victims.TaskPlugin[Task] | None:
        if name == "drf" and action == "reclaim" and self.conf.hierarchical_drf:
            uses = {job.name: job.use for job in self.jobs.values()}
            return lambda tasks: victims.below_hierarchical_share(asking, tasks, uses, self.capacity)
        plugin: victims.Plugin
        if name == "gang":
            plugin = victims.spared_by_gang
        elif name == "conformance":
            plugin = victims.not_critical
        elif name == "priority" and action == "preempt":
            plugin = partial(victims.of_lower_priority, asking)
        elif name == "drf" and action == "preempt":
            plugin = partial(victims.of_larger_share, asking, capacity=self.capacity)
        elif name == "proportion" and action == "reclaim":
            plugin = victims.above_deserved
        elif name == "capacity" and action == "reclaim":
            plugin = partial(victims.reclaimable, asking, levels=self._levels)
        else:
            return None

        def allowed(tasks: Sequence[Task]) -> list[Task]:
            ordered = self.in_victim_order(asking, tasks) if name == "capacity" else tasks
            return [task for task, may_go in zip(ordered, plugin(candidates(ordered)), strict=True) if may_go]

        return allowed

    def preempt(self) -> None:
        by_queue, tasks = self._starving_jobs()
        by_queue = {name: found for name, found in by_queue.items() if found}
        queues = Heap(self.queue_before, [self.accounts[name] for name in by_queue])
        asking = {name: Heap(self.job_before, found) for name, found in by_queue.items()}
        while len(queues):
            account = queues.pop()
            while len(asking[account.name]):
                job, statement = asking[account.name].pop(), Statement(self)
                while self.starving(job) and len(tasks[job.name]):
                    task = tasks[job.name].pop()
                    self._take(statement, task, "preempt", self._by_score(task))
                if self.pipelined(job):
                    statement.commit()
                else:
                    statement.discard()
            for job in by_queue[account.name]:
                pending = Heap(self.task_before, [task for task in job.tasks if task.status == "Pending"])
                while len(pending):
                    task, statement = pending.pop(), Statement(self)
                    if not self._take(statement, task, "preempt", self._by_score(task), within=True):
                        break
                    statement.commit()

    def _by_score(self, task: Task) -> list[Node]:
        if not self.conf.has("binpack"):
            return list(self.nodes.values())
        return sorted(self.nodes.values(), key=lambda node: -node.score(task))
