"""A sink that records writes, and recorders in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from bayplan.api.cluster_api import Event
from bayplan.api.pod import Pod
from bayplan.errors import ServerError, UnknownOutcomeError
from bayplan.scheduler.recorder import EventRecorder
from bayplan.simulate.virtual_time import current_loop, run_virtual
from bayplan.testing.builders import make_pod

PROFILE = "default-scheduler"


START = 1_700_000_000.0


MINUTE = 60.0


POD = make_pod("web", namespace="prod", uid="u1")


Write = tuple[float, str, int]
"""When, which verb, and the series' count (1: none)."""


class Sink:
    """Records what was written and gives the configured responses."""

    def __init__(self, *answers: Exception | None) -> None:
        self.writes: list[Write] = []
        self.events: list[Event] = []
        self._answers = list(answers)

    async def create_event(self, event: Event) -> None:
        self._write("create", event)

    async def patch_event(self, event: Event) -> None:
        self._write("patch", event)

    def _write(self, verb: str, event: Event) -> None:
        count = 1 if event.series is None else event.series.count
        self.writes.append((round(asyncio.get_running_loop().time(), 6), verb, count))
        self.events.append(event)
        answer = self._answers.pop(0) if self._answers else None
        if answer is not None:
            raise answer


Story = Callable[[EventRecorder], Awaitable[None]]


class NoJitter(random.Random):
    def random(self) -> float:
        return 0.0


def play(
    sink: Any, story: Story, rng: random.Random | None = None, collect_seconds: float = 0.0
) -> EventRecorder:
    """Runs a story in virtual time, and what the recorder does after it, for two hours."""

    async def run() -> EventRecorder:
        loop = current_loop()
        recorder = EventRecorder(
            sink,
            hostname="host",
            wall_time=loop.wall_time,
            rng=NoJitter() if rng is None else rng,
            collect_seconds=collect_seconds,
        )
        await story(recorder)
        await asyncio.sleep(120 * MINUTE)
        recorder.close()
        return recorder

    return run_virtual(run(), start=START)


def at(*moments: float, pod: Pod = POD) -> Story:
    """FailedScheduling at these seconds."""

    async def story(recorder: EventRecorder) -> None:
        for moment in moments:
            await asyncio.sleep(moment - asyncio.get_running_loop().time())
            recorder.failed_scheduling(pod, f"reason {moment}", PROFILE)

    return story


SERVER, NO_ANSWER = ServerError("later", 503), UnknownOutcomeError("no answer")


def record_pods(recorder: EventRecorder, count: int) -> None:
    for i in range(count):
        recorder.scheduled(make_pod(f"p{i}", uid=f"u{i}"), "n1", PROFILE)
