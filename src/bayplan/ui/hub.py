"""One subscription to a cluster for all viewers, and none without a viewer.

    ClusterAPI ── list and watch ──┐
                                   ├─► History ─► Overview ─► batches ─► viewers
    scheduler ─── decisions ───────┘

The first viewer starts the subscription, and it ends some seconds after the last one has left. A viewer is
represented by a number, the position up to which it has read. A batch contains the differences since then,
and viewers at the same position get the same bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from bayplan.api.cluster_api import ClusterAPI
from bayplan.api.meta import Object
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.client.informer import Informer
from bayplan.process.history import Attempt, Change, Entry, History, HistoryHandler
from bayplan.scheduler.tasks import cancel_all, first_to_end
from bayplan.ui.overview import Overview, Requests

FLUSH_SECONDS: Final = 0.25
"""Changes that follow each other faster are sent together."""
LEAVING_SECONDS: Final = 15.0
"""The subscription stays this long without a viewer: a page is reloaded, or asks again soon."""
MAX_DECISIONS: Final = 200
"""Attempts in one batch; of more only the latest are sent, with the number of those left out."""
MAX_SAMPLES: Final = 720

_log = logging.getLogger(__name__)


class Feed(Protocol):
    """Fills a history for as long as there are viewers."""

    async def run(self, history: History, synced: asyncio.Event) -> None:
        """Runs until it is cancelled; sets the event when the history has the whole cluster."""


@dataclass(frozen=True, slots=True)
class ClusterFeed:
    """Watches a cluster, and the decisions of its scheduler if that runs in this process."""

    connect: Callable[[], AbstractAsyncContextManager[ClusterAPI]]
    kinds: Sequence[type[Object]]
    observe: Callable[[History], Callable[[], None]] | None = None
    """Has the scheduler report its decisions to a history, until the returned function is called. None: it
    runs elsewhere, and attempts are derived from the status of pods."""

    async def run(self, history: History, synced: asyncio.Event) -> None:
        stop = None if self.observe is None else self.observe(history)
        is_new = not history.objects
        try:
            async with self.connect() as api:
                handler = HistoryHandler(history, derives=stop is None)
                informers = [
                    Informer(api, kind, handler, optional=kind not in (Node, Pod)) for kind in self.kinds
                ]
                tasks = [asyncio.ensure_future(informer.run()) for informer in informers]
                try:
                    for informer in informers:
                        await informer.synced.wait()
                    self._drop_deleted(history, informers)
                    if is_new:
                        history.rebase()  # what was there before is a state, not a series of changes
                    synced.set()
                    await first_to_end(tasks)
                finally:
                    await cancel_all(tasks)
        finally:
            if stop is not None:
                stop()

    def _drop_deleted(self, history: History, informers: Sequence[Informer[Any]]) -> None:
        """Removes objects that were deleted while there was no subscription."""
        known = {(informer.kind, item.key) for informer in informers for item in informer.all()}
        for key in [key for key in history.objects if key not in known]:
            history.remove(key)


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster at one time, for charts."""

    time: float
    seq: int
    pending: int
    assigned: int
    scheduled: int
    """Attempts that found a node, since the beginning."""
    failed: int
    used: dict[str, float]
    """The requested share of each resource."""


class Samples:
    """A bounded series: when there are too many, every second one is dropped."""

    def __init__(self, interval: float = 1.0) -> None:
        self.items: list[Sample] = []
        self._interval = interval

    def is_due(self, time: float) -> bool:
        return not self.items or time - self.items[-1].time >= self._interval

    def add(self, history: History, overview: Overview, time: float) -> None:
        if not self.is_due(time):
            return
        totals = overview.totals()
        used = {
            name: one["requested"] / one["allocatable"] if one["allocatable"] else 0.0
            for name, one in totals["resources"].items()
        }
        counted = (history.scheduled, history.failed)
        self.items.append(Sample(time, overview.seq, overview.pending, overview.assigned, *counted, used))
        if len(self.items) > MAX_SAMPLES:
            self.items = self.items[::2]
            self._interval *= 2


class Hub:
    """The history of a cluster, for viewers."""

    def __init__(self, history: History, requests: Requests, feed: Feed | None = None) -> None:
        self.history = history
        self.samples = Samples()
        self.viewers = 0
        self.problem = ""
        """Why the subscription has ended, if it failed."""
        self._requests = requests
        self._feed = feed
        self._task: asyncio.Task[None] | None = None
        self._leaving: asyncio.TimerHandle | None = None
        self._synced = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._overview: Overview | None = None
        self._past: Overview | None = None
        self._resources: list[str] = []
        self._layout = 0
        """The number at which nodes were last added, removed or relabelled: older columns are outdated."""
        self._batches: dict[tuple[int, int], dict[str, Any]] = {}
        self.listeners: list[Callable[[Entry], None]] = []
        history.on_entry = self._entered

    # Viewers

    @asynccontextmanager
    async def viewing(self) -> AsyncIterator[None]:
        """While a viewer is connected, the history is kept up to date."""
        self.viewers += 1
        try:
            await self._start()
            yield
        finally:
            self.viewers -= 1
            if not self.viewers and self._task is not None:
                self._leave_later()

    async def _start(self) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None
        if self._feed is not None and (self._task is None or self._task.done()):
            self._synced.clear()
            self._task = asyncio.ensure_future(self._run(self._feed))
        if self._task is not None and not self._synced.is_set():
            waiting = asyncio.ensure_future(self._synced.wait())
            await asyncio.wait([waiting, self._task], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
        self.flush()

    def _leave_later(self) -> None:
        def leave() -> None:
            self._leaving = None
            if not self.viewers and self._task is not None:
                self._task.cancel()
                self._task = None

        self._leaving = asyncio.get_running_loop().call_later(LEAVING_SECONDS, leave)

    async def _run(self, feed: Feed) -> None:
        self.problem = ""
        flushing = asyncio.ensure_future(self._flush_often())
        try:
            await feed.run(self.history, self._synced)
        except Exception as error:
            self.problem = str(error) or type(error).__name__
            _log.exception("the page no longer follows the cluster")
        finally:
            await cancel_all([flushing])

    async def close(self) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
        if self._task is not None:
            await cancel_all([self._task])

    # Following

    def _entered(self, entry: Entry) -> None:
        for listener in self.listeners:
            listener(entry)
        if isinstance(entry, Change) and entry.key[0] is Node and _is_new_layout(entry):
            self._layout = entry.seq

    async def _flush_often(self) -> None:
        await self._synced.wait()
        while True:
            self.flush()
            await asyncio.sleep(FLUSH_SECONDS)

    def flush(self) -> None:
        """Applies what happened, and wakes waiting viewers."""
        history, overview = self.history, self.overview
        if overview.seq != history.last:
            overview.move(history.last)
            for waiting in self._waiting:
                if not waiting.done():
                    waiting.set_result(None)
            self._waiting.clear()
        if self._feed is not None or not self.samples.items:
            self.samples.add(history, overview, history.now)

    @property
    def overview(self) -> Overview:
        """The nodes now."""
        if self._overview is None:
            self._overview = Overview(self.history, self._requests)
        return self._overview

    def overview_at(self, seq: int | None) -> Overview:
        """The nodes at a number; valid until the next call."""
        if seq is None or seq >= self.history.last:
            self.overview.move(self.history.last)
            return self.overview
        if self._past is None:
            self._past = Overview(self.history, self._requests, seq)
        self._past.move(self.history.clamp(seq))
        return self._past

    async def changed(self, after: int, seconds: float) -> bool:
        """Waits until there is something after a number. False: the timeout has passed."""
        if self.overview.seq > after:
            return True
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            await asyncio.wait_for(waiting, seconds)
        except TimeoutError:
            with suppress(ValueError):
                self._waiting.remove(waiting)
            return False
        return True

    def batch(self, after: int) -> dict[str, Any] | None:
        """What is different now from a number; None if that is too long ago."""
        overview, history = self.overview, self.history
        if after < history.dropped or after > history.last:
            return None
        found = self._batches.get((after, overview.seq))
        if found is None:
            if len(self._batches) > 50:
                self._batches.clear()
            found = self._batches[after, overview.seq] = self._make_batch(overview, after, overview.seq)
        return found

    def batch_between(self, after: int, seq: int) -> dict[str, Any]:
        """What is different at a number from an earlier or later one."""
        return self._make_batch(self.overview_at(seq), self.history.clamp(after), self.history.clamp(seq))

    def _make_batch(self, overview: Overview, after: int, seq: int) -> dict[str, Any]:
        history = self.history
        low, high = min(after, seq), max(after, seq)
        names: dict[str, None] = {}
        attempts: list[Attempt] = []
        for entry in history.entries(low, high):
            if isinstance(entry, Attempt):
                attempts.append(entry)
            else:
                names.update(dict.fromkeys(_nodes_of(entry)))
        if not self._resources or low < self._layout <= high:
            self._resources = overview.resources()
        rows = [row for name in names if (row := overview.row(name, self._resources)) is not None]
        return {
            "seq": seq,
            "time": history.time_of(seq),
            "layout": low < self._layout <= high,
            "nodes": rows,
            "decisions": [attempt_report(one) for one in attempts[-MAX_DECISIONS:]],
            "decisionsLeftOut": max(0, len(attempts) - MAX_DECISIONS),
            "totals": overview.totals(),
            "scheduled": history.scheduled,
            "failed": history.failed,
        }


def attempt_report(attempt: Attempt) -> dict[str, Any]:
    """An attempt as a value of the API."""
    return {
        "seq": attempt.seq,
        "time": attempt.time,
        "pod": attempt.pod,
        "result": attempt.result.value,
        "node": attempt.node,
        "message": attempt.message,
        "evaluated": attempt.evaluated,
        "feasible": attempt.feasible,
        "victims": list(attempt.victims),
        "waitedSeconds": round(attempt.waited, 3),
        "observed": attempt.observed,
    }


def _nodes_of(change: Change) -> list[str]:
    kind, key = change.key
    if kind is Node:
        return [key]
    if kind is not Pod:
        return []
    pods = (one for one in (change.before, change.after) if isinstance(one, Pod))
    return [pod.spec.node_name for pod in pods if pod.spec.node_name]


def _is_new_layout(change: Change) -> bool:
    before, after = change.before, change.after
    if not isinstance(before, Node) or not isinstance(after, Node):
        return True
    return (
        before.labels != after.labels
        or before.spec.taints != after.spec.taints
        or before.status.allocatable != after.status.allocatable
    )
