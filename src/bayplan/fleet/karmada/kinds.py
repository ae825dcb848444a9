"""Karmada's objects: Clusters, policies and bindings, with the fields that scheduling reads.

The `Ready` condition of a cluster is not among them: karmada-scheduler reads its taints instead.

https://karmada.io/docs/reference/karmada-api/
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar, Final, TypeVar

import msgspec

from bayplan.api.meta import (
    Int32,
    Int64,
    LabelSelector,
    LabelSelectorRequirement,
    NodeSelector,
    Object,
    ObjectReference,
    Quantity,
    Record,
    ResourceList,
    Time,
)
from bayplan.api.node import Taint
from bayplan.api.pod import Toleration
from bayplan.api.reading import problem_and_field, without_nulls
from bayplan.errors import DecodeError

MAX_INT32: Final = 2**31 - 1
"""An estimator's answer that means: no limit."""


def int32(number: int) -> int:
    """The number in 32 bits, as Go converts and adds: the others are dropped."""
    return (number + 2**31) % 2**32 - 2**31


DUPLICATED: Final = "Duplicated"
DIVIDED: Final = "Divided"
AGGREGATED: Final = "Aggregated"
WEIGHTED: Final = "Weighted"
AVAILABLE_REPLICAS: Final = "AvailableReplicas"

APPLIED_PLACEMENT: Final = "policy.karmada.io/applied-placement"
"""The annotation of a binding with the placement that its last result was made for."""

KarmadaT = TypeVar("KarmadaT", bound=Record)


# Clusters


class APIResource(Record, frozen=True):
    name: str = ""
    kind: str = ""


class APIEnablement(Record, frozen=True):
    group_version: str = ""
    resources: tuple[APIResource, ...] = ()


class ResourceModelRange(Record, frozen=True):
    name: str = ""
    min: Quantity = "0"
    max: Quantity = "0"


class ResourceModel(Record, frozen=True):
    grade: Int64 = 0
    ranges: tuple[ResourceModelRange, ...] = ()


class AllocatableModeling(Record, frozen=True):
    grade: Int64 = 0
    count: Int64 = 0


class ResourceSummary(Record, frozen=True):
    allocatable: ResourceList = {}
    allocated: ResourceList = {}
    """Requests of pods that have a node."""
    allocating: ResourceList = {}
    """Requests of pods that wait for one."""
    allocatable_modelings: tuple[AllocatableModeling, ...] = ()


class ClusterSpec(Record, frozen=True):
    provider: str = ""
    region: str = ""
    zones: tuple[str, ...] = ()
    taints: tuple[Taint, ...] = ()
    resource_models: tuple[ResourceModel, ...] = ()


class ClusterStatus(Record, frozen=True):
    api_enablements: tuple[APIEnablement, ...] = ()
    resource_summary: ResourceSummary | None = None


class Cluster(Object, frozen=True):
    api_resource: ClassVar[str] = "clusters.v1alpha1.cluster.karmada.io"

    spec: ClusterSpec = ClusterSpec()
    status: ClusterStatus = ClusterStatus()


# Placements


class FieldSelector(Record, frozen=True):
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class ClusterAffinity(Record, frozen=True):
    label_selector: LabelSelector | None = None
    field_selector: FieldSelector | None = None
    cluster_names: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


class OverflowAffinity(ClusterAffinity, frozen=True):
    affinity_name: str = ""


class ClusterAffinityTerm(ClusterAffinity, frozen=True):
    affinity_name: str = ""
    overflow_affinities: tuple[OverflowAffinity, ...] | None = None


class SpreadConstraint(Record, frozen=True):
    spread_by_field: str = ""
    spread_by_label: str = ""
    min_groups: Int64 = 0
    max_groups: Int64 = 0


class StaticClusterWeight(Record, frozen=True):
    target_cluster: ClusterAffinity = ClusterAffinity()
    weight: Int64 = 0


class ClusterPreferences(Record, frozen=True):
    static_weight_list: tuple[StaticClusterWeight, ...] = ()
    dynamic_weight: str = ""


class ReplicaScheduling(Record, frozen=True):
    replica_scheduling_type: str = DIVIDED
    replica_division_preference: str = ""
    weight_preference: ClusterPreferences | None = None


class WorkloadAffinityTerm(Record, frozen=True):
    group_by_label_key: str = ""


class WorkloadAffinity(Record, frozen=True):
    affinity: WorkloadAffinityTerm | None = None
    anti_affinity: WorkloadAffinityTerm | None = None


class Placement(Record, frozen=True):
    cluster_affinity: ClusterAffinity | None = None
    cluster_affinities: tuple[ClusterAffinityTerm, ...] = ()
    cluster_tolerations: tuple[Toleration, ...] = ()
    spread_constraints: tuple[SpreadConstraint, ...] = ()
    replica_scheduling: ReplicaScheduling | None = None
    workload_affinity: WorkloadAffinity | None = None

    @property
    def is_duplicated(self) -> bool:
        return self.replica_scheduling is None or (
            self.replica_scheduling.replica_scheduling_type == DUPLICATED
        )

    def term(self, name: str) -> ClusterAffinityTerm | None:
        """The affinity group of this name."""
        return next((one for one in self.cluster_affinities if one.affinity_name == name), None)


class ResourceSelector(Record, frozen=True):
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    label_selector: LabelSelector | None = None


class PropagationSpec(Record, frozen=True):
    resource_selectors: tuple[ResourceSelector, ...] = ()
    priority: Int32 = 0
    placement: Placement = Placement()
    scheduler_name: str = ""


class PropagationPolicy(Object, frozen=True):
    api_resource: ClassVar[str] = "propagationpolicies.v1alpha1.policy.karmada.io"

    spec: PropagationSpec = PropagationSpec()


class ClusterPropagationPolicy(PropagationPolicy, frozen=True):
    api_resource: ClassVar[str] = "clusterpropagationpolicies.v1alpha1.policy.karmada.io"


# Bindings


class NodeClaim(Record, frozen=True):
    hard_node_affinity: NodeSelector | None = None
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class ReplicaRequirements(Record, frozen=True):
    node_claim: NodeClaim | None = None
    resource_request: ResourceList = {}
    namespace: str = ""
    priority_class_name: str = ""


class Component(Record, frozen=True):
    name: str = ""
    replicas: Int32 = 0
    replica_requirements: ReplicaRequirements | None = None


class ComponentReplicas(Record, frozen=True):
    name: str = ""
    replicas: Int32 = 0


class TargetCluster(Record, frozen=True):
    name: str = ""
    replicas: Int32 = 0
    components: tuple[ComponentReplicas, ...] = ()


class EvictionTask(Record, frozen=True):
    from_cluster: str = ""


class WorkloadAffinityGroups(Record, frozen=True):
    affinity_group: str = ""
    anti_affinity_group: str = ""


class Suspension(Record, frozen=True):
    scheduling: bool = False


class BindingSpec(Record, frozen=True):
    resource: ObjectReference = ObjectReference()
    replicas: Int32 = 0
    replica_requirements: ReplicaRequirements | None = None
    components: tuple[Component, ...] = ()
    clusters: tuple[TargetCluster, ...] = ()
    """The previous result."""
    placement: Placement | None = None
    graceful_eviction_tasks: tuple[EvictionTask, ...] = ()
    scheduler_name: str = ""
    reschedule_triggered_at: Time | None = None
    suspension: Suspension | None = None
    workload_affinity_groups: WorkloadAffinityGroups = WorkloadAffinityGroups()

    @property
    def is_workload(self) -> bool:
        return self.replicas > 0 or self.replica_requirements is not None or bool(self.components)


class BindingStatus(Record, frozen=True):
    scheduler_observed_generation: Int64 = 0
    scheduler_observing_affinity_name: str = ""
    last_scheduled_time: Time | None = None


class ResourceBinding(Object, frozen=True):
    api_resource: ClassVar[str] = "resourcebindings.v1alpha2.work.karmada.io"

    spec: BindingSpec = BindingSpec()
    status: BindingStatus = BindingStatus()


class ClusterResourceBinding(ResourceBinding, frozen=True):
    api_resource: ClassVar[str] = "clusterresourcebindings.v1alpha2.work.karmada.io"


def decode_karmada(record: type[KarmadaT], content: Mapping[str, Any]) -> KarmadaT:
    """The record of an object, or of a part of one, from the plain values of its JSON.

    Raises:
        DecodeError: a field has a value of the wrong type.
    """
    try:
        return msgspec.convert(without_nulls(content), record, str_keys=True)
    except msgspec.ValidationError as error:
        problem, field = problem_and_field(error)
        raise DecodeError(problem, object_key=record.__name__, field=field) from error


DEFAULT_GRADES: Final = (
    (0, 0), (1, 4), (2, 16), (4, 32), (8, 64), (16, 128), (32, 256), (64, 512), (128, 1024),
)  # fmt: skip
"""Cores and GiB of memory from which on a node belongs to each grade, unless a Cluster says otherwise."""


def default_resource_models() -> tuple[ResourceModel, ...]:
    """The resource models that Karmada gives a Cluster without any."""
    unlimited = str(2**63 - 1)
    bounds = [(str(cores), f"{gib}Gi") for cores, gib in DEFAULT_GRADES] + [(unlimited, unlimited)]
    return tuple(
        ResourceModel(
            grade=grade,
            ranges=(
                ResourceModelRange(name="cpu", min=low[0], max=high[0]),
                ResourceModelRange(name="memory", min=low[1], max=high[1]),
            ),
        )
        for grade, (low, high) in enumerate(pairwise(bounds))
    )
