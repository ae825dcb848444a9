"""Jobs, tasks and nodes of one session of Volcano, and its priority queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from bayplan.api.quantity import resource_amounts
from bayplan.queues.volcano import accounts as accounting
from bayplan.queues.volcano import drf
from bayplan.queues.volcano import resources as r
from bayplan.queues.volcano.accounts import OPEN, Account, QueueSpec
from bayplan.queues.volcano.resources import Resources

Json = dict[str, Any]
T = TypeVar("T")
ALLOCATED = ("Binding", "Running", "Allocated")


class Heap(Generic[T]):
    """Go's container/heap. Its order is not that of a sorted list if shares change while items are in it."""

    def __init__(self, before: Callable[[T, T], bool], items: Iterable[T] = ()) -> None:
        self._before = before
        self._items: list[T] = []
        for item in items:
            self.push(item)

    def __len__(self) -> int:
        return len(self._items)

    def push(self, item: T) -> None:
        items = self._items
        items.append(item)
        place = len(items) - 1
        while place:
            parent = (place - 1) // 2
            if not self._before(items[place], items[parent]):
                return
            items[place], items[parent] = items[parent], items[place]
            place = parent

    def pop(self) -> T:
        items = self._items
        items[0], items[-1] = items[-1], items[0]
        last, place, size = items.pop(), 0, len(items)
        while (child := 2 * place + 1) < size:
            if child + 1 < size and self._before(items[child + 1], items[child]):
                child += 1
            if not self._before(items[child], items[place]):
                break
            items[place], items[child] = items[child], items[place]
            place = child
        return last

    def drain(self) -> list[T]:
        """All items, in the order in which they are popped."""
        return [self.pop() for _ in range(len(self._items))]


class Task:
    def __init__(self, pod: Json, job: Job) -> None:
        self.name: str = pod["name"]
        self.job = job
        self.asked: dict[str, int] = {**resource_amounts(pod["requests"]), "pods": 1}
        self.priority: int = pod.get("priority", 1)
        self.created: float = pod.get("created", 0)
        self.node: str = pod.get("node", "")
        self.status = "Running" if self.node else "Pending"
        self.preemptable: bool = pod.get("preemptable", True)
        self.is_critical = False

    @property
    def is_best_effort(self) -> bool:
        return r.is_empty(self.asked)

    @property
    def index(self) -> int | None:
        parts = self.name.split("-")
        return int(parts[-1]) if len(parts) >= 3 and parts[-1].isdecimal() else None


class Job:
    def __init__(self, group: Json, account: Account, priority: int, capacity: Resources) -> None:
        self.name: str = group["name"]
        self.account = account
        self.priority = priority
        self.created: float = group.get("created", 0)
        self.min_available: int = group.get("minMember", 0)
        self.phase: str = group.get("phase") or "Pending"
        self.min_resources: dict[str, int] | None = None
        if group.get("minResources"):
            self.min_resources = resource_amounts(group["minResources"])
        self.tasks: list[Task] = []
        self._capacity = capacity

    def count(self, *statuses: str) -> int:
        return sum(task.status in statuses for task in self.tasks)

    @property
    def ready(self) -> int:
        return self.count(*ALLOCATED)

    @property
    def best_effort(self) -> int:
        return sum(task.status == "Pending" and task.is_best_effort for task in self.tasks)

    @property
    def is_ready(self) -> bool:
        return self.ready + self.best_effort >= self.min_available

    @property
    def is_pipelined(self) -> bool:
        return self.count("Pipelined") + self.ready + self.best_effort >= self.min_available

    @property
    def is_valid(self) -> bool:
        return self.count("Pending", "Pipelined", *ALLOCATED) >= self.min_available

    @property
    def allocated(self) -> Resources:
        return r.total(task.asked for task in self.tasks if task.status in (*ALLOCATED, "Pipelined"))

    @property
    def inqueue(self) -> Resources:
        """What the job will still ask for to have its minResources."""
        if self.min_resources is None or self.phase not in ("Inqueue", "Running"):
            return {}
        if self.phase == "Running" and self.ready < self.min_available:
            return {}
        return accounting.inqueue_of(self.min_resources, self.allocated)

    @property
    def share(self) -> float:
        return drf.job_share(self.allocated, self._capacity)

    @property
    def use(self) -> drf.JobUse:
        spec = self.account.spec
        request = r.total(task.asked for task in self.tasks)
        return drf.JobUse(self.name, spec.hierarchy, spec.hierarchy_weights, self.allocated, request)


class Node:
    def __init__(self, name: str, allocatable: Mapping[str, int]) -> None:
        self.name = name
        self.allocatable = dict(allocatable)
        self.tasks: dict[str, Task] = {}

    def _sum(self, *statuses: str) -> Resources:
        return r.total(task.asked for task in self.tasks.values() if task.status in statuses)

    @property
    def used(self) -> Resources:
        return self._sum("Releasing", *ALLOCATED)

    @property
    def idle(self) -> Resources:
        return r.minus(self.allocatable, self.used)

    @property
    def future_idle(self) -> Resources:
        return r.minus(r.plus(self.idle, self._sum("Releasing")), self._sum("Pipelined"))

    def score(self, task: Task) -> float:
        """binpack.go: BinPackingScore"""
        score, used = 0.0, self.used
        for kind in ("cpu", "memory"):
            asked, most = task.asked.get(kind, 0), self.allocatable.get(kind, 0)
            if asked and most:
                if asked + used.get(kind, 0.0) > most:
                    return 0.0
                score += (asked + used.get(kind, 0.0)) / most
        return score


def queue_spec(queue: Json, number: int) -> QueueSpec:
    notes = queue.get("annotations") or {}
    return QueueSpec(
        queue["name"],
        weight=queue.get("weight", 1),
        capability=resource_amounts(queue.get("capability") or {}),
        deserved=resource_amounts(queue.get("deserved") or {}),
        guarantee=resource_amounts(queue.get("guarantee") or {}),
        parent=queue.get("parent", ""),
        priority=queue.get("priority", 0),
        reclaimable=queue.get("reclaimable", True),
        state=queue.get("state") or OPEN,
        created=float(number),
        hierarchy=notes.get("volcano.sh/hierarchy", ""),
        hierarchy_weights=notes.get("volcano.sh/hierarchy-weights", ""),
    )
