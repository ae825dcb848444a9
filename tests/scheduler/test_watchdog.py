"""A cycle that takes too long is logged while it runs, with its pod and the plugin that takes the time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import pytest

from bayplan.framework.plugin_api import NodePlugin
from bayplan.plugin import Cluster, CycleState, NodeInfo, Pod
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.observing import Watchdog
from bayplan.testing.builders import make_node, make_pod
from bayplan.testing.calling import make_plugin
from tests.locations import without_location


class Slow(NodePlugin):
    """Computes until the watchdog has reported it."""

    until: Callable[[], bool] = staticmethod(lambda: True)

    def filter_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> None:
        deadline = time.monotonic() + 20
        while not self.until() and time.monotonic() < deadline:
            time.sleep(0.001)


def test_a_slow_plugin_is_named(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Slow, "until", staticmethod(lambda: bool(caplog.messages)))
    core = SchedulingCore(plugins=[Slow])
    core.load([make_node("n")])
    with caplog.at_level(logging.WARNING), Watchdog(0.02) as watchdog:
        for name in ("p", "q"):
            watchdog.pod = pod = make_pod(name)
            core.decide(pod)
            watchdog.pod = None
    assert [without_location(message) for message in caplog.messages] == [
        "scheduling pod default/p takes longer than 0.02 s, now in filter_node of plugin Slow"
    ]


def test_a_plugin_that_blocks_outside_a_cycle_is_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reserve, Permit, a hint, or a PreBind that does not await."""
    monkeypatch.setattr(Slow, "until", staticmethod(lambda: bool(caplog.messages)))

    class Blocks(Slow):
        def reserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
            self.filter_node(state, pod, NodeInfo(Cluster(), 0, ()))

    with caplog.at_level(logging.WARNING), Watchdog(0.02):
        for _ in range(2):
            make_plugin(Blocks).reserve(CycleState(), make_pod("p"), "n")
    assert [without_location(message) for message in caplog.messages] == [
        "the scheduler has been blocked for more than 0.02 s, now in filter_node of plugin Blocks"
    ]


def test_a_loop_that_does_nothing_is_not_too_slow(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), Watchdog(0.01):
        time.sleep(0.1)
    assert caplog.messages == []
