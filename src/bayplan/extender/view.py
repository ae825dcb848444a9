"""The cluster as extenders see it: as of the scheduling cycle that calls them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.state.cluster import Cluster


class ClusterView(Protocol):
    """The nodes of a cluster by name, and their pods. It must not change while a cycle waits."""

    @property
    def node_count(self) -> int: ...

    def node(self, name: str) -> Node | None: ...

    def pods_on(self, name: str) -> Iterable[Pod]:
        """The pods on an existing node."""


class SnapshotView:
    """The view of the scheduler's own cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def node_count(self) -> int:
        return self._cluster.node_count

    def node(self, name: str) -> Node | None:
        nodes = self._cluster.nodes
        row = nodes.row_of.get(name)
        return None if row is None else nodes.node[row]

    def pods_on(self, name: str) -> Iterable[Pod]:
        return self._cluster.pods_on(self._cluster.nodes.row_of[name])
