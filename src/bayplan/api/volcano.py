"""PodGroup of Volcano (scheduling.volcano.sh), as far as it is read as a pod group (`scheduler/dialects/`).

https://volcano.sh/en/docs/podgroup/
"""

from __future__ import annotations

from typing import Final

from bayplan.api.meta import Int32, Object, Record, ResourceList, Time

GROUP_ANNOTATION: Final = "scheduling.k8s.io/group-name"
"""On a pod: the name of its group."""
TASK_ANNOTATION: Final = "volcano.sh/task-spec"
"""On a pod: the task of the job that it belongs to."""


class PodGroupSpec(Record, frozen=True):
    min_member: Int32 = 0
    min_task_member: dict[str, Int32] = {}
    """How many pods of each task have to run together."""
    queue: str = ""
    priority_class_name: str = ""
    min_resources: ResourceList = {}


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
