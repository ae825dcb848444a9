"""Tests of whom the scheduler reports to."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.scheduler.observers import observed_by


class Broken:
    """Fails at the first decision."""

    def __init__(self) -> None:
        self.calls = 0

    def decided(self, decision: Any) -> None:
        self.calls += 1
        raise RuntimeError("broken")

    def progressed(self, progress: Any) -> None:
        self.calls += 1


class Listening:
    """Remembers everything."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def decided(self, decision: Any) -> None:
        self.seen.append(decision)

    def progressed(self, progress: Any) -> None:
        self.seen.append(progress)


def test_one_that_fails_is_not_called_again_and_the_others_are(caplog: pytest.LogCaptureFixture) -> None:
    broken, listening = Broken(), Listening()
    observers: Any = observed_by([broken, listening])
    observers.decided("a")
    observers.decided("b")
    assert listening.seen == ["a", "b"]
    assert broken.calls == 1
    assert caplog.text.count("it is not called any more") == 1


def test_nothing_is_called_without_observers() -> None:
    observers = observed_by([])
    assert (observers.decided, observers.progressed) == (None, None)
