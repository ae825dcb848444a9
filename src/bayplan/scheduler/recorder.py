"""Events about pods, written in the background.

    record ─► collected ─► repeated? ──no──► queue (5000) ─► writers ─► sink ── no answer ──► again in
                              │                  ▲   full: dropped       │      10 to 12.5 s, 12 tries in all
                              └─2nd─► series of 2┘                       └─ rejected: dropped, but: series
                              └─more─► counted here                         not found: created with its series

The first event after a pause is written at once. Others that follow within `collect_seconds` are collected
and written together: at a constant low rate every write of its own costs a wake-up of the process and cold
caches, which is several times the cost of the same write among others. Times in events are those of `record`.

Equal events (all but the note; the pod's resourceVersion included) become a series. Its second occurrence is
written at once; later ones are counted here and written back every 30 minutes, and when there was none for
6 minutes, after which the series is dropped and a repeat is a new event. An event that was not repeated is
dropped after 6 minutes. A resync every 6 minutes, counted from the start, does both.

Intended differences from upstream:

- The note is written as it is. Upstream uses a failure message as a printf format, so that a `%` in it comes
  out mangled (`50% of` as `50%!o(MISSING)f`); this cannot be relied on, and the condition has the plain text.
- A note is cut between characters. Upstream cuts bytes, and half a character makes it an invalid text.
- A response of 5xx or 429 is retried like a missing response; upstream drops the event if the response is a
  Status of the API.
- At most 5000 events wait, for their turn or for a retry, and 32 are written at a time. Upstream has a queue
  of 1000 but any number of concurrent writes.
- Names of events never repeat, not even in a simulation where time stands still.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from bayplan.api.cluster_api import Event, EventSeries, EventSink
from bayplan.api.kinds import KINDS
from bayplan.api.meta import DEFAULT_NAMESPACE, Object, ObjectMeta, ObjectReference
from bayplan.api.names import DNS_SUBDOMAIN_MAX
from bayplan.api.pod import Pod
from bayplan.errors import APIError, ConflictError, NotFoundError, ServerError
from bayplan.scheduler.tasks import Rest
from bayplan.state.groups import Group

NORMAL: Final = "Normal"
WARNING: Final = "Warning"

NOTE_LIMIT: Final = 1024
"""Bytes that a note may have."""
_CUT: Final = " ..."

MAX_WAITING: Final = 5000
"""Upstream's queue has 1000, but it hands each event on at once and has any number of writes in progress. A
burst of thousands of bindings loses no event there, and neither should it here."""
TRIES: Final = 12
RETRY_SECONDS: Final = 10.0
RETRY_JITTER: Final = 0.25
QUIET_SECONDS: Final = 360.0
"""An event that was not repeated for this time is dropped. Also the interval between resyncs."""
RESYNCS_PER_REFRESH: Final = 5
"""Every 5th resync (every 30 minutes) writes back all series."""
MAX_REMEMBERED: Final = 50_000
"""Above this number, up to half as many events that were not repeated are dropped early, oldest first.

Upstream has no such limit."""
MAX_WRITERS: Final = 32
"""Writes in progress at once."""
MAX_COLLECTED: Final = MAX_WRITERS
"""This many events are written without further delay: larger batches would not be cheaper."""

_LOG_LEVEL: Final = logging.INFO - 2
"""Events are also logged, at `-v=2`."""

_log = logging.getLogger(__name__)


_Key = tuple[ObjectReference, str, str, str, str, ObjectReference | None]
"""What equal events have in common: regarding, type, reason, action, controller, related."""


class _Recorded(msgspec.Struct, gc=False):
    """What `record` was called with, and when."""

    key: _Key
    note: str
    seen: float
    """By the loop's clock."""
    wall: float


class _Remembered(msgspec.Struct, gc=False):
    """An event that may be repeated. The garbage collector does not visit it."""

    event: Event
    seen: float
    """The last occurrence, by the loop's clock."""
    count: int = 1
    last_wall: float = 0.0
    """The last repeat, by the wall clock."""

    def touch(self, repeat: _Recorded) -> None:
        self.seen, self.last_wall = repeat.seen, repeat.wall

    def as_series(self) -> Event:
        last = datetime.fromtimestamp(self.last_wall, UTC)
        return replace(self.event, series=EventSeries(count=self.count, last_observed_time=last))


class DiscardedEvents(EventSink):
    """For simulations: events are neither created nor written."""

    async def create_event(self, event: Event) -> None:
        raise AssertionError("the recorder creates no events for this sink")

    async def patch_event(self, event: Event) -> None:
        raise AssertionError("the recorder creates no events for this sink")


@dataclass(frozen=True, slots=True)
class EventOutput:
    """Where and how a scheduler writes its events."""

    sink: EventSink | None = None
    """None: through the cluster."""
    hostname: str = ""
    """Named in events; empty: that of this machine."""
    collect_seconds: float = 0.0
    """Between two batches; 0 to write each event at once."""


THROUGH_CLUSTER: Final = EventOutput()


class EventRecorder:
    """Records events; created and used on the loop that writes them.

    Args:
        sink: where they are written.
        hostname: of this machine; part of `reportingInstance`.
        wall_time: seconds since the epoch, for what is written into events.
        rng: for the time between tries, and names that must be made up. Not the generator that decisions
            are drawn from: how often a write fails must not change them.
        collect_seconds: the time between two batches of events; 0 to write each at once.
    """

    def __init__(
        self,
        sink: EventSink,
        *,
        hostname: str,
        wall_time: Callable[[], float],
        rng: random.Random,
        collect_seconds: float = 0.0,
    ) -> None:
        self.dropped = 0
        """Events lost because too many were waiting."""
        self._dropped_logged = 0
        """How many of them have been logged."""
        self.rejected = 0
        """Writes that the API server rejected."""
        self.given_up = 0
        """Writes that got no response after all retries."""
        self._sink = sink
        self._is_discarding = isinstance(sink, DiscardedEvents)
        self._hostname = hostname
        self._instances: dict[str, str] = {}
        """`reportingInstance` by controller."""
        self._wall_time = wall_time
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()
        self._last_stamp = 0
        self._collect_seconds = collect_seconds
        self._collected: list[_Recorded] = []
        self._next_batch = self._start
        self._batch: asyncio.TimerHandle | None = None
        self._remembered: dict[_Key, _Remembered] = {}
        self._queue: deque[tuple[Event, int]] = deque()
        """To be written, each with the number of tries."""
        self._retries: set[asyncio.TimerHandle] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers = 0
        self._starting = 0
        """How many of the writers have not begun."""
        self._resync_timer: asyncio.TimerHandle | None = None

    # Events of the scheduler

    def scheduled(self, pod: Pod, node_name: str, profile: str) -> None:
        meta = pod.metadata
        note = f"Successfully assigned {meta.namespace}/{meta.name} to {node_name}"
        self.record(reference(pod), NORMAL, "Scheduled", "Binding", note, profile)

    def failed_scheduling(self, pod: Pod, message: str, profile: str) -> None:
        self.record(reference(pod), WARNING, "FailedScheduling", "Scheduling", message, profile)

    def waiting_for_quota(self, pod: Pod, message: str, profile: str) -> None:
        self.record(reference(pod), NORMAL, "WaitingForQuota", "Scheduling", message, profile)

    def invalid_task_groups(self, pod: Pod, problem: str) -> None:
        note = f"unable to get taskGroups for pod, reason: {problem}"
        reason = "TaskGroupsError"
        self.record(reference(pod), WARNING, reason, reason, note, pod.spec.scheduler_name)

    def above_quota(self, pod: Pod, queue: str, profile: str) -> None:
        note = f"Preempted by Quota change enforcement process in {queue}"
        self.record(reference(pod), NORMAL, "Preempted", "Preempting", note, profile)

    def not_used(self, item: Object, fields: Iterable[str]) -> None:
        """An object has fields that the scheduler does not use."""
        note = f"Not used by the scheduler: {', '.join(fields)}"
        self.record(reference(item), WARNING, "NotSupported", "Scheduling", note, "bayplan")

    def skipped_deleting(self, pod: Pod, profile: str) -> None:
        """A popped pod is being deleted."""
        self.failed_scheduling(pod, f"skip schedule deleting pod: {pod.key}", profile)

    def preempted(
        self, victim: Pod, preemptor: Pod | Group, node_name: str, profile: str, *, in_memory: bool = False
    ) -> None:
        """`profile` is the preemptor's; `in_memory`: the victim was not bound yet, so nothing was deleted.

        A preemptor that is a pod would belong in `related`, but upstream omits it, and so does this.
        """
        related, kind = None, "pod"
        if isinstance(preemptor, Group):
            related, kind = reference(preemptor.source), preemptor.key.kind
        note = f"Preempted by {kind} {preemptor.uid} on node {node_name}"
        if in_memory:
            note += " (in kube-scheduler memory)."
        self.record(reference(victim), NORMAL, "Preempted", "Preempting", note, profile, related)

    def binding_conditions_pending(self, pod: Pod, node_name: str, profile: str) -> None:
        note = f"waiting for binding conditions for device on node {node_name}"
        self.record(reference(pod), NORMAL, "BindingConditionsPending", "Scheduling", note, profile)

    def record(
        self,
        regarding: ObjectReference,
        event_type: str,
        reason: str,
        action: str,
        note: str,
        controller: str,
        related: ObjectReference | None = None,
    ) -> None:
        """Records an event; returns at once."""
        if _log.isEnabledFor(_LOG_LEVEL):
            facts = {"object": _key(regarding), "type": event_type, "reason": reason, "note": note}
            _log.log(_LOG_LEVEL, "Event occurred", extra={"fields": facts})
        if self._is_discarding:
            return
        now = self._loop.time()
        key = (regarding, event_type, reason, action, controller, related)
        recorded = _Recorded(key, note, now, self._wall_time())
        if now >= self._next_batch and not self._collected:
            self._next_batch = now + self._collect_seconds
            self._process(recorded)
            return
        self._collected.append(recorded)
        if now >= self._next_batch or len(self._collected) >= MAX_COLLECTED:
            self._process_collected()
        elif self._batch is None:
            self._batch = self._loop.call_at(self._next_batch, self._process_collected)

    def _process_collected(self) -> None:
        """Enqueues everything that was recorded since the last batch."""
        if self._batch is not None:
            self._batch.cancel()
            self._batch = None
        self._next_batch = self._loop.time() + self._collect_seconds
        collected, self._collected = self._collected, []
        for recorded in collected:
            self._process(recorded)
        if len(collected) > 1:
            # Start all writers now. If each started the next, that would take as many rounds of the loop.
            while self._starting < len(self._queue) and self._writers < MAX_WRITERS:
                self._start_writer()

    def _process(self, recorded: _Recorded) -> None:
        known = self._remembered.get(recorded.key)
        if known is not None and known.count > 1:
            known.count += 1
            known.touch(recorded)
        elif len(self._queue) + len(self._retries) >= MAX_WAITING:
            self._drop()
        elif known is not None:
            known.count = 2
            known.touch(recorded)
            self._enqueue(known.as_series())
        else:
            event = self._make_event(recorded)
            self._remember(recorded, event)
            self._enqueue(event)

    def _make_event(self, recorded: _Recorded) -> Event:
        regarding, event_type, reason, action, controller, related = recorded.key
        instance = self._instances.get(controller)
        if instance is None:
            instance = self._instances[controller] = f"{controller}-{self._hostname}"
        stamp = int(recorded.wall * 1e9)
        if stamp <= self._last_stamp:
            stamp = self._last_stamp + 1
        self._last_stamp = stamp
        name = f"{regarding.name}.{stamp:x}"
        if len(name) > DNS_SUBDOMAIN_MAX:
            name = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        note = recorded.note
        return Event(
            metadata=ObjectMeta(name=name, namespace=regarding.namespace or DEFAULT_NAMESPACE),
            event_time=datetime.fromtimestamp(stamp / 1e9, UTC),
            reporting_controller=controller,
            reporting_instance=instance,
            action=action,
            reason=reason,
            regarding=regarding,
            related=related,
            note=note if len(note) <= NOTE_LIMIT and note.isascii() else truncated(note),
            type=event_type,
        )

    # Shutdown

    async def drain(self) -> None:
        """Waits until each recorded event was written or has failed once; does not wait for retries."""
        self._process_collected()
        while self._tasks:
            await asyncio.gather(*self._tasks)

    def close(self) -> None:
        """Drops everything that is not written yet."""
        for handle in (*self._retries, self._resync_timer, self._batch):
            if handle is not None:
                handle.cancel()
        for task in self._tasks:
            task.cancel()
        self._collected.clear()
        self._queue.clear()
        self._retries.clear()
        self._remembered.clear()
        self._resync_timer = self._batch = None

    # Writing

    def _drop(self) -> None:
        """Logs only the first of a series of dropped events; `_log_dropped` logs how many there were."""
        if self.dropped == self._dropped_logged:
            _log.warning("more than %d events are waiting to be written, dropping more", MAX_WAITING)
        self.dropped += 1

    def _log_dropped(self) -> None:
        lost = self.dropped - self._dropped_logged
        _log.warning("%d events were dropped, %d since the start", lost, self.dropped)
        self._dropped_logged = self.dropped

    def _enqueue(self, event: Event, tries: int = 0) -> None:
        self._queue.append((event, tries))
        if not self._starting:
            self._start_writer()

    def _start_writer(self) -> None:
        if self._writers < MAX_WRITERS:
            self._starting += 1
            self._writers += 1
            self._start_task(self._write_queued())

    async def _write_queued(self) -> None:
        """Writes until the queue is empty. Starts another writer when it has to wait for a response."""
        self._starting -= 1
        try:
            while self._queue:
                event, tries = self._queue.popleft()
                work = self._write(event)
                try:
                    waits_for = work.send(None)
                except StopIteration as end:
                    written = end.value
                else:
                    if len(self._queue) > self._starting:
                        self._start_writer()
                    written = await Rest(work, waits_for)
                if not written:
                    self._retry(event, tries + 1)
            if self.dropped > self._dropped_logged:
                self._log_dropped()
        finally:
            self._writers -= 1

    async def _write(self, event: Event) -> bool:
        """Creates or patches the event. False if a retry may help."""
        try:
            if event.series is None:
                await self._sink.create_event(event)
            else:
                try:
                    await self._sink.patch_event(event)
                except NotFoundError:
                    await self._sink.create_event(event)
        except APIError as error:
            if isinstance(error, ConflictError):
                # The event exists because an earlier try took effect. A series that was not found a moment
                # ago exists because its first event has just been written: patch it again.
                return event.series is None
            if isinstance(error, ServerError) or error.code == 0:
                return False
            self.rejected += 1
            _log.warning("event %s was rejected: %s", event.key, error)
        except Exception:
            self.rejected += 1
            _log.exception("event %s could not be written", event.key)
        return True

    def _retry(self, event: Event, tries: int) -> None:
        if tries >= TRIES:
            self.given_up += 1
            _log.error("event %s was given up after %d tries", event.key, TRIES)
            return
        delay = RETRY_SECONDS * (1 + RETRY_JITTER * self._rng.random())

        def enqueue() -> None:
            self._retries.discard(handle)
            self._enqueue(event, tries)

        handle = self._loop.call_later(delay, enqueue)
        self._retries.add(handle)

    # Series

    def _remember(self, recorded: _Recorded, event: Event) -> None:
        if len(self._remembered) >= MAX_REMEMBERED:
            single = [key for key, known in self._remembered.items() if known.count == 1]
            for old in single[: MAX_REMEMBERED // 2]:
                del self._remembered[old]
        self._remembered[recorded.key] = _Remembered(event, recorded.seen)
        if self._resync_timer is None:
            self._schedule_resync()

    def _schedule_resync(self) -> None:
        """Resyncs run at fixed times. None is scheduled if there is nothing to drop, so a loop can end."""
        if self._remembered:
            index = int((self._loop.time() - self._start) // QUIET_SECONDS) + 1
            self._resync_timer = self._loop.call_at(self._start + index * QUIET_SECONDS, self._resync, index)

    def _resync(self, index: int) -> None:
        self._resync_timer = None
        now = self._loop.time()
        finished: list[tuple[_Key, _Remembered]] = []
        ongoing: list[_Remembered] = []
        for key, known in list(self._remembered.items()):
            quiet = now - known.seen > QUIET_SECONDS
            if known.count == 1 and quiet:
                del self._remembered[key]
            elif quiet:
                finished.append((key, known))
            elif known.count > 1 and index % RESYNCS_PER_REFRESH == 0:
                ongoing.append(known)
        if finished or ongoing:
            self._start_task(self._write_back(finished, ongoing))
        self._schedule_resync()

    async def _write_back(self, finished: list[tuple[_Key, _Remembered]], ongoing: list[_Remembered]) -> None:
        """Writes the counts of series. A failed write is repeated at the next resync, not retried."""
        for key, known in finished:
            seen = known.seen
            # If it was repeated while it was written, it is not finished.
            if await self._write(known.as_series()) and known.seen == seen:
                self._remembered.pop(key, None)
        for known in ongoing:
            await self._write(known.as_series())

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work, name="events")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def reference(item: Object) -> ObjectReference:
    meta, kind = item.metadata, "v1" if isinstance(item, Pod) else KINDS.of(type(item)).api_version
    return ObjectReference(
        kind=type(item).__name__,
        api_version=kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )


def _key(regarding: ObjectReference) -> str:
    return f"{regarding.namespace}/{regarding.name}" if regarding.namespace else regarding.name


def truncated(note: str) -> str:
    """The note; if it has more than 1024 bytes, its first 1020 (whole characters only) and ` ...`."""
    data = note.encode()
    if len(data) <= NOTE_LIMIT:
        return note
    return data[: NOTE_LIMIT - len(_CUT)].decode(errors="ignore") + _CUT
