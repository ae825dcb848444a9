"""PreBind: work before a binding, one plugin after the other or in parallel."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bayplan.framework.status import SKIP, Code, Status, failure, unschedulable
from bayplan.testing.builders import make_node, make_pod

from .running import plugin, running, virtual
from .working import Works


@virtual
async def test_a_slow_prebind_does_not_delay_others() -> None:
    slow = Works(30, only="p")
    async with running(make_node("n"), make_pod("p"), make_pod("q"), plugins=[slow.named("X")]) as world:
        assert (world.node_of("p"), world.node_of("q")) == ("", "n")
        await world.after(30)
        assert world.node_of("p") == "n"


@virtual
async def test_the_status_of_a_pod_with_a_slow_prebind_has_its_expected_node() -> None:
    slow = Works(30)
    async with running(make_node("n"), make_pod("p"), plugins=[slow.named("X")]) as world:
        assert world.nominated("p") == "n"
        await world.after(30)
        assert (world.node_of("p"), world.nominated("p")) == ("n", "")


@virtual
async def test_no_expected_node_is_written_where_no_plugin_has_work_to_do() -> None:
    idle = Works(30, flight=SKIP)
    async with running(make_node("n"), make_pod("p"), plugins=[idle.named("X")]) as world:
        assert world.node_of("p") == "n"
        assert world.cluster.writes == [("bind", "p")]
        assert idle.lines == []


@virtual
async def test_an_expected_node_that_is_set_already_is_not_written() -> None:
    slow = Works(30)
    async with running(make_node("n"), make_pod("p", nominated_node="n"), plugins=[slow.named("X")]) as world:
        assert world.cluster.writes == []


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        pytest.param(failure("no map"), 'running PreBindPreFlight "X": no map', id="Error"),
        pytest.param(
            unschedulable("no map"),
            'PreBindPreFlight X returned "Unschedulable", which is unsupported. '
            "It is supposed to return Success, Skip, or Error status",
            id="Unschedulable is not supported",
        ),
        pytest.param(
            Status(Code.WAIT),
            'PreBindPreFlight X returned "Wait", which is unsupported. '
            "It is supposed to return Success, Skip, or Error status",
            id="Wait is not supported",
        ),
    ],
)
@virtual
async def test_a_preflight_that_fails_ends_the_attempt(answer: Status, text: str) -> None:
    work = Works(flight=answer)
    async with running(make_node("n"), make_pod("p"), plugins=[work.named("X")]) as world:
        assert world.condition("p") == ("False", "SchedulerError", text)
        assert world.sub_queue("p") == "backoff"
        assert work.lines == []


@virtual
async def test_a_rejection_by_prebind_is_reported_as_one_and_tried_again_like_an_error() -> None:
    """So late no pod is "unschedulable" any more: no event is waited for."""
    work = Works(answer=unschedulable("the volume is gone"))
    async with running(make_node("n"), make_pod("p"), plugins=[work.named("X")]) as world:
        assert world.condition("p") == ("False", "Unschedulable", "the volume is gone")
        assert world.sub_queue("p") == "backoff"
        await world.after(1)
        assert world.attempts("p") == 1
        await world.after(1)
        assert world.attempts("p") == 2


def timeline(*works: Works) -> list[tuple[float, str, str]]:
    """The calls with their times."""
    found = [
        (when, name, what) for name, work in zip("ABCD", works, strict=False) for when, what in work.lines
    ]
    return sorted(found, key=lambda line: line[0])


@pytest.mark.parametrize(
    ("parallel", "idle", "expected"),
    [
        pytest.param("", "", {"A": 0, "B": 1, "C": 2, "D": 3}, id="one after the other"),
        pytest.param("ABCD", "", {"A": 0, "B": 0, "C": 0, "D": 0}, id="all at once where all allow it"),
        pytest.param("ABD", "", {"A": 0, "B": 0, "C": 1, "D": 2}, id="one that does not is between"),
        pytest.param("ABD", "C", {"A": 0, "B": 0, "D": 1}, id="even if it has nothing to do"),
        pytest.param("ABCD", "B", {"A": 0, "C": 0, "D": 0}, id="an idle one that allows it does not"),
        pytest.param("BC", "", {"A": 0, "B": 1, "C": 1, "D": 2}, id="two in the middle"),
    ],
)
@virtual
async def test_which_prebinds_run_side_by_side(parallel: str, idle: str, expected: dict[str, float]) -> None:
    works = [Works(1, parallel=name in parallel, flight=SKIP if name in idle else None) for name in "ABCD"]
    plugins = [work.named(name) for name, work in zip("ABCD", works, strict=True)]
    async with running(make_node("n"), make_pod("p"), plugins=plugins) as world:
        await world.after(10)
        assert world.node_of("p") == "n"
        assert {name: when for when, name, what in timeline(*works) if what == "begins"} == expected


@pytest.mark.parametrize("built_in", [False, True], ids=["task", "eager"])
@virtual
async def test_the_first_prebind_that_fails_cancels_those_beside_it(built_in: bool) -> None:
    works = [
        Works(5, parallel=True, built_in=built_in),
        Works(2, failure("disk on fire"), parallel=True, built_in=built_in),
        Works(1, parallel=True, built_in=built_in),
        Works(1, built_in=built_in),
    ]
    plugins = [work.named(name) for name, work in zip("ABCD", works, strict=True)]
    async with running(make_node("n"), make_pod("p"), plugins=plugins) as world:
        await world.after(2)
        assert timeline(*works) == [
            (0, "A", "begins"),
            (0, "B", "begins"),
            (0, "C", "begins"),
            (1, "C", "ends"),
            (2, "A", "is cancelled"),
            (2, "B", "ends"),
        ]
        text = 'running PreBind plugin "B": disk on fire'
        assert world.condition("p") == ("False", "SchedulerError", text)


@virtual
async def test_two_prebinds_that_fail_at_once_are_one_failure(caplog: pytest.LogCaptureFixture) -> None:
    works = [Works(1, failure("no"), parallel=True), Works(1, failure("neither"), parallel=True)]
    plugins = [work.named(name) for name, work in zip("AB", works, strict=True)]
    async with running(make_node("n"), make_pod("p"), plugins=plugins) as world:
        await world.after(1)
        assert world.message("p") == 'running PreBind plugin "A": no'
    assert caplog.text == ""


@virtual
async def test_reserve_is_undone_only_after_every_prebind_has_ended() -> None:
    lines: list[str] = []

    async def cleans_up(*_: Any) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(1)
            lines.append("cleaned up")

    tidy = plugin(
        "Tidy",
        pre_binds_in_parallel=True,
        pre_bind_pre_flight=lambda *_: None,
        pre_bind=cleans_up,
        reserve=lambda *_: None,
        unreserve=lambda *_: lines.append("unreserved"),
    )
    broken = Works(2, failure("no"), parallel=True).named("Broken")
    async with running(make_node("n"), make_pod("p"), plugins=[tidy, broken]) as world:
        await world.after(3)
        assert lines == ["cleaned up", "unreserved"]
