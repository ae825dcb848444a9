"""Victims after a ceiling was lowered below what is used.

The excess of a queue is distributed over its children in proportion to what each uses above its guarantee,
down to the leaves, which choose victims that do not free more than their part. So the use may stay above the
ceiling, and no queue falls below its guarantee.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import floor
from typing import Final

from bayplan.queues.amounts import Amounts, covers_common, fits, left_over, lowest, plus
from bayplan.queues.tree import Queue, Task
from bayplan.queues.victims import Rule, is_removable, task_score

_HOUR: Final = 3600.0


def excess(queue: Queue) -> dict[str, int]:
    """What a queue uses above its ceiling, at most what it uses above the guarantees of its path."""
    used = left_over(queue.used, queue.leaving)
    if not queue.ceiling or not used:
        return {}
    above = {kind: -amount for kind, amount in left_over(queue.ceiling, used).items() if amount < 0}
    spare: dict[str, int] | None = None
    for each in queue.upwards():
        own = dict(each.used) if each.guaranteed is None else left_over(each.guaranteed, each.used)
        spare = lowest(own, spare)
    unprotected = {kind: -amount for kind, amount in (spare or {}).items() if amount < 0}
    return {kind: min(amount, unprotected.get(kind, amount)) for kind, amount in above.items()}


def distribute(queue: Queue, amounts: Amounts) -> list[tuple[Queue, dict[str, int]]]:
    """The leaves below a queue with what each of them has to free."""
    if queue.is_leaf:
        return [(queue, dict(amounts))]
    parts: list[tuple[Queue, dict[str, int]]] = []
    whole: dict[str, int] = {}
    for child in queue.children.values():
        if not child.used or covers_common(child.guaranteed, child.used):
            continue
        base = left_over(child.guaranteed, child.used) if child.guaranteed else child.used
        part = {kind: abs(amount) for kind, amount in base.items()}
        parts.append((child, part))
        whole = plus(whole, part)
    result = []
    for child, part in parts:
        own = {
            kind: floor((amount / whole[kind] if whole[kind] else 0.0) * amounts[kind])
            for kind, amount in part.items()
            if kind in amounts
        }
        result.extend(distribute(child, own))
    return result


def quota_victims(leaf: Queue, amounts: Amounts, rule: Rule = Rule.EXACT) -> list[Task]:
    """The tasks of a leaf to evict so that it frees at most these amounts."""
    if not any(amounts.values()):
        return []
    tasks = (task for group in leaf.groups.values() for task in group.tasks.values())
    chosen, freed = [], dict[str, int]()
    candidates = (task for task in tasks if is_removable(task, amounts))
    for task in _ordered(leaf, amounts, candidates, rule):
        after = plus(freed, task.amounts)
        if fits(amounts, task.amounts) and covers_common(amounts, after):
            chosen.append(task)
            freed = after
    return chosen


def _ordered(leaf: Queue, amounts: Amounts, tasks: Iterable[Task], rule: Rule) -> list[Task]:
    # Upstream, those that should be spared have the higher score, and go first.
    sign = -1 if rule is Rule.UPSTREAM else 1
    ceiling = leaf.ceiling or {}

    def key(task: Task) -> tuple[object, ...]:
        matching = sum(kind in task.amounts for kind in amounts) * 100 // len(task.amounts)
        shares = sorted(
            (
                amount / limit if (limit := ceiling.get(kind, 0)) else float(amount)
                for kind, amount in task.amounts.items()
                if amount and kind in amounts
            ),
            reverse=True,
        )
        age = -(task.created // _HOUR)
        return (sign * task_score(task) - matching, task.priority, age, shares, task.key)

    return sorted(tasks, key=key)
