"""Nodes as kubelets register them: labels, addresses, capacity, conditions.

`make_nodes` creates the nodes of a new cluster. A node that a user creates needs only a name: its simulated
kubelet sets the rest (`complete`).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Final

from bayplan.api.quantity import is_extended_resource
from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.embedded.server.documents import Content

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
