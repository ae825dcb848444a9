"""Addresses of pods: each node has a network, and its pods take turns with the addresses in it."""

from __future__ import annotations

import ipaddress
from typing import Final

from bayplan.api.meta import Content
from bayplan.api.pod import Pod
from bayplan.embedded.controllers.cluster import Cluster
from bayplan.embedded.server.documents import Document
from bayplan.embedded.server.kinds import PODS

_FIRST: Final = 2
"""The first addresses are those of the network itself and of the node."""


class _Network:
    """The addresses of one node by pod, and the last one that was assigned."""

    def __init__(self, cidr: str, host_ip: str) -> None:
        network = ipaddress.ip_network(cidr, strict=False)
        self.host_ip = host_ip
        self.first = network.network_address
        self.size = max(min(network.num_addresses, 1 << 16) - 1, _FIRST + 1)
        self.last = _FIRST - 1
        self.taken: dict[int, str] = {}
        self.offsets: dict[str, int] = {}

    def give(self, uid: str) -> str:
        offset = self.offsets.get(uid)
        if offset is None:
            offset = self._next()
            self.take(offset, uid)
        return str(self.first + offset)

    def _next(self) -> int:
        candidate = self.last
        for _ in range(self.size):
            candidate = candidate + 1 if candidate + 1 < self.size else _FIRST
            if candidate not in self.taken:
                return candidate
        return _FIRST  # more pods than addresses: there is no traffic, so two may share one

    def take(self, offset: int, uid: str) -> None:
        self.last = offset
        self.taken[offset] = uid
        self.offsets[uid] = offset

    def release(self, uid: str) -> None:
        offset = self.offsets.pop(uid, None)
        if offset is not None and self.taken.get(offset) == uid:
            del self.taken[offset]


class Addresses:
    """Assigns and releases addresses of pods."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._networks: dict[str, _Network] = {}

    def give(self, pod: Pod, node: Document) -> tuple[str, str]:
        """The addresses of the node and of a pod on it."""
        name = pod.spec.node_name
        network = self._networks.get(name)
        if network is None:
            network = self._networks[name] = self._network(node)
        return network.host_ip, network.host_ip if pod.spec.host_network else network.give(pod.uid)

    def release(self, pod: Pod) -> None:
        network = self._networks.get(pod.spec.node_name)
        if network is not None:
            network.release(pod.uid)

    def _network(self, document: Document) -> _Network:
        node = document.parse()
        network = _Network((node.get("spec") or {}).get("podCIDR") or "10.0.0.0/8", _host_ip(node))
        for pod in self._cluster.pods.on_node(document.key):
            # Pods from before a restart of this process keep their addresses.
            content = self._cluster.find(PODS, pod.key)
            address = ((content or {}).get("status") or {}).get("podIP")
            if address and not pod.spec.host_network:
                offset = int(ipaddress.ip_address(address)) - int(network.first)
                if 0 <= offset < network.size:
                    network.take(offset, pod.uid)
        return network


def _host_ip(node: Content) -> str:
    addresses = (node.get("status") or {}).get("addresses") or ()
    found = (each["address"] for each in addresses if each.get("type") == "InternalIP")
    return next(found, "127.0.0.1")
