"""YuniKorn's preemption for guarantees: its walk over nodes, around the choice of `bayplan.queues.victims`.

preemption.go of apache/yunikorn-core.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from bayplan.queues import victims
from bayplan.queues.amounts import fits_on
from bayplan.queues.tree import Task
from conformance.reference.yunikorn_model import Ask, Found, Node

if TYPE_CHECKING:
    from conformance.reference.yunikorn_core import Core

BATCH: Final = 10
RESERVATION_DELAY: Final = 2.0
RESERVATION_WAIT: Final = 3600.0


def preempt(core: Core, ask: Ask, attempts: list[int], *, nodes_tried: bool) -> Found | None:
    if not attempts[0]:
        ask.log.add("Preemption max attempts exhausted")
        return None
    delay = ask.group.queue.policy.preemption_delay
    if (
        not ask.may_preempt
        or ask.triggered
        or ask.required_place
        or core.now < ask.created + delay
        or ask.checked
    ):
        ask.log.add("Preemption preconditions failed")
        return None
    ask.checked = True
    attempts[0] -= 1
    asked, leaf = ask.amounts, ask.group.queue
    found = victims.candidates(leaf, asked, ask.priority, victims.Rule.UPSTREAM)
    if not victims.is_entitled(found, asked):
        ask.log.add("Preemption queue guarantees check failed")
        return None
    by_node = _candidates_by_node(core, ask, found)
    available = {name: core.nodes[name].available for name in by_node}
    checks: list[tuple[int, str]] = []
    chosen_by_node: dict[str, list[Task]] = {}
    for name, tasks in by_node.items():
        result = victims.victims_in_place(found, asked, available[name], tasks or ())
        if result is not None:
            chosen_by_node[name] = result[1]
            if result[1] or not nodes_tried:
                checks.append((result[0], name))
    best = _best_check(core, ask, sorted(checks), by_node)
    if best is None:
        return None
    index, name = best
    chosen = chosen_by_node[name][: index + 1]
    more = victims.additional_victims(found, asked, chosen)
    if more is None or not chosen + more:
        return None
    has_room = fits_on(available[name], asked)
    final = victims.needed(asked, chosen + more, name, has_room=has_room)
    if final is None:
        ask.log.add("Preemption helped but short of resources")
        return None
    core.evict(final, f"preempting allocations to free up resources to run ask: {ask.key}")
    ask.triggered = True
    return Found("Reserved", ask, core.nodes[name])


def _candidates_by_node(core: Core, ask: Ask, found: victims.Candidates) -> dict[str, list[Task] | None]:
    """Candidates in order by node; None for nodes without any. Nodes that are no use are left out."""
    by_node: dict[str, list[Task]] = {}
    for task in found.tasks:
        by_node.setdefault(task.place, []).append(task)
    result: dict[str, list[Task] | None] = {}
    for node in core.ordered_nodes(reserved=True):
        if not _is_free_for(core, ask, node) or not node.schedulable:
            continue
        if fits_on(node.total, ask.amounts):
            tasks = by_node.get(node.name)
            result[node.name] = None if tasks is None else sorted(tasks, key=victims.victim_key)
    return result


def _is_free_for(core: Core, ask: Ask, node: Node) -> bool:
    if not node.is_reserved_by_others(ask):
        return True
    is_free = False
    for other in list(node.reservations.values()):
        if other.required_place or other.triggered:
            continue
        age = core.now - other.created - RESERVATION_WAIT - RESERVATION_DELAY
        if other.priority < ask.priority and age > RESERVATION_WAIT:
            core.unreserve(other.app, other)
            is_free = True
    return is_free


def _best_check(
    core: Core, ask: Ask, checks: list[tuple[int, str]], by_node: Mapping[str, list[Task] | None]
) -> tuple[int, str] | None:
    if not checks:
        return None
    if core.predicates is None:
        return checks[0]
    allowed = core.predicates.get(ask.key)
    best: tuple[int, int, str] | None = None
    for start in range(0, len(checks), BATCH):
        for index, name in checks[start : start + BATCH]:
            if allowed is not None and name not in allowed:
                continue
            score = victims.place_score(index, by_node[name])
            if best is None or score < best[0]:
                best = (score, index, name)
        if best is not None and best[0] < victims.FIT_SCORE:
            break
    return None if best is None else best[1:]
