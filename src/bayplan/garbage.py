"""Holds the garbage collector back where it would search many objects that stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

NEW_OBJECTS: Final = 5_000
"""How many objects are made between two searches of new objects: Python's number is 700.

It searches all objects once in a hundred such searches, if a quarter of them came since the last time. That
finds next to no garbage, because what belongs to pods has no cycles, and took 12 µs a pod in large clusters.
"""


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """No search for garbage in this block: it would find none, and take a tenth to a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def leave_out_old_objects() -> None:
    """From now on searches for garbage leave out the objects that exist, and are rarer."""
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)


@contextmanager
def old_objects_left_out() -> Iterator[None]:
    """Searches for garbage in this block leave out the objects that exist before it, and are rarer.

    A block inside another, or in a process that has left out its objects for good, adds nothing to that.
    """
    gc.collect()
    if gc.get_freeze_count():
        yield
        return
    before = gc.get_threshold()
    leave_out_old_objects()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
