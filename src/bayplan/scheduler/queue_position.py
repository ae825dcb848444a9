"""The position of a pod in the queue, the response to `GET /queue?pod=NAMESPACE/NAME`."""

from __future__ import annotations

from typing import Any, Final

from bayplan.scheduler.context import Context

ABSENT: Final = "Absent"
"""No pending pod of this scheduler: it has a node, is being bound, or has another schedulerName."""
WAITING: Final = "WaitingAtPermit"
IN_FLIGHT: Final = "InFlight"


def queue_position(context: Context, key: str) -> dict[str, Any]:
    """The position of the pod `namespace/name`, as values that JSON can represent."""
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
    found: dict[str, Any] = {
        "pod": key,
        "state": IN_FLIGHT if info.sub_queue is None else info.sub_queue.label,
        "attempts": info.attempts,
        "plugins": sorted({*info.rejectors, *filter(None, (info.gating_plugin,))}),
        "secondsSinceLastAttempt": round(max(0.0, context.now() - info.timestamp), 1),
    }
    position = queue.active_position(info)
    if position is not None:
        found["position"], found["length"] = position
    return found
