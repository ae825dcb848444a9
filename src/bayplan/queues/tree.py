"""The engine: a tree of queues with groups in its leaves, and the functions that order and admit them.

    Queue   guaranteed, ceiling, used, pending, leaving (victims that are not gone yet), limits on groups
      └─ Group   an application, a PodGroup or a single pod: who owns it, since when, what it uses
           └─ Task   one pod of it: what it asks for, and where it runs if it does

A few functions (`charge`, `refund`, `add_pending`, …) make all changes; each updates one path from leaf to
root. Everything else is computed from the tree:

    room(queue)            what the queue may still take: the smallest rest of the ceilings on its path
    entitlement(queue)     what others cannot keep from it: its guarantee, within that of its ancestors
    share(queue)           how much of its entitlement it uses; queues with the lowest share are first
    queue_key, group_key   the order of queues in their parent, and of groups in their leaf
    blocking(queue, …)     the ceiling that keeps a request out, with used, asked and max

Ties are broken by time of creation and then by name, so the same objects give the same order after a
restart. The classes are in `model.py`. What a dialect adds (how the tree is configured, when a group counts
as running) is in its folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from bayplan.queues.amounts import (
    Amounts,
    add_to,
    is_positive,
    left_over,
    lowest,
    minus,
    plus,
    subtract_from,
    total,
)
from bayplan.queues.model import DEFAULT_BACKOFF_DELAY as DEFAULT_BACKOFF_DELAY
from bayplan.queues.model import DEFAULT_PREEMPTION_DELAY as DEFAULT_PREEMPTION_DELAY
from bayplan.queues.model import MAX_PRIORITY as MAX_PRIORITY
from bayplan.queues.model import MIN_PRIORITY as MIN_PRIORITY
from bayplan.queues.model import Blocking as Blocking
from bayplan.queues.model import Group as Group
from bayplan.queues.model import Order as Order
from bayplan.queues.model import Policy as Policy
from bayplan.queues.model import Preemption as Preemption
from bayplan.queues.model import Queue as Queue
from bayplan.queues.model import State as State
from bayplan.queues.model import Task as Task

QueueKey = tuple[float | str, ...]
GroupKey = tuple[object, ...]


# Changes: each updates one path.


def charge(queue: Queue, amounts: Amounts) -> None:
    """A task of the leaf takes its amounts. The ceilings are not checked: see `room`."""
    for each in queue.path_up:
        add_to(each.used, amounts)


def refund(queue: Queue, amounts: Amounts) -> None:
    for each in queue.path_up:
        subtract_from(each.used, amounts)


def mark_leaving(queue: Queue, amounts: Amounts) -> None:
    """A task of the leaf has become a victim. It still counts as used until it is gone."""
    for each in queue.upwards():
        each.leaving = plus(each.leaving, amounts)


def unmark_leaving(queue: Queue, amounts: Amounts) -> None:
    for each in queue.upwards():
        each.leaving = minus(each.leaving, amounts)


def add_pending(group: Group, whole: int, priority: int) -> None:
    """A task of the group waits; `whole` is the sum of its amounts."""
    group.waiting += whole
    for queue in group.queue.path_up:
        queue.waiting += whole
    priorities = group.priorities
    if priority in priorities:
        priorities[priority] += 1
    else:
        _change_priority(group, priority, 1)


def remove_pending(group: Group, whole: int, priority: int) -> None:
    group.waiting -= whole
    for queue in group.queue.path_up:
        queue.waiting -= whole
    priorities = group.priorities
    if priorities.get(priority, 0) > 1:
        priorities[priority] -= 1
    else:
        _change_priority(group, priority, -1)


def add_group(group: Group) -> None:
    group.queue.groups[group.name] = group
    _count_groups(group.queue, group.priority, 1)


def remove_group(group: Group) -> None:
    """Removes a group without use; what it has pending is removed with it."""
    queue = group.queue
    if queue.groups.pop(group.name, None) is None:
        return
    for each in queue.path_up:
        each.waiting -= group.waiting
    _count_groups(queue, group.priority, -1)


def remove_queue(queue: Queue) -> None:
    parent = queue.parent
    assert parent is not None, "the root cannot be removed"
    del parent.children[queue.name]
    _propagate(parent, lambda: _count_priority(parent, queue.priority, -1))


def start(group: Group) -> None:
    """The group runs: it counts for the limits of its path."""
    for queue in group.queue.upwards():
        queue.starting.discard(group.name)
        queue.running += 1


def stop(group: Group) -> None:
    """The group runs no longer."""
    for queue in group.queue.upwards():
        queue.running = max(queue.running - 1, 0)


def _change_priority(group: Group, priority: int, change: int) -> None:
    """The first task of this priority waits, or the last one no longer does."""
    before = group.priority
    _count(group.priorities, priority, change)
    after = group.priority = max(group.priorities, default=MIN_PRIORITY)
    if before == after or group.name not in group.queue.groups:
        return
    queue = group.queue

    def recount() -> None:
        _count_priority(queue, before, -1)
        _count_priority(queue, after, 1)

    _propagate(queue, recount)


def _count_groups(queue: Queue, priority: int, change: int) -> None:
    _propagate(queue, lambda: _count_priority(queue, priority, change))


def _propagate(queue: Queue, recount: Callable[[], None]) -> None:
    """Recounts the priorities of a queue, and those of its ancestors as far as they change."""
    before = queue.priority
    recount()
    after = queue.priority = current_priority(queue)
    parent = queue.parent
    while parent is not None and before != after:
        parent_before = parent.priority
        _count_priority(parent, before, -1)
        _count_priority(parent, after, 1)
        parent.priority = current_priority(parent)
        before, after, parent = parent_before, parent.priority, parent.parent


def recount_priorities(queue: Queue) -> None:
    """Recounts a whole subtree, after its policies have changed."""
    queue.priorities = {}
    if queue.is_leaf:
        for group in queue.groups.values():
            _count_priority(queue, group.priority, 1)
    for child in queue.children.values():
        recount_priorities(child)
        _count_priority(queue, child.priority, 1)
    queue.priority = current_priority(queue)


def _count_priority(queue: Queue, priority: int, change: int) -> None:
    if priority != MIN_PRIORITY:
        _count(queue.priorities, priority, change)


def _count(counts: dict[int, int], key: int, change: int) -> None:
    count = counts.get(key, 0) + change
    if count > 0:
        counts[key] = count
    else:
        counts.pop(key, None)


# Answers


def has_room(queue: Queue, asked: Amounts) -> bool:
    """Whether a request fits below all ceilings of the path."""
    for each in queue.path_up:
        ceiling = each.ceiling
        if ceiling:
            used = each.used
            for kind, limit in ceiling.items():
                amount = asked.get(kind, 0)
                if amount > 0 and used.get(kind, 0) + amount > limit:
                    return False
    return True


def room(queue: Queue) -> dict[str, int] | None:
    """What the queue may still take; None without any limit, and an absent type is unlimited."""
    result: dict[str, int] | None = None
    for each in queue.path_up:
        if each.ceiling is not None:
            left = left_over(each.ceiling, each.used)
            result = left if result is None else lowest(left, result)
    return result


def blocking(queue: Queue, asked: Amounts, reserved: Sequence[tuple[Group, Amounts]] = ()) -> Blocking | None:
    """The first ceiling, from the leaf upwards, that a request does not fit into; None if it fits."""
    return next(all_blocking(queue, asked, reserved), None)


def all_blocking(
    queue: Queue, asked: Amounts, reserved: Sequence[tuple[Group, Amounts]] = ()
) -> Iterator[Blocking]:
    """The ceilings, from the leaf upwards, that a request does not fit into.

    Args:
        reserved: what counts as use of other groups, too.
    """
    for each in queue.upwards():
        ceiling = each.ceiling
        if ceiling is None:
            continue
        used = each.used
        if same := [amounts for group, amounts in reserved if each in group.queue.path_up]:
            used = plus(used, total(same))
        for kind, amount in asked.items():
            limit = ceiling.get(kind)
            if limit is not None and amount > 0 and used.get(kind, 0) + amount > limit:
                yield Blocking(each.path, kind, used.get(kind, 0), amount, limit)


def max_of_path(queue: Queue) -> dict[str, int] | None:
    """The ceiling that holds for a queue: the smallest of its path by type."""
    result: dict[str, int] | None = None
    for each in queue.upwards():
        result = lowest(each.ceiling, result)
    return result


def entitlement(queue: Queue) -> dict[str, int] | None:
    """What a queue is guaranteed, within the guarantees of its ancestors; None if none of them has one."""
    result: dict[str, int] | None = None
    for each in queue.upwards():
        result = lowest(each.guaranteed, result)
    return result


def may_start(queue: Queue, group: str) -> bool:
    """Whether the limits on the number of groups allow another one to run."""
    return first_full(queue, group) is None


def first_full(queue: Queue, group: str) -> Queue | None:
    """The queue nearest to the leaf whose number of groups is exhausted; None if the group may run."""
    for each in queue.upwards():
        if not each.max_groups or group in each.starting:
            continue
        if each.running + len(each.starting) + 1 > each.max_groups:
            return each
    return None


def current_priority(queue: Queue) -> int:
    """The priority of what waits in a queue, as its parent sees it."""
    priorities = queue.priorities
    if not priorities:
        return MIN_PRIORITY
    highest, policy = max(priorities), queue.policy
    if policy.priority_fence:
        return policy.priority_offset
    if not policy.priority_offset:
        return highest
    return max(MIN_PRIORITY, min(MAX_PRIORITY, highest + policy.priority_offset))


def fair_capacity(queue: Queue) -> Amounts:
    """What a queue could use at best: the capacity of the cluster, replaced by the ceilings of its path."""
    path = queue.path_up
    capacity = path[-1].capacity
    if capacity:
        for each in path[-2::-1]:
            if each.ceiling:
                capacity = {**capacity, **each.ceiling}
    return capacity


def limits_changed(root: Queue) -> None:
    """Call this when the capacity, ceilings or guarantees of queues below have changed."""
    for queue in root.downwards():
        queue.denominators = None


def share(queue: Queue) -> float:
    """The largest ratio of used to guaranteed, by type; without a guarantee of the type, to the capacity."""
    used = queue.used
    if not used:
        return 0.0
    denominators = queue.denominators
    if denominators is None:
        denominators = queue.denominators = {**fair_capacity(queue), **(queue.guaranteed or {})}
    largest = 0.0
    for kind, amount in used.items():
        limit = denominators.get(kind)
        if limit:
            ratio = amount / limit
            if ratio > largest:
                largest = ratio
        elif limit == 0 and amount > 0 and largest < 1.0:
            largest = 1.0
    return largest


def group_share(group: Group) -> list[float]:
    """The ratios of what a group uses to the guarantee of its leaf, the largest first.

    A type without guarantee counts with its bare amount, as in YuniKorn, so bytes of memory outweigh
    everything in a leaf without a guarantee of memory.
    """
    guaranteed, ratios = group.queue.guaranteed or {}, []
    for kind, amount in group.used.items():
        if amount:
            limit = guaranteed.get(kind)
            ratios.append(amount / limit if limit else float(amount))
    ratios.sort(reverse=True)
    return ratios


def queue_key(queue: Queue) -> QueueKey:
    """The position of a queue among its siblings; the lowest is first.

    Queues with the same priority and share are ordered by what they have pending, more first. Where neither
    queue has more of everything, the sum of all amounts decides, and then the path.
    """
    assert queue.parent is not None
    if queue.parent.policy.by_priority:
        return (-queue.priority, share(queue), -queue.waiting, queue.path)
    return (share(queue), -queue.priority, -queue.waiting, queue.path)


def group_key(group: Group) -> GroupKey:
    """The position of a group in its leaf; the lowest is first."""
    policy = group.queue.policy
    standing = group.created if policy.order is Order.FIFO else group_share(group)
    if policy.by_priority:
        return (-group.priority, standing, group.created, group.name)
    return (standing, -group.priority, group.created, group.name)


def has_pending(queue: Queue) -> bool:
    return queue.waiting > 0


def ordered_children(queue: Queue, key: Callable[[Queue], QueueKey] | None = None) -> list[Queue]:
    """The children that have something pending, in the order of `queue_key` or of another key."""
    waiting = [
        child for child in queue.children.values() if has_pending(child) and child.state is not State.STOPPED
    ]
    return sorted(waiting, key=key or queue_key)


def ordered_groups(queue: Queue) -> list[Group]:
    """The groups of a leaf that have something pending, in order."""
    return sorted((group for group in queue.groups.values() if is_positive(group.pending)), key=group_key)
