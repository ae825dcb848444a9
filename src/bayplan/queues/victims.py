"""Victims for a queue that uses less than it is guaranteed.

A queue below its guarantee may take from leaves that are above theirs. This file says which leaves and tasks
are candidates (`candidates`), whether taking from them helps at all (`is_entitled`), which tasks of one place
would be victims (`victims_in_place`), and which of those are really needed (`needed`). A place is a name with
the amounts that are available there; the caller filters and chooses places.

The rules are YuniKorn's, with one difference behind a switch: YuniKorn stops collecting victims as soon as
one type of resource is exceeded, which is the case after two pods because every pod has `pods: 1`. A task
that needs three victims gets two, and waits (`UPSTREAM`). `EXACT` frees what is needed, or nothing, and no
leaf falls below its guarantee.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from bayplan.queues.amounts import (
    Amounts,
    covers,
    covers_common,
    exceeds_common,
    fits,
    fits_on,
    is_zero,
    left_over,
    lowest,
    minus,
    plus,
    share_a_type,
    shortfall,
)
from bayplan.queues.tree import Preemption, Queue, Task, max_of_path

NO_PREEMPT_SCORE: Final = 1 << 34
ORIGINATOR_SCORE: Final = 1 << 33
FIT_SCORE: Final = 1 << 32
UNFIT_SCORE: Final = 1 << 35


class Rule(Enum):
    """How many victims are taken, and which go first when a lowered maximum is enforced."""

    EXACT = "exact"
    UPSTREAM = "yunikorn"


@dataclass(frozen=True, slots=True)
class Candidates:
    """Leaves above their guarantee, with the tasks that may be taken from them."""

    asking: Queue
    by_queue: Mapping[str, tuple[Queue, Sequence[Task]]]
    fence: Queue
    rule: Rule
    without: Sequence[Task] = ()
    """Tasks that were taken already, and are not candidates."""

    @property
    def tasks(self) -> Iterator[Task]:
        for _, tasks in self.by_queue.values():
            yield from tasks


class Hypothesis:
    """The use of the tree if some tasks were gone or added."""

    def __init__(self, asking: Queue, rule: Rule = Rule.EXACT, without: Iterable[Task] = ()) -> None:
        self.asking = asking
        # By the text of the path, as upstream: root.a is also found in front of root.ab.
        self._ancestors = (
            asking.path.startswith
            if rule is Rule.UPSTREAM
            else {each.path for each in asking.upwards()}.__contains__
        )
        self._used: dict[str, dict[str, int]] = {}
        for task in without:
            if not task.leaving:  # those that are known to leave are not counted anyway
                self.remove(task.group.queue, task.amounts)

    def used(self, queue: Queue) -> dict[str, int]:
        """What a queue would use, without victims that are leaving already."""
        used = self._used.get(queue.path)
        if used is None:
            used = queue.used
        return left_over(used, queue.leaving)

    def add(self, queue: Queue, amounts: Amounts) -> None:
        for each in queue.upwards():
            self._used[each.path] = plus(self._used.get(each.path, each.used), amounts)

    def remove(self, queue: Queue, amounts: Amounts) -> None:
        for each in queue.upwards():
            used = dict(self._used.get(each.path, each.used))
            for kind, amount in amounts.items():
                used[kind] = used.get(kind, 0) - amount
            self._used[each.path] = used

    def remaining(self, queue: Queue | None) -> dict[str, int] | None:
        """What is left of the guarantees of a queue and its ancestors; None if there is none.

        A guarantee of the asking leaf counts by itself, and its ancestors only add types. Guarantees of its
        ancestors do not protect others from it.
        """
        if queue is None:
            return None
        above = self.remaining(queue.parent)
        if not above and not queue.guaranteed:
            return None
        own = None if queue.guaranteed is None else left_over(queue.guaranteed, self.used(queue))
        asking = self.asking
        if own:
            if queue is asking:
                return {**(above or {}), **own}
            if asking.guaranteed and self._ancestors(queue.path):
                return None
        return lowest(own, above)


def preemption_fence(queue: Queue, asked: Amounts, priority: int) -> tuple[Queue, dict[str, int]]:
    """The queue at which the search for victims ends, and the priority of the request in each queue up to it.

    That is the root, a queue with a preemption fence, or one that would exceed its ceiling: then only what is
    below it can make room.
    """
    priorities: dict[str, int] = {}
    for each in queue.upwards():
        policy = each.policy
        priority = policy.priority_offset if policy.priority_fence else priority + policy.priority_offset
        priorities[each.path] = priority
        ceiling = max_of_path(each)
        is_full = bool(ceiling) and not covers_common(ceiling, plus(each.used, asked))
        if each.parent is None or policy.preemption is Preemption.FENCE or is_full:
            return each, priorities
    raise AssertionError("unreachable: the root ends the search")


def candidates(
    asking: Queue,
    asked: Amounts,
    priority: int,
    rule: Rule = Rule.EXACT,
    without: Sequence[Task] = (),
) -> Candidates:
    """The tasks that a request of a leaf may take: of equal or lower priority, in leaves above guarantee.

    Args:
        without: tasks that were taken already.
    """
    fence, priorities = preemption_fence(asking, asked, priority)
    now, taken = Hypothesis(asking, rule, without), {task.key for task in without}
    found: dict[str, tuple[Queue, Sequence[Task]]] = {}

    def visit(queue: Queue, limit: int, *, fenced: bool) -> None:
        if queue is asking:
            return
        if queue.is_leaf:
            if queue.policy.preemption is Preemption.DISABLED:
                return
            remaining = now.remaining(queue)
            if remaining is not None and all(amount >= 0 for amount in remaining.values()):
                return
            kept = spare(now, queue) if rule is Rule.EXACT else {}
            tasks = [
                task
                for group in queue.groups.values()
                for task in group.tasks.values()
                if is_removable(task, asked)
                and (fenced or task.priority <= limit)
                and task.key not in taken
                and fits(kept, task.amounts)
            ]
            if tasks:
                found[queue.path] = (queue, tasks)
            return
        for child in queue.children.values():
            below, is_fenced = priorities.get(child.path), False
            if below is None:
                policy = child.policy
                if policy.priority_fence:
                    if policy.priority_offset > limit:
                        continue
                    below, is_fenced = limit, True
                else:
                    below = limit - policy.priority_offset
            visit(child, below, fenced=fenced or is_fenced)

    visit(fence, priorities[fence.path], fenced=False)
    return Candidates(asking, found, fence, rule, without)


def is_removable(task: Task, asked: Amounts) -> bool:
    """Whether a task may be a victim at all, and frees something of what is asked for."""
    return (
        not task.required_place
        and not task.released
        and not task.leaving
        and share_a_type(asked, task.amounts)
    )


def is_entitled(found: Candidates, asked: Amounts) -> bool:
    """Whether the request is within the guarantee of its leaf; upstream, if all candidates were gone.

    That differs below a parent with a guarantee, for leaves without one: if what a sibling uses did not
    count, two siblings would take the same resources from each other without end.
    """
    asking, world = found.asking, Hypothesis(found.asking, found.rule, found.without)
    remaining = world.remaining(asking)
    if remaining is not None and covers(remaining, asked):
        return True
    if found.rule is Rule.EXACT:
        return False
    world.add(asking, asked)
    for queue, tasks in found.by_queue.values():
        for task in tasks:
            world.remove(queue, task.amounts)
            remaining = world.remaining(asking)
            if remaining is not None and _none_negative(asked, remaining):
                return True
    return False


def _none_negative(asked: Amounts, remaining: Amounts) -> bool:
    return all(remaining.get(kind, 0) >= 0 for kind in asked)


def may_lose(world: Hypothesis, queue: Queue, asked: Amounts) -> bool:
    """Whether a queue is above its guarantee in a type that is asked for, or has no guarantee."""
    remaining = world.remaining(queue)
    return remaining is None or any(remaining.get(kind, 0) < 0 for kind in asked)


def spare(world: Hypothesis, queue: Queue) -> dict[str, int]:
    """What a leaf can lose so that it and its ancestors keep their guarantees; an absent type is unlimited.

    Ancestors that the request belongs to, too, get back what it takes.
    """
    result: dict[str, int] | None = {}
    for each in queue.upwards():
        if each in world.asking.path_up:
            break
        if each.guaranteed:
            used = world.used(each)
            above = {kind: used.get(kind, 0) - limit for kind, limit in each.guaranteed.items()}
            result = lowest(result, above)
    return result or {}


def keeps_guarantee(world: Hypothesis, queue: Queue, amounts: Amounts) -> bool:
    """Whether a leaf that loses these amounts, and its ancestors, keep their guarantees in these types."""
    return fits(spare(world, queue), amounts)


def remove_unit(world: Hypothesis, asked: Amounts, unit: Sequence[Task]) -> bool:
    """Removes tasks evicted together, if every queue keeps its guarantee. False: nothing was removed."""
    for index, task in enumerate(unit):
        queue = task.group.queue
        if may_lose(world, queue, asked) and keeps_guarantee(world, queue, task.amounts):
            world.remove(queue, task.amounts)
        else:
            for other in unit[:index]:
                world.add(other.group.queue, other.amounts)
            return False
    return True


def task_score(task: Task) -> int:
    """Victims with a lower score are preferred."""
    opted_out, is_originator = task.is_spared()
    return (NO_PREEMPT_SCORE if opted_out else 0) | (ORIGINATOR_SCORE if is_originator else 0)


def victim_key(task: Task) -> tuple[int, float, str]:
    """The order of candidates: those that have not opted out, then those that are not originators, newest
    first."""
    return (task_score(task), -task.created, task.key)


def victims_in_place(
    found: Candidates, asked: Amounts, available: Amounts, tasks: Iterable[Task]
) -> tuple[int, list[Task]] | None:
    """The candidates of one place in the order of eviction, and how many of them suffice.

    The number is the index of the last one that is needed, -1 if the request fits as it is. None: the request
    does not fit even without all of them.
    """
    if fits_on(available, asked):
        return -1, []
    asking, rule = found.asking, found.rule
    world, free = Hypothesis(asking, rule), dict(available)
    head: list[Task] = []
    tail: list[Task] = []
    for task in tasks:
        queue = task.group.queue
        if not _may_go(world, queue, task, asked, rule):
            continue
        world.remove(queue, task.amounts)
        remaining = world.remaining(asking)
        if rule is Rule.UPSTREAM and (remaining is None or not covers(remaining, task.amounts)):
            break
        if shortfall(asked, free) == shortfall(asked, plus(free, task.amounts)):
            world.add(queue, task.amounts)
            tail.append(task)
            continue
        world.add(asking, task.amounts)
        free = plus(free, task.amounts)
        head.append(task)
    world, free, index = Hypothesis(asking, rule), dict(available), -1
    chosen: list[Task] = []
    for task in head + tail:
        queue = task.group.queue
        if not _may_go(world, queue, task, asked, rule):
            continue
        world.remove(queue, task.amounts)
        free = plus(free, task.amounts)
        if index < 0 and fits_on(free, asked):
            index = len(chosen)
        chosen.append(task)
    return None if index < 0 else (index, chosen)


def _may_go(world: Hypothesis, queue: Queue, task: Task, asked: Amounts, rule: Rule) -> bool:
    if not may_lose(world, queue, asked):
        return False
    return rule is Rule.UPSTREAM or keeps_guarantee(world, queue, task.amounts)


def place_score(index: int, tasks: Sequence[Task] | None) -> int:
    """The cost of evicting the first tasks of a place, up to this index; the lowest is chosen."""
    if tasks is None:
        return UNFIT_SCORE
    if index < 0:
        return 0
    if index >= len(tasks):
        return UNFIT_SCORE
    score = 0
    for task in tasks[: index + 1]:
        score |= task_score(task)
    return score + index + 1


def additional_victims(found: Candidates, asked: Amounts, chosen: Sequence[Task]) -> list[Task] | None:
    """Victims in any place that make room in the queue, beside those of the chosen place.

    None: the leaf would still be above its guarantee.
    """
    asking, world = found.asking, Hypothesis(found.asking, found.rule)
    seen = set()
    for task in chosen:
        world.remove(task.group.queue, task.amounts)
        seen.add(task.key)
    more: list[Task] = []
    for task in sorted((task for task in found.tasks if task.key not in seen), key=victim_key):
        queue = task.group.queue
        if not _may_go(world, queue, task, asked, found.rule):
            continue
        world.remove(queue, task.amounts)
        before = world.remaining(asking)
        if before is None or not covers(before, task.amounts):
            break
        world.add(asking, task.amounts)
        if _same(before, world.remaining(asking)):
            world.remove(asking, task.amounts)
            world.add(queue, task.amounts)
        else:
            more.append(task)
    if more:
        remaining = world.remaining(asking)
        if remaining is None or not _none_negative(asked, remaining):
            return None
    return more


def _same(left: Amounts | None, right: Amounts | None) -> bool:
    if is_zero(left) and is_zero(right):
        return True
    return left is not None and right is not None and is_zero(minus(left, right))


def needed(asked: Amounts, victims: Iterable[Task], place: str, *, has_room: bool) -> list[Task] | None:
    """YuniKorn's final list: it ends with the first victim that exceeds the request in any type.

    Args:
        place: the chosen one; victims elsewhere do not count unless it has room already.

    Returns:
        None if they free less than the request in every type.
    """
    collected: dict[str, int] = {}
    final = []
    for victim in victims:
        if not has_room and victim.place != place:
            continue
        if exceeds_common(asked, collected):
            final.append(victim)
        collected = plus(collected, victim.amounts)
    return None if exceeds_common(asked, collected) else final


def required_place_victims(
    asked: Amounts, available: Amounts, tasks: Iterable[Task], priority: int
) -> list[Task]:
    """The victims of a request that can run in one place only; empty if they do not suffice.

    Queues, guarantees and fences are not considered, because nothing else could run the request.
    """
    order = sorted(
        (task for task in tasks if task.priority <= priority and is_removable(task, asked)),
        key=lambda task: (
            _spared_last(task),
            task.priority,
            -task.created,
            sum(task.amounts.values()),
            task.key,
        ),
    )
    collected: dict[str, int] = {}
    victims = []
    for task in order:
        if _at_least(collected, asked):
            break
        collected = plus(collected, task.amounts)
        victims.append(task)
    return victims if _at_least(plus(collected, available), asked) else []


def _spared_last(task: Task) -> int:
    opted_out, is_originator = task.is_spared()
    return 2 if is_originator else int(opted_out)


def _at_least(amounts: Amounts, asked: Amounts) -> bool:
    return all(amounts.get(kind, 0) >= amount for kind, amount in asked.items())
