"""PreEnqueue: which plugin gates a pod, and what is recorded of it."""

from __future__ import annotations

import logging

import pytest

from bayplan.api.pod import Pod
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.status import Code, Status
from bayplan.scheduling_queue.queued import QueueCounts, QueuedPod, QueueObserver
from bayplan.scheduling_queue.sub_queues import PreEnqueue
from bayplan.testing.builders import make_pod
from bayplan.testing.calling import make_plugin

from .queues import PROFILE, Gate, OtherGate, make_profile


def queued(profile: str = PROFILE) -> QueuedPod:
    return QueuedPod(make_pod("p", scheduler_name=profile), "default/p", 0.0, 0)


@pytest.mark.parametrize(
    ("code", "admitted"),
    [
        pytest.param(Code.SUCCESS, True, id="success admits it"),
        pytest.param(Code.UNSCHEDULABLE, False, id="a rejection keeps it out"),
        pytest.param(Code.UNRESOLVABLE, False, id="so does one that nothing resolves"),
        pytest.param(Code.PENDING, False, id="so does pending"),
        pytest.param(Code.WAIT, False, id="so does an answer that is invalid here"),
        pytest.param(Code.ERROR, False, id="so does an error"),
    ],
)
def test_answers(code: Code, admitted: bool) -> None:
    assert PreEnqueue([make_profile(Gate({"p"}, code))]).run(queued()) is admitted


def test_a_plugin_that_raises_keeps_the_pod_out(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Plugin):
        def pre_enqueue(self, pod: Pod) -> Status | None:
            raise RuntimeError("no idea")

    info = queued()
    with caplog.at_level(logging.ERROR):
        assert not PreEnqueue([make_profile(make_plugin(Broken))]).run(info)
    assert info.gating_plugin == "Broken"
    assert (
        'pod default/p stays gated: running PreEnqueue plugin "Broken": RuntimeError: no idea' in caplog.text
    )


def test_a_profile_without_gates_admits_all() -> None:
    assert PreEnqueue([make_profile()]).run(queued())


def test_only_the_plugins_of_the_pods_own_profile_are_run() -> None:
    ours, theirs = Gate(), Gate({"p"})
    gates = PreEnqueue([make_profile(ours), make_profile(theirs, name="other")])
    assert gates.run(queued())
    assert (ours.calls, theirs.calls) == (["p"], [])


def test_the_first_rejection_ends_it() -> None:
    first, second = Gate({"p"}), OtherGate({"p"})
    info = queued()
    PreEnqueue([make_profile(first, second)]).run(info)
    assert (info.gating_plugin, second.calls) == ("Gate", [])


def test_the_plugin_that_gated_the_pod_is_run_first() -> None:
    first, second = Gate(), OtherGate({"p"})
    gates, info = PreEnqueue([make_profile(first, second)]), queued()
    gates.run(info)
    gates.run(info)
    assert (first.calls, second.calls) == (["p"], ["p", "p"])


def test_a_plugin_that_no_longer_gates_the_pod_still_counts_as_a_rejector() -> None:
    """So its events still requeue the pod, which does not count as one whose attempt ended with an error."""
    gate, info = Gate({"p"}), queued()
    gates = PreEnqueue([make_profile(gate)])
    gates.run(info)
    gate.closed.clear()
    assert gates.run(info)
    assert (info.gating_plugin, set(info.rejectors)) == ("", {"Gate"})


def test_a_gated_pod_counts_as_rejected_by_each_plugin_once() -> None:
    counts, first, second = QueueCounts(), Gate({"p"}), OtherGate({"p"})
    gates, info = PreEnqueue([make_profile(first, second)], counts), queued()
    gates.run(info)
    gates.run(info)
    assert counts.unschedulable_pods == {("Gate", PROFILE): 1}
    first.closed.clear()
    gates.run(info)
    assert counts.unschedulable_pods == {("Gate", PROFILE): 1, ("OtherGate", PROFILE): 1}


def test_being_gated_ends_being_flushed() -> None:
    info = queued()
    info.was_flushed = True
    PreEnqueue([make_profile(Gate({"p"}))]).run(info)
    assert not info.was_flushed


class Stopwatch(QueueObserver):
    """Each reading of the clock takes a second."""

    def __init__(self, samples: bool) -> None:
        self.recorded: list[tuple[str, ...]] = []
        self._samples = samples
        self._seconds = 0.0

    def clock(self) -> float:
        self._seconds += 1
        return self._seconds

    def samples_plugins(self) -> bool:
        return self._samples

    def pre_enqueue(self, profile: str, seconds: float) -> None:
        self.recorded.append((profile, f"{seconds:.0f}s"))

    def pre_enqueue_plugin(self, plugin: str, status: str, seconds: float) -> None:
        self.recorded.append((plugin, status, f"{seconds:.0f}s"))


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        pytest.param(False, [(PROFILE, "1s")], id="as a whole each time"),
        pytest.param(
            True,
            [("Gate", "Success", "1s"), ("OtherGate", "UnschedulableAndUnresolvable", "1s"), (PROFILE, "5s")],
            id="one by one where it requests that",
        ),
    ],
)
def test_an_observer_is_reported_how_long_it_took(samples: bool, expected: list[tuple[str, ...]]) -> None:
    stopwatch = Stopwatch(samples)
    PreEnqueue([make_profile(Gate(), OtherGate({"p"}))], stopwatch).run(queued())
    assert stopwatch.recorded == expected
