"""What waits while a scheduling cycle waits for an extender: everything that would change the columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Generic

from bayplan.client.informer import Handler, ObjectT


class Changes:
    """Changes of the columns, made at once or, while they are held up, in the end and in the same order."""

    __slots__ = ("_later", "held_up")

    def __init__(self) -> None:
        self.held_up = False
        self._later: list[Callable[[], None]] = []

    def make(self, change: Callable[[], None]) -> None:
        if self.held_up:
            self._later.append(change)
        else:
            change()

    def hold_up(self) -> None:
        self.held_up = True

    def go_on(self) -> None:
        self.held_up = False
        later, self._later = self._later, []
        for change in later:
            change()


class Deferring(Generic[ObjectT]):
    """A handler that is told of what happened when it may change the columns."""

    def __init__(self, handler: Handler[ObjectT], changes: Changes) -> None:
        self._handler = handler
        self._changes = changes

    def added(self, item: ObjectT) -> None:
        if self._changes.held_up:
            self._changes.make(partial(self._handler.added, item))
        else:
            self._handler.added(item)

    def updated(self, old: ObjectT, new: ObjectT) -> None:
        if self._changes.held_up:
            self._changes.make(partial(self._handler.updated, old, new))
        else:
            self._handler.updated(old, new)

    def deleted(self, item: ObjectT) -> None:
        self._changes.make(partial(self._handler.deleted, item))
