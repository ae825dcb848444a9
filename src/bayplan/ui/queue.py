"""The pending pods in groups: their place in the queue, the reason, and what they wait for.

A Deployment of 500 pods with the same reason is one group. In the process of a scheduler the places are those
of its queue; elsewhere, and in the past, they are derived from the pods and the recorded attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bayplan.api.pod import Pod
from bayplan.api.workloads import ReplicaSet
from bayplan.process.history import Attempt, Objects, Result
from bayplan.scheduler.context import Context
from bayplan.state.groups import group_key

MAX_NAMES: Final = 50
ACTIVE, BACKOFF, UNSCHEDULABLE, GATED, WAITING, BINDING, IN_FLIGHT = (
    "active", "backoff", "unschedulable", "gated", "waiting", "binding", "inFlight",
)  # fmt: skip
ORDER: Final = (IN_FLIGHT, ACTIVE, BACKOFF, UNSCHEDULABLE, GATED, WAITING, BINDING)

WaitsFor = Callable[[Pod, Iterable[str]], list[dict[str, Any]]]
"""The events after which a pod is tried again that these plugins rejected."""


@dataclass(frozen=True, slots=True)
class Place:
    """One pending pod in the queue."""

    pod: Pod
    state: str
    attempts: int = 0
    plugins: tuple[str, ...] = ()
    """The plugins that rejected it, gate it or hold it."""
    since: float = 0.0
    """When it came to this place, in seconds since the epoch."""
    until: float | None = None
    """When its backoff ends."""
    node: str = ""


def places_in(context: Context) -> list[Place]:
    """The places of all pending pods of a scheduler in this process."""
    queue, found = context.queue, list[Place]()
    backoff = queue.backoff_expiration
    for entity, info in queue.pending():
        state = IN_FLIGHT if entity.sub_queue is None else entity.sub_queue.label
        gating = info.gating_plugin or entity.gating_plugin
        if gating:
            state = GATED
        plugins = tuple(sorted({*info.rejectors, *filter(None, (gating,))}))
        until = backoff(entity) if state == BACKOFF else None
        found.append(Place(info.pod, state, info.attempts, plugins, info.timestamp, until))
    for pod in queue.groups.outside_entities() if queue.groups is not None else ():
        # Their PodGroup does not exist, or is being scheduled now.
        found.append(Place(pod, GATED, 0, ("GangScheduling",), 0.0, None))
    for waiting in context.waiting:
        plugins = tuple(sorted(waiting.pending_plugins))
        found.append(Place(waiting.pod, WAITING, 1, plugins, 0.0, None, waiting.node_name))
    return found


def derived_places(objects: Objects, attempts: Mapping[str, Attempt]) -> Iterator[Place]:
    """The same from objects and the latest attempt of each pod, by uid."""
    for item in objects.values():
        if not isinstance(item, Pod) or item.spec.node_name or item.is_finished or item.is_terminating:
            continue
        known = attempts.get(item.uid)
        created = item.metadata.creation_timestamp
        since = known.time if known is not None else created.timestamp() if created else 0.0
        if item.spec.scheduling_gates:
            yield Place(item, GATED, 0, ("SchedulingGates",), since)
        elif known is not None and known.result is Result.WAITING:
            yield Place(item, WAITING, 1, (), since, None, known.node)
        elif known is not None and known.result is Result.SCHEDULED:
            yield Place(item, BINDING, 1, (), since, None, known.node)
        elif known is not None or _reported(item):
            yield Place(item, UNSCHEDULABLE, 1, (), since)
        else:
            yield Place(item, ACTIVE, 0, (), since)


@dataclass(slots=True)
class _Group:
    first: Place
    reason: str
    workload: str
    pod_group: str
    names: list[str] = field(default_factory=list)
    count: int = 0
    attempts: int = 0
    oldest: float = float("inf")
    until: float | None = None


def queue_report(
    places: Iterable[Place], objects: Objects, attempts: Mapping[str, Attempt], waits_for: WaitsFor
) -> dict[str, Any]:
    """All places in groups, in the order of a pod's way through the queue."""
    groups: dict[tuple[str, ...], _Group] = {}
    counts = dict.fromkeys(ORDER, 0)
    for place in places:
        pod, known = place.pod, attempts.get(place.pod.uid)
        if place.state == BACKOFF or place.state == UNSCHEDULABLE or place.state == ACTIVE:
            assumed = known is not None and known.result is Result.SCHEDULED and place.state != ACTIVE
            reason = "" if assumed or known is None else known.message
            reason = reason or _reported(pod)
        elif place.state == GATED:
            gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
            reason = f"scheduling gates: {gates}" if gates else f"gated by {', '.join(place.plugins)}"
        else:
            reason = "" if known is None else known.message
        member_of = group_key(pod)
        workload = workload_of(pod, objects) if member_of is None else f"PodGroup {member_of.name}"
        counts[place.state] = counts.get(place.state, 0) + 1
        key = (place.state, pod.namespace, workload, reason, str(member_of or ""))
        group = groups.get(key)
        if group is None:
            group = groups[key] = _Group(place, reason, workload, str(member_of or ""))
        group.count += 1
        group.attempts = max(group.attempts, place.attempts)
        group.oldest = min(group.oldest, _created(pod) or place.since)
        if place.until is not None:
            group.until = min(place.until, group.until or place.until)
        if len(group.names) < MAX_NAMES:
            group.names.append(pod.key)
    ordered = sorted(groups.values(), key=lambda one: (ORDER.index(one.first.state), one.oldest))
    return {
        "counts": counts,
        "groups": [
            {
                "state": one.first.state,
                "workload": one.workload,
                "podGroup": one.pod_group,
                "namespace": one.first.pod.namespace,
                "count": one.count,
                "pods": one.names,
                "priority": one.first.pod.priority,
                "reason": one.reason,
                "plugins": list(one.first.plugins),
                "waitsFor": waits_for(one.first.pod, one.first.plugins),
                "attempts": one.attempts,
                "since": one.oldest,
                "backoffEnds": one.until,
                "node": one.first.node,
            }
            for one in ordered
        ],
    }


def workload_of(pod: Pod, objects: Objects) -> str:
    """`Deployment web`, or the pod's own name if nothing controls it."""
    owner = pod.metadata.controller()
    if owner is None:
        return f"Pod {pod.name}"
    if owner.kind == "ReplicaSet":
        made = objects.get((ReplicaSet, f"{pod.namespace}/{owner.name}"))
        above = None if made is None else made.metadata.controller()
        if above is not None:
            return f"{above.kind} {above.name}"
    return f"{owner.kind} {owner.name}"


def _created(pod: Pod) -> float:
    created = pod.metadata.creation_timestamp
    return 0.0 if created is None else created.timestamp()


def _reported(pod: Pod) -> str:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.message or condition.reason
    return ""
