"""Pods in flight, and the events since they were popped.

A pod in flight is in no sub-queue, so an event that would requeue it cannot find it. Events are therefore
recorded while a pod is in flight that was popped before them. When a pod comes back, it is evaluated against
the events since it was popped.

Upstream keeps one list of pods and events. Here events are numbered and each pod has the number at which it
started, which is equivalent.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from bayplan.framework.events import ClusterEvent

POD_POPPED: Final = "PodPopped"
"""The label of a pod's entry in metrics."""


class Recorded(NamedTuple):
    event: ClusterEvent
    old: Any
    new: Any


class InFlight:
    """Pods in flight by uid, and the events since the first of them was popped."""

    def __init__(self) -> None:
        self.starts: dict[str, int] = {}
        """By uid: the number of the next event when the pod was popped. In this order, so ascending."""
        self._events: list[Recorded] = []
        self._dropped = 0
        """The number of the first recorded event."""

    def __len__(self) -> int:
        return len(self.starts)

    def __contains__(self, uid: str) -> bool:
        return uid in self.starts

    def begin(self, uid: str) -> bool:
        """The pod is in flight from now on. False: it already was, and nothing changes."""
        if uid in self.starts:
            return False
        self.starts[uid] = self._dropped + len(self._events)
        return True

    def record(self, event: ClusterEvent, old: Any, new: Any) -> None:
        """Records an event if any pod is in flight."""
        if self.starts:
            self._events.append(Recorded(event, old, new))

    def since(self, uid: str) -> list[Recorded] | None:
        """The events since the pod was popped; None if it is not in flight."""
        start = self.starts.get(uid)
        return None if start is None else self._events[start - self._dropped :]

    def end(self, uid: str) -> None:
        """The pod is no longer in flight. Events that no pod needs any more are dropped."""
        start = self.starts.pop(uid, None)
        if start is None or not self._events or start != self._dropped:
            return
        oldest = next(iter(self.starts.values()), None)
        self._drop(len(self._events) if oldest is None else oldest - self._dropped)

    def _drop(self, count: int) -> None:
        del self._events[:count]
        self._dropped += count

    def clear(self) -> None:
        """No pod is in flight any more."""
        self.starts.clear()
        self._drop(len(self._events))

    def counts(self) -> dict[str, int]:
        """The number of entries by the labels of `inflight_events`."""
        counts = {POD_POPPED: len(self.starts)} if self.starts else {}
        for recorded in self._events:
            label = recorded.event.label
            counts[label] = counts.get(label, 0) + 1
        return counts
