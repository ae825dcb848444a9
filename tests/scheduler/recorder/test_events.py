"""The contents of recorded events."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from bayplan.api.cluster_api import Event
from bayplan.api.meta import ObjectReference
from bayplan.scheduler.recorder import EventRecorder, reference, truncated
from bayplan.testing.builders import make_pod

from .recording import POD, PROFILE, START, NoJitter, Sink, play


def recorded(record: Callable[[EventRecorder], None]) -> Event:
    sink = Sink()

    async def story(recorder: EventRecorder) -> None:
        record(recorder)

    play(sink, story)
    (event,) = sink.events
    return event


@pytest.mark.parametrize(
    ("record", "expected"),
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
def test_reason_action_and_note(record: Callable[[EventRecorder], None], expected: tuple[str, ...]) -> None:
    event = recorded(record)
    assert (event.type, event.reason, event.action, event.note) == expected


def test_reporter_time_and_object() -> None:
    event = recorded(lambda r: r.scheduled(POD, "n1", "mine"))
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
        pytest.param("a" + "ä" * 512, "a" + "ä" * 509 + " ...", id="half a character is cut, too"),
        pytest.param("a" + "😀" * 256, "a" + "😀" * 254 + " ...", id="and so do three quarters"),
    ],
)
def test_long_notes_are_cut(note: str, expected: str) -> None:
    assert truncated(note) == expected


def test_notes_are_cut_when_they_are_recorded() -> None:
    assert recorded(lambda r: r.failed_scheduling(POD, "x" * 2000, PROFILE)).note == "x" * 1020 + " ..."
