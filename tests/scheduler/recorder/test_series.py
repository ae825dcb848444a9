"""Repeated events become series."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import pytest

from bayplan.api.cluster_api import Event
from bayplan.api.meta import ObjectReference
from bayplan.scheduler import recorder as module
from bayplan.scheduler.recorder import EventRecorder, reference
from bayplan.simulate.virtual_time import quiescent
from bayplan.testing.builders import make_pod

from .recording import POD, PROFILE, START, Sink, Write, at, play


@pytest.mark.parametrize(
    ("moments", "writes"),
    [
        pytest.param([0], [(0, "create", 1)], id="one event is one write"),
        pytest.param(
            [0, 1],
            [(0, "create", 1), (1, "patch", 2), (720, "patch", 2)],
            id="a repeat makes a series, which is written again when it was quiet for six minutes",
        ),
        pytest.param(
            [0, 1, 2, 3],
            [(0, "create", 1), (1, "patch", 2), (720, "patch", 4)],
            id="more repeats are only counted",
        ),
        pytest.param(
            [0, 360],
            [(0, "create", 1), (360, "patch", 2), (1080, "patch", 2)],
            id="after exactly six minutes it is still a repeat",
        ),
        pytest.param(
            [0, 719, 721],
            [(0, "create", 1), (719, "patch", 2), (1440, "patch", 3)],
            id="dropping waits for the next scan, at twelve minutes",
        ),
        pytest.param(
            [0, 721],
            [(0, "create", 1), (721, "create", 1)],
            id="then a repeat is a new event",
        ),
        pytest.param(
            [0, 1, 721, 722],
            [
                *[(0, "create", 1), (1, "patch", 2), (720, "patch", 2)],
                *[(721, "create", 1), (722, "patch", 2), (1440, "patch", 2)],
            ],
            id="and so it is after a finished series",
        ),
        pytest.param(
            [*range(0, 2400, 300)],
            [(0, "create", 1), (300, "patch", 2), (1800, "patch", 6), (2520, "patch", 8)],
            id="a series that continues is written back every thirty minutes",
        ),
    ],
)
def test_repeats_become_series(moments: Sequence[float], writes: list[Write]) -> None:
    sink = Sink()
    play(sink, at(*moments))
    assert sink.writes == writes


def test_a_series_keeps_its_first_note_and_time_and_has_the_time_of_the_last() -> None:
    sink = Sink()
    play(sink, at(0, 1, 2.5))
    last = sink.events[-1]
    assert last.series is not None
    assert (last.name, last.note, last.event_time, last.series.last_observed_time) == (
        sink.events[0].name,
        "reason 0",
        datetime.fromtimestamp(START, UTC),
        datetime.fromtimestamp(START + 2.5, UTC),
    )


@pytest.mark.parametrize(
    ("again", "verb"),
    [
        pytest.param(lambda r: r.failed_scheduling(POD, "another", PROFILE), "patch", id="another note"),
        pytest.param(lambda r: r.failed_scheduling(POD, "no", "mine"), "create", id="another profile"),
        pytest.param(lambda r: r.scheduled(POD, "n1", PROFILE), "create", id="another reason"),
        pytest.param(
            lambda r: r.failed_scheduling(make_pod("web", namespace="prod", uid="u9"), "no", PROFILE),
            "create",
            id="another pod of that name",
        ),
        pytest.param(
            lambda r: r.record(
                ObjectReference(
                    kind="Pod",
                    api_version="v1",
                    namespace="prod",
                    name="web",
                    uid="u1",
                    resource_version="another",
                ),
                *("Warning", "FailedScheduling", "Scheduling", "no", PROFILE),
            ),
            "create",
            id="another resourceVersion",
        ),
        pytest.param(
            lambda r: r.record(
                reference(POD),
                *("Warning", "FailedScheduling", "Scheduling", "no", PROFILE),
                related=reference(make_pod("x")),
            ),
            "create",
            id="another related object",
        ),
    ],
)
def test_what_makes_events_equal(again: Callable[[EventRecorder], None], verb: str) -> None:
    sink = Sink()

    async def story(recorder: EventRecorder) -> None:
        recorder.failed_scheduling(POD, "no", PROFILE)
        await asyncio.sleep(1)
        again(recorder)

    play(sink, story)
    assert sink.writes[:2] == [(0, "create", 1), (1, verb, 2 if verb == "patch" else 1)]


def test_a_repeat_while_the_last_count_is_written_keeps_the_series() -> None:
    class Slow(Sink):
        async def patch_event(self, event: Event) -> None:
            await super().patch_event(event)
            if len(self.writes) > 2:
                await asyncio.sleep(10)

    sink = Slow()
    play(sink, at(0, 1, 725, 726))
    assert sink.writes == [
        *[(0, "create", 1), (1, "patch", 2), (720, "patch", 2)],
        *[(1440, "patch", 4)],
    ]


def test_beyond_the_maximum_events_are_dropped_early_but_series_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_REMEMBERED", 4)
    sink = Sink()
    pods = [make_pod(f"p{i}", uid=f"u{i}") for i in range(5)]

    async def story(recorder: EventRecorder) -> None:
        recorder.failed_scheduling(pods[0], "no", PROFILE)
        for pod in pods:
            recorder.failed_scheduling(pod, "no", PROFILE)
        await quiescent()
        sink.writes.clear()
        for pod in (pods[0], pods[1], pods[4]):
            recorder.failed_scheduling(pod, "no", PROFILE)
        await quiescent()

    play(sink, story)
    assert [(verb, count) for moment, verb, count in sink.writes if moment == 0] == [
        ("create", 1),
        ("patch", 2),
    ]
