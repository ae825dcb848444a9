"""Explanations as plain values for programs.

pod_report, node_report     answers about pods and nodes; docs/explain.md describes the fields as_json,
pod_allocations    decisions and allocations in the format of the reference (conformance/README.md)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from bayplan.answers.explain.details import detail
from bayplan.answers.explain.devices import missing_devices
from bayplan.answers.explain.explanation import Explanation, explain
from bayplan.answers.explain.questions import NodeAnswer, PodAnswer, PodState, WaitingPods
from bayplan.answers.explain.rejections import Rejection, rejections
from bayplan.answers.explain.remedies import amount_text, pod_state, remedy_report
from bayplan.answers.explain.tables import EvaluatedPod
from bayplan.answers.sources.files import read_scenario
from bayplan.answers.sources.loaded import LoadedCluster, Origin
from bayplan.answers.sources.warnings import Warning
from bayplan.api.devices import AllocationResult
from bayplan.api.pod import Pod
from bayplan.api.releases import Release
from bayplan.framework.plugin_api import NodeNames
from bayplan.framework.status import Code, Status
from bayplan.plugins.dynamic_resources import DynamicResources
from bayplan.plugins.dynamic_resources.claims import PodClaims
from bayplan.plugins.dynamic_resources.results import NodeResult
from bayplan.runtime import calls
from bayplan.runtime.framework import Framework
from bayplan.state.view import NodeColumns

ANY_SHARE_ID: Final = "*"
"""Replaces the id of a share, which is different every time."""


def pod_report(loaded: LoadedCluster, answer: PodAnswer, queue: dict[str, Any]) -> dict[str, Any]:
    """The answer about a pod."""
    report: dict[str, Any] = {
        "pod": answer.pod.key,
        "state": answer.state.value,
        "schedulerName": answer.pod.spec.scheduler_name,
        "source": source_report(loaded, answer.warnings),
    }
    if answer.group is not None:
        report["group"] = answer.group.as_json()
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
        "rejections": [_rejection_report(evaluated, group) for group in rejections(explanation)],
        "missingDevices": [
            {
                "claim": one.claim,
                "request": one.request,
                "nodes": list(one.nodes),
                "reason": one.reason,
                "remedies": [remedy_report(remedy) for remedy in one.remedies],
            }
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


def _rejection_report(evaluated: EvaluatedPod, group: Rejection) -> dict[str, Any]:
    preemption = evaluated.explanation.preemption
    found = detail(evaluated.framework, evaluated.pod, group)
    return {
        "plugin": group.status.plugin or None,
        **_status(group.status, with_plugin=False),
        "detail": found.text or None,
        "remedies": [remedy_report(remedy) for remedy in found.remedies],
        "nominatedPods": [
            {"node": node, "pods": list(pods), "fitsWithout": fits}
            for node, pods, fits in zip(
                group.nodes, group.nominated, group.fits_without_nominated, strict=False
            )
        ],
        "count": len(group.nodes),
        "nodes": list(group.nodes),
        "preemptionHelps": 0
        if preemption is None
        else sum(name in preemption.candidates for name in group.nodes),
    }


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
                "nominated": amount_text(one.resource, one.nominated),
                "releasing": amount_text(one.resource, one.releasing),
            }
            for one in answer.resources
        ],
        "pods": [
            {"pod": pod.key, "priority": pod.priority, "state": pod_state(pod) or None} for pod in answer.pods
        ],
        "nominatedPods": [{"pod": pod.key, "priority": pod.priority} for pod in answer.nominated],
        "pendingPods": _waiting(answer.waiting),
        "notEvaluatedPods": answer.not_evaluated,
        "skippedPods": [{"count": count, "reason": reason} for reason, count in answer.skipped],
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


# The format of the reference. Each pending pod is evaluated alone.


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


def pod_allocations(framework: Framework, pod: Pod) -> dict[str, Any]:
    """The answers of DynamicResources to one pod, as JSON-ready values."""
    scores = explain(framework, pod).scores.get(DynamicResources.name)
    found: dict[str, Any] = {
        "pod": pod.key,
        "preFilter": {"code": Code.SKIP.label, "nodeNames": None},
        "filter": {},
        "allocations": {},
        "rawScore": None if scores is None else scores.raw,
    }
    step = next((one for one in framework.profile.filters if one.name == DynamicResources.name), None)
    if step is None:
        return found
    search = framework.begin_uncached(pod)
    state = search.results.state_of(step) if step.cached else search.state
    answer = calls.pre_filter(step, state, pod, NodeColumns(framework.cluster))
    if isinstance(answer, NodeNames):
        raise TypeError("DynamicResources limits no pod to named nodes")
    found["preFilter"]["code"] = answer.code.label
    if answer.code is not Code.SUCCESS:
        if answer.code is not Code.SKIP:
            found["preFilter"]["reasons"] = list(answer.reasons)
        return found
    statuses = framework.filtering.alone(search, step)
    claims: PodClaims | None = state.get(DynamicResources.name)
    for row, name in _rows(framework):
        status = statuses.status(row)
        if status is not None:
            found["filter"][name] = {"code": status.code.label, "reasons": list(status.reasons)}
        elif claims is not None and claims.results is not None:
            result = claims.results.at(row)
            if result is not None:
                found["allocations"][name] = _node_result(result)
    return found


def _rows(framework: Framework) -> Iterator[tuple[int, str]]:
    cluster = framework.cluster
    return ((int(row), cluster.nodes.name[row]) for row in cluster.order)


def _node_result(result: NodeResult) -> dict[str, Any]:
    written: dict[str, Any] = {"results": [_allocation(one) for one in result.allocations]}
    if result.variant is not None:
        written["requests"] = msgspec.to_builtins(result.variant.requests) or None
        if result.variant.mappings:
            written["mappings"] = msgspec.to_builtins(result.variant.mappings)
    return written


def _allocation(allocation: AllocationResult) -> dict[str, Any]:
    written: dict[str, Any] = msgspec.to_builtins(allocation)
    for device in written.setdefault("devices", {}).get("results", ()):
        if "shareID" in device:
            device["shareID"] = ANY_SHARE_ID
    return written
