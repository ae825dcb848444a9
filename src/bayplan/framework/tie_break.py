"""Which of several nodes with the same highest total score is chosen.

A module of its own: the configuration reads these names without importing NumPy (`runtime/ties.py`).
"""

from __future__ import annotations

from enum import StrEnum


class TieBreak(StrEnum):
    """A rule for nodes with equal total scores. The values are those of the configuration file."""

    KUBE_SCHEDULER = "KubeScheduler"
    """The node that kube-scheduler's heap returns: neither the first nor a random one."""
    FIRST_NODE = "FirstNode"
    """The first in the node list."""
