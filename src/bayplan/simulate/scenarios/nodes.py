"""Nodes from the groups of a scenario."""

from __future__ import annotations

from typing import Final

from bayplan.api.check import check_object
from bayplan.api.defaults import with_defaults
from bayplan.api.meta import Condition, ObjectMeta, ResourceList
from bayplan.api.node import Node, NodeSpec, NodeStatus
from bayplan.simulate.scenarios.schema import NodeGroup

DEFAULT_ALLOCATABLE: Final[ResourceList] = {"cpu": "8", "memory": "32Gi", "pods": "110"}
HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
READY: Final = Condition(type="Ready", status="True")


def make_node(group: NodeGroup, number: int) -> Node:
    """The node of this number, as its kubelet would register it.

    Raises:
        InputError: a quantity, label or taint is malformed.
    """
    name = f"{group.name}-{number}"
    labels = {HOSTNAME: name}
    if group.zones:
        labels[ZONE] = group.zones[number % len(group.zones)]
    allocatable = {**DEFAULT_ALLOCATABLE, **group.allocatable}
    node = Node(
        metadata=ObjectMeta(name=name, labels={**labels, **group.labels}),
        spec=NodeSpec(taints=group.taints),
        status=NodeStatus(allocatable=allocatable, capacity=allocatable, conditions=(READY,)),
    )
    check_object(node)
    (made,) = with_defaults([node])
    assert isinstance(made, Node)
    return made
