"""The node that new nodes are copied from: one of the cluster, a Node in a file, or a machine shape."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

from bayplan.answers.whatif.cluster import Cluster
from bayplan.answers.whatif.machines import machine
from bayplan.api.decode import read_objects
from bayplan.api.defaults import with_defaults
from bayplan.api.node import Node
from bayplan.errors import InputError

_NO_NODES: Final = "there is no node to copy; write N=LIKE, as in 3=cpu=8,memory=32Gi"
_NOT_ONE: Final = "there must be exactly one Node in it"
_UNKNOWN: Final = (
    "{like!r} is neither a node of the cluster, nor a file, nor a machine shape (cpu=8,memory=32Gi)"
)


def usual_node(cluster: Cluster) -> str:
    """The first node of the most frequent size that is not cordoned.

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
