"""Scenarios: a cluster and waiting pods as one JSON object, and decisions in the format of the reference.

`conformance/vectors/README.md` describes both. Each waiting pod is judged alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from bayplan.api.decode import decode_object
from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.config import KubeSchedulerConfiguration, parse_config
from bayplan.errors import DecodeError
from bayplan.explain.explanation import Explanation, explain
from bayplan.framework.status import Status
from bayplan.scheduler.core import SchedulingCore


def decide_scenario(scenario: Mapping[str, Any], *, keep: bool = True) -> dict[str, Any]:
    """The decisions for all waiting pods of a scenario, as JSON-ready values."""
    name = str(scenario.get("name", ""))
    core = SchedulingCore(_config(scenario, name), keep=keep)
    core.load(_objects(scenario.get("objects", ()), name))
    results = []
    for pod in _objects(scenario.get("pods", ()), name):
        if not isinstance(pod, Pod):
            raise DecodeError("only pods can wait to be scheduled", source=name, object_key=pod.key)
        framework = core.framework_for(pod)
        if framework is None:
            raise DecodeError(
                f"no profile is named {pod.spec.scheduler_name!r}",
                source=name,
                object_key=f"Pod {pod.key}",
                field="spec.schedulerName",
            )
        results.append(as_json(explain(framework, pod)))
    return {"name": name, "results": results}


def _config(scenario: Mapping[str, Any], name: str) -> KubeSchedulerConfiguration | None:
    config = scenario.get("config")
    if config is None:
        return None
    text = config if isinstance(config, str) else msgspec.json.encode(config).decode()
    return parse_config(text, f"{name}: config")


def _objects(raw: Any, name: str) -> list[Object]:
    found = (decode_object(item, source=name) for item in raw)
    return [item for item in found if item is not None]


def _status(status: Status, *, with_plugin: bool) -> dict[str, Any]:
    described: dict[str, Any] = {"code": status.code.label, "reasons": list(status.reasons)}
    if with_plugin and status.plugin:
        described["plugin"] = status.plugin
    return described


def as_json(explanation: Explanation) -> dict[str, Any]:
    """An explanation in the format of the reference decisions."""
    if explanation.error:
        return {"pod": explanation.pod, "error": explanation.error}
    preemption = explanation.preemption
    return {
        "pod": explanation.pod,
        "filter": {
            plugin: {node: _status(status, with_plugin=False) for node, status in per_node.items()}
            for plugin, per_node in explanation.filters.items()
        },
        "nodeStatus": {
            node: _status(status, with_plugin=True) for node, status in explanation.node_status.items()
        },
        "feasible": list(explanation.feasible),
        "score": {
            plugin: {"raw": scores.raw, "normalized": scores.normalized, "weight": scores.weight}
            for plugin, scores in explanation.scores.items()
        },
        "total": explanation.total,
        "best": list(explanation.best),
        "fitError": explanation.fit_error or None,
        "fitErrorFull": explanation.fit_error_full or None,
        "preemption": None
        if preemption is None
        else {
            "eligible": preemption.eligible,
            "message": preemption.message,
            "nominatedNode": preemption.nominated_node,
            "candidates": {
                node: {"victims": list(candidate.victims), "numPDBViolations": candidate.pdb_violations}
                for node, candidate in preemption.candidates.items()
            },
        },
    }
