"""Writes in steps, so that the long ones can run beside the event loop.

A write is a generator. What takes long for large objects and touches nothing but the object (copying,
defaults, validation, merging) is yielded as a function; what looks into the store or changes it runs between
the yields. Who calls from the event loop's thread runs everything at once, and nobody sees half of it. The
HTTP server runs the yielded functions for large objects in a thread (`http/turns.py`); the store may change
meanwhile, so a write checks after its last step that what it is based on is still there.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

R = TypeVar("R")
Steps = Generator[Callable[[], Any], Any, R]

ATTEMPTS: Final = 5
"""Of a write whose object is changed meanwhile; then it is a conflict. kube-apiserver tries a patch as
often."""


def at_once(steps: Steps[R]) -> R:
    """Runs all steps here and now."""
    try:
        step = next(steps)
        while True:
            step = steps.send(step())
    except StopIteration as end:
        result: R = end.value
        return result
