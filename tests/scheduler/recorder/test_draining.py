"""Draining and closing a recorder, and events that are written together."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from bayplan.api.cluster_api import Event
from bayplan.scheduler import recorder as module
from bayplan.scheduler.recorder import MAX_COLLECTED, DiscardedEvents, EventRecorder
from bayplan.simulate.virtual_time import current_loop, run_virtual
from bayplan.testing.builders import make_pod

from .recording import PROFILE, SERVER, START, NoJitter, Sink, Story, at, play, record_pods


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
    """A virtual loop that has nothing to do raises; a timer or a task would keep it going."""

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


def test_a_burst_is_not_delayed() -> None:
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


def test_collected_events_are_sent_in_one_round_of_the_loop() -> None:
    """A round for each of them would cost more than the writes."""
    steps: list[str] = []

    class SlowSink(Sink):
        async def create_event(self, event: Event) -> None:
            asyncio.get_running_loop().call_soon(steps.append, "next round")
            steps.append(event.reason)
            await asyncio.sleep(1.0)

    play(SlowSink(), bound_at(1.0, 1.1, 1.2, 1.3), collect_seconds=0.5)
    assert steps == ["Scheduled", "next round", *["Scheduled"] * 3, *["next round"] * 3]


def test_another_writer_starts_only_for_a_write_that_waits() -> None:
    """A task costs as much as a write to a store in this process."""
    writers: set[object] = set()

    class Counting(Sink):
        async def create_event(self, event: Event) -> None:
            writers.add(asyncio.current_task())

    class Slow(Counting):
        async def create_event(self, event: Event) -> None:
            await super().create_event(event)
            await asyncio.sleep(1.0)

    async def story(recorder: EventRecorder) -> None:
        record_pods(recorder, 4)

    play(Counting(), story)
    assert len(writers) == 1
    writers.clear()
    play(Slow(), story)
    assert len(writers) == 4


def test_discarded_events_are_not_even_created() -> None:
    """The sink's methods would fail; an hour later nothing has been written or is left to do."""

    async def run() -> bool:
        loop = current_loop()
        recorder = EventRecorder(DiscardedEvents(), hostname="host", wall_time=loop.wall_time, rng=NoJitter())
        record_pods(recorder, 3)
        await asyncio.sleep(3600)
        await recorder.drain()
        return len(asyncio.all_tasks()) == 1

    assert run_virtual(run())
