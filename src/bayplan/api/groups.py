"""Pod groups of Kubernetes: PodGroup and CompositePodGroup of scheduling.k8s.io.

Schedulers read them only with the feature gates GenericWorkload and CompositePodGroup. Workload, the template
from which controllers make groups, is not here: no scheduler reads it. Groups of other
schedulers have records of their own.
"""

from __future__ import annotations

from typing import Final

from msgspec import field

from bayplan.api.meta import Condition, Int32, Object, Record, ResourceList

PREEMPT_LOWER_PRIORITY: Final = "PreemptLowerPriority"
NEVER: Final = "Never"


class BasicSchedulingPolicy(Record, frozen=True):
    """Members are scheduled as they fit."""


class GangSchedulingPolicy(Record, frozen=True):
    min_count: Int32 = 0
    """How many members have to be scheduled together, or none is."""


class PodGroupSchedulingPolicy(Record, frozen=True):
    """One of the two."""

    basic: BasicSchedulingPolicy | None = None
    gang: GangSchedulingPolicy | None = None


class TopologyConstraint(Record, frozen=True):
    key: str = ""
    """The node label whose value all members have to share."""


class SchedulingConstraints(Record, frozen=True):
    topology: tuple[TopologyConstraint, ...] = ()
    """At most one."""


class Mode(Record, frozen=True):
    """An alternative without fields."""


class DisruptionMode(Record, frozen=True):
    """Whether members are evicted one by one or all together."""

    single: Mode | None = None
    all: Mode | None = None


class PodGroupResourceClaim(Record, frozen=True):
    """A claim that the members share."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class WorkloadReference(Record, frozen=True):
    workload_name: str = ""
    template_name: str = ""


class PodGroupSpec(Record, frozen=True):
    parent_composite_pod_group_name: str | None = None
    workload_ref: WorkloadReference | None = None
    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    scheduling_constraints: SchedulingConstraints | None = None
    resource_claims: tuple[PodGroupResourceClaim, ...] = ()
    disruption_mode: DisruptionMode | None = None
    priority_class_name: str = ""
    priority: Int32 | None = None
    """Set by the API server from the priority class."""
    preemption_policy: str | None = None
    """Set, and read, only with the gate PodGroupPreemptionPolicy."""
    min_resources: ResourceList = field(default={}, name="bayplan.minResources")
    """Not in the API: what must be free in the cluster for a group of Coscheduling or Volcano to be tried."""


class PodGroupResourceClaimStatus(Record, frozen=True):
    """The claim that was made from a template for the group."""

    name: str = ""
    resource_claim_name: str | None = None


class PodGroupStatus(Record, frozen=True):
    conditions: tuple[Condition, ...] = ()
    resource_claim_statuses: tuple[PodGroupResourceClaimStatus, ...] = ()


class PodGroup(Object, frozen=True):
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class CompositeGangSchedulingPolicy(Record, frozen=True):
    min_group_count: Int32 = 0
    """How many groups below have to be scheduled together."""


class CompositeSchedulingPolicy(Record, frozen=True):
    """One of the two."""

    basic: BasicSchedulingPolicy | None = None
    gang: CompositeGangSchedulingPolicy | None = None


class CompositePodGroupSpec(Record, frozen=True):
    parent_composite_pod_group_name: str | None = None
    workload_ref: WorkloadReference | None = None
    scheduling_policy: CompositeSchedulingPolicy = CompositeSchedulingPolicy()
    scheduling_constraints: SchedulingConstraints | None = None
    disruption_mode: DisruptionMode | None = None
    priority_class_name: str = ""
    priority: Int32 | None = None
    preemption_policy: str | None = None


class CompositePodGroupStatus(Record, frozen=True):
    conditions: tuple[Condition, ...] = ()


class CompositePodGroup(Object, frozen=True):
    """A group of groups."""

    spec: CompositePodGroupSpec = CompositePodGroupSpec()
    status: CompositePodGroupStatus = CompositePodGroupStatus()
