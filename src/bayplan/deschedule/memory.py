"""What became of earlier moves, so that no pod is moved to and fro.

Two rules, both by the owner of a pod and its template, because such pods are interchangeable and their names
change:

- A pod is not moved to a node that a pod of its owner was moved away from.
- A replacement that did not get the node of the plan *came back*: its owner is tried again after a pause,
  which doubles each time.

So without changes from outside the moves end: every move of an owner's pod goes to a node that the owner has
not left yet. All is forgotten when the set of nodes changes or the process restarts, and the part of the
owner that was least recently moved when there are too many. Pods of a new template begin without a past;
those of the old one, which may exist side by side for long, keep theirs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

MAX_OWNERS: Final = 10_000
FIRST_PAUSE_SECONDS: Final = 300.0
MAX_PAUSE_SECONDS: Final = 6 * 3600.0


@dataclass(slots=True)
class _Owner:
    left: set[str] = field(default_factory=set)
    """The nodes that its pods were moved away from."""
    returns: int = 0
    paused_until: float = 0.0


@dataclass(slots=True)
class Memory:
    """Bounded; not persistent."""

    max_owners: int = MAX_OWNERS
    _nodes: frozenset[str] = frozenset()
    _owners: OrderedDict[tuple[str, int], _Owner] = field(default_factory=OrderedDict)

    def set_nodes(self, names: Iterable[str]) -> None:
        """Forgets everything if the set of nodes is another one."""
        nodes = frozenset(names)
        if nodes != self._nodes:
            self._nodes = nodes
            self._owners.clear()

    def has_left(self, owner: str, template: int, node: str) -> bool:
        found = self._find(owner, template)
        return found is not None and node in found.left

    def pause(self, owner: str, template: int, now: float) -> tuple[int, float] | None:
        """How often the owner's pods came back and until when it is left alone; None: it is not paused."""
        found = self._find(owner, template)
        if found is None or found.paused_until <= now:
            return None
        return found.returns, found.paused_until

    def moved(self, owner: str, template: int, source: str) -> None:
        """A pod of the owner was moved away from a node."""
        self._make(owner, template).left.add(source)

    def came_back(self, owner: str, template: int, now: float) -> float:
        """A replacement did not get its node. Returns the pause in seconds."""
        found = self._make(owner, template)
        pause = min(FIRST_PAUSE_SECONDS * 2.0 ** min(found.returns, 30), MAX_PAUSE_SECONDS)
        found.returns += 1
        found.paused_until = now + pause
        return pause

    def __len__(self) -> int:
        return len(self._owners)

    def _find(self, owner: str, template: int) -> _Owner | None:
        return self._owners.get((owner, template))

    def _make(self, owner: str, template: int) -> _Owner:
        key = owner, template
        found = self._owners.setdefault(key, _Owner())
        self._owners.move_to_end(key)
        if len(self._owners) > self.max_owners:
            self._owners.popitem(last=False)
        return found
