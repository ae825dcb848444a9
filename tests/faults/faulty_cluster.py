"""A cluster with injected faults: random, and repeatable with the same seed.

`FaultyCluster` wraps any other `ClusterAPI`. It only does what a correct client must survive: a watch never
omits an event without ending, and an error that reports no effect has none. Each kind of fault has its own
probability, can be turned off, and is counted.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Final, TypeVar

from bayplan.api.cluster_api import ClusterAPI, Event, EventSink, ObjectT, PodStatusPatch, WatchEvent
from bayplan.api.devices import ResourceClaim
from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.errors import (
    APIError,
    ConflictError,
    GoneError,
    NotFoundError,
    ServerError,
    UnknownOutcomeError,
)

T = TypeVar("T")


class Fault(StrEnum):
    DUPLICATE_EVENT = "duplicate event"
    """A watch delivers an event twice."""
    SLOW_WATCH = "slow watch"
    """Events arrive late."""
    BREAK_WATCH = "break watch"
    """A watch stops in the middle of a batch and ends. It can be resumed where it ended."""
    EXPIRE_WATCH = "expire watch"
    """The same, but with a 410: the events in between are only available from a new list."""
    REJECT_WATCH = "refuse watch"
    """A watch is answered with 410 before its first event."""
    FAIL_READ = "fail read"
    """A list, a get or the start of a watch is answered with 500."""
    CONFLICT = "conflict"
    """A write is answered with 409, and not done."""
    NOT_FOUND = "not found"
    """A write is answered with 404, and not done."""
    SERVER_ERROR = "server error"
    """A write is answered with 500, and not done."""
    TIMEOUT_BEFORE = "timeout before"
    """A write that had no effect gets no response."""
    TIMEOUT_AFTER = "timeout after"
    """A write that had an effect gets no response."""
    LATE_BIND = "late bind"
    """A binding gets no response and is executed after the client has stopped waiting, or never."""
    SLOW_REQUEST = "slow request"
    """A read or write is executed late."""
    SLOW_ANSWER = "slow answer"
    """A read or write is executed at once, but its response is late."""


_INJECTED: Final = "injected fault"


class Dice:
    """Decides which faults occur, and counts them."""

    def __init__(self, seed: int, rates: Mapping[Fault, float], delay_seconds: float) -> None:
        self.counts: Counter[Fault] = Counter()
        self._rates = dict(rates)
        self._delay_seconds = delay_seconds
        self._random = random.Random(seed)

    def strikes(self, fault: Fault) -> bool:
        rate = self._rates.get(fault, 0.0)
        if not rate or self._random.random() >= rate:
            return False
        self.counts[fault] += 1
        return True

    def off(self, faults: Sequence[Fault]) -> None:
        for fault in faults or tuple(self._rates):
            self._rates.pop(fault, None)

    def up_to(self, count: int) -> int:
        return self._random.randint(0, count)

    async def delay(self) -> None:
        await asyncio.sleep(self._random.random() * self._delay_seconds)


class FaultyCluster(ClusterAPI):
    """A cluster with faults. `rates` are probabilities, for each request or for each event or batch."""

    def __init__(
        self,
        cluster: ClusterAPI,
        *,
        seed: int,
        rates: Mapping[Fault, float],
        delay_seconds: float = 5.0,
        bind_late: Callable[[Pod, str, Mapping[str, str] | None], Awaitable[None]] | None = None,
    ) -> None:
        """`delay_seconds` is the delay of the slowest response, and the timeout.

        `bind_late` executes late bindings, for clusters that distinguish them from others.
        """
        self._cluster = cluster
        self._bind_late = bind_late or cluster.bind
        self._dice = Dice(seed, rates, delay_seconds)
        self._late: set[asyncio.Task[None]] = set()

    @property
    def counts(self) -> Counter[Fault]:
        """How often each fault has occurred."""
        return self._dice.counts

    def off(self, *faults: Fault) -> None:
        """Turns off these faults; without arguments, all faults."""
        self._dice.off(faults)

    async def list(self, kind: type[ObjectT]) -> tuple[Sequence[ObjectT], str]:
        return await self._read(lambda: self._cluster.list(kind))

    def watch(
        self, kind: type[ObjectT], resource_version: str
    ) -> AsyncIterator[Sequence[WatchEvent[ObjectT]]]:
        return _FaultyWatch(self._cluster.watch(kind, resource_version), self._dice)

    async def get(self, kind: type[ObjectT], name: str, namespace: str = "") -> ObjectT:
        return await self._read(lambda: self._cluster.get(kind, name, namespace))

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str] | None = None) -> None:
        if self._dice.strikes(Fault.LATE_BIND):
            await self._dice.delay()
            late = asyncio.ensure_future(self._bind_later(pod, node_name, annotations))
            self._late.add(late)
            late.add_done_callback(self._late.discard)
            raise UnknownOutcomeError(f"bind {pod.key}: {_INJECTED}")
        await self._write(f"bind {pod.key}", lambda: self._cluster.bind(pod, node_name, annotations))

    async def patch_pod_status(self, pod: Pod, patch: PodStatusPatch) -> None:
        await self._write(f"patch {pod.key}", lambda: self._cluster.patch_pod_status(pod, patch))

    async def delete_pod(self, pod: Pod) -> None:
        await self._write(f"delete {pod.key}", lambda: self._cluster.delete_pod(pod))

    async def create(self, item: Object) -> Object:
        return await self._write(f"create {item.key}", lambda: self._cluster.create(item))

    async def update(self, item: Object) -> Object:
        return await self._write(f"update {item.key}", lambda: self._cluster.update(item))

    async def update_status(self, item: Object) -> Object:
        return await self._write(f"update {item.key}/status", lambda: self._cluster.update_status(item))

    async def delete(self, item: Object) -> None:
        await self._write(f"delete {item.key}", lambda: self._cluster.delete(item))

    async def release_claim(self, claim: ResourceClaim, uid: str) -> ResourceClaim:
        return await self._write(f"patch {claim.key}/status", lambda: self._cluster.release_claim(claim, uid))

    async def _bind_later(self, pod: Pod, node_name: str, annotations: Mapping[str, str] | None) -> None:
        await self._dice.delay()
        # If it is rejected by now, there is no client left to report it to.
        with suppress(APIError):
            await self._bind_late(pod, node_name, annotations)

    def events(self) -> EventSink:
        return _FaultyEvents(self._cluster.events(), self._write)

    async def _read(self, act: Callable[[], Awaitable[T]]) -> T:
        dice = self._dice
        if dice.strikes(Fault.SLOW_REQUEST):
            await dice.delay()
        if dice.strikes(Fault.FAIL_READ):
            raise ServerError(_INJECTED)
        answer = await act()
        if dice.strikes(Fault.SLOW_ANSWER):
            await dice.delay()
        return answer

    async def _write(self, what: str, act: Callable[[], Awaitable[T]]) -> T:
        dice = self._dice
        if dice.strikes(Fault.SLOW_REQUEST):
            await dice.delay()
        for fault, error in (
            (Fault.CONFLICT, ConflictError),
            (Fault.NOT_FOUND, NotFoundError),
            (Fault.SERVER_ERROR, ServerError),
        ):
            if dice.strikes(fault):
                raise error(f"{what}: {_INJECTED}")
        if dice.strikes(Fault.TIMEOUT_BEFORE):
            await dice.delay()
            raise UnknownOutcomeError(f"{what}: {_INJECTED}")
        answer = await act()
        if dice.strikes(Fault.TIMEOUT_AFTER):
            await dice.delay()
            raise UnknownOutcomeError(f"{what}: {_INJECTED}")
        if dice.strikes(Fault.SLOW_ANSWER):
            await dice.delay()
        return answer


class _FaultyEvents(EventSink):
    """Events that are written like everything else, or lost."""

    def __init__(
        self, sink: EventSink, write: Callable[[str, Callable[[], Awaitable[None]]], Awaitable[None]]
    ):
        self._sink = sink
        self._write = write

    async def create_event(self, event: Event) -> None:
        await self._write(f"create {event.key}", lambda: self._sink.create_event(event))

    async def patch_event(self, event: Event) -> None:
        await self._write(f"patch {event.key}", lambda: self._sink.patch_event(event))


class _FaultyWatch(AsyncIterator[Sequence[WatchEvent[ObjectT]]]):
    """A watch that repeats, delays and breaks."""

    def __init__(self, watch: AsyncIterator[Sequence[WatchEvent[ObjectT]]], dice: Dice) -> None:
        self._watch = watch
        self._dice = dice
        self._started = False
        self._end: Exception | None = None

    async def __anext__(self) -> Sequence[WatchEvent[ObjectT]]:
        if not self._started:
            self._start()
        if self._end is None:
            batch = await self._watch.__anext__()
            if self._dice.strikes(Fault.SLOW_WATCH):
                await self._dice.delay()
            batch = self._cut(self._stutter(batch))
            if batch:
                return batch
        await self._dice.delay()
        assert self._end is not None
        raise self._end

    def _start(self) -> None:
        self._started = True
        if self._dice.strikes(Fault.REJECT_WATCH):
            raise GoneError(_INJECTED)
        if self._dice.strikes(Fault.FAIL_READ):
            raise ServerError(_INJECTED)

    def _stutter(self, batch: Sequence[WatchEvent[ObjectT]]) -> Sequence[WatchEvent[ObjectT]]:
        events: list[WatchEvent[ObjectT]] = []
        for event in batch:
            events.append(event)
            if self._dice.strikes(Fault.DUPLICATE_EVENT):
                events.append(event)
        return events

    def _cut(self, batch: Sequence[WatchEvent[ObjectT]]) -> Sequence[WatchEvent[ObjectT]]:
        """The events before the break, if the watch is to break now."""
        if self._dice.strikes(Fault.BREAK_WATCH):
            self._end = StopAsyncIteration()
        elif self._dice.strikes(Fault.EXPIRE_WATCH):
            self._end = GoneError(_INJECTED)
        else:
            return batch
        return batch[: self._dice.up_to(len(batch))]
