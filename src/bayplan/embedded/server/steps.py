"""Writes in steps, so that the long ones can run beside the event loop.

A write is a generator. What is slow for large objects and uses nothing but the object (copying, defaults,
validation, merging) is yielded as a function; code that reads or writes the store runs between the yields. A
caller in the event loop's thread runs all steps at once, so that the write is atomic. The HTTP server runs
the yielded functions for large objects in a thread (`http/turns.py`); the store may change meanwhile, so a
write checks after its last step that the version it is based on is still current.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

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
