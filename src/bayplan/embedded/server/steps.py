"""Large requests in steps, so that nothing else waits for them.

This server runs in one event loop, together with the scheduler and the controllers. A list of 100,000 objects
or a body of 3 MB would delay all of them. Pure functions of a body run in a thread, which gets at most half
of the interpreter's time; work on many objects is split into steps.

A write is a generator. What is slow for large objects and uses nothing but the object (copying, defaults,
validation, merging) is yielded as a function; code that reads or writes the store runs between the yields. A
caller in the event loop's thread runs all steps at once (`at_once`), so that the write is atomic. The HTTP
server runs the yielded functions for large objects in a thread (`in_threads`); the store may change
meanwhile, so a write checks after its last step that the version it is based on is still current.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from bayplan.embedded.server.statuses import UnavailableError

P = ParamSpec("P")
R = TypeVar("R")
Steps = Generator[Callable[[], Any], Any, R]

ATTEMPTS: Final = 5
"""Attempts of a write whose object changes meanwhile; then it is a conflict. kube-apiserver has the same
number."""


def at_once(steps: Steps[R]) -> R:
    """Runs all steps in this thread."""
    try:
        step = next(steps)
        while True:
            step = steps.send(step())
    except StopIteration as end:
        result: R = end.value
        return result


def atomic(write: Callable[P, Steps[R]]) -> Callable[P, R]:
    """The same write with all steps at once."""

    @wraps(write)
    def at_once_(*args: P.args, **keywords: P.kwargs) -> R:
        return at_once(write(*args, **keywords))

    return at_once_


T = TypeVar("T")

STEP_SECONDS: Final = 0.005
"""After this time other tasks run."""
MAX_BYTES: Final = 16 * 1024
"""Size up to which JSON is processed in the event loop: this takes a few milliseconds."""
MAX_YAML_BYTES: Final = 4 * 1024
"""The same for YAML, which takes twenty times as long."""

_CHECKED_EVERY: Final = 16
_WRITE_SECONDS: Final = 0.00025
"""CPU time to encrypt and send a piece of a response."""
_workers: Final = ThreadPoolExecutor(max_workers=2, thread_name_prefix="large-requests")


_yaml_worker: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large-yaml")
_yaml_waiting = 0
MAX_YAML_WAITING: Final = 4


async def in_thread_if(is_large: bool, function: Callable[[], R]) -> R:
    """The result of a function without access to the server's state; it runs in a thread if it takes long."""
    if not is_large:
        return function()
    return await asyncio.get_running_loop().run_in_executor(_workers, function)


async def in_yaml_queue(function: Callable[[], R]) -> R:
    """The same for a large body of YAML: one at a time, so that other large requests do not wait for them.

    Raises:
        UnavailableError: too many wait already; 429.
    """
    global _yaml_waiting
    if _yaml_waiting >= MAX_YAML_WAITING:
        message = "too many large bodies of YAML are waiting: try again later, or send JSON"
        details = {"retryAfterSeconds": 1}
        raise UnavailableError(message, 429, reason="TooManyRequests", details=details)
    _yaml_waiting += 1
    try:
        return await asyncio.get_running_loop().run_in_executor(_yaml_worker, function)
    finally:
        _yaml_waiting -= 1


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
    """The results for all items. The store may change between two of them."""
    results: list[R] = []
    started = time.perf_counter()
    for item in items:
        results.append(function(item))
        if not len(results) % _CHECKED_EVERY and time.perf_counter() - started > STEP_SECONDS:
            await asyncio.sleep(0)
            started = time.perf_counter()
    return results


async def paced(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    """The pieces of a response. Other tasks run when producing and writing pieces has taken long enough.

    They do not run after each piece: in a busy process they take long, and a list may have a hundred pieces.
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
