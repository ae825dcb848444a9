"""Objects that own, select, protect or limit pods: services, controllers, budgets, classes, groups, quotas.

No scheduler reads the pod templates and the limits of a namespace: they are for questions about pods that do
not exist yet (`bayplan whatif`), which have to be created as controllers and the API server would. So these
parts stay plain values.
"""

from __future__ import annotations

from typing import Any, Final

from bayplan.api.meta import (
    Content,
    Int32,
    LabelSelector,
    Object,
    Record,
    ResourceList,
    Time,
)


class PodDisruptionBudgetSpec(Record, frozen=True):
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = ""


class PodDisruptionBudgetStatus(Record, frozen=True):
    disruptions_allowed: Int32 = 0
    current_healthy: Int32 = 0
    desired_healthy: Int32 = 0
    disrupted_pods: dict[str, Time | None] = {}


class PodDisruptionBudget(Object, frozen=True):
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class PriorityClass(Object, frozen=True):
    value: Int32 = 0
    global_default: bool = False
    preemption_policy: str | None = None


class EqualitySelectorSpec(Record, frozen=True):
    """Spec of a Service or ReplicationController: a plain map of labels, or none."""

    selector: dict[str, str] | None = None


class Service(Object, frozen=True):
    spec: EqualitySelectorSpec = EqualitySelectorSpec()


class ReplicationController(Object, frozen=True):
    spec: EqualitySelectorSpec = EqualitySelectorSpec()


class LabelSelectorSpec(Record, frozen=True):
    selector: LabelSelector | None = None


class ReplicaSet(Object, frozen=True):
    spec: LabelSelectorSpec = LabelSelectorSpec()


class StatefulSetSpec(Record, frozen=True):
    selector: LabelSelector | None = None
    replicas: Int32 | None = None
    template: Content = {}
    volume_claim_templates: list[Any] = []
    update_strategy: Content = {}
    pod_management_policy: str = ""
    service_name: str = ""
    ordinals: Content = {}


class StatefulSet(Object, frozen=True):
    spec: StatefulSetSpec = StatefulSetSpec()


class Deployment(Object, frozen=True):
    spec: Content = {}


class DaemonSet(Object, frozen=True):
    spec: Content = {}


class Job(Object, frozen=True):
    spec: Content = {}
    status: Content = {}


class ScaleTarget(Record, frozen=True):
    kind: str = ""
    name: str = ""


class HorizontalPodAutoscalerSpec(Record, frozen=True):
    scale_target_ref: ScaleTarget = ScaleTarget()
    min_replicas: Int32 = 1
    max_replicas: Int32 = 0


class HorizontalPodAutoscaler(Object, frozen=True):
    spec: HorizontalPodAutoscalerSpec = HorizontalPodAutoscalerSpec()


class RuntimeClass(Object, frozen=True):
    overhead: Content = {}
    scheduling: Content = {}


class LimitRange(Object, frozen=True):
    spec: Content = {}


class ResourceQuota(Object, frozen=True):
    spec: Content = {}
    status: Content = {}


POD_GROUP_LABEL: Final = "scheduling.x-k8s.io/pod-group"


class PodGroupSpec(Record, frozen=True):
    min_member: Int32 = 0
    """The minimum number of its pods that have to run together. Below 1 there is no requirement."""
    schedule_timeout_seconds: Int32 | None = None
    """How long the first pods wait for the last one; None: the default in the plugin's arguments."""
    min_resources: ResourceList = {}
    """What must be free in the cluster before it is tried."""


class PodGroup(Object, frozen=True):
    spec: PodGroupSpec = PodGroupSpec()


class ElasticQuotaSpec(Record, frozen=True):
    min: ResourceList = {}
    """What is guaranteed. What is not used of it, other namespaces may borrow."""
    max: ResourceList = {}
    """The limit. A resource that is not named is unlimited."""


class ElasticQuota(Object, frozen=True):
    spec: ElasticQuotaSpec = ElasticQuotaSpec()
