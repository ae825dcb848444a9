"""What is reported of a pod between the decision and the binding."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bayplan.framework.plugin_api import Plugin, Wait
from bayplan.framework.status import failure, unschedulable
from bayplan.scheduler.waiting import BindingProgress, BindingStep
from bayplan.testing.builders import make_node, make_pod
from tests.locations import without_location

from .running import plugin, running, virtual

Short = tuple[BindingStep, str, tuple[str, ...], str]


def short(progress: BindingProgress) -> Short:
    assert (progress.pod.name, progress.node_name) == ("p", "n")
    reason = without_location(progress.reason) if "ValueError" in progress.reason else progress.reason
    return progress.step, progress.point, progress.plugins, reason


async def _stops(*_: Any) -> Any:
    return unschedulable("not here")


async def _fails(*_: Any) -> Any:
    raise ValueError("no disk")


WAITING: Short = (BindingStep.WAITING, "Permit", ("A",), "")


@pytest.mark.parametrize(
    ("plugins", "reported"),
    [
        pytest.param([], [(BindingStep.BOUND, "", (), "")], id="bound"),
        pytest.param(
            [plugin("A", permit=lambda *_: unschedulable("not now"))],
            [(BindingStep.REJECTED, "Permit", ("A",), "not now")],
            id="rejected at Permit",
        ),
        pytest.param(
            [plugin("A", reserve=lambda *_: failure("no room"), unreserve=lambda *_: None)],
            [(BindingStep.FAILED, "Reserve", (), 'running Reserve plugin "A": no room')],
            id="an error at Reserve",
        ),
        pytest.param(
            [plugin("A", permit=lambda *_: Wait(5))],
            [
                WAITING,
                (
                    BindingStep.REJECTED,
                    "Permit",
                    ("A",),
                    "rejected due to timeout after waiting 5s at plugin A",
                ),
            ],
            id="rejected after waiting",
        ),
        pytest.param(
            [plugin("A", pre_bind_pre_flight=lambda *_: None, pre_bind=_stops)],
            [(BindingStep.REJECTED, "PreBind", ("A",), "not here")],
            id="rejected at PreBind",
        ),
        pytest.param(
            [plugin("A", pre_bind_pre_flight=lambda *_: None, pre_bind=_fails)],
            [(BindingStep.FAILED, "PreBind", (), 'running PreBind plugin "A": ValueError: no disk')],
            id="an error at PreBind",
        ),
    ],
)
@virtual
async def test_progress_is_reported_as_it_happens(plugins: list[type[Plugin]], reported: list[Short]) -> None:
    seen: list[BindingProgress] = []
    async with running(make_node("n"), make_pod("p"), plugins=plugins, on_binding=seen.append):
        await asyncio.sleep(6)
        assert [short(progress) for progress in seen][: len(reported)] == reported
