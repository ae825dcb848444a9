"""Pods that wait because their last attempt is too recent.

Each failure doubles the wait, up to a limit. There are two heaps. Pods that were *rejected* may be tried
early when nobody else waits, so they are ordered by the second in which their wait ends and, within it, as
the active part orders them. Pods whose attempt *broke* wait to the end in any case: what broke (an API
server, a webhook) is given time to recover.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import floor, inf
from typing import Final

from bayplan.queue.heap import PodHeap
from bayplan.queue.queued import QueuedPod

NEVER_BACKS_OFF: Final = -inf

_NANO: Final = 10**9


class BackoffQueue:
    """Both heaps, and how long a pod backs off.

    Args:
        initial: seconds after the first failure.
        longest: where doubling stops; 0 switches backing off off.
        windows: cut times to whole seconds. Off only without the feature SchedulerPopFromBackoffQ.
    """

    def __init__(self, initial: float = 1.0, longest: float = 10.0, *, windows: bool = True) -> None:
        self.rejected = PodHeap("backoff")
        self.broken = PodHeap("backoff")
        self._initial = round(initial * _NANO)
        self._longest = round(longest * _NANO)
        self._windows = windows

    def __len__(self) -> int:
        return len(self.rejected) + len(self.broken)

    def __iter__(self) -> Iterator[QueuedPod]:
        yield from self.rejected
        yield from self.broken

    def duration(self, failures: int) -> float:
        """How long a pod backs off after so many failures: 1, 2, 4, 8, 10, 10 … seconds by default."""
        if not failures or not self._longest:
            return 0.0
        doublings = failures - 1
        if self._initial > self._longest >> doublings:
            return self._longest / _NANO
        return (self._initial << doublings) / _NANO

    def expiration(self, info: QueuedPod) -> float:
        """When the pod's wait ends. Errors in a row count for themselves, else all rejections count."""
        if info.backoff_expiration is None:
            failures = info.consecutive_errors_count or info.unschedulable_count
            if not failures or not self._longest:
                return NEVER_BACKS_OFF
            info.backoff_expiration = self._cut(info.timestamp + self.duration(failures))
        return info.backoff_expiration

    def is_backing_off(self, info: QueuedPod, now: float) -> bool:
        # In the very window in which it ends the pod still backs off.
        return self.expiration(info) >= self._cut(now)

    def push(self, info: QueuedPod) -> None:
        expiration = self.expiration(info)
        if info.unschedulable_plugins or info.pending_plugins:
            self.rejected.push(info, (expiration, info.sort_key))
        else:
            self.broken.push(info, expiration)

    def reorder(self, info: QueuedPod) -> None:
        """The pod's sort key has changed."""
        if info.sub_queue is self.rejected:
            self.rejected.remove(info)
            self.push(info)

    def pop_completed(self, now: float) -> Iterator[QueuedPod]:
        """Takes out, one by one, the pods that back off no longer."""
        for heap in (self.rejected, self.broken):
            while (first := heap.first()) is not None and not self.is_backing_off(first, now):
                heap.remove(first)
                yield first

    def earliest_expiration(self) -> float | None:
        """When the first of all waits ends."""
        rejected, broken = self.rejected.first(), self.broken.first()
        if rejected is None:
            return None if broken is None else self.expiration(broken)
        if broken is None:
            return self.expiration(rejected)
        return min(self.expiration(rejected), self.expiration(broken))

    def _cut(self, moment: float) -> float:
        return floor(moment) if self._windows else moment
