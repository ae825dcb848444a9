"""Decisions for scenarios, in the format of the reference.

`conformance/README.md` describes it. Each pending pod is evaluated alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayplan.answers.explain.explanation import Explanation, explain
from bayplan.answers.sources.files import read_scenario
from bayplan.api.releases import Release
from bayplan.framework.status import Status


def decide_scenario(
    scenario: Mapping[str, Any], *, cache: bool = True, release: Release | None = None
) -> dict[str, Any]:
    """The decisions for all pending pods of a scenario, as values that JSON can represent."""
    case = read_scenario(scenario, source=str(scenario.get("name", "")), release=release)
    core = case.core(cache=cache)
    explanations = (explain(core.frameworks[pod.spec.scheduler_name], pod) for pod in case.pending(core))
    return {"name": case.name, "results": [as_json(explanation) for explanation in explanations]}


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
    written: dict[str, Any] = {
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
    if explanation.permit is not None:
        written["permit"] = {
            "plugin": explanation.permit.plugin,
            "status": explanation.permit.status.value,
            "message": explanation.permit.message,
        }
    return written
