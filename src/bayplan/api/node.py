"""Node and Namespace."""

from __future__ import annotations

from bayplan.api.meta import (
    Condition,
    Int64,
    Object,
    Record,
    ResourceList,
)


class Taint(Record, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Record, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class ContainerImage(Record, frozen=True):
    names: tuple[str, ...] = ()
    size_bytes: Int64 = 0


class NodeStatus(Record, frozen=True):
    allocatable: ResourceList = {}
    capacity: ResourceList = {}
    images: tuple[ContainerImage, ...] = ()
    conditions: tuple[Condition, ...] = ()
    declared_features: tuple[str, ...] = ()


class Node(Object, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(Object, frozen=True):
    pass
