"""What distinguishes a working node from a failed one.

A real kubelet that fails stops sending heartbeats. Simulated ones send none (`kubelets/heartbeats.py`): a
node is down while it has the annotation `bayplan/down: "true"`, which stands in for missing heartbeats.
"""

from __future__ import annotations

from typing import Final

from bayplan.api.node import Node
from bayplan.embedded.server.documents import Document

DOWN: Final = "bayplan/down"


def is_down(node: Document) -> bool:
    return DOWN.encode() in node.body and node.record(Node).annotations.get(DOWN) == "true"
