"""The same traceback is logged once a minute."""

from __future__ import annotations

import asyncio
import logging

import pytest

from bayplan.plugin import CycleState, NodeInfo, NodePlugin, Pod, Status
from bayplan.runtime.failure_log import FailureLog, PluginFailure
from bayplan.scheduler.loop import Scheduler
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.simulate.virtual_time import current_loop, run_virtual
from bayplan.testing.builders import make_node, make_pod

LOG = logging.getLogger(__name__)


def test_each_traceback_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    failures = FailureLog()
    for pod, traceback, now in (
        ("a", "Traceback 1", 0),
        ("b", "Traceback 1", 10),
        ("c", "Traceback 2", 20),
        ("d", "Traceback 1", 59),
        ("e", "Traceback 1", 60),
        ("f", "Traceback 1", 121),
    ):
        failures.log(LOG, f"pod {pod}", traceback, now)
    assert caplog.messages == [
        "pod a\nTraceback 1",
        "pod c\nTraceback 2",
        "pod e (2 times more since it was last logged)\nTraceback 1",
        "pod f\nTraceback 1",
    ]


def test_the_text_of_the_exception_does_not_count(caplog: pytest.LogCaptureFixture) -> None:
    failures = FailureLog()
    for pod in ("a", "b"):
        for line in (7, 8):
            traceback = f'Traceback:\n  File "plugin.py", line {line}, in filter\nKeyError: {pod!r}'
            failures.log(LOG, f"pod {pod}, line {line}", traceback, 0)
    assert [text.partition("\n")[0] for text in caplog.messages] == ["pod a, line 7", "pod a, line 8"]


def test_without_a_traceback_the_message_counts(caplog: pytest.LogCaptureFixture) -> None:
    failures = FailureLog()
    for message in ("one", "two", "one"):
        failures.log(LOG, message, "", 5)
    assert caplog.messages == ["one", "two"]


def test_the_number_of_recorded_failures_is_limited(caplog: pytest.LogCaptureFixture) -> None:
    failures = FailureLog()
    for number in range(1001):
        failures.log(LOG, f"{number}", "", 0)
    failures.log(LOG, "0", "", 1)
    assert caplog.messages.count("0") == 2


def test_a_clock_that_starts_again(caplog: pytest.LogCaptureFixture) -> None:
    failures = FailureLog()
    failures.log(LOG, "one", "", 1000)
    failures.log(LOG, "one", "", 0)
    assert len(caplog.messages) == 2


def test_failures_are_collected_instead(caplog: pytest.LogCaptureFixture) -> None:
    failures = FailureLog()
    with failures.collected() as found:
        for message in ("one", "two"):
            failures.log(LOG, message, "Traceback")
        failures.log(LOG, "three")
        with failures.collected() as inner:
            failures.log(LOG, "four")
    assert list(found.values()) == [PluginFailure("one", "Traceback"), PluginFailure("three")]
    assert list(inner.values()) == [PluginFailure("four")]
    assert caplog.messages == []


class Failing(NodePlugin):
    def filter_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status | None:
        raise RuntimeError("not today")


def test_two_schedulers_do_not_hide_each_others_failures(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        running = []
        for _ in range(2):
            store = MemoryStore(clock=current_loop().wall_time)
            store.create(make_node("n"))
            store.create(make_pod("p"))
            running.append(asyncio.ensure_future(Scheduler(MemoryCluster(store), plugins=[Failing]).run()))
        await asyncio.sleep(5)
        for one in running:
            one.cancel()

    run_virtual(main())
    assert sum("not today" in message for message in caplog.messages) == 2
