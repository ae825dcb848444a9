"""Pods that wait for the end of their backoff.

Each failure doubles the backoff, up to a maximum. There are two heaps. Rejected pods may be scheduled early
when no pod is active, so they are ordered by the second in which their backoff ends and, within it, by their
sort key. Pods whose last attempt ended with an error always wait until the end, so that the cause (an API
server, a webhook) has time to recover.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import floor, inf
from typing import Final

from bayplan.scheduling_queue.heap import PodHeap
from bayplan.scheduling_queue.queued import QueuedPod

NEVER_BACKS_OFF: Final = -inf

_NANO: Final = 10**9


class BackoffQueue:
    """Both heaps, and the backoff of a pod.

    Args:
        initial: seconds after the first failure.
        max_seconds: where doubling stops; 0 disables the backoff.
        windows: round times down to whole seconds. False only without the feature SchedulerPopFromBackoffQ.
    """

    def __init__(self, initial: float = 1.0, max_seconds: float = 10.0, *, windows: bool = True) -> None:
        self.rejected = PodHeap("backoff")
        self.errored = PodHeap("backoff")
        self._initial = round(initial * _NANO)
        self._max_nanos = round(max_seconds * _NANO)
        self._windows = windows

    def __len__(self) -> int:
        return len(self.rejected) + len(self.errored)

    def __iter__(self) -> Iterator[QueuedPod]:
        yield from self.rejected
        yield from self.errored

    def duration(self, failures: int) -> float:
        """The backoff after this number of failures: 1, 2, 4, 8, 10, 10 … seconds by default."""
        if not failures or not self._max_nanos:
            return 0.0
        doublings = failures - 1
        if self._initial > self._max_nanos >> doublings:
            return self._max_nanos / _NANO
        return (self._initial << doublings) / _NANO

    def expiration(self, info: QueuedPod) -> float:
        """When the pod's backoff ends: by its consecutive errors if there are any, else by all its
        rejections."""
        if info.backoff_expiration is None:
            failures = info.consecutive_errors_count or info.unschedulable_count
            if not failures or not self._max_nanos:
                return NEVER_BACKS_OFF
            info.backoff_expiration = self._round_down(info.timestamp + self.duration(failures))
        return info.backoff_expiration

    def is_backing_off(self, info: QueuedPod, now: float) -> bool:
        # In the window in which its backoff ends the pod still backs off.
        return self.expiration(info) >= self._round_down(now)

    def push(self, info: QueuedPod) -> None:
        expiration = self.expiration(info)
        if info.unschedulable_plugins or info.pending_plugins:
            self.rejected.push(info, (expiration, info.sort_key))
        else:
            self.errored.push(info, expiration)

    def reorder(self, info: QueuedPod) -> None:
        """The pod's sort key has changed."""
        if info.sub_queue is self.rejected:
            self.rejected.remove(info)
            self.push(info)

    def pop_completed(self, now: float) -> Iterator[QueuedPod]:
        """Removes, one by one, the pods whose backoff has ended."""
        for heap in (self.rejected, self.errored):
            while (first := heap.first()) is not None and not self.is_backing_off(first, now):
                heap.remove(first)
                yield first

    def earliest_expiration(self) -> float | None:
        """When the first backoff ends."""
        rejected, errored = self.rejected.first(), self.errored.first()
        if rejected is None:
            return None if errored is None else self.expiration(errored)
        if errored is None:
            return self.expiration(rejected)
        return min(self.expiration(rejected), self.expiration(errored))

    def _round_down(self, moment: float) -> float:
        return floor(moment) if self._windows else moment
