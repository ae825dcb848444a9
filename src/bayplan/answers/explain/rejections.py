"""Rejected nodes grouped by plugin and reason; `details/` has what the reasons leave out."""

from __future__ import annotations

from dataclasses import dataclass

from bayplan.answers.explain.explanation import Explanation
from bayplan.framework.status import Status


@dataclass(frozen=True, slots=True)
class Rejection:
    """The nodes that one plugin rejects for the same reasons."""

    status: Status
    nodes: tuple[str, ...]


def rejections(explanation: Explanation) -> list[Rejection]:
    """All rejected nodes in groups, the largest group first."""
    found: dict[Status, list[str]] = {}
    for node, status in explanation.node_status.items():
        found.setdefault(status, []).append(node)
    groups = [Rejection(status, tuple(nodes)) for status, nodes in found.items()]
    return sorted(groups, key=lambda group: -len(group.nodes))
