"""What was seen of a cluster: its objects, their changes and the scheduler's attempts.

Every entry has a number. An entry with a change has the object before and after it, so that the state at any
number is the current one with the later changes undone: no copies of the cluster are stored. When there are
too many entries, the oldest are dropped, and the earliest state that can be shown moves forward.

Records of objects are those of the scheduler and the store; they are shared, never copied.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.scheduler.cycle import Decision
from bayplan.scheduler.waiting import BindingProgress, BindingStep

MAX_ENTRIES: Final = 50_000
"""Changes and attempts that are kept: about 100 MB if all of them are pods."""
_SLACK: Final = 1.1
"""Old entries are dropped a tenth at a time."""
MAX_VICTIMS: Final = 20

ObjectKey = tuple[type[Object], str]
Objects = dict[ObjectKey, Object]


class Result(StrEnum):
    """How an attempt ended, or what happened to it later."""

    SCHEDULED = "scheduled"
    """A node was found."""
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"
    WAITING = "waiting"
    """It waits at Permit."""
    REJECTED = "rejected"
    """A plugin or the API server rejected the pod after a node was found."""


@dataclass(frozen=True, slots=True)
class Change:
    """An object that was created (`before` is None), changed or deleted (`after` is None)."""

    seq: int
    time: float
    key: ObjectKey
    before: Object | None
    after: Object | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One decision of a scheduler, or what became of it."""

    seq: int
    time: float
    pod: str
    uid: str
    result: Result
    node: str = ""
    message: str = ""
    evaluated: int = 0
    feasible: int = 0
    victims: tuple[str, ...] = ()
    """Pods that are evicted for it, on `node`."""
    waited: float = 0.0
    """Seconds since the pod was created."""
    observed: bool = False
    """Whether it was derived from the pod's status, because the scheduler runs elsewhere."""


Entry = Change | Attempt


class History:
    """Objects and entries. `clock` gives the time of new entries, in seconds since the epoch."""

    def __init__(self, clock: Callable[[], float], *, max_entries: int = MAX_ENTRIES) -> None:
        self.objects: Objects = {}
        """The current state."""
        self.last = 0
        """The number of the latest entry."""
        self.dropped = 0
        """Entries up to this number are no longer there; the state at it is the earliest one."""
        self.dropped_time = clock()
        self.scheduled = 0
        self.failed = 0
        self.on_entry: Callable[[Entry], None] | None = None
        """Called with each new entry."""
        self._clock = clock
        self._max_entries = max_entries
        self._entries: list[Entry] = []

    @property
    def now(self) -> float:
        return self._clock()

    def stop_clock(self, time: float) -> None:
        """From now on it is always this time: what is shown is over."""
        self._clock = lambda: time

    # Writing

    def begin(self, objects: Sequence[Object]) -> None:
        """Replaces everything by a first state, without entries."""
        self.objects = {(type(item), item.key): item for item in objects}
        self.rebase()

    def rebase(self) -> None:
        """Makes the current state the earliest one."""
        self._entries.clear()
        self.dropped, self.dropped_time = self.last, self.now

    def put(self, item: Object) -> None:
        """An object was created or changed."""
        key = (type(item), item.key)
        before = self.objects.get(key)
        if before is not None and before.metadata.resource_version:
            same = before.metadata.resource_version == item.metadata.resource_version
            if same and before.metadata.uid == item.metadata.uid:
                return
        self._change(key, before, item)

    def remove(self, key: ObjectKey) -> None:
        """An object was deleted."""
        before = self.objects.get(key)
        if before is not None:
            self._change(key, before, None)

    def decided(self, decision: Decision) -> None:
        """The scheduler has made a decision."""
        pod, found = decision.pod, decision.found
        if found is not None:
            self.scheduled += 1
            self._attempt(
                pod,
                Result.SCHEDULED,
                node=decision.node_name,
                evaluated=found.evaluated,
                feasible=found.feasible,
            )
            return
        self.failed += 1
        result = Result.UNSCHEDULABLE if decision.status.is_rejection else Result.ERROR
        after = decision.post_filter
        eviction = None if after is None else after.eviction
        victims = () if eviction is None else tuple(pod.key for pod in eviction.victims[:MAX_VICTIMS])
        node = "" if eviction is None else eviction.node_name
        count = 0 if decision.diagnosis is None else decision.diagnosis.node_count
        self._attempt(pod, result, node=node, message=decision.message, evaluated=count, victims=victims)

    def progressed(self, progress: BindingProgress) -> None:
        """A pod for which a node was found waits, or was rejected. That it is bound, its object shows."""
        if progress.step is BindingStep.BOUND:
            return
        plugins = ", ".join(filter(None, progress.plugins))
        if progress.step is BindingStep.WAITING:
            self._attempt(
                progress.pod, Result.WAITING, node=progress.node_name, message=f"held by {plugins} at Permit"
            )
            return
        self.failed += 1
        by = f"{progress.point} plugin {plugins}" if plugins else progress.point
        self._attempt(
            progress.pod, Result.REJECTED, node=progress.node_name, message=f"{by}: {progress.reason}"
        )

    def observe(self, before: Pod | None, after: Pod) -> None:
        """Derives an attempt from the status of a pod whose scheduler runs elsewhere."""
        if after.spec.node_name:
            if before is not None and not before.spec.node_name:
                self.scheduled += 1
                self._attempt(after, Result.SCHEDULED, node=after.spec.node_name, observed=True)
            return
        message = _reported(after)
        if message and (before is None or _reported(before) != message):
            self.failed += 1
            self._attempt(after, Result.UNSCHEDULABLE, message=message, observed=True)

    def restore(self, entry: Entry) -> None:
        """Adds an entry of a recording; it gets a new number."""
        if isinstance(entry, Attempt):
            if entry.result is Result.SCHEDULED:
                self.scheduled += 1
            elif entry.result is not Result.WAITING:
                self.failed += 1
            self._add(dataclasses.replace(entry, seq=self.last + 1))
        else:
            self._change(entry.key, self.objects.get(entry.key), entry.after, time=entry.time)

    def _change(
        self, key: ObjectKey, before: Object | None, after: Object | None, time: float | None = None
    ) -> None:
        if after is None:
            del self.objects[key]
        else:
            self.objects[key] = after
        self._add(Change(self.last + 1, self.now if time is None else time, key, before, after))

    def _attempt(
        self,
        pod: Pod,
        result: Result,
        *,
        node: str = "",
        message: str = "",
        evaluated: int = 0,
        feasible: int = 0,
        victims: tuple[str, ...] = (),
        observed: bool = False,
    ) -> None:
        now, created = self.now, pod.metadata.creation_timestamp
        waited = max(0.0, now - created.timestamp()) if created is not None else 0.0
        self._add(
            Attempt(
                self.last + 1,
                now,
                pod.key,
                pod.uid,
                result,
                node,
                message,
                evaluated,
                feasible,
                victims,
                waited,
                observed,
            )
        )

    def _add(self, entry: Entry) -> None:
        self.last = entry.seq
        entries = self._entries
        entries.append(entry)
        if len(entries) > self._max_entries * _SLACK:
            cut = len(entries) - self._max_entries
            self.dropped, self.dropped_time = entries[cut - 1].seq, entries[cut - 1].time
            del entries[:cut]
        if self.on_entry is not None:
            self.on_entry(entry)

    # Reading

    def clamp(self, seq: int | None) -> int:
        """The nearest number whose state can be shown; None: the latest."""
        return self.last if seq is None else min(max(seq, self.dropped), self.last)

    def entries(self, after: int, upto: int | None = None) -> Iterator[Entry]:
        """The entries with numbers above `after`, up to `upto`."""
        first = max(after - self.dropped, 0)
        last = len(self._entries) if upto is None else max(upto - self.dropped, 0)
        for index in range(first, min(last, len(self._entries))):
            yield self._entries[index]

    def entry(self, seq: int) -> Entry | None:
        index = seq - self.dropped - 1
        return self._entries[index] if 0 <= index < len(self._entries) else None

    def attempts(self) -> Iterator[Attempt]:
        """All attempts, the latest first."""
        for index in range(len(self._entries) - 1, -1, -1):
            entry = self._entries[index]
            if isinstance(entry, Attempt):
                yield entry

    def time_of(self, seq: int) -> float:
        """When the state with this number came to be."""
        found = self.entry(seq)
        if found is not None:
            return found.time
        return self.dropped_time

    def seq_at(self, time: float) -> int:
        """The number of the last entry up to a time."""
        low, high = 0, len(self._entries)
        while low < high:
            middle = (low + high) // 2
            if self._entries[middle].time <= time:
                low = middle + 1
            else:
                high = middle
        return self.dropped + low

    def objects_at(self, seq: int) -> Objects:
        """The objects at a number."""
        objects = dict(self.objects)
        for index in range(len(self._entries) - 1, seq - self.dropped - 1, -1):
            entry = self._entries[index]
            if isinstance(entry, Change):
                if entry.before is None:
                    objects.pop(entry.key, None)
                else:
                    objects[entry.key] = entry.before
        return objects

    def state_at(self, seq: int) -> Objects:
        """The objects as a scheduler saw them: a pod with a decision has its node already."""
        objects = self.objects_at(seq)
        for uid, attempt in self._assumed(seq).items():
            known = objects.get((Pod, attempt.pod))
            if isinstance(known, Pod) and known.uid == uid and not known.spec.node_name:
                objects[Pod, attempt.pod] = replace(known, spec=replace(known.spec, node_name=attempt.node))
        return objects

    def _assumed(self, seq: int) -> dict[str, Attempt]:
        """By uid: the decisions for a node up to a number that were not reverted."""
        found: dict[str, Attempt] = {}
        for entry in self.entries(self.dropped, seq):
            if not isinstance(entry, Attempt):
                continue
            if entry.result is Result.SCHEDULED and not entry.observed:
                found[entry.uid] = entry
            elif entry.result is not Result.WAITING:
                found.pop(entry.uid, None)
        return found


class HistoryHandler:
    """Passes the changes of a kind on to a history (`client.informer.Handler`).

    Args:
        derives: whether attempts are derived from the status of pods, because their scheduler runs elsewhere.
    """

    def __init__(self, history: History, *, derives: bool) -> None:
        self._history = history
        self._derives = derives

    def added(self, item: Object) -> None:
        known = self._history.objects.get((type(item), item.key))
        self._history.put(item)
        if self._derives and isinstance(item, Pod):
            self._history.observe(known if isinstance(known, Pod) else None, item)

    def updated(self, old: Object, new: Object) -> None:
        self.added(new)

    def deleted(self, item: Object) -> None:
        self._history.remove((type(item), item.key))


def _reported(pod: Pod) -> str:
    """Why its scheduler reported it as unschedulable; empty if it did not."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.message or condition.reason
    return ""
