"""Which nodes' devices changed, and when.

Users of cached search results get the nodes that changed since, and search only those again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Final

MAX_HISTORY: Final = 4096


class NodeChanges:
    """A log of node names. `version` increases with every change."""

    __slots__ = ("_complete_since", "_log", "version")

    def __init__(self) -> None:
        self.version = 0
        self._complete_since = 0
        self._log: deque[tuple[int, Collection[str]]] = deque()

    def record(self, nodes: Collection[str] | None) -> None:
        """Records that the devices of these nodes changed; None: of all nodes."""
        self.version += 1
        if nodes is None:
            self._log.clear()
            self._complete_since = self.version
            return
        self._log.append((self.version, nodes))
        if len(self._log) > MAX_HISTORY:
            self._complete_since = self._log.popleft()[0]

    def since(self, version: int) -> set[str] | None:
        """The nodes that changed after this version; None if all may have."""
        if version < self._complete_since:
            return None
        changed: set[str] = set()
        for at, nodes in reversed(self._log):
            if at <= version:
                break
            changed.update(nodes)
        return changed
