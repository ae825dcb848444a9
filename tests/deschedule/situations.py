"""Builders for descheduling tests: a policy in one line, and its plan for a few objects."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bayplan.answers.whatif import Cluster
from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.deschedule.descheduler import Descheduler
from bayplan.deschedule.memory import Memory
from bayplan.deschedule.plan import Plan
from bayplan.deschedule.planner import Planner
from bayplan.deschedule.policy import parse_policy
from bayplan.deschedule.strategies import STRATEGIES
from bayplan.testing.builders import make_owner, make_pod

NOW = 1_790_000_000.0


def descheduler(plugins: Mapping[str, Mapping[str, Any]], **settings: Any) -> Descheduler:
    """A policy with one profile of these plugins, by name with their arguments."""
    points: dict[str, list[str]] = {"deschedule": [], "balance": []}
    for name in plugins:
        if name in STRATEGIES:
            point = "deschedule" if hasattr(STRATEGIES[name], "deschedule") else "balance"
            points[point].append(name)
    text = {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerPolicy",
        "profiles": [
            {
                "name": "test",
                "pluginConfig": [{"name": name, "args": args} for name, args in plugins.items()],
                "plugins": {point: {"enabled": names} for point, names in points.items()},
            }
        ],
        **settings,
    }
    return Descheduler(parse_policy(json.dumps(text), "policy.yaml", lambda _: None))


def replica(name: str, node: str, owner: str = "web", **fields: Any) -> Pod:
    """A running pod of a ReplicaSet."""
    fields.setdefault("labels", {"app": owner})
    return make_pod(name, node=node, owner=make_owner("ReplicaSet", owner), uid=name, **fields)


def plan_of(
    objects: Sequence[Object],
    plugins: Mapping[str, Mapping[str, Any]],
    memory: Memory | None = None,
    **settings: Any,
) -> Plan:
    """The plan for a cluster of these objects."""
    cluster = Cluster.from_objects(objects)
    return Planner(cluster, descheduler(plugins, **settings), NOW, memory or Memory()).plan()


def moves(plan: Plan) -> list[tuple[str, str, str]]:
    """Pod, source and target of each move."""
    return [(one.pod.removeprefix("default/"), one.source, one.target) for one in plan.moves]


def reasons(plan: Plan) -> dict[str, str]:
    """Why pods stay."""
    return {one.pod.removeprefix("default/"): one.why for one in plan.kept}
