"""Coroutines beside the loop: run at once up to their first wait, and nothing they raise is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from bayplan.framework.status import is_cancelled, running_task
from bayplan.scheduler.tasks import Parking, Tasks
from bayplan.simulate.virtual_time import quiescent, run_virtual

EAGER = pytest.mark.parametrize("eager", [True, False], ids=["at once", "as a task"])


def in_tasks(eager: bool, test: Callable[[Tasks], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await test(Tasks(asyncio.get_running_loop(), eager=eager))

    run_virtual(main())


def test_what_need_not_wait_is_done_at_once() -> None:
    async def test(tasks: Tasks) -> None:
        done: list[int] = []

        async def work() -> None:
            done.append(1)

        tasks.start(work(), "work of", "p")
        assert (done, len(tasks)) == ([1], 0)

    in_tasks(True, test)


def test_without_running_ahead_everything_is_a_task() -> None:
    async def test(tasks: Tasks) -> None:
        done: list[int] = []

        async def work() -> None:
            done.append(1)

        tasks.start(work(), "work of", "p")
        assert (done, len(tasks)) == ([], 1)
        await tasks.drain()
        assert (done, len(tasks)) == ([1], 0)

    in_tasks(False, test)


def test_deferred_work_is_done_before_anything_that_is_started_later() -> None:
    async def test(tasks: Tasks) -> None:
        lines: list[str] = []

        async def work(name: str) -> None:
            lines.append(name)

        tasks.defer(work("first"), "work of", "first")
        tasks.defer(work("second"), "work of", "second")
        assert (lines, len(tasks)) == ([], 2)
        tasks.start(work("third"), "work of", "third")
        assert (lines, len(tasks)) == (["first", "second", "third"], 0)
        tasks.defer(work("fourth"), "work of", "fourth")
        assert len(tasks.deferred) == 1
        tasks.run_deferred()
        assert (tasks.deferred, lines[3:]) == ([], ["fourth"])

    in_tasks(True, test)


def test_deferred_work_is_never_begun_after_cancel() -> None:
    async def test(tasks: Tasks) -> None:
        lines: list[str] = []

        async def work() -> None:
            lines.append("begun")

        tasks.defer(work(), "work of", "p")
        await tasks.cancel()
        tasks.run_deferred()
        assert (len(tasks), lines) == (0, [])

    in_tasks(True, test)


@EAGER
def test_a_waiting_task_resumes_with_the_result(eager: bool) -> None:
    async def test(tasks: Tasks) -> None:
        lines: list[str] = []
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def work() -> None:
            lines.append("waits")
            lines.append(await answer)
            await asyncio.sleep(5)
            lines.append("is through")

        tasks.start(work(), "work of", "p")
        await quiescent()
        assert lines == ["waits"]
        answer.set_result("resumes")
        await quiescent()
        assert lines == ["waits", "resumes"]
        await tasks.drain()
        assert lines == ["waits", "resumes", "is through"]

    in_tasks(eager, test)


@EAGER
def test_a_task_may_continue_after_an_exception(eager: bool) -> None:
    async def test(tasks: Tasks) -> None:
        lines: list[str] = []
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def work() -> None:
            try:
                await answer
            except ValueError as error:
                lines.append(str(error))
            await asyncio.sleep(1)
            lines.append("is through")

        tasks.start(work(), "work of", "p")
        await quiescent()
        answer.set_exception(ValueError("no"))
        await tasks.drain()
        assert lines == ["no", "is through"]

    in_tasks(eager, test)


@EAGER
@pytest.mark.parametrize("waits", [False, True], ids=["before it waits", "after it has waited"])
def test_what_it_raises_is_logged_with_what_it_was_about(
    eager: bool, waits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(tasks: Tasks) -> None:
        async def work() -> None:
            if waits:
                await asyncio.sleep(1)
            raise RuntimeError("lost the thread")

        tasks.start(work(), "binding of pod", "default/p")
        await tasks.drain()
        await quiescent()
        assert len(tasks) == 0

    in_tasks(eager, test)
    assert "binding of pod default/p failed" in caplog.text
    assert "RuntimeError: lost the thread" in caplog.text


@EAGER
def test_cancelling_stops_all_tasks_after_their_cleanup(
    eager: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(tasks: Tasks) -> None:
        lines: list[str] = []

        async def work(name: str) -> None:
            try:
                await asyncio.sleep(60)
            finally:
                lines.append(name)

        for name in "ab":
            tasks.start(work(name), "work of", name)
        await quiescent()
        await tasks.cancel()
        assert (sorted(lines), len(tasks)) == (["a", "b"], 0)
        assert asyncio.get_running_loop().time() == 0.0

    in_tasks(eager, test)
    assert caplog.text == ""


@EAGER
def test_a_call_in_a_task_does_not_run_in_the_task_of_the_caller(eager: bool) -> None:
    async def test(tasks: Tasks) -> None:
        found: list[object] = []

        async def call(value: str, *, suffix: str) -> str:
            found.append(asyncio.current_task())
            return value + suffix

        async def work() -> None:
            found.append(await tasks.in_task(call)("o", suffix="k"))

        tasks.start(work(), "work of", "p")
        await tasks.drain()
        task, result = found
        assert isinstance(task, asyncio.Task)
        assert task is not asyncio.current_task()
        assert result == "ok"

    in_tasks(eager, test)


def test_cancelling_without_tasks_does_nothing() -> None:
    async def test(tasks: Tasks) -> None:
        await tasks.cancel()
        await tasks.drain()

    in_tasks(True, test)


@EAGER
def test_tasks_that_tasks_start_are_waited_for(eager: bool) -> None:
    async def test(tasks: Tasks) -> None:
        lines: list[str] = []

        async def second() -> None:
            await asyncio.sleep(1)
            lines.append("second")

        async def first() -> None:
            await asyncio.sleep(1)
            tasks.start(second(), "work of", "second")
            lines.append("first")

        tasks.start(first(), "work of", "first")
        await tasks.drain()
        assert lines == ["first", "second"]

    in_tasks(eager, test)


@EAGER
def test_what_is_parked_goes_on_when_it_may(eager: bool) -> None:
    async def test(tasks: Tasks) -> None:
        done: list[str] = []
        parking: Parking[str] = Parking(loop=asyncio.get_running_loop())

        async def work() -> None:
            done.append(await parking)
            await asyncio.sleep(1)
            done.append("end")

        tasks.start(work(), "work of", "p")
        await quiescent()
        assert (done, len(tasks)) == ([], 1)
        assert len(asyncio.all_tasks()) == (1 if eager else 2), "this one, and the work if it is a task"
        parking.set_result("begin")
        await quiescent()
        assert done == ["begin"]
        await tasks.drain()
        assert (done, len(tasks)) == (["begin", "end"], 0)

    in_tasks(eager, test)


def test_what_is_parked_when_everything_ends_never_goes_on() -> None:
    async def test(tasks: Tasks) -> None:
        lines: list[str] = []
        parking: Parking[None] = Parking(loop=asyncio.get_running_loop())

        async def work() -> None:
            try:
                await parking
                lines.append("went on")
            finally:
                lines.append("ended")

        tasks.start(work(), "work of", "p")
        await tasks.cancel()
        parking.set_result(None)
        await quiescent()
        assert (lines, len(tasks)) == (["ended"], 0)

    in_tasks(True, test)


@EAGER
def test_work_that_got_a_task_while_it_waited_is_cancelled_with_it(eager: bool) -> None:
    """Its first step may have run in another task, which goes on."""

    async def test(tasks: Tasks) -> None:
        seen: list[bool] = []

        async def work() -> None:
            begun_in = running_task()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError as error:
                seen.append(is_cancelled(error, begun_in))

        task = tasks.begin(work())
        assert task is not None
        await asyncio.sleep(0)
        task.cancel()
        await task
        assert seen == [True]

    in_tasks(eager, test)


def test_of_work_that_is_run_together_only_so_much_is_begun_at_a_time() -> None:
    async def test(tasks: Tasks) -> None:
        begun: list[int] = []
        gates = [asyncio.Event() for _ in range(5)]

        async def work(number: int) -> int:
            begun.append(number)
            await gates[number].wait()
            return number * number

        together = asyncio.ensure_future(tasks.together([work(number) for number in range(5)], 2))
        await quiescent()
        assert begun == [0, 1]
        gates[1].set()
        await quiescent()
        assert begun == [0, 1, 2]
        for gate in gates:
            gate.set()
        assert await together == [0, 1, 4, 9, 16]

    in_tasks(False, test)


@EAGER
def test_nothing_to_run_together_has_no_results(eager: bool) -> None:
    async def test(tasks: Tasks) -> None:
        assert await tasks.together([], 2) == []

    in_tasks(eager, test)
