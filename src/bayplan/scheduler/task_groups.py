"""YuniKorn's task groups as pod groups: what pods say in annotations becomes groups of the scheduler.

There are no objects of such groups, only pods. A group needs its minimum to begin; once one of its pods has a
node, others are scheduled as they come. An executor that ends and is replaced is so not kept waiting, and a
restarted scheduler finds the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from bayplan.api.groups import PodGroup, PodGroupSpec
from bayplan.api.meta import Condition, Object, ObjectMeta
from bayplan.api.pod import Pod
from bayplan.client.informer import Handler
from bayplan.queues.yunikorn.pods import TASK_GROUP, application_id
from bayplan.queues.yunikorn.task_groups import TaskGroup, group_name, task_groups_of
from bayplan.scheduler.context import Context
from bayplan.scheduler.group_dialects import ForeignGroups, gang
from bayplan.scheduler.group_members import GroupMembers
from bayplan.state.groups import GroupKey, GroupState
from bayplan.state.objects import Objects

_Application = tuple[str, str]
"""The namespace and the ID."""


class YuniKorn:
    """Reads annotations; there is no object to read from or to write to."""

    record: type[Object] | None = None
    more: tuple[type[Object], ...] = ()

    def group_name(self, pod: Pod) -> str:
        return group_name(pod)

    def spec(self, item: int, members: GroupMembers, objects: Objects) -> PodGroupSpec:
        """What a task group asks for; in place of an object it is given its minimum."""
        return gang(item, members.priority)

    def is_scheduled(self, item: Any) -> bool:
        return False

    def written(self, item: Any, condition: Condition, state: GroupState, now: float) -> Object | None:
        return None

    def not_used(self, item: Any) -> Sequence[str]:
        return ()

    def seen(self, item: Any) -> Object | None:
        return None

    def not_admitted(self, item: Any, limit: object, now: float) -> Object | None:
        return None

    def observed(self, item: Any, members: GroupMembers, now: float) -> Object | None:
        return None


DIALECT: Final = YuniKorn()


class TaskGroups(ForeignGroups):
    """The task groups of all known pods."""

    def __init__(self, handler: Handler[Any], context: Context) -> None:
        super().__init__(DIALECT, handler, context)
        self._defined: dict[_Application, dict[str, dict[str, TaskGroup]]] = {}
        """By application, uid of the pod that defines them, and name."""
        self._role: dict[GroupKey, tuple[_Application, str]] = {}
        """The application and the task group of each group with members."""

    def __contains__(self, key: GroupKey) -> bool:
        return key in self._shown

    def pod_changed(self, pod: Pod) -> None:
        groups = task_groups_of(pod)
        if groups:
            own = self._defined.setdefault(_application(pod), {})
            before = own.get(pod.uid)
            own[pod.uid] = {group.name: group for group in groups}
            if own[pod.uid] != before:
                self._refresh_all(_application(pod), own[pod.uid])

    def pod_gone(self, pod: Pod) -> None:
        own = self._defined.get(_application(pod)) if self._defined else None
        groups = None if own is None else own.pop(pod.uid, None)
        if groups is not None:
            if not own:
                del self._defined[_application(pod)]
            self._refresh_all(_application(pod), groups)

    def _refresh_all(self, application: _Application, roles: Iterable[str]) -> None:
        namespace, name = application
        for role in roles:
            key = GroupKey(namespace, f"{name}:{role}")
            if key in self._shown:
                self._refresh(key)

    def member_changed(self, key: GroupKey, pod: Pod) -> None:
        self._put(key, pod)
        if key not in self._shown:
            self._role[key] = (_application(pod), pod.metadata.annotations[TASK_GROUP])
            shown = self._shown[key] = self._translated(key)
            self._handler.added(shown)
        else:
            self._refresh(key)

    def member_gone(self, key: GroupKey, pod: Pod) -> None:
        members = self._members.get(key)
        if members is not None:
            members.remove(pod.uid)
        if members:
            self._refresh(key)
        elif key in self._shown:
            del self._members[key], self._role[key]
            self._handler.deleted(self._shown.pop(key))

    def _refresh(self, key: GroupKey) -> None:
        before, after = self._shown[key], self._translated(key)
        if after != before:
            self._shown[key] = after
            self._handler.updated(before, after)

    def _translated(self, key: GroupKey) -> PodGroup:
        members, (application, role) = self._members[key], self._role[key]
        defined = self._defined.get(application, {}).values()
        least = max((groups[role].min_member for groups in defined if role in groups), default=1)
        if members.assigned:
            least = 1
        meta = ObjectMeta(name=key.name, namespace=key.namespace, uid=f"yunikorn/{key}")
        return PodGroup(metadata=meta, spec=self.dialect.spec(least, members, self._objects))


def _application(pod: Pod) -> _Application:
    return pod.namespace, application_id(pod)
