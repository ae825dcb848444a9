"""Writes that fail, are slow, or are too many."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from bayplan.api.cluster_api import Event
from bayplan.errors import APIError, ConflictError, NotFoundError
from bayplan.scheduler import recorder as module
from bayplan.scheduler.recorder import MAX_WAITING, EventRecorder
from bayplan.simulate.virtual_time import quiescent

from .recording import NO_ANSWER, POD, PROFILE, SERVER, Sink, Write, at, play, record_pods

NOT_FOUND, EXISTS, FORBIDDEN = NotFoundError("gone"), ConflictError("exists"), APIError("no", 403)


@pytest.mark.parametrize(
    ("answers", "writes", "lost"),
    [
        pytest.param([SERVER], [(0, "create", 1), (10, "create", 1)], (0, 0), id="a server that cannot now"),
        pytest.param([NO_ANSWER], [(0, "create", 1), (10, "create", 1)], (0, 0), id="no answer"),
        pytest.param(
            [NO_ANSWER, EXISTS],
            [(0, "create", 1), (10, "create", 1)],
            (0, 0),
            id="no answer though it was written",
        ),
        pytest.param([FORBIDDEN], [(0, "create", 1)], (1, 0), id="a rejection is final"),
        pytest.param([RuntimeError("a bug")], [(0, "create", 1)], (1, 0), id="and so is a bug"),
        pytest.param(
            [SERVER] * 20,
            [(10.0 * i, "create", 1) for i in range(12)],
            (0, 1),
            id="after twelve tries it is given up",
        ),
    ],
)
def test_a_new_event_that_cannot_be_written(
    answers: Sequence[Exception], writes: list[Write], lost: tuple[int, int]
) -> None:
    sink = Sink(*answers)
    recorder = play(sink, at(0))
    assert (sink.writes, (recorder.rejected, recorder.given_up)) == (writes, lost)


@pytest.mark.parametrize(
    ("answers", "writes"),
    [
        pytest.param(
            [NOT_FOUND],
            [(1, "patch", 2), (1, "create", 2), (720, "patch", 2)],
            id="not found: it is created, with its series",
        ),
        pytest.param(
            [NOT_FOUND, EXISTS],
            [(1, "patch", 2), (1, "create", 2), (11, "patch", 2), (720, "patch", 2)],
            id="not found, then there: it is tried again",
        ),
        pytest.param(
            [SERVER], [(1, "patch", 2), (11, "patch", 2), (720, "patch", 2)], id="a server that cannot now"
        ),
        pytest.param([FORBIDDEN], [(1, "patch", 2), (720, "patch", 2)], id="a rejection"),
        pytest.param(
            [None, SERVER],
            [(1, "patch", 2), (720, "patch", 2), (1080, "patch", 2)],
            id="a last count that cannot be written is written at the next flush",
        ),
        pytest.param(
            [None, FORBIDDEN], [(1, "patch", 2), (720, "patch", 2)], id="unless it is rejected: dropped"
        ),
    ],
)
def test_a_series_that_cannot_be_written(answers: Sequence[Exception | None], writes: list[Write]) -> None:
    sink = Sink(None, *answers)
    play(sink, at(0, 1))
    assert sink.writes == [(0, "create", 1), *writes]


def test_tries_are_10_to_12_and_a_half_seconds_apart() -> None:
    sink = Sink(*[SERVER] * 11)
    play(sink, at(0), random.Random(5))
    moments = [moment for moment, _, _ in sink.writes]
    waits = [after - before for before, after in pairwise(moments)]
    assert (len(waits), min(waits) >= 10, max(waits) <= 12.5, len(set(waits))) == (11, True, True, 11)


def test_an_event_that_waits_for_another_try_does_not_delay_others() -> None:
    sink = Sink(SERVER)

    async def story(recorder: EventRecorder) -> None:
        recorder.failed_scheduling(POD, "no", PROFILE)
        await asyncio.sleep(1)
        recorder.scheduled(POD, "n1", PROFILE)

    play(sink, story)
    assert [event.reason for event in sink.events] == ["FailedScheduling", "Scheduled", "FailedScheduling"]


class Stuck(Sink):
    """Never answers."""

    async def create_event(self, event: Event) -> None:
        await super().create_event(event)
        await asyncio.sleep(10_000)


def test_more_than_a_thousand_waiting_events_are_dropped_and_counted() -> None:
    sink = Sink()

    async def story(recorder: EventRecorder) -> None:
        record_pods(recorder, MAX_WAITING + 7)

    recorder = play(sink, story)
    assert (len(sink.writes), recorder.dropped) == (MAX_WAITING, 7)


def test_the_number_of_dropped_events_is_logged_once_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    async def story(recorder: EventRecorder) -> None:
        for more in (7, 3):
            record_pods(recorder, MAX_WAITING + more)
            await quiescent()

    play(Sink(), story)
    assert caplog.messages == [
        *[
            f"more than {MAX_WAITING} events are waiting to be written, dropping more",
            "7 events were dropped, 7 since the start",
        ],
        *[
            f"more than {MAX_WAITING} events are waiting to be written, dropping more",
            "3 events were dropped, 10 since the start",
        ],
    ]


def test_events_that_wait_for_another_try_count_too() -> None:
    sink = Sink(*[SERVER] * MAX_WAITING)

    async def story(recorder: EventRecorder) -> None:
        record_pods(recorder, MAX_WAITING)
        await quiescent()
        recorder.scheduled(POD, "n1", PROFILE)

    assert play(sink, story).dropped == 1


def test_a_dropped_event_is_not_kept_for_a_series() -> None:
    sink = Sink()

    async def story(recorder: EventRecorder) -> None:
        record_pods(recorder, MAX_WAITING)
        recorder.scheduled(POD, "n1", PROFILE)
        await quiescent()
        recorder.scheduled(POD, "n1", PROFILE)

    play(sink, story)
    assert sink.writes[-1] == (0, "create", 1)


def test_repeats_of_a_series_need_no_place_in_the_queue() -> None:
    sink = Sink()

    async def story(recorder: EventRecorder) -> None:
        recorder.failed_scheduling(POD, "no", PROFILE)
        recorder.failed_scheduling(POD, "no", PROFILE)
        await quiescent()
        record_pods(recorder, MAX_WAITING)
        recorder.failed_scheduling(POD, "no", PROFILE)

    recorder = play(sink, story)
    assert (recorder.dropped, sink.writes[-1]) == (0, (720, "patch", 3))


def test_a_few_slow_writes_are_under_way_at_once() -> None:
    sink = Stuck()

    async def story(recorder: EventRecorder) -> None:
        record_pods(recorder, 100)
        await quiescent()

    play(sink, story)
    assert len(sink.writes) == module.MAX_WRITERS
