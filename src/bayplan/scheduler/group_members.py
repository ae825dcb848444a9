"""The members of a pod group of another scheduler, counted as they change.

`group_dialects.py` translates the groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from bayplan.api import volcano
from bayplan.api.pod import Pod


class GroupMembers:
    """The pods of a group, counted as they change: each change of a pod reads the counts."""

    __slots__ = ("_pods", "_priorities", "assigned", "running", "tasks")

    def __init__(self, pods: Iterable[Pod] = ()) -> None:
        self._pods: dict[str, Pod] = {}
        self._priorities: Counter[int] = Counter()
        self.tasks: Counter[str] = Counter()
        """By the annotation that names the task of a job."""
        self.assigned = 0
        """Members that have a node."""
        self.running = 0
        for pod in pods:
            self.put(pod)

    def __len__(self) -> int:
        return len(self._pods)

    @property
    def priority(self) -> int:
        """The highest of a member."""
        return max(self._priorities, default=0)

    def put(self, pod: Pod) -> None:
        """Adds a member, or its new version."""
        self.remove(pod.uid)
        self._pods[pod.uid] = pod
        self._count(pod, 1)

    def remove(self, uid: str) -> bool:
        """Returns whether the pod was a member."""
        pod = self._pods.pop(uid, None)
        if pod is not None:
            self._count(pod, -1)
        return pod is not None

    def _count(self, pod: Pod, sign: int) -> None:
        self.tasks[pod.metadata.annotations.get(volcano.TASK_ANNOTATION, "")] += sign
        self.assigned += sign * bool(pod.spec.node_name)
        self.running += sign * (pod.status.phase == "Running")
        self._priorities[pod.priority] += sign
        if not self._priorities[pod.priority]:
            del self._priorities[pod.priority]


NO_MEMBERS: Final = GroupMembers()
