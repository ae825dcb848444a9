"""NodeResourceTopology: what the NUMA nodes of a node have available.

The custom resource of the topology-aware-scheduling project, `topology.node.k8s.io/v1alpha2`. An agent on
each node publishes one with the node's name; `plugins/node_resource_topology_match.py` reads it.
"""

from __future__ import annotations

from bayplan.api.meta import Object, Quantity, Record


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
