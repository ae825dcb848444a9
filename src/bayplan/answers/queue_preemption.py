"""Whether preemption would help a pod in a capacity queue, by the rules of `bayplan.queues.preemption`.

A pod that finds no node may take from queues above their guarantee, if its own queue is entitled to what it
asks for. A pod that waits for a limit may do so only if that is the ceiling of a parent, and nothing else
keeps it waiting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from bayplan.answers.must_end import MAX_NAMED
from bayplan.api.pod import Pod
from bayplan.queues import victims
from bayplan.queues.active import CapacityQueues
from bayplan.queues.amounts import Amounts, plus, readable
from bayplan.queues.ceilings import room_for
from bayplan.queues.tree import Blocking, Queue
from bayplan.queues.users import APPLICATIONS
from bayplan.queues.yunikorn.pods import facts

NO_HELP: Final = "preemption would not help: {why}"


def whether_it_helps(
    queues: CapacityQueues, pod: Pod, asked: Amounts, limits: Sequence[Blocking], names: Mapping[str, str]
) -> str:
    """Whether preemption would help a pod, or the group that it is scheduled with, as a sentence.

    Args:
        asked: what has to fit.
        limits: what it waits for; none if it has room.
        names: of pods, by uid.
    """
    known, leaf = facts(pod), queues.group_of(pod).queue
    where = "" if limits else "if no node has room, "
    if not known.may_preempt:
        return where + NO_HELP.format(why="its preemptionPolicy is Never")
    if known.required_node and not limits:
        return (
            f"{where}it may preempt pods of any queue on {known.required_node}, the only node that it can use"
        )
    if not queues.preempts:
        return where + NO_HELP.format(why="it is disabled (preemption.enabled)")
    blocked = _never_lifted(leaf, limits)
    nominated = list(queues.nominated_amounts([pod]))
    reserved = queues.nominated_to(leaf, [pod])
    found = victims.candidates(leaf, asked, pod.priority)
    if not victims.is_entitled(found, plus(asked, reserved)):
        return where + NO_HELP.format(why=blocked or _why_not_entitled(leaf, asked, reserved))
    if blocked:
        return NO_HELP.format(why=blocked)
    if not found.by_queue:
        why = (
            f"no other queue below {found.fence.path} has a pod that may be evicted: of equal or lower "
            "priority, and above the guarantee"
        )
        return where + NO_HELP.format(why=why)
    delay = f"{leaf.policy.preemption_delay:g} s after its creation"
    if not limits:
        paths = _named(sorted(found.by_queue), "queues")
        return f"{where}its queue is entitled to this: it may preempt pods of {paths} {delay}"
    chosen = room_for(leaf, asked, pod.priority, nominated=nominated)
    if chosen is None:
        return NO_HELP.format(why="other queues cannot lose enough below this limit")
    if not chosen:
        return "preemption is not needed: enough pods are terminating"
    victims_named = _named(sorted(names.get(task.key, task.key) for task in chosen), "pods")
    return (
        f"its queue is entitled to this: {delay} it evicts {victims_named} (others where a "
        "PodDisruptionBudget or a node requires it), if a node has room for it then"
    )


def _named(names: Sequence[str], what: str) -> str:
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more {what}" if more > 0 else "")


def _never_lifted(leaf: Queue, limits: Sequence[Blocking]) -> str:
    """Why nothing is evicted for the limits of a pod; "" if they are only ceilings of parents."""
    for limit in limits:
        if limit.user or limit.user_group:
            return "pods are not evicted for limits of users and groups"
        if limit.kind == APPLICATIONS:
            return "pods are not evicted for limits on applications"
    if any(limit.queue == leaf.path for limit in limits):
        return f"pods of queue {leaf.path} are not evicted for its own maximum"
    return ""


def _why_not_entitled(leaf: Queue, asked: Amounts, reserved: Amounts) -> str:
    """The guarantee that a request does not fit into; that of the leaf counts alone if it has one."""
    guarantees = [queue for queue in leaf.upwards() if queue.guaranteed]
    if not guarantees:
        return f"queue {leaf.path} has no guarantee"
    for queue in guarantees[:1] if leaf.guaranteed else guarantees:
        for kind, limit in (queue.guaranteed or {}).items():
            used = queue.used.get(kind, 0) - queue.leaving.get(kind, 0) + reserved.get(kind, 0)
            amount = asked.get(kind, 0)
            if kind in asked and used + amount > limit:
                shown = (readable(kind, each) for each in (used, amount, limit))
                return "queue {}: {} {} used, {} asked, {} guaranteed".format(queue.path, kind, *shown)
    raise AssertionError("unreachable: the request would be within every guarantee")
