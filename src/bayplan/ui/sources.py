"""Histories from files, simulations and recordings: complete before the first viewer connects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bayplan.answers.sources.loaded import LoadedCluster, Origin
from bayplan.api.cluster_api import ClusterAPI
from bayplan.api.meta import Object
from bayplan.api.releases import DEFAULT_RELEASE, RELEASES
from bayplan.process.history import Change, History
from bayplan.process.recording import read_recording
from bayplan.scheduler.cycle import Decision
from bayplan.scheduler.waiting import BindingProgress
from bayplan.simulate.scenarios.reading import read_scenario
from bayplan.simulate.scenarios.run import simulate
from bayplan.ui.hub import ClusterFeed, Hub
from bayplan.ui.questions import Subject

MAX_ENTRIES = 500_000
"""Of a simulation or a recording, where nothing else needs the memory."""


def from_loaded(loaded: LoadedCluster, clock: Callable[[], float]) -> tuple[Subject, Hub]:
    """A cluster that was read from files or a snapshot: a history without entries."""
    history = History(clock)
    history.begin((*loaded.objects, *(loaded.pods or ())))
    subject = subject_of(loaded, "files")
    return subject, Hub(history, loaded.release.accounting.assigned_requests)


def subject_of(loaded: LoadedCluster, kind: str) -> Subject:
    """The subject of the page for a cluster that was loaded."""
    return Subject(
        loaded.name,
        kind,
        loaded.release,
        loaded.config,
        loaded.plugins,
        loaded.origin,
        loaded.listed,
        loaded.server_version,
        loaded.warnings,
        loaded.reload,
    )


def from_recording(path: Path, settings: LoadedCluster) -> tuple[Subject, Hub]:
    """A recording, with the scheduler settings of a cluster without objects."""
    header, entries = read_recording(path)
    release = RELEASES.get(header.release, DEFAULT_RELEASE)
    now = header.time
    history = History(lambda: now, max_entries=MAX_ENTRIES)
    subject = replace(
        subject_of(settings, "recording"), name=header.name or path.name, release=release, origin=Origin.LIVE
    )
    hub = Hub(history, release.accounting.assigned_requests)
    first: list[Object] = []
    has_begun = False
    for entry in entries:
        if isinstance(entry, float | int):
            now, has_begun = float(entry), True
            history.begin(first)
            hub.flush()
        elif not has_begun:
            if isinstance(entry, Change) and entry.after is not None:
                first.append(entry.after)
        else:
            now = max(now, entry.time)
            if isinstance(entry, Change) and entry.after is None and entry.key not in history.objects:
                continue
            history.restore(entry)
            _sample(hub, now)
    if not has_begun:
        history.begin(first)
    _sample(hub, now, always=True)
    return subject, hub


class _Watcher:
    """Fills a history from a simulation (`simulate(watcher=…)`)."""

    def __init__(
        self, kinds: Sequence[type[Object]], release_requests: Callable[..., dict[str, int]]
    ) -> None:
        self._kinds = kinds
        self._requests = release_requests
        self.hub: Hub | None = None

    async def run(self, api: ClusterAPI, clock: Callable[[], float]) -> None:
        from contextlib import asynccontextmanager

        @asynccontextmanager
        async def connect():  # type: ignore[no-untyped-def]
            yield api

        history = History(clock, max_entries=MAX_ENTRIES)
        self.hub = hub = Hub(history, self._requests)
        hub.listeners.append(lambda entry: _sample(hub, entry.time))
        feed = ClusterFeed(connect, self._kinds, lambda history: lambda: None)
        await feed.run(history, asyncio.Event())

    def decided(self, decision: Decision) -> None:
        if self.hub is not None:
            self.hub.history.decided(decision)

    def progressed(self, progress: BindingProgress) -> None:
        if self.hub is not None:
            self.hub.history.progressed(progress)


def _sample(hub: Hub, time: float, *, always: bool = False) -> None:
    history = hub.history
    if always or hub.samples.is_due(time):
        hub.overview.move(history.last)
        hub.samples.add(history, hub.overview, time)


def from_scenario(path: Path, settings: LoadedCluster, kinds: Sequence[type[Object]]) -> tuple[Subject, Hub]:
    """A simulation, run to its end in virtual time."""
    loaded = read_scenario(path, settings.objects)
    release = settings.release
    watcher = _Watcher(kinds, release.accounting.assigned_requests)
    finished = simulate(
        loaded, config=settings.config, plugins=settings.plugins, release=release, watcher=watcher
    )
    assert watcher.hub is not None
    hub = watcher.hub
    hub.listeners.clear()
    last = hub.history.time_of(hub.history.last)
    hub.history.stop_clock(last)
    _sample(hub, last, always=True)
    del finished
    subject = replace(subject_of(settings, "simulation"), name=loaded.scenario.metadata.name or path.name)
    return replace(subject, origin=Origin.LIVE), hub
