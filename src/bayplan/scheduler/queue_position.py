"""The position of a pod in the queue, the response to `GET /queue?pod=NAMESPACE/NAME`."""

from __future__ import annotations

from typing import Any, Final

from bayplan.scheduler.context import Context
from bayplan.scheduling_queue.queued import Entity, QueuedGroup

ABSENT: Final = "Absent"
"""No pending pod of this scheduler: it has a node, is being bound, or has another schedulerName."""
WAITING: Final = "WaitingAtPermit"
IN_FLIGHT: Final = "InFlight"
INCOMPLETE: Final = "Incomplete"
"""The pod names a group whose PodGroup does not exist."""
GATED: Final = "gated"
BACKOFF: Final = "backoff"


def queue_position(context: Context, key: str) -> dict[str, Any]:
    """The position of the pod `namespace/name`, as values that JSON can represent.

    A member of a group waits with it: the position is that of the group.
    """
    for waiting in context.waiting:
        if waiting.pod.key == key:
            return {
                "pod": key,
                "state": WAITING,
                "node": waiting.node_name,
                "plugins": sorted(waiting.pending_plugins),
            }
    queue = context.queue
    info = queue.find(key)
    if info is None:
        return {"pod": key, "state": ABSENT}
    entity = queue.entity(info)
    found: dict[str, Any] = {
        "pod": key,
        "state": _state(entity, is_incomplete=queue.is_incomplete(info)),
        "attempts": info.attempts,
        "plugins": sorted({*info.rejectors, *filter(None, (info.gating_plugin,))}),
        "secondsSinceLastAttempt": round(max(0.0, context.now() - info.timestamp), 1),
    }
    position = None if entity is None else queue.active_position(entity)
    if position is not None:
        found["position"], found["length"] = position
    if isinstance(entity, QueuedGroup):
        found |= _of_group(context, entity)
    return found


def _state(entity: Entity | None, *, is_incomplete: bool) -> str:
    if is_incomplete:
        return INCOMPLETE
    if entity is None or entity.sub_queue is None:
        return IN_FLIGHT
    is_gated = isinstance(entity, QueuedGroup) and entity.gating_plugin
    return GATED if is_gated else entity.sub_queue.label


def _of_group(context: Context, entity: QueuedGroup) -> dict[str, Any]:
    """What a member shares with its group: the order in which they are tried, and when."""
    found: dict[str, Any] = {
        "group": str(entity.group.key),
        "members": [member.key for member in entity.members],
    }
    if entity.gating_plugin:
        found["plugins"] = [entity.gating_plugin]
    elif entity.sub_queue is not None and entity.sub_queue.label == BACKOFF:
        left = context.queue.backoff_expiration(entity) - context.now()
        found["secondsToNextAttempt"] = round(max(0.0, left), 1)
    return found
