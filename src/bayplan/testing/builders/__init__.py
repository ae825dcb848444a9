"""Short builders of API objects, for tests: `make_pod("web", cpu="500m")` instead of forty lines of YAML.

They set what an API server would (namespace, uid, scheduler name) and nothing that would surprise a test: a
node has only the labels and taints that the test gives it. Uids are readable and derived from the name, so
two objects with the same name are the same object.
"""

from bayplan.testing.builders.claims import make_allocated_device as make_allocated_device
from bayplan.testing.builders.claims import make_csi_capacity as make_csi_capacity
from bayplan.testing.builders.claims import make_csi_driver as make_csi_driver
from bayplan.testing.builders.claims import make_csi_node as make_csi_node
from bayplan.testing.builders.claims import make_device as make_device
from bayplan.testing.builders.claims import make_device_attribute as make_device_attribute
from bayplan.testing.builders.claims import make_device_class as make_device_class
from bayplan.testing.builders.claims import make_device_request as make_device_request
from bayplan.testing.builders.claims import make_first_available as make_first_available
from bayplan.testing.builders.claims import make_pv as make_pv
from bayplan.testing.builders.claims import make_pvc as make_pvc
from bayplan.testing.builders.claims import make_resource_claim as make_resource_claim
from bayplan.testing.builders.claims import make_resource_slice as make_resource_slice
from bayplan.testing.builders.claims import make_storage_class as make_storage_class
from bayplan.testing.builders.claims import make_volume_attachment as make_volume_attachment
from bayplan.testing.builders.pods import make_claim_volume as make_claim_volume
from bayplan.testing.builders.pods import make_container as make_container
from bayplan.testing.builders.pods import make_expression as make_expression
from bayplan.testing.builders.pods import make_namespace as make_namespace
from bayplan.testing.builders.pods import make_node as make_node
from bayplan.testing.builders.pods import make_node_affinity as make_node_affinity
from bayplan.testing.builders.pods import make_node_term as make_node_term
from bayplan.testing.builders.pods import make_owner as make_owner
from bayplan.testing.builders.pods import make_pdb as make_pdb
from bayplan.testing.builders.pods import make_pod as make_pod
from bayplan.testing.builders.pods import make_pod_affinity as make_pod_affinity
from bayplan.testing.builders.pods import make_pod_term as make_pod_term
from bayplan.testing.builders.pods import make_priority_class as make_priority_class
from bayplan.testing.builders.pods import make_replica_set as make_replica_set
from bayplan.testing.builders.pods import make_selector as make_selector
from bayplan.testing.builders.pods import make_service as make_service
from bayplan.testing.builders.pods import make_spread as make_spread
from bayplan.testing.builders.pods import make_taint as make_taint
from bayplan.testing.builders.pods import make_toleration as make_toleration
