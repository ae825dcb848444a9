"""What devices a pod's claims would get on every node, in the format of the recorded allocations.

`conformance/README.md` describes it. Like other decisions it is evaluated for each pod alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from bayplan.answers.explain.explanation import explain
from bayplan.api.pod import Pod
from bayplan.api.resource_claims import AllocationResult
from bayplan.framework.plugin_api import NodeNames
from bayplan.framework.status import Code
from bayplan.plugins.dynamic_resources import DynamicResources
from bayplan.plugins.dynamic_resources.node_results import NodeResult
from bayplan.plugins.dynamic_resources.pod_claims import PodClaims
from bayplan.runtime import calls
from bayplan.runtime.framework import Framework
from bayplan.state.view import NodeColumns

ANY_SHARE_ID: Final = "*"
"""Replaces the id of a share, which is different every time."""


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


__all__ = ["ANY_SHARE_ID", "pod_allocations"]
