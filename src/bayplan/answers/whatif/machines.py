"""Nodes to add: empty copies of a node of the cluster, of a Node in a file, or of a machine shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from bayplan.api.decode import read_objects
from bayplan.api.defaults import with_defaults
from bayplan.api.meta import ObjectMeta, ResourceList
from bayplan.api.node import Node, NodeSpec, NodeStatus
from bayplan.api.quantity import parse_quantity
from bayplan.errors import InputError

if TYPE_CHECKING:
    from bayplan.answers.whatif.cluster import Cluster

HOSTNAME: Final = "kubernetes.io/hostname"
DEFAULT_PODS: Final = "110"
"""The kubelet's default for the number of pods on a node."""
MACHINE: Final = "machine"
CONDITIONS: Final = "node.kubernetes.io/"
"""Taints with this prefix describe the state of one node: not ready, unschedulable, under pressure."""

_SHAPE: Final = "{text!r} is not a machine shape; write resource=amount, as in cpu=8,memory=32Gi"
_NO_NODES: Final = "there is no node to copy; write N=LIKE, as in 3=cpu=8,memory=32Gi"
_NOT_ONE: Final = "there must be exactly one Node in it"
_UNKNOWN: Final = (
    "{like!r} is neither a node of the cluster, nor a file, nor a machine shape (cpu=8,memory=32Gi)"
)


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


def usual_node(cluster: Cluster) -> str:
    """A node of the most frequent size: the first that is not cordoned, or the first if all are.

    Raises:
        InputError: there are no nodes.
    """
    nodes = [cluster.node(name) for name in cluster.nodes]
    if not nodes:
        raise InputError(_NO_NODES)
    sizes = Counter(_size(node) for node in nodes)
    usual = sizes.most_common(1)[0][0]
    of_size = [node for node in nodes if _size(node) == usual]
    return next((node for node in of_size if not node.spec.unschedulable), of_size[0]).name


def _size(node: Node) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(amount)) for name, amount in node.status.allocatable.items()))


def read_node_template(like: str, cluster: Cluster) -> Node:
    """The node to make copies of.

    Raises:
        InputError: there is no such node or file, or the file does not have exactly one Node.
    """
    if like in cluster.nodes:
        return cluster.node(like)
    if Path(like).is_file():
        found = [item for item in with_defaults(read_objects(Path(like))) if isinstance(item, Node)]
        if len(found) != 1:
            raise InputError(_NOT_ONE, source=like)
        return found[0]
    if "=" in like:
        return machine(like)
    raise InputError(_UNKNOWN.format(like=like))
