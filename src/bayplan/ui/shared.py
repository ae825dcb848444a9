"""What pods share: pod groups with their members, and capacity queues with their shares.

The answers are those of `bayplan explain group` and `bayplan queues`, on a state of the history.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from bayplan.answers.capacity_queues import QueueQuestions
from bayplan.answers.explain.groups import explain_group
from bayplan.answers.sources.groups import in_dialects
from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.api.groups import PodGroup
from bayplan.api.pod import Pod
from bayplan.config.model import PodGroupDialect
from bayplan.queues.amounts import Amounts, readable
from bayplan.state.groups import GroupKey, group_key, group_of

MAX_GROUPS: Final = 200
MAX_MEMBERS: Final = 500


@dataclass(slots=True)
class _Members:
    group: PodGroup | None = None
    assigned: int = 0
    pending: int = 0

    def described(self, key: GroupKey) -> dict[str, Any]:
        group = None if self.group is None else group_of(self.group)
        return {
            "group": str(key),
            "exists": group is not None,
            "minCount": group.min_count if group is not None and group.is_gang else None,
            "assigned": self.assigned,
            "pending": self.pending,
        }


def pod_groups(loaded: LoadedCluster) -> dict[str, Any]:
    """The groups with the number of their members, those with pending members first."""
    found: dict[GroupKey, _Members] = {}
    for item in in_dialects(loaded.objects, tuple(PodGroupDialect)):
        if isinstance(item, PodGroup):
            key = GroupKey(item.namespace, item.name)
            found.setdefault(key, _Members()).group = item
        elif isinstance(item, Pod) and not item.is_finished and (named := group_key(item)) is not None:
            members = found.setdefault(named, _Members())
            if item.spec.node_name:
                members.assigned += 1
            else:
                members.pending += 1
    order = sorted(found, key=lambda key: (not found[key].pending, str(key)))
    return {
        "podGroups": [found[key].described(key) for key in order[:MAX_GROUPS]],
        "podGroupCount": len(found),
    }


def group_report(loaded: LoadedCluster, namespace: str, name: str) -> dict[str, Any]:
    """The explanation of a group; lists of members are cut."""
    report = explain_group(loaded, namespace, name).as_json()
    counts = {f"{one}Count": len(report[one]) for one in ("scheduled", "waiting", "victims")}
    cut = {one: report[one][:MAX_MEMBERS] for one in ("scheduled", "waiting", "victims")}
    return report | cut | counts


def capacity_queues(questions: QueueQuestions | None) -> dict[str, Any]:
    """The tree of capacity queues; none if the configuration has none."""
    return {
        "capacityQueues": [
            row.described()
            | {
                "depth": row.depth,
                "name": row.queue.name,
                "resources": _resources(row.queue.used, row.queue.guaranteed, row.queue.ceiling),
            }
            for row in (() if questions is None else questions.rows())
        ]
    }


def _resources(used: Amounts, guaranteed: Amounts | None, ceiling: Amounts | None) -> list[dict[str, Any]]:
    """Each resource with its amounts as text, and the used share of the maximum or else of the guarantee."""
    found = []
    for kind in sorted({*used, *(guaranteed or {}), *(ceiling or {})}):
        have, owed, limit = used.get(kind, 0), (guaranteed or {}).get(kind), (ceiling or {}).get(kind)
        whole = limit if limit is not None else owed
        found.append(
            {
                "resource": kind,
                "used": readable(kind, have),
                "guaranteed": None if owed is None else readable(kind, owed),
                "max": None if limit is None else readable(kind, limit),
                "share": have / whole if whole else None,
                "guaranteedShare": owed / whole if owed is not None and whole else None,
            }
        )
    return found
