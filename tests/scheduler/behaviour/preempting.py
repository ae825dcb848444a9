"""A node with victims, and pods that preempt them."""

from __future__ import annotations

from typing import Any

from bayplan.api.pod import Pod
from bayplan.testing.builders import make_node, make_pod

NODE = make_node("n", cpu="4")
MARK = ("True", "PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod")
NO_ROOM = "0/1 nodes are available: 1 Insufficient cpu."
FOUND = "preemption: found a potential placement for pod on node n, preempting 1 victims"
MESSAGE = "Preempted by pod {} on node n"


def victim(name: str = "victim", cpu: str = "3", priority: int = 0, **fields: Any) -> Pod:
    return make_pod(name, cpu=cpu, node="n", priority=priority, **fields)


def preemptor(name: str = "p", cpu: str = "3", priority: int = 9, **fields: Any) -> Pod:
    return make_pod(name, cpu=cpu, priority=priority, **fields)
