"""Asks, applications and nodes of YuniKorn, as its recorded runs have them.

application.go, allocation.go and node.go of apache/yunikorn-core.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from bayplan.queues import tree
from bayplan.queues.amounts import Amounts, is_zero, minus, plus, total
from bayplan.queues.tree import Group, Queue, Task

_TRANSITIONS: Final[Mapping[tuple[str, str], str]] = {
    ("run", "New"): "Accepted",
    ("run", "Resuming"): "Accepted",
    ("run", "Accepted"): "Running",
    ("run", "Running"): "Running",
    ("run", "Completing"): "Running",
    ("complete", "Accepted"): "Completing",
    ("complete", "Running"): "Completing",
    ("complete", "Completing"): "Completed",
}


class Ask(Task):
    """A request, and the allocation it becomes."""

    __slots__ = ("allocated", "checked", "log", "sequence", "swap", "triggered", "was_attempted")

    def __init__(self, key: str, app: Application, amounts: Amounts, **options: object) -> None:
        super().__init__(key, app, amounts, **options)  # type: ignore[arg-type]  # passed on as they are
        self.allocated = bool(self.place)
        self.checked = False
        """Preemption was tried."""
        self.triggered = False
        """Preemption found victims."""
        self.swap: Ask | None = None
        """The placeholder that this ask replaces, or the ask that replaces this placeholder."""
        self.log: set[str] = set()
        self.was_attempted = False

    @property
    def app(self) -> Application:
        assert isinstance(self.group, Application)
        return self.group


@dataclass(slots=True)
class Placeholders:
    """The placeholders of one task group."""

    count: int = 0
    replaced: int = 0
    timed_out: int = 0


class Application(Group):
    """A group with YuniKorn's states, asks in order, reservations and placeholders."""

    __slots__ = (
        "asks",
        "held",
        "order",
        "placeholder_ask",
        "placeholders",
        "reservations",
        "skip_until",
        "state",
    )

    def __init__(self, name: str, queue: Queue, placeholder_ask: Amounts, **options: object) -> None:
        super().__init__(name, queue, **options)  # type: ignore[arg-type]  # passed on as they are
        self.state = "New"
        self.asks: dict[str, Ask] = {}
        self.order: list[Ask] = []
        self.held: dict[str, int] = {}
        """What its placeholders use."""
        self.placeholder_ask = placeholder_ask
        self.placeholders: dict[str, Placeholders] = {}
        self.reservations: dict[str, tuple[Node, Ask]] = {}
        self.skip_until: float | None = None

    def fire(self, event: str) -> None:
        state = _TRANSITIONS.get((event, self.state), self.state)
        if state == self.state:
            return
        if self.state == "Running":
            tree.stop(self)
        if state == "Running":
            tree.start(self)
            for queue in self.queue.upwards():
                # As upstream, which forgets those above the limit, for example after a restart.
                if queue.max_groups:
                    queue.running = min(queue.running, queue.max_groups)
        self.state = state

    @property
    def pending(self) -> dict[str, int]:
        return total(ask.amounts for ask in self.asks.values() if not ask.allocated)

    @property
    def has_nothing(self) -> bool:
        return is_zero(self.pending) and is_zero(self.used)

    def can_replace(self, ask: Ask) -> bool:
        """Whether a placeholder is left for the ask."""
        if ask.is_placeholder or not ask.role:
            return False
        known = self.placeholders.get(ask.role)
        return known is not None and known.count > known.replaced + known.timed_out

    def insert(self, ask: Ask) -> None:
        order = self.order
        if order and _is_less(ask, order[-1]):
            order.append(ask)
            return
        order.insert(bisect_left(order, True, key=lambda each: _is_less(each, ask)), ask)

    def placeholder_tasks(self) -> Iterator[Ask]:
        for task in self.tasks.values():
            assert isinstance(task, Ask)
            if task.is_placeholder:
                yield task


def _is_less(left: Ask, right: Ask) -> bool:
    if left.priority == right.priority:
        return left.created >= right.created
    return left.priority < right.priority


@dataclass(slots=True, eq=False)
class Node:
    name: str
    total: Amounts
    available: dict[str, int]
    tasks: dict[str, Ask] = field(default_factory=dict)
    reservations: dict[str, Ask] = field(default_factory=dict)
    schedulable: bool = True

    def add(self, ask: Ask) -> None:
        self.tasks[ask.key] = ask
        self.available = minus(self.available, ask.amounts)

    def remove(self, ask: Ask) -> bool:
        if self.tasks.pop(ask.key, None) is None:
            return False
        self.available = plus(self.available, ask.amounts)
        return True

    def is_reserved_by_others(self, ask: Ask) -> bool:
        return bool(self.reservations) and ask.key not in self.reservations

    def fit_score(self, asked: Amounts) -> float:
        score = 0.0
        for kind, amount in self.available.items():
            if amount <= 0:
                continue
            wanted = asked.get(kind, 0)
            if wanted <= 0:
                score += 1
            elif amount > wanted:
                score += (amount - wanted) / amount
        return score


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a cycle: an allocation, or a reservation."""

    kind: str
    ask: Ask
    node: Node
    reserved: Node | None = None
    """The node whose reservation ends."""


@dataclass(frozen=True, slots=True)
class Release:
    """What the core asks the resource manager to remove."""

    kind: str
    ask: Ask
    message: str
