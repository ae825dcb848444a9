"""A waiting pod has one outcome: the first that is decided."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from bayplan.framework.status import Code, Status
from bayplan.scheduler.waiting import PreBinding, WaitingPod, WaitingPods
from bayplan.simulate.virtual_time import DeadlockError, run_virtual
from bayplan.testing.builders import make_pod

POD = make_pod("p")
SUCCESS = (Code.SUCCESS, "", "")

Act = Callable[[WaitingPod], object]


def summary(status: Status) -> tuple[Code, str, str]:
    return status.code, status.message, status.plugin


@pytest.mark.parametrize(
    ("acts", "outcome"),
    [
        pytest.param([lambda w: w.allow("A"), lambda w: w.allow("B")], SUCCESS, id="all allow it"),
        pytest.param(
            [lambda w: w.reject("A", "no"), lambda w: w.allow("A"), lambda w: w.allow("B")],
            (Code.UNSCHEDULABLE, "no", "A"),
            id="rejected before it is allowed",
        ),
        pytest.param(
            [lambda w: w.allow("A"), lambda w: w.allow("B"), lambda w: w.reject("A", "no")],
            SUCCESS,
            id="rejected too late",
        ),
        pytest.param(
            [lambda w: w.preempt("X", "preempted"), lambda w: w.reject("A", "no")],
            (Code.ERROR, "preempted", "X"),
            id="an earlier preemption counts",
        ),
        pytest.param(
            [lambda w: w.reject("A", "no"), lambda w: w.preempt("X", "preempted")],
            (Code.UNSCHEDULABLE, "no", "A"),
            id="a later preemption does not",
        ),
        pytest.param(
            [],
            (Code.UNSCHEDULABLE, "rejected due to timeout after waiting 1m30s at plugin B", "B"),
            id="time runs out",
        ),
        pytest.param(
            [lambda w: w.allow("B")],
            (Code.UNSCHEDULABLE, "rejected due to timeout after waiting 2m0s at plugin A", "A"),
            id="time runs out at the other plugin",
        ),
        pytest.param(
            [lambda w: w.allow("C")],
            (Code.UNSCHEDULABLE, "rejected due to timeout after waiting 1m30s at plugin B", "B"),
            id="a plugin allows it that did not return wait",
        ),
    ],
)
def test_the_first_outcome_wins(acts: list[Act], outcome: tuple[Code, str, str]) -> None:
    async def main() -> Status:
        waiting = WaitingPod(POD, "n", {"A": 120.0, "B": 90.0}, asyncio.get_running_loop())
        for act in acts:
            act(waiting)
        return await waiting.outcome()

    assert summary(run_virtual(main())) == outcome


def test_a_late_call_is_reported() -> None:
    async def main() -> list[bool]:
        waiting = WaitingPod(POD, "n", {"A": 60.0}, asyncio.get_running_loop())
        return [
            waiting.is_decided,
            waiting.reject("A", "no"),
            waiting.is_decided,
            waiting.reject("A", "no"),
            waiting.preempt("X", "preempted"),
        ]

    assert run_virtual(main()) == [False, True, True, False, False]


def test_no_timer_is_left_behind() -> None:
    """Each would keep a pod in memory for up to a quarter of an hour."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        waiting = WaitingPod(POD, "n", {"A": 600.0, "B": 900.0}, loop)
        waiting.reject("A", "no")
        await loop.create_future()

    with pytest.raises(DeadlockError, match="no timer is set"):
        run_virtual(main(), limit=1.0)


def test_the_plugins_that_are_waited_for_are_known() -> None:
    async def main() -> list[list[str]]:
        waiting = WaitingPod(POD, "n", {"A": 60.0, "B": 60.0}, asyncio.get_running_loop())
        before = waiting.pending_plugins
        waiting.allow("A")
        return [before, waiting.pending_plugins]

    assert run_virtual(main()) == [["A", "B"], ["B"]]


def test_a_pod_whose_binding_was_cancelled_is_not_bound() -> None:
    """Its siblings ask about it while the scheduler stops."""

    async def main() -> tuple[bool, str]:
        waiting = WaitingPod(POD, "n", {"A": 60.0}, asyncio.get_running_loop())
        binding = asyncio.ensure_future(waiting.outcome())
        await asyncio.sleep(0)
        binding.cancel()
        await asyncio.wait([binding])
        return waiting.is_rejected, waiting.message

    assert run_virtual(main()) == (True, "")


def test_waiting_pods_are_found_by_uid() -> None:
    async def main() -> None:
        pods = WaitingPods()
        one = WaitingPod(make_pod("p"), "n", {"A": 60.0}, asyncio.get_running_loop())
        two = WaitingPod(make_pod("q"), "n", {"A": 60.0}, asyncio.get_running_loop())
        pods.add(one)
        pods.add(two)
        assert pods.get("pod/default/p") is one
        assert list(pods) == [one, two]
        pods.remove("pod/default/p")
        pods.remove("pod/default/p")
        assert (len(pods), pods.get("pod/default/p")) == (1, None)

    run_virtual(main())


def test_a_deleted_pod_is_rejected_once() -> None:
    async def main() -> None:
        pods = WaitingPods()
        waiting = WaitingPod(POD, "n", {"A": 60.0}, asyncio.get_running_loop())
        pods.add(waiting)
        assert [pods.reject(uid) for uid in ("unknown", POD.uid, POD.uid)] == [False, True, False]
        assert summary(await waiting.outcome()) == (Code.UNSCHEDULABLE, "removed", "")

    run_virtual(main())


@pytest.mark.parametrize(
    ("acts", "answers", "cancelled"),
    [
        pytest.param(["finish"], [True], 0, id="not cancelled"),
        pytest.param(["cancel"], [True], 1, id="cancelled"),
        pytest.param(["cancel", "cancel"], [True, True], 1, id="cancelled twice, which is done once"),
        pytest.param(["cancel", "finish"], [True, False], 1, id="cancelled before it was through"),
        pytest.param(["finish", "cancel"], [True, False], 0, id="through before it was cancelled"),
    ],
)
def test_prebind_can_be_cancelled_until_it_is_through(
    acts: list[str], answers: list[bool], cancelled: int
) -> None:
    calls: list[str] = []
    pre_binding = PreBinding(lambda: calls.append("cancelled"))
    given = [
        pre_binding.cancel(f"cause {i}") if act == "cancel" else pre_binding.finish()
        for i, act in enumerate(acts)
    ]
    assert (given, len(calls)) == (answers, cancelled)
    assert pre_binding.cause == ("cause 0" if cancelled else "")
