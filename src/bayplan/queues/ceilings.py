"""Victims below a ceiling that is reached.

The ceiling of an ancestor may keep a leaf from what it is entitled to, because other leaves below that
ancestor use more than they are guaranteed. No single node can help then: victims may be on any node.
`room_for` chooses all that are needed, or none, by the rules of `victims.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from bayplan.queues import victims
from bayplan.queues.amounts import Amounts, plus, total
from bayplan.queues.tree import Queue, Task


def room_for(
    leaf: Queue,
    asked: Amounts,
    priority: int,
    *,
    together: Callable[[Task], Sequence[Task] | None] = lambda task: (task,),
    leaving: Sequence[Task] = (),
    nominated: Sequence[tuple[Queue, Amounts]] = (),
    preferred: Callable[[list[Task]], Iterable[Task]] = lambda tasks: tasks,
) -> list[Task] | None:
    """The tasks to evict so that a request of this leaf fits below the ceilings of its path.

    Args:
        together: the tasks that are evicted with a task, including itself; None if they must not be evicted.
        leaving: tasks that are ending already.
        nominated: what is reserved for other requests, with their leaves.
        preferred: gets the candidates in the order of `victim_key`, and returns them in the order in
            which they are tried.

    Returns:
        None if the leaf is not entitled to what it requests, or if the candidates do not suffice. Empty if
        tasks that are leaving make enough room.
    """
    found = victims.candidates(leaf, asked, priority, without=leaving)
    own = total(amounts for queue, amounts in nominated if queue is leaf)
    if not victims.is_entitled(found, plus(asked, own)):
        return None
    world, gone = victims.Hypothesis(leaf, without=leaving), set[str]()
    for queue, amounts in nominated:
        world.add(queue, amounts)
    allowed = {task.key for task in found.tasks}
    taken: list[Sequence[Task]] = []
    for task in preferred(sorted(found.tasks, key=victims.victim_key)):
        if _has_room(world, leaf, asked):
            break
        unit = together(task)
        if task.key in gone or unit is None or any(each.key not in allowed for each in unit):
            continue
        if victims.remove_unit(world, asked, unit):
            gone.update(each.key for each in unit)
            taken.append(unit)
    if not _has_room(world, leaf, asked):
        return None
    for unit in reversed(taken.copy()):
        for task in unit:
            world.add(task.group.queue, task.amounts)
        if _has_room(world, leaf, asked):
            taken.remove(unit)
        else:
            for task in unit:
                world.remove(task.group.queue, task.amounts)
    return [task for unit in taken for task in unit]


def _has_room(world: victims.Hypothesis, leaf: Queue, asked: Amounts) -> bool:
    for queue in leaf.upwards():
        if queue.ceiling is None:
            continue
        used = world.used(queue)
        for kind, amount in asked.items():
            limit = queue.ceiling.get(kind)
            if limit is not None and amount > 0 and used.get(kind, 0) + amount > limit:
                return False
    return True
