"""PodGroup and Queue of Volcano (scheduling.volcano.sh), as far as they are read.

https://volcano.sh/en/docs/podgroup/
"""

from __future__ import annotations

from typing import Any, Final

from bayplan.api.meta import Int32, Object, Record, ResourceList, Time

API_VERSION: Final = "scheduling.volcano.sh/v1beta1"
GROUP_ANNOTATION: Final = "scheduling.k8s.io/group-name"
"""On a pod: the name of its group."""
OTHER_GROUP_ANNOTATION: Final = "scheduling.volcano.sh/group-name"
QUEUE_ANNOTATION: Final = "scheduling.volcano.sh/queue-name"
"""On a pod without a group: its queue."""
PREEMPTABLE: Final = "volcano.sh/preemptable"
"""On a pod, as annotation or label: whether it may be a victim."""
TASK_ANNOTATION: Final = "volcano.sh/task-spec"
"""On a pod: the task of the job that it belongs to."""


class PodGroupSpec(Record, frozen=True):
    min_member: Int32 = 0
    min_task_member: dict[str, Int32] = {}
    """How many pods of each task have to run together."""
    queue: str = ""
    priority_class_name: str = ""
    min_resources: ResourceList = {}
    network_topology: dict[str, Any] | None = None
    sub_group_policy: tuple[dict[str, Any], ...] = ()

    @property
    def not_used(self) -> tuple[str, ...]:
        """The fields that the scheduler does not use."""
        fields = {"networkTopology": self.network_topology, "subGroupPolicy": self.sub_group_policy}
        return tuple(name for name, content in fields.items() if content)


class PodGroupCondition(Record, frozen=True):
    type: str = ""
    status: str = ""
    transition_id: str = ""
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class PodGroupStatus(Record, frozen=True):
    phase: str = ""
    conditions: tuple[PodGroupCondition, ...] = ()
    running: Int32 = 0
    succeeded: Int32 = 0
    failed: Int32 = 0


class PodGroup(Object, frozen=True):
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class Guarantee(Record, frozen=True):
    resource: ResourceList = {}


class QueueSpec(Record, frozen=True):
    weight: Int32 = 1
    capability: ResourceList = {}
    deserved: ResourceList = {}
    guarantee: Guarantee = Guarantee()
    parent: str = ""
    priority: Int32 = 0
    reclaimable: bool | None = None
    """None is true."""
    affinity: dict[str, Any] | None = None
    dequeue_strategy: str = ""
    extend_clusters: tuple[dict[str, Any], ...] = ()

    @property
    def not_used(self) -> tuple[str, ...]:
        """The fields that the scheduler does not use. Volcano's does not use dequeueStrategy, either."""
        fields = {
            "affinity": self.affinity,
            "dequeueStrategy": self.dequeue_strategy,
            "extendClusters": self.extend_clusters,
        }
        return tuple(name for name, content in fields.items() if content)


class QueueStatus(Record, frozen=True):
    state: str = ""
    """Open, Closed, Closing or Unknown; empty before a controller has seen it."""


class Queue(Object, frozen=True):
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()
