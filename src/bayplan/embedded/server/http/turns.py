"""Large requests, without making others wait: work in steps, or in a thread.

Everything else of this server runs in one event loop, together with the scheduler and the controllers. A list
of 100,000 objects or a body of three megabytes would hold all of them up. Pure functions of a body go to a
thread, which gets at most half of the interpreter's time; work on many objects is cut into steps.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from bayplan.embedded.server.steps import Steps

T = TypeVar("T")
R = TypeVar("R")

STEP_SECONDS: Final = 0.005
"""After this time others get their turn."""
MAX_BYTES: Final = 16 * 1024
"""JSON that is parsed, checked and changed at once: a few milliseconds' work."""
MAX_YAML_BYTES: Final = 4 * 1024
"""YAML takes twenty times as long."""

_CHECKED_EVERY: Final = 16
_WRITE_SECONDS: Final = 0.00025
"""Of CPU, to encrypt and send a piece of an answer."""
_workers: Final = ThreadPoolExecutor(max_workers=2, thread_name_prefix="large-requests")


async def in_thread_if(is_large: bool, function: Callable[[], R]) -> R:
    """The result of a function that touches nothing of the server's; made in a thread if it takes long."""
    if not is_large:
        return function()
    return await asyncio.get_running_loop().run_in_executor(_workers, function)


async def in_threads(steps: Steps[R]) -> R:
    """The result of a write whose long steps run in threads."""
    value: Any = None
    try:
        while True:
            value = await in_thread_if(True, steps.send(value))
    except StopIteration as end:
        result: R = end.value
        return result


async def in_steps(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """The results for all items. Between two of them anything may happen to the store."""
    results: list[R] = []
    started = time.perf_counter()
    for item in items:
        results.append(function(item))
        if not len(results) % _CHECKED_EVERY and time.perf_counter() - started > STEP_SECONDS:
            await asyncio.sleep(0)
            started = time.perf_counter()
    return results


async def paced(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    """The pieces of an answer. Others get their turn when making and writing them has taken long enough.

    Not after each piece: in a busy process others take long, and a list has a hundred pieces.
    """
    spent, remaining = 0.0, iter(pieces)
    while True:
        started = time.perf_counter()
        piece = next(remaining, None)
        if piece is None:
            return
        spent += time.perf_counter() - started + _WRITE_SECONDS
        yield piece
        if spent > STEP_SECONDS:
            await asyncio.sleep(0)
            spent = 0.0
