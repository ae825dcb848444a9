"""Events are written once, repeats become series, and nothing that goes wrong comes back to the scheduler."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from bayplan.api.event import Event
from bayplan.api.meta import ObjectReference
from bayplan.api.pod import Pod
from bayplan.errors import APIError, ConflictError, NotFoundError, ServerError, UnknownOutcomeError
from bayplan.scheduler import recorder as module
from bayplan.scheduler.recorder import MAX_COLLECTED, MAX_WAITING, EventRecorder, reference, truncated
from bayplan.simulator.virtual_time import current_loop, quiescent, run_virtual
from bayplan.testing.builders import make_pod

PROFILE = "default-scheduler"
START = 1_700_000_000.0
MINUTE = 60.0
POD = make_pod("web", namespace="prod", uid="u1")

Write = tuple[float, str, int]
"""When, which verb, and the series' count (1: none)."""


class Sink:
    """Remembers what was written and answers with what it was told to."""

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


# What an event says


def said(tell: Callable[[EventRecorder], None]) -> Event:
    sink = Sink()

    async def story(recorder: EventRecorder) -> None:
        tell(recorder)

    play(sink, story)
    (event,) = sink.events
    return event


@pytest.mark.parametrize(
    ("tell", "expected"),
    [
        pytest.param(
            lambda r: r.scheduled(POD, "n1", PROFILE),
            ("Normal", "Scheduled", "Binding", "Successfully assigned prod/web to n1"),
            id="a pod is bound",
        ),
        pytest.param(
            lambda r: r.failed_scheduling(POD, "0/1 nodes are available: 50% of it", PROFILE),
            ("Warning", "FailedScheduling", "Scheduling", "0/1 nodes are available: 50% of it"),
            id="it does not fit, and a percent sign stays one",
        ),
        pytest.param(
            lambda r: r.skipped_deleting(POD, PROFILE),
            ("Warning", "FailedScheduling", "Scheduling", "skip schedule deleting pod: prod/web"),
            id="it is being deleted",
        ),
        pytest.param(
            lambda r: r.preempted(POD, make_pod(uid="u2"), "n1", PROFILE),
            ("Normal", "Preempted", "Preempting", "Preempted by pod u2 on node n1"),
            id="it has to make room",
        ),
        pytest.param(
            lambda r: r.preempted(POD, make_pod(uid="u2"), "n1", PROFILE, in_memory=True),
            (
                "Normal",
                "Preempted",
                "Preempting",
                "Preempted by pod u2 on node n1 (in kube-scheduler memory).",
            ),
            id="it has to make room before it was bound",
        ),
        pytest.param(
            lambda r: r.binding_conditions_pending(POD, "n1", PROFILE),
            (
                "Normal",
                "BindingConditionsPending",
                "Scheduling",
                "waiting for binding conditions for device on node n1",
            ),
            id="its devices are not ready",
        ),
    ],
)
def test_what_is_said(tell: Callable[[EventRecorder], None], expected: tuple[str, ...]) -> None:
    event = said(tell)
    assert (event.type, event.reason, event.action, event.note) == expected


def test_who_says_it_when_and_about_whom() -> None:
    event = said(lambda r: r.scheduled(POD, "n1", "mine"))
    assert event == Event(
        metadata=event.metadata,
        event_time=datetime.fromtimestamp(START, UTC),
        reporting_controller="mine",
        reporting_instance="mine-host",
        action="Binding",
        reason="Scheduled",
        regarding=ObjectReference(
            kind="Pod",
            api_version="v1",
            namespace="prod",
            name="web",
            uid="u1",
            resource_version=POD.metadata.resource_version,
        ),
        note="Successfully assigned prod/web to n1",
        type="Normal",
    )


@pytest.mark.parametrize(
    ("regarding", "name", "namespace"),
    [
        pytest.param(reference(POD), f"web.{int(START * 1e9):x}", "prod", id="object and nanoseconds in hex"),
        pytest.param(
            ObjectReference(kind="Node", name="n1"),
            f"n1.{int(START * 1e9):x}",
            "default",
            id="of an object without a namespace",
        ),
        pytest.param(
            ObjectReference(kind="Pod", name="x" * 250, namespace="prod"),
            "ff6f3ae4-c9ec-4ab7-9a42-67cc5fcbc9e6",
            "prod",
            id="made up where it would be too long",
        ),
    ],
)
def test_where_it_is_and_what_it_is_called(regarding: ObjectReference, name: str, namespace: str) -> None:
    class Chance(NoJitter):
        def getrandbits(self, k: int, /) -> int:
            return 0xFF6F3AE4C9ECFAB75A4267CC5FCBC9E6

    sink = Sink()

    async def story(recorder: EventRecorder) -> None:
        recorder.record(regarding, "Normal", "Reason", "Action", "note", PROFILE)

    play(sink, story, Chance())
    assert (sink.events[0].name, sink.events[0].namespace) == (name, namespace)


def test_two_events_of_one_moment_have_different_names() -> None:
    sink = Sink()

    async def story(recorder: EventRecorder) -> None:
        recorder.failed_scheduling(POD, "no", PROFILE)
        recorder.scheduled(POD, "n1", PROFILE)

    play(sink, story)
    first, second = (int(event.name.rpartition(".")[2], 16) for event in sink.events)
    assert second == first + 1


@pytest.mark.parametrize(
    ("note", "expected"),
    [
        pytest.param("a" * 1024, "a" * 1024, id="1024 bytes are not too many"),
        pytest.param("a" * 1025, "a" * 1020 + " ...", id="1025 are: 1020 and the dots are left"),
        pytest.param("ä" * 512, "ä" * 512, id="bytes count, and these are 1024"),
        pytest.param("a" + "ä" * 512, "a" + "ä" * 509 + " ...", id="half a character goes, too"),
        pytest.param("a" + "😀" * 256, "a" + "😀" * 254 + " ...", id="and so do three quarters"),
    ],
)
def test_long_notes_are_cut(note: str, expected: str) -> None:
    assert truncated(note) == expected


def test_notes_are_cut_when_they_are_recorded() -> None:
    assert said(lambda r: r.failed_scheduling(POD, "x" * 2000, PROFILE)).note == "x" * 1020 + " ..."


# Series


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
            id="forgetting waits for the next look, at twelve minutes",
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
            id="a series that goes on is written back every thirty minutes",
        ),
    ],
)
def test_repeats_become_series(moments: Sequence[float], writes: list[Write]) -> None:
    sink = Sink()
    play(sink, at(*moments))
    assert sink.writes == writes


def test_a_series_keeps_its_first_note_and_time_and_says_when_it_was_last_seen() -> None:
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


def test_too_many_to_remember_are_forgotten_early_but_series_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
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


# What goes wrong

SERVER, NO_ANSWER = ServerError("later", 503), UnknownOutcomeError("no answer")
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
            id="a last count that cannot be written is written at the next look",
        ),
        pytest.param(
            [None, FORBIDDEN], [(1, "patch", 2), (720, "patch", 2)], id="unless it is rejected: forgotten"
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


def test_an_event_that_waits_for_another_try_holds_nobody_up() -> None:
    sink = Sink(SERVER)

    async def story(recorder: EventRecorder) -> None:
        recorder.failed_scheduling(POD, "no", PROFILE)
        await asyncio.sleep(1)
        recorder.scheduled(POD, "n1", PROFILE)

    play(sink, story)
    assert [event.reason for event in sink.events] == ["FailedScheduling", "Scheduled", "FailedScheduling"]


# Many at once


class Stuck(Sink):
    """Never answers."""

    async def create_event(self, event: Event) -> None:
        await super().create_event(event)
        await asyncio.sleep(10_000)


def record_pods(recorder: EventRecorder, count: int) -> None:
    for i in range(count):
        recorder.scheduled(make_pod(f"p{i}", uid=f"u{i}"), "n1", PROFILE)


def test_more_than_a_thousand_waiting_events_are_dropped_and_counted() -> None:
    sink = Sink()

    async def story(recorder: EventRecorder) -> None:
        record_pods(recorder, MAX_WAITING + 7)

    recorder = play(sink, story)
    assert (len(sink.writes), recorder.dropped) == (MAX_WAITING, 7)


def test_how_many_were_dropped_stands_in_the_log_once_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
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


def test_a_dropped_event_is_not_remembered() -> None:
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


# The end


def test_draining_waits_for_what_is_queued_and_not_for_further_tries() -> None:
    class Slow(Sink):
        async def create_event(self, event: Event) -> None:
            await asyncio.sleep(2)
            await super().create_event(event)

    async def run() -> tuple[int, float]:
        loop = current_loop()
        sink = Slow(SERVER)
        recorder = EventRecorder(sink, hostname="host", wall_time=loop.wall_time, rng=NoJitter())
        record_pods(recorder, module.MAX_WRITERS + 4)
        await recorder.drain()
        recorder.close()
        return len(sink.writes), loop.time()

    # As many at once as there may be, then the other four.
    assert run_virtual(run()) == (module.MAX_WRITERS + 4, 4.0)


def test_nothing_is_left_to_do_for_a_recorder_that_was_closed() -> None:
    """A virtual loop that has nothing to do says so; a timer or a task would keep it going."""

    async def run() -> int:
        loop = current_loop()
        sink = Sink(SERVER, None)
        recorder = EventRecorder(sink, hostname="host", wall_time=loop.wall_time, rng=NoJitter())
        record_pods(recorder, 2)
        await recorder.drain()
        record_pods(recorder, 3)
        recorder.close()
        await asyncio.sleep(3600)
        return len(sink.writes)

    assert run_virtual(run()) == 2


# Writing together


def bound_at(*moments: float) -> Story:
    """Scheduled at these seconds, each of another pod."""

    async def story(recorder: EventRecorder) -> None:
        for number, moment in enumerate(moments):
            await asyncio.sleep(moment - asyncio.get_running_loop().time())
            recorder.scheduled(make_pod(f"p{number}", uid=f"u{number}"), "n1", PROFILE)

    return story


def test_events_that_follow_each_other_are_written_together() -> None:
    sink = Sink()
    play(sink, bound_at(1.0, 1.05, 1.1, 1.2, 1.45, 9.0), collect_seconds=0.5)
    assert [when for when, _, _ in sink.writes] == [1.0, 1.5, 1.5, 1.5, 1.5, 9.0]


def test_events_that_were_collected_have_their_own_times_and_order() -> None:
    sink = Sink()
    play(sink, bound_at(1.0, 1.1, 1.2), collect_seconds=0.5)
    assert [(event.regarding and event.regarding.name, event.event_time) for event in sink.events] == [
        (f"p{number}", datetime.fromtimestamp(START + second, UTC))
        for number, second in enumerate((1.0, 1.1, 1.2))
    ]


def test_a_burst_is_not_held_back() -> None:
    sink = Sink()
    play(sink, bound_at(*[1.0] * (MAX_COLLECTED + 2)), collect_seconds=0.5)
    # The first at once, then as many as are written together, and the last when its time has come.
    assert [when for when, _, _ in sink.writes] == [1.0] * (MAX_COLLECTED + 1) + [1.5]


def test_a_repeat_that_was_collected_is_counted_when_it_happened() -> None:
    sink = Sink()
    play(sink, at(1.0, 1.1, 1.2), collect_seconds=0.5)
    assert sink.writes[:2] == [(1.0, "create", 1), (1.5, "patch", 2)]
    series = sink.events[1].series
    assert series is not None
    assert series.last_observed_time == datetime.fromtimestamp(START + 1.1, UTC)


def test_draining_writes_what_was_collected() -> None:
    sink = Sink()

    async def story(recorder: EventRecorder) -> None:
        await bound_at(1.0, 1.1)(recorder)
        await recorder.drain()
        assert [when for when, _, _ in sink.writes] == [1.0, 1.1]

    play(sink, story, collect_seconds=0.5)
    assert len(sink.writes) == 2


def test_closing_gives_up_what_was_collected() -> None:
    sink = Sink()

    async def story(recorder: EventRecorder) -> None:
        await bound_at(1.0, 1.1)(recorder)
        recorder.close()

    play(sink, story, collect_seconds=0.5)
    assert [when for when, _, _ in sink.writes] == [1.0]
