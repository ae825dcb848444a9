"""What has to end before a pod has room in its capacity queue.

A limit counts what pods below its queue use, of all owners or of one. So the pods that can lift it are those
that it counts, and how much they have to free follows from the numbers of the limit. Pods that are
terminating end first. Which of the others ends next, and when, cannot be known: a pod does not say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bayplan.queues.active import CapacityQueues
from bayplan.queues.amounts import readable
from bayplan.queues.tree import Blocking, Group
from bayplan.queues.users import APPLICATIONS

MAX_NAMED: Final = 3
"""How many pods or applications an answer names."""
UNKNOWN_TIME: Final = "it is not known when"


@dataclass(frozen=True, slots=True)
class Holder:
    """A pod, or an application, that uses a part of a limit."""

    name: str
    amount: int

    def described(self) -> dict[str, Any]:
        return {"name": self.name, "amount": self.amount}


@dataclass(frozen=True, slots=True)
class MustEnd:
    """How a limit can be lifted."""

    limit: Blocking
    unit: str
    """What ends: pod, or application where a limit counts these."""
    missing: int
    """What has to be freed, in the units of the limit."""
    terminating: tuple[Holder, ...]
    """Pods that free something without waiting any longer, the largest first."""
    holders: tuple[Holder, ...]
    """Those that run, the largest first."""
    may_move: str = ""
    """Why the limit itself may change, if it is computed."""

    @property
    def after_terminating(self) -> int:
        """What is missing when the terminating pods are gone."""
        return max(0, self.missing - sum(each.amount for each in self.terminating))

    @property
    def fewest(self) -> int | None:
        """How many of the holders have to end at least; None if not even all of them free enough."""
        left, count = self.after_terminating, 0
        for each in self.holders:
            if left <= 0:
                break
            left, count = left - each.amount, count + 1
        return count if left <= 0 else None

    def lines(self) -> Iterator[str]:
        """The answer, a sentence in each line."""
        if not self.limit.kind:
            yield f"no running pod has to end: the queue accepts no pods; {UNKNOWN_TIME}"
            return
        if self.limit.asked > self.limit.limit:
            yield "has to end first: nothing helps, it asks for more than the limit"
            return
        yield f"has to be freed first: {self._amount(self.missing)}"
        if self.terminating:
            yield f"terminating now: {self._named(self.terminating)}"
        fewest = self.fewest
        if fewest is None:
            yield f"has to end first: cannot be known, because these {self.unit}s do not free enough"
        elif fewest == 0:
            yield "has to end first: only what is terminating"
        else:
            enough = [each for each in self.holders if each.amount >= self.after_terminating]
            if fewest == 1:
                text = "" if len(enough) == 1 else f"any of {len(enough)} {self.unit}s: "
                yield f"has to end first: {text}{self._named(enough)}; {UNKNOWN_TIME}"
            else:
                text = f"at least {fewest} {self.unit}s, the largest are {self._named(self.holders)}"
                yield f"has to end first: {text}; {UNKNOWN_TIME}"
        if self.may_move:
            yield self.may_move

    def described(self) -> dict[str, Any]:
        return {
            "resource": self.limit.kind,
            "unit": self.unit,
            "missing": self.missing,
            "terminating": [each.described() for each in self.terminating],
            "running": [each.described() for each in self.holders],
            "fewest": self.fewest if self.limit.asked <= self.limit.limit else None,
            "time": None,
        }

    def _amount(self, amount: int) -> str:
        kind = self.limit.kind
        return f"{kind} {readable('vcore' if kind == 'cpu' else kind, amount)}"

    def _named(self, holders: tuple[Holder, ...] | list[Holder]) -> str:
        is_count = self.unit == "application"
        names = [
            f"application {each.name}" if is_count else f"{each.name} ({self._amount(each.amount)})"
            for each in holders[:MAX_NAMED]
        ]
        more = [f"{len(holders) - MAX_NAMED} more"] if len(holders) > MAX_NAMED else []
        return ", ".join((*names, *more))


def what_must_end(
    queues: CapacityQueues, limit: Blocking, names: Mapping[str, str], may_move: str = ""
) -> MustEnd:
    """What lifts a limit.

    Args:
        names: of pods, by uid.
        may_move: why the limit itself may change.
    """
    groups = list(counted(queues, limit))
    if limit.kind == APPLICATIONS:
        ended = sorted((Holder(group.name, 1) for group in groups if group.tasks), key=lambda each: each.name)
        return MustEnd(limit, "application", limit.used + 1 - limit.limit, (), tuple(ended))
    terminating, running = list[Holder](), list[Holder]()
    for group in groups:
        for task in group.tasks.values():
            if amount := task.amounts.get(limit.kind, 0):
                found = terminating if task.leaving else running
                found.append(Holder(names.get(task.key, task.key), amount))
    ordered = (
        tuple(sorted(each, key=lambda one: (-one.amount, one.name))) for each in (terminating, running)
    )
    first, second = ordered
    return MustEnd(limit, "pod", limit.used + limit.asked - limit.limit, first, second, may_move)


def counted(queues: CapacityQueues, limit: Blocking) -> Iterator[Group]:
    """The groups whose use a limit counts."""
    top = queues.partition.find(limit.queue)
    for queue in () if top is None else top.downwards():
        for group in queue.groups.values():
            if limit.user and group.user != limit.user:
                continue
            if limit.user_group and queues.partition.user_limits.member_of(group) != limit.user_group:
                continue
            yield group
