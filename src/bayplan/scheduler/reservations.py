"""Room on nodes for pods that do not exist yet: the replacements of pods that are about to be evicted.

    reserve(pod, node)  a pod like this one is nominated to the node, so that others do not take the room
    the replacement is created  →  it takes over the nomination, and the search tries that node first
    release(pod)        the room is free, if no replacement has come

It is what kube-scheduler does for a preemptor that waits for its victims: pods of higher priority may still
take the room, and a replacement that does not fit on the node any more gets another. Nothing is written to
the API server, and a scheduler without reservations has none of this in its path: the handler of pods is
replaced when the first part of this class is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from bayplan.api.pod import Pod, PodStatus
from bayplan.client.informer import Handler
from bayplan.scheduler.loop import Scheduler
from bayplan.scheduling_queue.object_events import ASSIGNED_POD_DELETE

_PREFIX: Final = "reserved-for-the-replacement-of-"


@dataclass(frozen=True, slots=True)
class _Reservation:
    placeholder: Pod
    owner: str
    """The uid of the controller."""
    node_name: str


class Reservations:
    """The reservations of a scheduler, and its handler of pods. In the scheduler's event loop."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._context = scheduler.context
        self._columns = scheduler.nominated
        self._inner: Handler[Pod] = scheduler.pods.handler
        self._by_pod: dict[str, _Reservation] = {}
        """By the uid of the pod that is evicted."""
        self._nominated: dict[str, str] = {}
        """By the uid of a replacement without a node: the node that it is nominated to."""
        scheduler.pods.handler = self

    # What the descheduler calls

    def reserve(self, pod: Pod, node_name: str) -> None:
        """The next pod of this pod's controller is nominated to the node."""
        owner = pod.metadata.controller()
        if owner is None:
            return
        uid = _PREFIX + pod.uid
        placeholder = replace(
            pod,
            metadata=replace(pod.metadata, uid=uid, name=uid),
            spec=replace(pod.spec, node_name=""),
            status=PodStatus(nominated_node_name=node_name),
        )
        self._by_pod[pod.uid] = _Reservation(placeholder, owner.uid, node_name)
        self._context.between_cycles(lambda: self._columns.nominate(placeholder, node_name))

    def release(self, pod: Pod) -> None:
        """The reservation ends, if no replacement has taken it over."""
        found = self._by_pod.pop(pod.uid, None)
        if found is not None:
            self._context.between_cycles(lambda: self._end(found))

    def _end(self, reservation: _Reservation) -> None:
        self._columns.remove_nomination(reservation.placeholder.uid)
        # Pods that found no room because of it are tried again.
        self._context.queue.move_to_active_or_backoff(ASSIGNED_POD_DELETE, reservation.placeholder, None)
        self._context.wake()

    # The handler

    def added(self, item: Pod) -> None:
        if self._by_pod and not item.spec.node_name:
            self._take_over(item)
        self._inner.added(self._as_nominated(item))

    def updated(self, old: Pod, new: Pod) -> None:
        if new.spec.node_name:
            self._nominated.pop(new.uid, None)
        self._inner.updated(self._as_nominated(old), self._as_nominated(new))

    def deleted(self, item: Pod) -> None:
        self._nominated.pop(item.uid, None)
        self._inner.deleted(item)

    def _take_over(self, pod: Pod) -> None:
        owner = pod.metadata.controller()
        if owner is None:
            return
        of_owner = (uid for uid, one in self._by_pod.items() if one.owner == owner.uid)
        uid = next(of_owner, None)
        if uid is not None:
            found = self._by_pod.pop(uid)
            self._nominated[pod.uid] = found.node_name
            self._context.between_cycles(lambda: self._columns.remove_nomination(found.placeholder.uid))

    def _as_nominated(self, pod: Pod) -> Pod:
        node_name = self._nominated.get(pod.uid) if self._nominated else None
        if node_name is None or pod.spec.node_name:
            return pod
        return replace(pod, status=replace(pod.status, nominated_node_name=node_name))
