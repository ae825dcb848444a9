"""A clock that jumps: nothing is skipped, nothing hangs, and the same again is the same."""

from __future__ import annotations

import asyncio
import random
import socket
import time

import pytest

from bayplan.simulate.virtual_time import (
    DeadlockError,
    VirtualLoop,
    VirtualTimeError,
    current_loop,
    quiescent,
    run_until_quiescent,
    run_virtual,
)


def test_an_hour_of_timers_takes_a_moment() -> None:
    async def main() -> float:
        for _ in range(3600):
            await asyncio.sleep(1)
        return current_loop().time()

    before = time.process_time()
    assert run_virtual(main()) == pytest.approx(3600)
    assert time.process_time() - before < 1


def test_wall_time_advances_with_the_loops_time() -> None:
    async def main() -> tuple[float, float]:
        await asyncio.sleep(2.5)
        return current_loop().time(), current_loop().wall_time()

    assert run_virtual(main(), start=1000.0) == (2.5, 1002.5)


def test_timers_fire_in_the_order_of_their_times() -> None:
    async def main() -> list[float]:
        resumed: list[float] = []

        async def sleeper(seconds: float) -> None:
            await asyncio.sleep(seconds)
            resumed.append(current_loop().time())

        await asyncio.gather(*(sleeper(seconds) for seconds in (7200, 0.001, 30, 100_000)))
        return resumed

    assert run_virtual(main()) == pytest.approx([0.001, 30, 7200, 100_000])


def test_the_clock_stops_while_there_is_work() -> None:
    async def main() -> float:
        timer = asyncio.create_task(asyncio.sleep(1))
        for _ in range(1000):
            await asyncio.sleep(0)
        now = current_loop().time()
        await timer
        return now

    assert run_virtual(main()) == 0


def test_time_outs_work() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(600):
                await asyncio.Event().wait()
        return current_loop().time()

    assert run_virtual(main()) == pytest.approx(600)


def test_the_same_seed_gives_the_same_order() -> None:
    def run(seed: int) -> list[tuple[float, int]]:
        async def main() -> list[tuple[float, int]]:
            rng = random.Random(seed)
            order: list[tuple[float, int]] = []

            async def worker(number: int) -> None:
                for _ in range(5):
                    await asyncio.sleep(rng.randint(0, 3))
                    order.append((current_loop().time(), number))

            await asyncio.gather(*(worker(number) for number in range(20)))
            return order

        return run_virtual(main())

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_a_deadlock_names_the_waiting_tasks() -> None:
    async def waits_in_vain(event: asyncio.Event) -> None:
        await event.wait()

    async def main() -> None:
        await asyncio.create_task(waits_in_vain(asyncio.Event()), name="hopeful")

    with pytest.raises(
        DeadlockError,
        match=r"no timer is set and 2 wait: .*hopeful in .*waits_in_vain \(test_.*Event.wait",
    ):
        run_virtual(main())


def test_what_was_left_running_is_cancelled() -> None:
    cancelled: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append("forever")

    async def main() -> None:
        current_loop().create_task(forever(), name="forever")
        await quiescent()

    run_virtual(main())
    assert cancelled == ["forever"]


def test_a_run_that_only_ticks_ends() -> None:
    """And what it does on being cancelled may take its time."""
    cancelled: list[str] = []

    async def main() -> None:
        try:
            while True:
                await asyncio.sleep(30)
        finally:
            await asyncio.sleep(30)
            cancelled.append("main")

    with pytest.raises(VirtualTimeError, match=r"not over after 3600 s of virtual time: 1 waits: .*main"):
        run_virtual(main(), limit=3600)
    assert cancelled == ["main"]


def test_a_run_in_which_time_does_not_advance_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bayplan.simulate.virtual_time.SPIN_LIMIT", 1000)

    cancelled: list[str] = []

    async def main() -> None:
        for _ in range(20):
            await domino([], "busy, but time advances", 900)
            await asyncio.sleep(1)
        try:
            while True:
                await asyncio.sleep(0)
        finally:
            cancelled.append("main")

    with pytest.raises(VirtualTimeError, match=r"1000 rounds of the loop, and it is still 20\.0 s: .*main"):
        run_virtual(main())
    assert cancelled == ["main"]


def test_there_are_no_sockets() -> None:
    async def main() -> None:
        left, right = socket.socketpair()
        left.setblocking(False)
        with left, right, pytest.raises(VirtualTimeError, match="no sockets"):
            await current_loop().sock_recv(left, 1)

    run_virtual(main())


def test_real_time_is_distinguished() -> None:
    async def main() -> None:
        current_loop()

    with pytest.raises(VirtualTimeError, match="run_virtual"):
        asyncio.run(main())


# Quiet


async def domino(log: list[str], name: str, rounds: int) -> None:
    """Yields to the loop a number of times, then writes its name."""
    for _ in range(rounds):
        await asyncio.sleep(0)
    log.append(name)


def test_quiescent_waits_for_all_that_can_run_now_and_for_no_timer() -> None:
    async def main() -> tuple[list[str], float]:
        log: list[str] = []
        loop = current_loop()
        loop.create_task(domino(log, "ready", 50))
        loop.call_later(0, log.append, "due")
        loop.call_later(0.5, log.append, "later")
        await quiescent()
        return log, loop.time()

    assert run_virtual(main()) == (["due", "ready"], 0)


def test_of_two_tasks_that_wait_for_quiet_one_resumes_at_a_time() -> None:
    async def main() -> list[str]:
        log: list[str] = []

        async def waiter(name: str) -> None:
            await quiescent()
            await domino(log, name, 5)

        await asyncio.gather(waiter("first"), waiter("second"))
        return log

    assert run_virtual(main()) == ["first", "second"]


def test_a_cancelled_wait_for_quiet_does_not_delay_others() -> None:
    async def main() -> float:
        task = asyncio.create_task(quiescent())
        await asyncio.sleep(0)
        task.cancel()
        await quiescent()
        assert task.cancelled()
        return current_loop().time()

    assert run_virtual(main()) == 0


def test_a_loop_runs_until_quiescent_from_outside() -> None:
    loop = VirtualLoop()
    log: list[str] = []
    try:
        loop.create_task(domino(log, "ready", 10))
        loop.call_later(1, log.append, "later")
        run_until_quiescent(loop)
        assert (log, loop.time()) == (["ready"], 0)
    finally:
        loop.close()
