"""What pods share: pod groups with their members, and capacity queues with their shares.

The answers are those of `bayplan explain group` and `bayplan queues`, on a state of the history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from bayplan.answers.capacity_queues import QueueQuestions
from bayplan.answers.explain.groups import explain_group
from bayplan.answers.sources.groups import in_dialects
from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.api.groups import CompositePodGroup, PodGroup
from bayplan.api.pod import Pod
from bayplan.config.model import PodGroupDialect
from bayplan.queues.amounts import Amounts, readable
from bayplan.state.groups import MAX_DEPTH, Group, GroupKey, group_key, group_of

MAX_GROUPS: Final = 200
MAX_MEMBERS: Final = 500


@dataclass(slots=True)
class _Members:
    """The members of a PodGroup, or of all PodGroups below a CompositePodGroup."""

    key: GroupKey
    group: Group | None = None
    assigned: int = 0
    pending: int = 0
    children: list[_Members] = field(default_factory=list)

    def described(self, depth: int) -> dict[str, Any]:
        group = self.group
        least = group.min_count if group is not None and group.is_gang else None
        return {
            "group": str(self.key),
            "depth": depth,
            "exists": group is not None,
            "minCount": None if self.key.is_composite else least,
            "minGroupCount": least if self.key.is_composite else None,
            "assigned": self.assigned,
            "pending": self.pending,
        }


def pod_groups(loaded: LoadedCluster) -> dict[str, Any]:
    """The groups with the number of their members, those with pending members first; composite groups with
    the groups below them."""
    found: dict[GroupKey, _Members] = {}
    pods: list[Pod] = []
    for item in in_dialects(loaded.objects, tuple(PodGroupDialect)):
        if isinstance(item, PodGroup | CompositePodGroup):
            group = group_of(item, has_parent=True)
            found[group.key] = _Members(group.key, group)
        elif isinstance(item, Pod) and not item.is_finished and group_key(item) is not None:
            pods.append(item)
    for pod in pods:
        key = group_key(pod)
        assert key is not None
        for one in _with_ancestors(found, found.setdefault(key, _Members(key))):
            one.assigned += bool(pod.spec.node_name)
            one.pending += not pod.spec.node_name
    roots: list[_Members] = []
    for one in found.values():
        above = _with_ancestors(found, one)[1:]
        (above[0].children if above else roots).append(one)
    rows = list(islice(_rows(roots, 0), MAX_GROUPS))
    return {"podGroups": rows, "podGroupCount": len(found)}


def _with_ancestors(found: Mapping[GroupKey, _Members], one: _Members) -> list[_Members]:
    """A group and those above it, as far as they exist; only itself if there are too many, or a cycle."""
    path = [one]
    while (group := path[-1].group) is not None and group.parent is not None:
        if group.parent not in found:
            break
        if len(path) == MAX_DEPTH:
            return [one]
        path.append(found[group.parent])
    return path


def _rows(groups: list[_Members], depth: int) -> Iterator[dict[str, Any]]:
    for one in sorted(groups, key=lambda one: (not one.pending, str(one.key))):
        yield one.described(depth)
        yield from _rows(one.children, depth + 1)


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
        have, entitled, limit = used.get(kind, 0), (guaranteed or {}).get(kind), (ceiling or {}).get(kind)
        whole = limit if limit is not None else entitled
        found.append(
            {
                "resource": kind,
                "used": readable(kind, have),
                "guaranteed": None if entitled is None else readable(kind, entitled),
                "max": None if limit is None else readable(kind, limit),
                "share": have / whole if whole else None,
                "guaranteedShare": entitled / whole if entitled is not None and whole else None,
            }
        )
    return found
