"""Answers as plain values for programs, with the fields that docs/explain.md describes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bayplan.answers.explain.details import detail
from bayplan.answers.explain.details.resources import amount_text
from bayplan.answers.explain.devices import missing_devices
from bayplan.answers.explain.explanation import Explanation
from bayplan.answers.explain.nodes import NodeAnswer, WaitingPods
from bayplan.answers.explain.pods import PodAnswer, PodState
from bayplan.answers.explain.rejections import rejections
from bayplan.answers.explain.tables import EvaluatedPod
from bayplan.answers.sources.loaded import LoadedCluster, Origin
from bayplan.answers.sources.warnings import Warning
from bayplan.framework.status import Status


def pod_report(loaded: LoadedCluster, answer: PodAnswer, queue: dict[str, Any]) -> dict[str, Any]:
    """The answer about a pod."""
    report: dict[str, Any] = {
        "pod": answer.pod.key,
        "state": answer.state.value,
        "schedulerName": answer.pod.spec.scheduler_name,
        "source": source_report(loaded, answer.warnings),
    }
    if answer.reason:
        report["reason"] = answer.reason
    if answer.state is PodState.ASSIGNED:
        report["node"] = answer.pod.spec.node_name
    if answer.state is not PodState.ASSIGNED:
        report["queue"] = queue
    if answer.state is PodState.PENDING:
        report["identicalPods"] = list(answer.identical)
    if answer.evaluated is not None:
        report["result"] = result_report(answer.evaluated)
        events = answer.events or {}
        report["result"]["requeuedBy"] = [
            {"plugin": plugin, "events": list(found)} for plugin, found in events.items()
        ]
    return report


def source_report(loaded: LoadedCluster, warnings: Iterable[Warning] = ()) -> dict[str, Any]:
    """What the answer rests on."""
    return {
        "name": loaded.name,
        "origin": loaded.origin.value,
        "complete": loaded.origin is not Origin.FILES and not any(loaded.warnings),
        "serverVersion": loaded.server_version or None,
        "emulatedVersion": str(loaded.release),
        "nodes": loaded.node_count,
        "assignedPods": loaded.assigned_count,
        "warnings": [warning.as_json() for warning in dict.fromkeys((*loaded.warnings, *warnings))],
    }


def result_report(evaluated: EvaluatedPod) -> dict[str, Any]:
    """How the scheduler would decide now."""
    explanation = evaluated.explanation
    preemption = explanation.preemption
    permit = explanation.permit
    return {
        "node": explanation.chosen or None,
        "error": explanation.error or None,
        "message": explanation.fit_error_full or None,
        "permit": None
        if permit is None
        else {"plugin": permit.plugin, "status": permit.status.value, "message": permit.message},
        "evaluatedNodes": len(explanation.nodes),
        "feasibleNodes": list(explanation.feasible),
        "scores": _scores(explanation),
        "rejections": [
            {
                "plugin": group.status.plugin or None,
                **_status(group.status),
                "detail": detail(evaluated.framework, evaluated.pod, group) or None,
                "count": len(group.nodes),
                "nodes": list(group.nodes),
                "preemptionHelps": 0
                if preemption is None
                else sum(name in preemption.candidates for name in group.nodes),
            }
            for group in rejections(explanation)
        ],
        "missingDevices": [
            {"claim": one.claim, "request": one.request, "nodes": list(one.nodes), "reason": one.reason}
            for one in missing_devices(evaluated.cluster, evaluated.pod, explanation)
        ],
        "preemption": None
        if preemption is None
        else {
            "eligible": preemption.eligible,
            "message": preemption.message,
            "node": preemption.nominated_node or None,
            "candidates": [
                {"node": node, "victims": list(one.victims), "pdbViolations": one.pdb_violations}
                for node, one in preemption.candidates.items()
            ],
        },
    }


def _status(status: Status) -> dict[str, Any]:
    return {"code": status.code.label, "reasons": list(status.reasons)}


def _scores(explanation: Explanation) -> list[dict[str, Any]]:
    """The feasible nodes, best first, with the weighted score by plugin."""
    names = sorted(explanation.total, key=lambda name: (name != explanation.chosen, -explanation.total[name]))
    return [
        {
            "node": name,
            "total": explanation.total[name],
            "weighted": {
                plugin: scores.weight * scores.normalized[name]
                for plugin, scores in explanation.scores.items()
            },
        }
        for name in names
    ]


def node_report(loaded: LoadedCluster, answer: NodeAnswer) -> dict[str, Any]:
    """The answer about a node."""
    node = answer.node
    return {
        "node": node.name,
        "unschedulable": node.spec.unschedulable,
        "taints": [
            {"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in node.spec.taints
        ],
        "source": source_report(loaded, answer.warnings),
        "resources": [
            {
                "resource": one.resource,
                "allocatable": amount_text(one.resource, one.allocatable),
                "requested": amount_text(one.resource, one.requested),
                "free": amount_text(one.resource, one.free),
            }
            for one in answer.resources
        ],
        "pods": [{"pod": pod.key, "priority": pod.priority} for pod in answer.pods],
        "pendingPods": _waiting(answer.waiting),
        "notEvaluatedPods": answer.not_evaluated,
    }


def _waiting(groups: Sequence[WaitingPods]) -> list[dict[str, Any]]:
    return [
        {
            "pods": list(one.pods),
            "fits": one.status is None and not one.error,
            "plugin": None if one.status is None else one.status.plugin or None,
            "reasons": [] if one.status is None else list(one.status.reasons),
            "detail": one.detail or None,
            "chosenNode": one.chosen or None,
            "error": one.error or None,
        }
        for one in groups
    ]
