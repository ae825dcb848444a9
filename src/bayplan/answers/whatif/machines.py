"""Empty nodes for questions: copies of a node, or of a machine shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from bayplan.api.meta import ObjectMeta, ResourceList
from bayplan.api.node import Node, NodeSpec, NodeStatus
from bayplan.api.quantity import parse_quantity
from bayplan.errors import InputError

HOSTNAME: Final = "kubernetes.io/hostname"
DEFAULT_PODS: Final = "110"
"""The kubelet's default for the number of pods on a node."""
MACHINE: Final = "machine"
CONDITIONS: Final = "node.kubernetes.io/"
"""Taints with this prefix describe the state of one node: not ready, unschedulable, under pressure."""

_SHAPE: Final = "{text!r} is not a machine shape; write resource=amount, as in cpu=8,memory=32Gi"


def machine(text: str, name: str = MACHINE) -> Node:
    """A node of a machine shape: `cpu=8,memory=32Gi,nvidia.com/gpu=2`. All of it is allocatable.

    Raises:
        InputError: it is not one.
    """
    amounts: dict[str, str] = {}
    for part in text.split(","):
        resource, sign, amount = (piece.strip() for piece in part.partition("="))
        if not sign or not resource or not amount:
            raise InputError(_SHAPE.format(text=text))
        try:
            parse_quantity(amount)
        except InputError as error:
            raise InputError(f"{_SHAPE.format(text=text)} ({error})") from None
        amounts[resource] = amount
    allocatable: ResourceList = {"pods": DEFAULT_PODS, **amounts}
    return Node(
        metadata=ObjectMeta(name=name, labels={HOSTNAME: name}),
        status=NodeStatus(allocatable=allocatable, capacity=dict(allocatable)),
    )


def like_node(template: Node, count: int, taken: set[str]) -> Iterator[Node]:
    """Empty copies of a node, with names that are not taken. They are ready and not cordoned."""
    number = 0
    for _ in range(count):
        while (name := f"{template.name}-new-{number}") in taken:
            number += 1
        number += 1
        labels = dict(template.labels)
        if HOSTNAME in labels:
            labels[HOSTNAME] = name
        taints = tuple(taint for taint in template.spec.taints if not taint.key.startswith(CONDITIONS))
        yield Node(
            metadata=ObjectMeta(name=name, labels=labels, annotations=template.annotations),
            spec=NodeSpec(taints=taints),
            status=replace(template.status, images=()),
        )
