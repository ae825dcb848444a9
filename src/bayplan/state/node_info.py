"""One node as an object: the input of plugins that evaluate one node at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bayplan.api.node import Node, Taint
from bayplan.api.pod import Pod

if TYPE_CHECKING:
    from bayplan.state.cluster import Cluster


class NodeInfo:
    """A node and its pods. Read-only."""

    __slots__ = ("_cluster", "_pods", "_row")

    def __init__(self, cluster: Cluster, row: int, pods: Sequence[Pod] | None = None) -> None:
        self._cluster = cluster
        self._row = row
        self._pods = pods

    @property
    def pods(self) -> Sequence[Pod]:
        """The pods on the node (in a hypothesis: those that would be there)."""
        if self._pods is None:
            # Listed on first use: most plugins read only the Node object.
            self._pods = list(self._cluster.pods_on(self._row))
        return self._pods

    @property
    def row(self) -> int:
        """Its row in the columns of the cluster."""
        return self._row

    @property
    def node(self) -> Node:
        """The API object."""
        node = self._cluster.nodes.node[self._row]
        assert node is not None
        return node

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def labels(self) -> dict[str, str]:
        return self.node.labels

    @property
    def annotations(self) -> dict[str, str]:
        return self.node.annotations

    @property
    def taints(self) -> tuple[Taint, ...]:
        return self.node.spec.taints

    @property
    def unschedulable(self) -> bool:
        return self.node.spec.unschedulable

    def allocatable(self, resource: str) -> int:
        """cpu in milli, everything else in whole units."""
        return int(self._cluster.nodes.resource(resource).allocatable.cell[self._row])

    def requested(self, resource: str) -> int:
        """What the pods on the node request."""
        return sum(self._cluster.pod_infos.of(pod).requests.get(resource, 0) for pod in self.pods)

    def free(self, resource: str) -> int:
        return self.allocatable(resource) - self.requested(resource)
