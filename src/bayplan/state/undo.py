"""An undo log: the steps that revert the changes of a cluster, last change first.

A what-if question changes the cluster and reverts all changes afterwards. Copying 5,000 nodes and 50,000 pods
would take a second; the cost of the undo log is proportional to the changes. While it records, every verb of
the cluster adds the step that reverts it. Steps also restore the order of nodes, of the pods on a node and of
objects, because ties and victims depend on it. They are ordinary changes on the clock, so cached results stay
correct.
"""

from __future__ import annotations

from collections.abc import Callable


class UndoLog:
    """The steps that revert the changes since the oldest mark. Nothing is recorded without a mark."""

    __slots__ = ("_marks", "_steps", "active")

    def __init__(self) -> None:
        self.active = False
        """Whether changes are recorded: check it before you build a step."""
        self._steps: list[Callable[[], object]] = []
        self._marks: list[int] = []

    def __len__(self) -> int:
        """How many steps are recorded."""
        return len(self._steps)

    def record(self, step: Callable[[], object]) -> None:
        """Adds a step that reverts a change. It runs when all later changes are reverted."""
        self._steps.append(step)

    def mark(self) -> None:
        """Changes from now on can be reverted. Marks nest."""
        self._marks.append(len(self._steps))
        self.active = True

    def revert(self) -> None:
        """Reverts everything since the last mark, and removes that mark."""
        start = self._marks.pop()
        self.active = False
        steps = self._steps
        try:
            while len(steps) > start:
                steps.pop()()
        finally:
            self.active = bool(self._marks)

    def keep(self) -> None:
        """Removes the last mark and keeps the changes since: an outer mark can still revert them."""
        self._marks.pop()
        self.active = bool(self._marks)
        if not self._marks:
            self._steps.clear()
