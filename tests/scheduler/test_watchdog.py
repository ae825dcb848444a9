"""A cycle that takes too long is logged while it runs, with its pod and the plugin that takes the time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import pytest

from bayplan.framework.plugin_api import NodePlugin
from bayplan.plugin import NodeInfo, Pod
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.watchdog import Watchdog
from bayplan.testing.builders import make_node, make_pod


class Slow(NodePlugin):
    """Computes until it is told that this was noticed."""

    until: Callable[[], bool] = staticmethod(lambda: True)

    def filter_node(self, pod: Pod, node: NodeInfo) -> None:
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
    assert caplog.messages == [
        "scheduling pod default/p takes longer than 0.02 s, now in filter_node of plugin Slow"
    ]


def test_a_loop_that_does_nothing_is_not_too_slow(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), Watchdog(0.01):
        time.sleep(0.1)
    assert caplog.messages == []
