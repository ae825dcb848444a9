"""API objects besides pods and nodes."""

from bayplan.api.elastic_quota import (
    ElasticQuota,
)
from bayplan.api.meta import (
    ObjectMeta,
    ObjectReference,
    OwnerReference,
)
from bayplan.api.node_resource_topology import (
    NodeResourceTopology,
)
from bayplan.api.pod_group import (
    POD_GROUP_LABEL,
    PodGroup,
)
from bayplan.api.workloads import (
    PodDisruptionBudget,
    PriorityClass,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from bayplan.state.namespace_usage import (
    NamespaceUsage,
)
from bayplan.state.objects import (
    Objects,
)

__all__ = [
    "POD_GROUP_LABEL",
    "ElasticQuota",
    "NamespaceUsage",
    "NodeResourceTopology",
    "ObjectMeta",
    "ObjectReference",
    "Objects",
    "OwnerReference",
    "PodDisruptionBudget",
    "PodGroup",
    "PriorityClass",
    "ReplicaSet",
    "ReplicationController",
    "Service",
    "StatefulSet",
]
