"""All that a plugin author imports. Built-in plugins use nothing else of bayplan.

Start with `NodePlugin` (one node at a time); `Plugin` is for rules over whole columns. What each extension
point is given and may answer stands in `bayplan.framework.plugin_api`.
"""

from bayplan.api.host_ports import HostPort, conflicts, host_ports
from bayplan.api.images import normalized_image_name, pod_images
from bayplan.api.meta import (
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    Object,
    ObjectMeta,
    ObjectReference,
    OwnerReference,
)
from bayplan.api.node import Namespace, Node, Taint
from bayplan.api.node_selectors import (
    CompiledTerm,
    PreferredTerm,
    RequiredNodeAffinity,
    compile_preferred,
    compile_terms,
    compile_terms_strict,
    required_node_affinity,
    term_matches,
    terms_match,
)
from bayplan.api.pod import (
    Affinity,
    NodeAffinity,
    Pod,
    PodAffinityTerm,
    Toleration,
    TopologySpreadConstraint,
    Volume,
)
from bayplan.api.quantity import is_extended_resource, is_scalar_resource, milli_value, parse_quantity, value
from bayplan.api.requests import (
    balance_requests,
    fit_requests,
    nonzero_requests,
    placed_requests,
    scoring_requests,
)
from bayplan.api.selectors import (
    EVERYTHING,
    NOTHING,
    Operator,
    Requirement,
    Selector,
    compile_selector,
    selector_from_map,
)
from bayplan.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from bayplan.api.tolerations import any_tolerates, count_untolerated_preferences, tolerates, untolerated_taint
from bayplan.api.workloads import PodDisruptionBudget, ReplicaSet, ReplicationController, Service, StatefulSet
from bayplan.errors import SelectorError
from bayplan.framework.events import Action, ClusterEvent, Hint, Resource, Wake, wake
from bayplan.framework.handle import Handle
from bayplan.framework.outcome import (
    Diagnosis,
    Eviction,
    FilterOutcome,
    Nomination,
    PostFilterResult,
    fit_error,
)
from bayplan.framework.plugin_api import (
    MAX_SCORE,
    NodeNames,
    NodePlugin,
    Plugin,
    Reads,
    Reject,
    Wait,
    normalize_default,
    reject,
)
from bayplan.framework.state import CycleState, NotInStateError
from bayplan.framework.status import SKIP, SUCCESS, Code, Status, failure, unresolvable, unschedulable
from bayplan.snapshot.cluster import Cluster
from bayplan.snapshot.domains import DomainSums
from bayplan.snapshot.interning import IdColumn, Lookup
from bayplan.snapshot.label_sets import PodQuery, PodSelector
from bayplan.snapshot.node_info import NodeInfo
from bayplan.snapshot.nodes import CPU, EPHEMERAL_STORAGE, MEMORY
from bayplan.snapshot.terms import AffinityTerm, CarriedTerm, TermCarriers, TermKind, parse_terms, pod_terms
from bayplan.snapshot.view import BoolColumn, IntColumn, LabelValues, NodeColumns
from bayplan.snapshot.what_if import Hypothesis

__all__ = [
    "CPU",
    "EPHEMERAL_STORAGE",
    "EVERYTHING",
    "MAX_SCORE",
    "MEMORY",
    "NOTHING",
    "SKIP",
    "SUCCESS",
    "Action",
    "Affinity",
    "AffinityTerm",
    "BoolColumn",
    "CSIDriver",
    "CSINode",
    "CSIStorageCapacity",
    "CarriedTerm",
    "Cluster",
    "ClusterEvent",
    "Code",
    "CompiledTerm",
    "CycleState",
    "Diagnosis",
    "DomainSums",
    "Eviction",
    "FilterOutcome",
    "Handle",
    "Hint",
    "HostPort",
    "Hypothesis",
    "IdColumn",
    "IntColumn",
    "LabelSelector",
    "LabelValues",
    "Lookup",
    "Namespace",
    "Node",
    "NodeAffinity",
    "NodeColumns",
    "NodeInfo",
    "NodeNames",
    "NodePlugin",
    "NodeSelector",
    "NodeSelectorTerm",
    "Nomination",
    "NotInStateError",
    "Object",
    "ObjectMeta",
    "ObjectReference",
    "Operator",
    "OwnerReference",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Plugin",
    "Pod",
    "PodAffinityTerm",
    "PodDisruptionBudget",
    "PodQuery",
    "PodSelector",
    "PostFilterResult",
    "PreferredTerm",
    "Reads",
    "Reject",
    "ReplicaSet",
    "ReplicationController",
    "RequiredNodeAffinity",
    "Requirement",
    "Resource",
    "Selector",
    "SelectorError",
    "Service",
    "StatefulSet",
    "Status",
    "StorageClass",
    "Taint",
    "TermCarriers",
    "TermKind",
    "Toleration",
    "TopologySpreadConstraint",
    "Volume",
    "VolumeAttachment",
    "Wait",
    "Wake",
    "any_tolerates",
    "balance_requests",
    "compile_preferred",
    "compile_selector",
    "compile_terms",
    "compile_terms_strict",
    "conflicts",
    "count_untolerated_preferences",
    "failure",
    "fit_error",
    "fit_requests",
    "host_ports",
    "is_extended_resource",
    "is_scalar_resource",
    "milli_value",
    "nonzero_requests",
    "normalize_default",
    "normalized_image_name",
    "parse_quantity",
    "parse_terms",
    "placed_requests",
    "pod_images",
    "pod_terms",
    "reject",
    "required_node_affinity",
    "scoring_requests",
    "selector_from_map",
    "term_matches",
    "terms_match",
    "tolerates",
    "unresolvable",
    "unschedulable",
    "untolerated_taint",
    "value",
    "wake",
]
