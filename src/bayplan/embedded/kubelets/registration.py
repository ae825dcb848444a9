"""Registration by simulated kubelets: a created node becomes Ready.

It also gets a Lease, which other tools expect; it is written once (`heartbeats.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from bayplan.embedded.controllers.cluster import Cluster, ObjectChange
from bayplan.embedded.controllers.controller import Controller, KeyMapper
from bayplan.embedded.kubelets.failures import is_down
from bayplan.embedded.kubelets.heartbeats import LEASE_NAMESPACE, LEASE_SECONDS, Heartbeats, micro_time
from bayplan.embedded.kubelets.nodes import complete, number_of
from bayplan.embedded.server.documents import Content
from bayplan.embedded.server.kinds import LEASES, NAMESPACES, NODES, Resource


class NodeKubelets(Controller):
    """Reconciles the nodes of all kubelets."""

    name: ClassVar = "kubelet"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._numbers: dict[str, int] = {}
        self._last_number = 0
        self._heartbeats = Heartbeats(cluster.api)

    def watches(self) -> dict[Resource, KeyMapper]:
        return {NODES: self._node}

    def _node(self, change: ObjectChange) -> Iterable[str]:
        if change.after is None:
            self._numbers.pop(change.key, None)
        self._heartbeats.update(change.key)
        return (change.key,)

    def reconcile(self, key: str) -> float | None:
        document = self.api.store.find(NODES, key)
        if document is None or is_down(document):
            return None
        node = document.parse()
        if complete(node, self._number(node), self.api.now(), self.api.catalog.release):
            self.api.write(NODES, document, node)
        if self.api.store.find(LEASES, f"{LEASE_NAMESPACE}/{key}") is None:
            self._make_lease(node)
        return None

    def _number(self, node: Content) -> int:
        """The index in the networks that the node has, or the next free one."""
        name = node["metadata"]["name"]
        number = number_of(node) or self._numbers.get(name) or self._last_number + 1
        self._last_number = max(self._last_number, number)
        self._numbers[name] = number
        return number

    def _make_lease(self, node: Content) -> None:
        meta = node["metadata"]
        if self.api.store.find(NAMESPACES, LEASE_NAMESPACE) is None:
            self.api.create(NAMESPACES, {"metadata": {"name": LEASE_NAMESPACE}})
        owner = {"apiVersion": "v1", "kind": "Node", "name": meta["name"], "uid": meta["uid"]}
        lease = {
            "metadata": {"name": meta["name"], "ownerReferences": [owner]},
            "spec": {
                "holderIdentity": meta["name"],
                "leaseDurationSeconds": LEASE_SECONDS,
                "renewTime": micro_time(int(self.api.time())),
            },
        }
        self.api.create(LEASES, lease, LEASE_NAMESPACE)
