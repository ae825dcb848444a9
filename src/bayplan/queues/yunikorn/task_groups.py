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
    text = pod.metadata.annotations.get(TASK_GROUPS)
    if not text:
        return ()
    try:
        return tuple(_task_group(item) for item in json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, QuantityError):
        return ()


def _task_group(item: Any) -> TaskGroup:
    count = item["minMember"]
    if not isinstance(count, int) or count < 0:
        raise ValueError(count)
    amounts = {"pods": 1}
    for kind, quantity in (item.get("minResource") or {}).items():
        amounts[VCORE if kind == "cpu" else kind] = resource_units(kind, parse_quantity(str(quantity)))
    return TaskGroup(str(item["name"]), count, amounts)


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
