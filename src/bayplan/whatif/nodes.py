"""The node that new nodes are copied from: one of the cluster, a Node in a file, or a machine shape."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bayplan.api.decode import read_objects
from bayplan.api.defaults import with_defaults
from bayplan.api.node import Node
from bayplan.errors import InputError
from bayplan.whatif.cluster import Cluster
from bayplan.whatif.machines import machine

_NOT_ONE: Final = "there must be exactly one Node in it"
_UNKNOWN: Final = (
    "{like!r} is neither a node of the cluster, nor a file, nor a machine shape (cpu=8,memory=32Gi)"
)


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
