"""Nodes of simulated kubelets: labels, addresses, capacity and conditions, heartbeats, and failures.

`make_nodes` creates the nodes of a new cluster. A node that a user creates needs only a name: its simulated
kubelet sets the rest (`complete`), and it becomes Ready.

Heartbeats cause no traffic. A real kubelet renews its Lease every ten seconds, which for ten thousand nodes
is 1,000 writes a second without information. Here a Lease is written once. Reading it returns a renewTime
that is computed: the last multiple of ten seconds since it was created; for a node that is down, the time at
which it went down. Watches send only what is written.

A node is down while it has the annotation `bayplan/down: "true"`: its kubelet sends and does nothing. The
controllers notice that as in a real cluster (`controllers/node_lifecycle.py`).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import ClassVar, Final

import msgspec

from bayplan.api.go_values import seconds_or_1970
from bayplan.api.meta import Content
from bayplan.api.quantity import is_extended_resource
from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.embedded.controllers.cluster import Cluster, ObjectChange
from bayplan.embedded.controllers.controller import Controller, KeyMapper
from bayplan.embedded.controllers.node_lifecycle import DOWN, is_down
from bayplan.embedded.server.documents import Document
from bayplan.embedded.server.kinds import LEASES, NAMESPACES, NODES, Resource
from bayplan.embedded.server.objects import ObjectAPI

CAPACITY: Final[Mapping[str, str]] = {
    "cpu": "8",
    "memory": "32Gi",
    "ephemeral-storage": "100Gi",
    "pods": "110",
}
INSTANCE_TYPE: Final = "simulated.8x32"
REGION: Final = "sim"

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
REGION_LABEL: Final = "topology.kubernetes.io/region"

_POD_NETWORK: Final = int(ipaddress.IPv4Address("10.0.0.0"))
_NODE_NETWORK: Final = int(ipaddress.IPv4Address("172.16.0.0"))
_HEALTHY: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


def make_nodes(
    count: int,
    *,
    zones: int | Sequence[str] = 3,
    capacity: Mapping[str, str] = CAPACITY,
    labels: Mapping[str, str] | None = None,
    prefix: str = "n",
    instance_type: str = INSTANCE_TYPE,
) -> list[Content]:
    """Nodes `n01`, `n02` and so on, distributed evenly over the zones. Their kubelets make them Ready."""
    names = [f"{REGION}-{chr(ord('a') + zone)}" for zone in range(zones)] if isinstance(zones, int) else zones
    width = max(len(str(count)), 2)
    nodes = []
    for number in range(count):
        own = {ZONE_LABEL: names[number % len(names)], REGION_LABEL: REGION} if names else {}
        own["node.kubernetes.io/instance-type"] = instance_type
        name = f"{prefix}{number + 1:0{width}}"
        meta = {"name": name, "labels": {**_labels(name), **own, **(labels or {})}}
        nodes.append(
            {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": {"capacity": dict(capacity)}}
        )
    return nodes


def complete(node: Content, number: int, now: str, release: Release = DEFAULT_RELEASE) -> bool:
    """Sets what a kubelet reports about its node, if it is not set already. Returns whether that changed it.

    `number` is the node's index in the networks. A condition that is set stays, unless it is Unknown: that is
    for the kubelet to set.
    """
    before = _frozen(node)
    meta, spec = node["metadata"], node.setdefault("spec", {})
    labels = meta.setdefault("labels", {})
    for label, text in _labels(meta["name"]).items():
        labels.setdefault(label, text)
    if not spec.get("podCIDR"):
        spec["podCIDR"] = f"{ipaddress.IPv4Address(_POD_NETWORK + (number << 8))}/24"
        spec["podCIDRs"] = [spec["podCIDR"]]
    status = node.setdefault("status", {})
    _complete_resources(status)
    if not status.get("addresses"):
        address = str(ipaddress.IPv4Address(_NODE_NETWORK + number))
        status["addresses"] = [
            {"type": "InternalIP", "address": address},
            {"type": "Hostname", "address": meta["name"]},
        ]
    status["nodeInfo"] = {
        **_node_info(meta["uid"], release),
        **{name: text for name, text in (status.get("nodeInfo") or {}).items() if text},
    }
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 10250}})
    status["conditions"] = healthy_conditions(status.get("conditions"), now)
    return before != _frozen(node)


def _complete_resources(status: Content) -> None:
    """Capacity, and the allocatable part: everything by default.

    Devices and the like (`example.com/gpu`) come and go with the capacity, as with a real kubelet.
    """
    allocatable = status.get("allocatable") or {}
    if not status.get("capacity"):
        status["capacity"] = {**CAPACITY, **allocatable}
    capacity = status["capacity"]
    if not allocatable:
        status["allocatable"] = dict(capacity)
        return
    for name in capacity.keys() - allocatable.keys():
        if is_extended_resource(name):
            allocatable[name] = capacity[name]
    for name in allocatable.keys() - capacity.keys():
        if is_extended_resource(name):
            del allocatable[name]


def healthy_conditions(conditions: list[Content] | None, now: str) -> list[Content]:
    """Conditions of a healthy node; conditions that are set to True or False stay."""
    known = {each["type"]: each for each in conditions or ()}
    for kind, state, reason, message in _HEALTHY:
        if known.get(kind, {}).get("status", "Unknown") == "Unknown":
            known[kind] = {
                "type": kind,
                "status": state,
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
                "reason": reason,
                "message": message,
            }
    return list(known.values())


def number_of(node: Content) -> int | None:
    """The index of a node in the networks; None if it has none yet."""
    cidr = (node.get("spec") or {}).get("podCIDR")
    if not cidr:
        return None
    number = (int(ipaddress.ip_network(cidr, strict=False).network_address) - _POD_NETWORK) >> 8
    return number if 0 <= number < 1 << 16 else None


def _labels(name: str) -> dict[str, str]:
    return {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        HOSTNAME_LABEL: name,
        "kubernetes.io/os": "linux",
    }


def _node_info(uid: str, release: Release) -> dict[str, str]:
    plain = uid.replace("-", "")
    return {
        "machineID": plain,
        "systemUUID": uid,
        "bootID": uid,
        "kernelVersion": "6.12.0",
        "osImage": "simulated by bayplan",
        "containerRuntimeVersion": "simulated://1.0",
        "kubeletVersion": f"v{release.patch_version}",
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64",
    }


def _frozen(node: Content) -> str:
    return repr((node["metadata"].get("labels"), node.get("spec"), node.get("status")))


def down(api: ObjectAPI, name: str) -> None:
    """Lets a node fail. Raises NotFoundError if there is none."""
    api.patch(NODES, name, "", {"metadata": {"annotations": {DOWN: "true"}}})


def up(api: ObjectAPI, name: str) -> None:
    """Lets a failed node recover."""
    api.patch(NODES, name, "", {"metadata": {"annotations": {DOWN: None}}})


LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_SECONDS: Final = 40
RENEW_SECONDS: Final = 10

_encode = msgspec.json.Encoder().encode


class Heartbeats:
    """Computes the renew times of node leases, and records when a node went down."""

    def __init__(self, api: ObjectAPI) -> None:
        self._api = api
        self._stopped: dict[str, float] = {}
        api.computed[LEASES] = self.renewed

    def update(self, name: str) -> None:
        """Records whether a changed node went down or recovered."""
        node = self._api.store.find(NODES, name)
        if node is not None and is_down(node):
            self._stopped.setdefault(name, self._api.time())
        else:
            self._stopped.pop(name, None)

    def renewed(self, lease: Document) -> Document:
        """A Lease with its last renewal. Leases that are not those of nodes are returned unchanged."""
        namespace, _, name = lease.key.partition("/")
        if namespace != LEASE_NAMESPACE or self._api.store.find(NODES, name) is None:
            return lease
        content = lease.parse()
        spec = content.get("spec") or {}
        if spec.get("holderIdentity") != name or "renewTime" not in spec:
            return lease
        written = seconds_or_1970(spec["renewTime"])
        until = self._stopped.get(name, self._api.time())
        renewals = max(until - written, 0) // RENEW_SECONDS
        spec["renewTime"] = micro_time(written + renewals * RENEW_SECONDS)
        return Document(lease.key, lease.version, _encode(content))


def micro_time(seconds: float) -> str:
    """A time as in leases: `2026-01-01T00:00:00.000000Z`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


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


__all__ = ["DOWN", "down", "is_down", "up"]
