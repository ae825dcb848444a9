"""What authors of strategies import: the base class and what a cycle offers.

A strategy chooses pods and evicts them one after the other. It works on columns (`cycle.table`): a mask over
all pods costs microseconds, a loop over them does not.

    class OneImage(Strategy):
        '''Evicts pods of a withdrawn image.'''

        def deschedule(self, cycle: Cycle) -> None:
            bad = cycle.table.by_spec(lambda pod: pod.spec.containers[0].image == "app:1.3")
            cycle.evict_by_node(cycle.pods() & bad)

It implements `deschedule` (rules that a pod violates) or `balance` (how pods are distributed; runs after all
`deschedule`). `accepts` is for `decision: scheduler`: whether a pod's new node solves the problem; with
`objects` a strategy prevents moves of other strategies that would be undone by its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from bayplan.api.selectors import EVERYTHING, Selector, compile_selector
from bayplan.deschedule.args import NamespaceArgs, PodArgs
from bayplan.deschedule.default_evictor import EvictorChecks
from bayplan.deschedule.eviction import PodEvictor, Result
from bayplan.deschedule.node_fit import NodeFit
from bayplan.deschedule.table import Bools, ClusterTable, Flag
from bayplan.framework.plugin_api import Plugin

Slots = NDArray[np.intp]
__all__ = [
    "BalancePlugin",
    "Cycle",
    "DeschedulePlugin",
    "Goal",
    "NamespaceArgs",
    "PodArgs",
    "Slots",
    "Strategy",
    "StrategyError",
    "Usage",
    "Verdict",
]


class Goal(StrEnum):
    """The purpose of an eviction, which decides when it is useful."""

    RECREATE = "recreate"
    """The pod itself is the problem: a new one is better on any node."""
    REPAIR = "repair"
    """Its node violates a rule: the new node must not."""
    BALANCE = "balance"
    """Pods are badly distributed: the distribution must become better."""
    CONSOLIDATE = "consolidate"
    """Nodes are emptied, but only if all of their pods fit elsewhere."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a new node solves the problem, and why."""

    solves: bool
    why: str
    gain: float = 0.0
    """By how much the objective of a balancing strategy improves; its unit is the strategy's."""
    is_percentage: bool = False
    """Whether the gain is in percentage points, which have to exceed the margin."""


class Usage(Protocol):
    """Measured usage, where a policy asks for it (`usage.py`)."""

    def has(self, source: str) -> bool:
        """Whether the policy configures this source."""

    def node_usage(self, source: str, query: str, names: list[str]) -> Mapping[str, Mapping[str, int]]:
        """Usage by node and resource. Raises UsageError if it is not complete."""

    def pod_usage(self, source: str, namespace: str, name: str) -> Mapping[str, int] | None:
        """Usage by resource; None if it is unknown."""


@dataclass(slots=True)
class Cycle:
    """One descheduling cycle, as a plugin of one profile sees it."""

    table: ClusterTable
    rows: Bools
    """The nodes of this cycle: ready, and selected by the policy."""
    now: float
    node_fit: NodeFit
    checks: EvictorChecks
    evictor: PodEvictor
    profile: str
    strategy: str
    usage: Usage | None = None
    classes: dict[str, dict[str, str]] = field(default_factory=dict)
    """How utilization strategies classified nodes: by strategy and node."""

    def pods(self, args: NamespaceArgs | None = None, *, finished: bool = False) -> Bools:
        """The pods on the cycle's nodes that the arguments of a strategy select.

        Args:
            args: with `namespaces`, and perhaps with `labelSelector`; None: all pods.
            finished: includes pods in phase Succeeded or Failed.
        """
        table = self.table
        mask: Bools = table.alive & np.append(self.rows, False)[table.row]
        if not finished:
            mask &= table.flags & Flag.FINISHED == 0
        namespaces = None if args is None else args.namespaces
        selector = args.label_selector if isinstance(args, PodArgs) else None
        if namespaces is not None and namespaces.include:
            mask &= table.in_namespaces(namespaces.include)
        if namespaces is not None and namespaces.exclude:
            mask &= ~table.in_namespaces(namespaces.exclude)
        if selector is not None:
            chosen: Selector = compile_selector(selector)
            if chosen != EVERYTHING:
                mask &= table.matches(chosen)
        return mask

    def evictable(self, mask: Bools) -> Slots:
        """The pods of the mask that the evictor's Filter and PreEvictionFilter allow, in order."""
        return self.allowed(np.flatnonzero(mask))

    def allowed(self, slots: Slots) -> Slots:
        slots = slots[self.checks.filter(slots)]
        return slots[self.checks.pre_eviction_filter(slots)] if len(slots) else slots

    def by_node(self, mask: Bools) -> Iterator[tuple[int, Slots]]:
        """The rows that have pods of the mask, and these pods, in order."""
        slots = np.flatnonzero(mask)
        if not len(slots):
            return
        slots = slots[np.argsort(self.table.row[slots], kind="stable")]
        rows = self.table.row[slots]
        starts = np.flatnonzero(np.diff(rows, prepend=-2))
        for start, group in zip(starts.tolist(), np.split(slots, starts[1:]), strict=True):
            yield int(rows[start]), group

    def evict_by_node(self, mask: Bools, choose: Callable[[Slots], Slots] | None = None) -> None:
        """Evicts the pods of the mask that the evictor allows, node by node, within the limits.

        Args:
            choose: which of these pods of a node, in which order; None: all.
        """
        if self.checks.ignores_evictions:
            allowed, mask = self.evictable(mask), np.zeros_like(mask)
            mask[allowed] = True
        for _, slots in self.by_node(mask):
            if not self.checks.ignores_evictions:
                slots = self.allowed(slots)
            if self.evict_all(slots if choose is None else choose(slots)) is Result.TOTAL_LIMIT:
                return

    def evict(self, slot: int) -> Result:
        return self.evictor.evict(int(slot), self.profile, self.strategy)

    def evict_all(self, slots: Slots) -> Result:
        """Evicts pods of one node until a limit of the node or the cycle is reached."""
        for slot in slots.tolist():
            result = self.evict(slot)
            if result in (Result.TOTAL_LIMIT, Result.NODE_LIMIT):
                return result
        return Result.OK

    def by_priority(self, slots: Slots) -> Slots:
        """Pods in the order of eviction: lowest priority first, then QoS, then preference."""
        table = self.table
        flags = table.flags[slots]
        has_priority = flags & Flag.HAS_PRIORITY != 0
        order = np.lexsort(
            (
                flags & Flag.PREFER_NO_EVICTION != 0,
                table.qos[slots],
                np.where(has_priority, table.priority[slots], 0),
                has_priority,
            )
        )
        return slots[order]


class Strategy(Plugin):
    """Base of strategies. It implements `deschedule`, or `balance`, or both."""

    goal: ClassVar[Goal] = Goal.REPAIR
    reason: ClassVar[str] = "its node violates a rule of the policy"
    """Why a pod is a candidate, as a clause."""

    def __init__(self, args: Any) -> None:
        self.args = args

    def accepts(self, cycle: Cycle, slot: int, row: int) -> Verdict:
        """Whether the problem of a pod is solved if its replacement is on this node."""
        return Verdict(True, "")

    def objects(self, cycle: Cycle, slot: int, row: int) -> str:
        """Why a move to this node, for the balance of another strategy, would be a new problem of this one;
        "" if it would not. Without it, two strategies of a policy would move pods back and forth."""
        return ""


class DeschedulePlugin(Protocol):
    def deschedule(self, cycle: Cycle) -> None:
        """Evicts pods that violate a rule."""


class BalancePlugin(Protocol):
    def balance(self, cycle: Cycle) -> None:
        """Evicts pods so that the distribution improves."""


class StrategyError(Exception):
    """A strategy could not run; the text becomes the status of its profile."""
