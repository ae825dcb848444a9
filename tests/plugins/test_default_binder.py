"""DefaultBinder: binds through the handle, and every failure is an error of this pod alone."""

from __future__ import annotations

import asyncio

import pytest

from bayplan.errors import UnknownOutcomeError
from bayplan.plugin import CycleState, Pod, Status, annotate_binding
from bayplan.plugins.default_binder import DefaultBinder
from bayplan.testing.builders import make_pod
from bayplan.testing.calling import FakeHandle

from .evaluating import points


def bind(handle: FakeHandle, state: CycleState | None = None) -> Status | None:
    binder = DefaultBinder(None, handle)
    return asyncio.run(binder.bind(state or CycleState(), make_pod("web"), "n1"))


def test_its_points_are_upstreams() -> None:
    assert points(DefaultBinder) == {"Bind"}


def test_binds() -> None:
    handle = FakeHandle()
    assert bind(handle) is None
    assert [(pod.key, node) for pod, node, _ in handle.bound] == [("default/web", "n1")]


def test_sends_the_annotations_of_other_plugins() -> None:
    handle, state = FakeHandle(), CycleState()
    annotate_binding(state, {"gpu": "0"})
    annotate_binding(state, {"zone": "a", "gpu": "1"})
    bind(handle, state)
    assert handle.bound[0][2] == {"gpu": "1", "zone": "a"}


def test_what_fails_is_left_to_the_scheduler() -> None:
    """It has to find out whether the pod may have been bound all the same."""

    class Fails(FakeHandle):
        async def bind(self, pod: Pod, node_name: str, annotations: object = None) -> None:
            raise UnknownOutcomeError("no answer")

    with pytest.raises(UnknownOutcomeError):
        bind(Fails())
