"""The outcome of earlier moves, so that no pod is moved back and forth.

Two rules, both by the owner of a pod and its template, because such pods are interchangeable and their names
change:

- A pod is not moved for balance to a node that a pod of its owner was moved away from.
- If a replacement did not get the node of the plan, or a later pod of the owner is again a candidate on a
  node that was left, the pod *came back*: its owner is tried again after a pause, which doubles each time.

So without changes from outside the moves end: each repair leaves one violated rule less, because moves for
balance violate none, and each of those goes to a node that the owner has not left yet. Everything is
forgotten when the set of nodes changes or the process restarts. What is known of a node is forgotten when its
taints, labels, resources or cordon change. If there are too many owners, the one that was least recently
moved is forgotten. Pods of a new template start with an empty memory; pods of the old template, which may
exist for a long time beside them, keep theirs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from bayplan.api.node import Node

MAX_OWNERS: Final = 10_000
FIRST_PAUSE_SECONDS: Final = 300.0
MAX_PAUSE_SECONDS: Final = 6 * 3600.0


@dataclass(slots=True)
class _Owner:
    left: dict[str, float] = field(default_factory=dict)
    """The nodes that its pods were moved away from, and when."""
    returns: int = 0
    paused_until: float = 0.0


def _read_of(node: Node) -> object:
    return node.spec.unschedulable, node.spec.taints, node.labels, node.status.allocatable


@dataclass(slots=True)
class Memory:
    """Bounded; not persistent."""

    max_owners: int = MAX_OWNERS
    _nodes: dict[str, object] = field(default_factory=dict)
    """What scheduling reads of each node."""
    _owners: OrderedDict[tuple[str, int], _Owner] = field(default_factory=OrderedDict)

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        """Forgets everything if the set of nodes has changed, and which owners left changed nodes."""
        known, self._nodes = self._nodes, {node.name: _read_of(node) for node in nodes}
        if known.keys() != self._nodes.keys():
            self._owners.clear()
            return
        changed = {name for name, read in self._nodes.items() if read != known[name]}
        if changed:
            for one in self._owners.values():
                for name in one.left.keys() & changed:
                    del one.left[name]

    def has_left(self, owner: str, template: int, node: str) -> bool:
        found = self._find(owner, template)
        return found is not None and node in found.left

    def pause(self, owner: str, template: int, now: float) -> tuple[int, float] | None:
        """How often the owner's pods came back, and when its pause ends; None: it is not paused."""
        found = self._find(owner, template)
        if found is None or found.paused_until <= now:
            return None
        return found.returns, found.paused_until

    def moved(self, owner: str, template: int, source: str, now: float) -> None:
        """A pod of the owner was moved away from a node."""
        self._make(owner, template).left[source] = now

    def is_candidate(self, owner: str, template: int, node: str, created: float, now: float) -> None:
        """A pod of the owner should leave a node. If it was created after another one had left the node, the
        pod came back, for example because another program has deleted the replacement."""
        found = self._find(owner, template)
        if found is not None and created > found.left.get(node, np.inf):
            found.left[node] = now
            self.came_back(owner, template, now)

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
