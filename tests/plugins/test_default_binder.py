"""DefaultBinder: binds through the handle, and every failure is an error of this pod alone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

import pytest

from bayplan.api.releases import DEFAULT_RELEASE
from bayplan.errors import UnknownOutcomeError
from bayplan.plugin import CycleState, Handle, Pod, Status, annotate_binding, failure
from bayplan.plugins.default_binder import NO_HANDLE, DefaultBinder
from bayplan.testing.builders import make_pod

from .evaluating import points


class FakeHandle:
    """Records what was bound, or fails."""

    release = DEFAULT_RELEASE

    def __init__(self, error: Exception | None = None) -> None:
        self.bound: list[tuple[str, str]] = []
        self.annotations: Mapping[str, str] | None = None
        self._error = error

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str] | None = None) -> None:
        if self._error is not None:
            raise self._error
        self.bound.append((pod.key, node_name))
        self.annotations = annotations


def bind(handle: FakeHandle | None) -> Status | None:
    binder = DefaultBinder(handle=cast(Handle, handle))
    return asyncio.run(binder.bind(CycleState(), make_pod("web"), "n1"))


def test_its_points_are_upstreams() -> None:
    assert points(DefaultBinder) == {"Bind"}


def test_binds() -> None:
    handle = FakeHandle()
    assert (bind(handle), handle.bound) == (None, [("default/web", "n1")])


def test_sends_the_annotations_of_other_plugins() -> None:
    handle, state = FakeHandle(), CycleState()
    annotate_binding(state, {"gpu": "0"})
    annotate_binding(state, {"zone": "a", "gpu": "1"})
    asyncio.run(DefaultBinder(handle=cast(Handle, handle)).bind(state, make_pod("web"), "n1"))
    assert handle.annotations == {"gpu": "1", "zone": "a"}


def test_what_fails_is_left_to_the_scheduler() -> None:
    """It has to find out whether the pod may have been bound all the same."""
    with pytest.raises(UnknownOutcomeError):
        bind(FakeHandle(UnknownOutcomeError("no answer")))


def test_without_a_handle_nothing_can_be_bound() -> None:
    assert bind(None) == failure(NO_HANDLE)
