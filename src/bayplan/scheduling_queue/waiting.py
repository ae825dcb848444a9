"""Where pods wait after a failed attempt: backoff queue and unschedulable pods; and the timers of the queue.

A pod that backs off becomes active when its time is over. One that was rejected or is gated waits until an
event may make it schedulable: unschedulable pods are indexed by the plugins that rejected them, so that an
event visits only pods whose rejecting plugin registered it, and its cost is proportional to the pods it may
concern.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import floor, inf, sqrt
from typing import Final

from bayplan.api.pod import Pod
from bayplan.scheduling_queue.hints import IndexKey, Rejector
from bayplan.scheduling_queue.queued import Entity, QueuedGroup, QueuedPod, members_of
from bayplan.scheduling_queue.sub_queues import PodHeap

WINDOW: Final = 1.0
"""Seconds between two checks for completed backoffs; ends of backoffs are rounded down to such windows."""

LEFTOVER_PERIOD: Final = 30.0
"""Seconds between two checks for pods that have been unschedulable for too long."""

MAX_IN_UNSCHEDULABLE_SECONDS: Final = 300.0
"""After this time a pod is retried even without an event that may make it schedulable."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Durations are in seconds."""

    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    max_in_unschedulable: float = MAX_IN_UNSCHEDULABLE_SECONDS
    pop_from_backoff: bool = True
    """The feature SchedulerPopFromBackoffQ."""


class Ticker:
    """Ticks at a fixed interval."""

    def __init__(self, first: float, period: float) -> None:
        self._next = first
        self._period = period

    def latest(self, now: float) -> float | None:
        """The latest tick up to now; None if it was returned before. Earlier missed ticks are skipped.

        Callers should use the tick instead of the current time, so that results do not depend on how often
        they check the clock.
        """
        if now < self._next:
            return None
        self._next = self.first_after(now)
        return self._next - self._period

    def first_after(self, moment: float) -> float:
        """The first future tick after the given time."""
        if moment < self._next:
            return self._next
        return self._next + self._period * (floor((moment - self._next) / self._period) + 1)


NEVER_BACKS_OFF: Final = -inf

CUT_OFF_FACTOR: Final = 4
"""How much longer the backoff is after an attempt in which a plugin used up its time."""
CUT_OFF_MAX_FACTOR: Final = 6
"""How much longer it may become: a minute by default."""

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

    def __iter__(self) -> Iterator[Entity]:
        yield from self.rejected
        yield from self.errored

    def duration(self, failures: int, *, is_cut_off: bool = False, size: int = 1) -> float:
        """The backoff after this number of failures: 1, 2, 4, 8, 10, 10 … seconds by default, and 4, 8, 16,
        32, 60, 60 … seconds after an attempt that was cut off. It may become longer for a group of `size`
        pods: 1, 2, 4, 8, 16, 20, 20 … seconds for four."""
        if not failures or not self._max_nanos:
            return 0.0
        doublings, initial, limit = failures - 1, self._initial, self._max_nanos
        if size > 1:
            limit = int(limit * sqrt(size))
        if is_cut_off:
            initial, limit = initial * CUT_OFF_FACTOR, limit * CUT_OFF_MAX_FACTOR
        if initial > limit >> doublings:
            return limit / _NANO
        return (initial << doublings) / _NANO

    def expiration(self, info: Entity) -> float:
        """When the pod's backoff ends: by its consecutive errors if there are any, else by all its
        rejections."""
        if info.backoff_expiration is None:
            failures = info.consecutive_errors_count or info.unschedulable_count
            if not failures or not self._max_nanos:
                return NEVER_BACKS_OFF
            info.backoff_expiration = self._round_down(
                info.timestamp
                + self.duration(failures, is_cut_off=info.is_cut_off, size=len(members_of(info)))
            )
        return info.backoff_expiration

    def is_backing_off(self, info: Entity, now: float) -> bool:
        # In the window in which its backoff ends the pod still backs off.
        return self.expiration(info) >= self._round_down(now)

    def push(self, info: Entity) -> None:
        expiration = self.expiration(info)
        if info.unschedulable_plugins or info.pending_plugins:
            self.rejected.push(info, (expiration, info.sort_key))
        else:
            self.errored.push(info, expiration)

    def reorder(self, info: Entity) -> None:
        """The pod's sort key has changed."""
        if info.sub_queue is self.rejected:
            self.rejected.remove(info)
            self.push(info)

    def pop_completed(self, now: float) -> Iterator[Entity]:
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


KeysOf = Callable[[Rejector, Pod], Iterable[str]]


def _no_keys(rejector: Rejector, pod: Pod) -> Iterable[str]:
    return ()


class UnschedulablePods:
    """Waiting pods by key and by rejector.

    `keys_of` returns the keys that a pod waits for which a plugin rejected (`WaitingKeysPlugin`).
    """

    label = "unschedulable"

    def __init__(self, keys_of: KeysOf = _no_keys) -> None:
        self._keys_of = keys_of
        self.pods: dict[str, Entity] = {}
        self._index: dict[IndexKey, dict[str, Entity]] = {}
        self._oldest = inf
        """No pod has been here since before this time."""

    def __len__(self) -> int:
        return len(self.pods)

    def __iter__(self) -> Iterator[Entity]:
        return iter(self.pods.values())

    @property
    def gated_count(self) -> int:
        return sum(1 for info in self.pods.values() if info.gating_plugin)

    def put(self, info: Entity) -> None:
        """Adds the pod, or updates its index entries if it is already here."""
        self.unindex(info)
        key = info.key
        info.sub_queue = self
        info.index_keys = self._index_keys(info)
        self.pods[key] = info
        for index_key in info.index_keys:
            self._index.setdefault(index_key, {})[key] = info
        self._oldest = min(self._oldest, info.waits_since)

    def member_changed(self, group: QueuedGroup, member: QueuedPod) -> None:
        """Updates the index after a change of a member: the keys of the others are not computed again."""
        if member.index_keys != self._pod_keys(member):
            self.put(group)

    def _index_keys(self, info: Entity) -> tuple[IndexKey, ...]:
        if isinstance(info, QueuedPod):
            return self._pod_keys(info)
        for member in info.members:
            member.index_keys = self._pod_keys(member)
        return tuple(dict.fromkeys(key for member in info.members for key in member.index_keys))

    def _pod_keys(self, info: QueuedPod) -> tuple[IndexKey, ...]:
        profile = info.profile
        found: list[IndexKey] = []
        for plugin in info.rejectors:
            rejector = (profile, plugin)
            found.append(rejector)
            found += [(profile, plugin, key) for key in dict.fromkeys(self._keys_of(rejector, info.pod))]
        return tuple(found)

    def reindex(self, info: Entity) -> None:
        """Updates the index after a change of what the pod waits for, unless the pod is not in the index."""
        if info.index_keys and info.index_keys != self._index_keys(info):
            self.put(info)

    def remove(self, info: Entity) -> None:
        self.unindex(info)
        info.sub_queue = None
        del self.pods[info.key]
        if not self.pods:
            self._oldest = inf

    def rejected_by(self, index_keys: Iterable[IndexKey]) -> list[Entity]:
        """The pods that at least one of these plugins rejected, each once."""
        groups = [group for index_key in index_keys if (group := self._index.get(index_key))]
        if len(groups) == 1:
            return list(groups[0].values())
        found: dict[str, Entity] = {}
        for group in groups:
            found.update(group)
        return list(found.values())

    def earliest_overdue(self, max_stay: float) -> float | None:
        """A time before which no pod has been here for longer than `max_stay`."""
        return self._oldest + max_stay if self.pods else None

    def overdue(self, now: float, max_stay: float) -> list[Entity]:
        """The pods that have been here for longer than that."""
        if not self.pods or now - self._oldest <= max_stay:
            return []
        self._oldest = min(info.waits_since for info in self.pods.values())
        return [info for info in self.pods.values() if now - info.waits_since > max_stay]

    def unindex(self, info: Entity) -> None:
        """Removes a pod from the index, so that events do not reach it until it is put in again."""
        for index_key in info.index_keys:
            group = self._index[index_key]
            del group[info.key]
            if not group:
                del self._index[index_key]
        info.index_keys = ()
