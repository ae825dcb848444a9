"""Task groups of an application: which of its pods are scheduled together.

The annotation `yunikorn.apache.org/task-groups` on any pod of an application lists its task groups with the
number of pods that each needs; a pod names its own in `yunikorn.apache.org/task-group-name`.

https://yunikorn.apache.org/docs/user_guide/gang_scheduling
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from bayplan.api.pod import Pod
from bayplan.api.quantity import parse_quantity, resource_units
from bayplan.errors import QuantityError
from bayplan.queues.amounts import Amounts, total
from bayplan.queues.yunikorn.config import VCORE
from bayplan.queues.yunikorn.pods import DOMAIN, TASK_GROUP, application_id, facts

TASK_GROUPS: Final = f"{DOMAIN}task-groups"


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """Pods of an application that are scheduled together."""

    name: str
    min_member: int
    amounts: Amounts
    """What one of its pods asks for."""


def task_groups_of(pod: Pod) -> Sequence[TaskGroup]:
    """The task groups that a pod defines for its application; none if the annotation is invalid."""
    return _read(pod)[0]


def task_groups_problem(pod: Pod) -> str:
    """Why the task groups of a pod are ignored; "" if they are valid, or if there are none."""
    return _read(pod)[1]


def _read(pod: Pod) -> tuple[Sequence[TaskGroup], str]:
    """The task groups of a pod, and what is wrong with them."""
    text = pod.metadata.annotations.get(TASK_GROUPS)
    if not text:
        return (), ""
    try:
        items = json.loads(text)
        if not isinstance(items, list):
            return (), "it is not a JSON list"
        return tuple(map(_task_group, items)), ""
    except _InvalidError as error:
        return (), f"{error}, {text}"
    except (ValueError, QuantityError) as error:
        return (), str(error)


class _InvalidError(Exception):
    """A task group that YuniKorn rejects, in its words."""


def _task_group(item: Any) -> TaskGroup:
    # gang_utils.go: GetTaskGroupsFromAnnotation
    if not isinstance(item, dict):
        raise ValueError("a task group is not a JSON object")
    name, resources, count = item.get("name"), item.get("minResource"), item.get("minMember")
    if not name or not isinstance(name, str):
        raise _InvalidError("can't get taskGroup Name from pod annotation")
    if not isinstance(resources, dict):
        raise _InvalidError("can't get taskGroup MinResource from pod annotation")
    if not count or not isinstance(count, int):
        raise _InvalidError("can't get taskGroup MinMember from pod annotation")
    if count < 0:
        raise _InvalidError("minMember cannot be negative")
    amounts = {"pods": 1}
    for kind, quantity in resources.items():
        amounts[VCORE if kind == "cpu" else kind] = resource_units(kind, parse_quantity(str(quantity)))
    return TaskGroup(name, count, amounts)


def minimum_of(groups: Sequence[TaskGroup]) -> dict[str, int]:
    """What the minimum of all task groups asks for."""
    return total(
        {kind: amount * group.min_member for kind, amount in group.amounts.items()} for group in groups
    )


def group_name(pod: Pod) -> str:
    """The name of the pod group of a pod with a task group: no PodGroup object can have it. "" for others.

    Placeholders reserve resources for another pod, so they are not members.
    """
    role = pod.metadata.annotations.get(TASK_GROUP)
    if not role or facts(pod).is_placeholder:
        return ""
    return f"{application_id(pod)}:{role}"
