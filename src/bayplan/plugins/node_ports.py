"""NodePorts: two pods cannot use the same port of one node.

A port is used on an address; 0.0.0.0 means all of them, so it conflicts with every address. Few nodes use any
given port, so only those are compared.

https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#ports
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from bayplan.plugin import (
    SKIP,
    Action,
    ClusterEventWithHint,
    CycleState,
    Dependencies,
    FilterPlugin,
    NodeColumns,
    Plugin,
    Pod,
    PreFilterPlugin,
    Reject,
    Resource,
    Status,
    event_with_hint,
    unschedulable,
)
from bayplan.plugin.objects import HostPort, conflicts, host_ports

REASON: Final = "node(s) didn't have free ports for the requested pod ports"


class NodePorts(Plugin, PreFilterPlugin, FilterPlugin):
    """Rejects nodes where a port that the pod needs is in use."""

    depends_on = Dependencies.of("ports", usage=True)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return [
            event_with_hint(Resource.POD, Action.DELETE, self.deleted_pod_helps),
            event_with_hint(Resource.NODE, Action.ADD),
        ]

    def deleted_pod_helps(self, pod: Pod, old: Pod, new: None) -> bool:
        """A pod was removed that had a node, or was nominated to one, and used one of the ports."""
        if not old.spec.node_name and not old.status.nominated_node_name:
            return False
        return conflicts(host_ports(pod), host_ports(old))

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        wanted = host_ports(pod)
        if not wanted:
            return SKIP
        state.write(self.name, wanted)
        return None

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        wanted: tuple[HostPort, ...] = state.read(self.name)
        taken = np.zeros(len(nodes), dtype=np.bool_)
        for position in nodes.positions_using_ports(wanted):
            taken[position] = conflicts(wanted, nodes.used_ports(position))
        yield Reject(taken, unschedulable(REASON))
