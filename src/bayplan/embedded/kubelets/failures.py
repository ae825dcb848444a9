"""Nodes that fail and come back.

A node is down while it has the annotation `bayplan/down: "true"`: its kubelet says and does nothing. What
follows from that is for others to find out, as in a real cluster (`controllers/node_lifecycle.py`).
"""

from __future__ import annotations

from bayplan.embedded.controllers.node_health import DOWN, is_down
from bayplan.embedded.server.kinds import NODES
from bayplan.embedded.server.objects import ObjectAPI

__all__ = ["DOWN", "down", "is_down", "up"]


def down(api: ObjectAPI, name: str) -> None:
    """The node fails. Raises NotFoundError if there is none."""
    api.patch(NODES, name, "", {"metadata": {"annotations": {DOWN: "true"}}})


def up(api: ObjectAPI, name: str) -> None:
    """The node comes back."""
    api.patch(NODES, name, "", {"metadata": {"annotations": {DOWN: None}}})
