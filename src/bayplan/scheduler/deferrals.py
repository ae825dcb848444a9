"""Defers changes of the columns while a cycle waits for an extender: it goes on with the same columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Generic

from bayplan.client.informer import Handler, ObjectT


class Deferrals:
    """Runs changes of the columns at once or, while paused, on `resume` in the same order."""

    __slots__ = ("_later", "paused")

    def __init__(self) -> None:
        self.paused = False
        self._later: list[Callable[[], None]] = []

    def run(self, change: Callable[[], None]) -> None:
        if self.paused:
            self._later.append(change)
        else:
            change()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        later, self._later = self._later, []
        for change in later:
            change()


class DeferredHandler(Generic[ObjectT]):
    """A handler of an informer that is called when the columns may change."""

    def __init__(self, handler: Handler[ObjectT], deferrals: Deferrals) -> None:
        self._handler = handler
        self._deferrals = deferrals

    def added(self, item: ObjectT) -> None:
        if self._deferrals.paused:
            self._deferrals.run(partial(self._handler.added, item))
        else:
            self._handler.added(item)

    def updated(self, old: ObjectT, new: ObjectT) -> None:
        if self._deferrals.paused:
            self._deferrals.run(partial(self._handler.updated, old, new))
        else:
            self._handler.updated(old, new)

    def deleted(self, item: ObjectT) -> None:
        self._deferrals.run(partial(self._handler.deleted, item))
