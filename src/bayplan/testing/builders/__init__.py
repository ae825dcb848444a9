"""Short builders of API objects, for tests: `make_pod("web", cpu="500m")` instead of forty lines of YAML.

They set what an API server would (namespace, uid, scheduler name) and nothing that would surprise a test: a
node has only the labels and taints that the test gives it. Uids are readable and derived from the name, so
two objects with the same name are the same object.
"""

from bayplan.testing.builders.devices import (
    make_allocated_device,
    make_device,
    make_device_attribute,
    make_device_class,
    make_device_request,
    make_first_available,
    make_resource_claim,
    make_resource_slice,
)
from bayplan.testing.builders.metadata import make_owner
from bayplan.testing.builders.nodes import make_namespace, make_node, make_taint
from bayplan.testing.builders.pods import make_claim_volume, make_container, make_pod
from bayplan.testing.builders.selectors import (
    make_expression,
    make_node_affinity,
    make_node_term,
    make_pod_affinity,
    make_pod_term,
    make_selector,
    make_spread,
    make_toleration,
)
from bayplan.testing.builders.storage import (
    make_csi_capacity,
    make_csi_driver,
    make_csi_node,
    make_pv,
    make_pvc,
    make_storage_class,
    make_volume_attachment,
)
from bayplan.testing.builders.workloads import (
    make_pdb,
    make_priority_class,
    make_replica_set,
    make_service,
)

__all__ = [
    "make_allocated_device",
    "make_claim_volume",
    "make_container",
    "make_csi_capacity",
    "make_csi_driver",
    "make_csi_node",
    "make_device",
    "make_device_attribute",
    "make_device_class",
    "make_device_request",
    "make_expression",
    "make_first_available",
    "make_namespace",
    "make_node",
    "make_node_affinity",
    "make_node_term",
    "make_owner",
    "make_pdb",
    "make_pod",
    "make_pod_affinity",
    "make_pod_term",
    "make_priority_class",
    "make_pv",
    "make_pvc",
    "make_replica_set",
    "make_resource_claim",
    "make_resource_slice",
    "make_selector",
    "make_service",
    "make_spread",
    "make_storage_class",
    "make_taint",
    "make_toleration",
    "make_volume_attachment",
]
