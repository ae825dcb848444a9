"""Simulated failures of nodes.

A node is down while it has the annotation `bayplan/down: "true"`: its kubelet sends and does nothing. The
controllers notice that as in a real cluster (`controllers/node_lifecycle.py`).
"""

from __future__ import annotations

from bayplan.embedded.controllers.node_lifecycle import DOWN, is_down
from bayplan.embedded.server.kinds import NODES
from bayplan.embedded.server.objects import ObjectAPI

__all__ = ["DOWN", "down", "is_down", "up"]


def down(api: ObjectAPI, name: str) -> None:
    """Lets a node fail. Raises NotFoundError if there is none."""
    api.patch(NODES, name, "", {"metadata": {"annotations": {DOWN: "true"}}})


def up(api: ObjectAPI, name: str) -> None:
    """Lets a failed node recover."""
    api.patch(NODES, name, "", {"metadata": {"annotations": {DOWN: None}}})
