"""Node, its NodeResourceTopology, and Namespace."""

from __future__ import annotations

from bayplan.api.meta import (
    Condition,
    Int64,
    Object,
    Quantity,
    Record,
    ResourceList,
)


class Taint(Record, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        """As Kubernetes writes it: `key=value:effect`."""
        text = f"{self.key}={self.value}" if self.value else self.key
        return f"{text}:{self.effect}" if self.effect or self.value else text


class NodeSpec(Record, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class ContainerImage(Record, frozen=True):
    names: tuple[str, ...] = ()
    size_bytes: Int64 = 0


class NodeSystemInfo(Record, frozen=True):
    kubelet_version: str = ""


class NodeStatus(Record, frozen=True):
    allocatable: ResourceList = {}
    capacity: ResourceList = {}
    images: tuple[ContainerImage, ...] = ()
    conditions: tuple[Condition, ...] = ()
    declared_features: tuple[str, ...] = ()
    node_info: NodeSystemInfo = NodeSystemInfo()


class Node(Object, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(Object, frozen=True):
    pass


class TopologyAttribute(Record, frozen=True):
    name: str = ""
    value: str = ""


class ZoneResource(Record, frozen=True):
    name: str = ""
    capacity: Quantity | None = None
    allocatable: Quantity | None = None
    available: Quantity | None = None


class Zone(Record, frozen=True):
    name: str = ""
    """Of a NUMA node: `node-0`, `node-1` and so on."""
    type: str = ""
    resources: tuple[ZoneResource, ...] = ()


class NodeResourceTopology(Object, frozen=True):
    topology_policies: tuple[str, ...] = ()
    """Deprecated: policy and scope in one word."""
    attributes: tuple[TopologyAttribute, ...] = ()
    zones: tuple[Zone, ...] = ()
