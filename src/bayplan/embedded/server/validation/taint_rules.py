"""The rules of DeviceTaintRules: which devices, and which taint."""

from __future__ import annotations

from typing import Any, Final

from bayplan.embedded.server.statuses import FieldProblem, too_many
from bayplan.embedded.server.validation.devices import (
    driver_problems,
    name_problems,
    pool_problems,
    taint_problems,
)

Content = dict[str, Any]

MAX_CONDITIONS: Final = 8


def taint_rule_problems(item: Content) -> list[FieldProblem]:
    spec = item.get("spec") or {}
    selector = spec.get("deviceSelector") or {}
    problems: list[FieldProblem] = []
    for name, check in (("driver", driver_problems), ("pool", pool_problems), ("device", name_problems)):
        if (value := selector.get(name)) is not None:
            problems += check(value, f"spec.deviceSelector.{name}")
    return problems + taint_problems(spec.get("taint") or {}, "spec.taint")


def taint_rule_status_problems(item: Content, old: Content) -> list[FieldProblem]:
    conditions = (item.get("status") or {}).get("conditions") or []
    if len(conditions) <= MAX_CONDITIONS:
        return []
    return [too_many("status.conditions", len(conditions), MAX_CONDITIONS)]
