"""Results of `decision: upstream` on recorded descheduling scenarios, in the format of the recordings.

The eviction API is the model that the recordings used (`conformance/descheduler/README.md`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
import numpy as np

from bayplan.api.node import Namespace, Node
from bayplan.api.pod import Pod
from bayplan.api.selectors import compile_selector
from bayplan.api.storage import PersistentVolumeClaim
from bayplan.api.workloads import PodDisruptionBudget
from bayplan.deschedule.descheduler import Descheduler
from bayplan.deschedule.eviction import (
    ACTION,
    Answer,
    BackgroundRequests,
    PodEvictor,
    Request,
    Result,
)
from bayplan.deschedule.node_fit import NodeFit
from bayplan.deschedule.policy import Policy, parse_policy
from bayplan.deschedule.table import ClusterTable, Flag, PodColumns
from bayplan.deschedule.usage import MeasuredUsage, QueryResult
from bayplan.errors import ConfigError, DecodeError

_DISRUPTION = "Cannot evict pod as it would violate the pod's disruption budget."
_SEVERAL = (
    "Internal error occurred: This pod has more than one PodDisruptionBudget, which the eviction "
    "subresource does not support."
)
_BACKGROUND = "Eviction triggered evacuation of VMI"


def evaluate(record: dict[str, Any]) -> dict[str, Any]:
    """The result of one scenario."""
    scenario, options = record["scenario"], record["scenario"].get("options", {})
    classes = {one["metadata"]["name"]: one["value"] for one in scenario.get("priorityClasses", ())}
    found: dict[str, Any] = {"id": record["id"]}
    try:
        policy = parse_policy(scenario["policy"], "policy.yaml", classes.get)
    except DecodeError as error:
        return {**found, "stage": "load", "error": error.problem}
    try:
        descheduler = Descheduler(policy)
    except ConfigError as error:
        if options.get("loadOnly"):
            return {**found, "stage": "start", "error": f"failed to create new descheduler: {error}"}
        return {**found, "stage": "new", "error": str(error)}
    if options.get("loadOnly"):
        return {**found, "stage": "ok", "effective": policy.to_wire()}
    world = _World(scenario)
    if options.get("filterOnly"):
        return {**found, "verdicts": _verdicts(world, descheduler)}
    if options.get("nodeFitMatrix"):
        return {**found, **_node_fit(world)}
    return {**found, **_run(world, descheduler, policy)}


def _objects(scenario: dict[str, Any], key: str, kind: Any) -> list[Any]:
    return [msgspec.convert(_bare(one), kind, strict=False) for one in scenario.get(key) or ()]


def _bare(one: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in one.items() if key not in ("apiVersion", "kind")}


@dataclass(slots=True)
class _World:
    """The state of a scenario, and its eviction API."""

    scenario: dict[str, Any]
    pods: dict[str, Pod] = field(default_factory=dict)
    allowed: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pods = {pod.key: pod for pod in _objects(self.scenario, "pods", Pod)}
        self.allowed = {one.key: one.status.disruptions_allowed for one in self.budgets}

    @property
    def budgets(self) -> list[PodDisruptionBudget]:
        return _objects(self.scenario, "pdbs", PodDisruptionBudget)

    @property
    def now(self) -> float:
        return datetime.fromisoformat(self.scenario["now"]).timestamp()

    def table(self) -> ClusterTable:
        columns = PodColumns()
        columns.sync(self.pods.values())
        return ClusterTable(
            columns,
            _objects(self.scenario, "nodes", Node),
            namespaces=_objects(self.scenario, "namespaces", Namespace),
            budgets=self.budgets,
            claims=_objects(self.scenario, "pvcs", PersistentVolumeClaim),
        )

    def answer(self, request: Request) -> Answer:
        options = self.scenario.get("options", {})
        pod = request.pod
        error = (options.get("evictErrors") or {}).get(pod.key)
        if error == "background":
            return Answer(429, _BACKGROUND)
        if error is not None:
            texts = {
                429: _DISRUPTION,
                404: f'pods "{pod.name}" not found',
                403: f'pods "{pod.name}" is forbidden: denied by a webhook',
                500: "Internal error occurred: boom",
            }
            return Answer(int(error), texts[int(error)])
        if pod.key not in self.pods:
            return Answer(404, f'pods "{pod.name}" not found')
        return self._by_budget(self.pods[pod.key])

    def _by_budget(self, pod: Pod) -> Answer:
        if pod.is_finished or pod.status.phase == "Pending" or pod.is_terminating:
            return Answer()
        matching = [
            one
            for one in self.budgets
            if one.namespace == pod.namespace and compile_selector(one.spec.selector).matches(pod.labels)
        ]
        if len(matching) > 1:
            return Answer(500, _SEVERAL)
        for one in matching:
            ready = any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)
            status, policy = one.status, one.spec.unhealthy_pod_eviction_policy
            healthy = status.current_healthy >= status.desired_healthy > 0
            if not ready and (policy == "AlwaysAllow" or healthy):
                return Answer()
            if self.allowed[one.key] <= 0:
                return Answer(429, _DISRUPTION)
            self.allowed[one.key] -= 1
        return Answer()


def _verdicts(world: _World, descheduler: Descheduler) -> dict[str, Any]:
    table = world.table()
    checks = descheduler.profiles[0].evictor.on(table, NodeFit(table), world.now)
    slots = np.arange(len(table.pods))
    passes, fits = checks.filter(slots), checks.pre_eviction_filter(slots)
    return {
        pod.key: {
            "filter": bool(passes[slot]),
            "preEvictionFilter": bool(fits[slot]),
            "checks": "" if passes[slot] else checks.checks(slot),
        }
        for slot, pod in enumerate(table.pods)
    }


def _node_fit(world: _World) -> dict[str, Any]:
    table = world.table()
    fit = NodeFit(table)
    return {
        "nodeFit": {
            pod.key: dict(zip(table.row_of, fit.texts(slot), strict=True))
            for slot, pod in enumerate(table.pods)
        },
        "fits": {
            pod.key: {
                "any": fit.fits_any(slot, table.is_ready),
                "anyOther": fit.fits_any_other(slot, table.is_ready),
            }
            for slot, pod in enumerate(table.pods)
        },
    }


def measured(scenario: dict[str, Any], policy: Policy) -> MeasuredUsage:
    """The measurements of a scenario."""
    usage = MeasuredUsage(policy.uses_kubernetes_metrics)
    for one in scenario.get("nodeMetrics") or ():
        usage.collect(one)
    usage.set_pods(scenario.get("podMetrics") or ())
    prometheus = scenario.get("prometheus")
    if prometheus is not None and policy.prometheus is not None:
        samples = tuple((one["labels"], float(one["value"])) for one in prometheus.get("samples") or ())
        result = QueryResult(prometheus.get("type", "vector"), samples, prometheus.get("error", ""))
        usage.queries = _AnyQuery(result)
    return usage


class _AnyQuery(dict[str, QueryResult]):
    """The same result for every query."""

    def __init__(self, result: QueryResult) -> None:
        super().__init__()
        self._result = result

    def get(self, key: str, default: Any = None) -> Any:
        return self._result


def _run(world: _World, descheduler: Descheduler, policy: Policy) -> dict[str, Any]:
    options = world.scenario.get("options", {})
    counters: Counter[tuple[str, str, str, str, str]] = Counter()
    background = BackgroundRequests() if options.get("evictionsInBackground") else None
    usage = measured(world.scenario, policy)
    cycles = []
    for _ in range(options.get("cycles", 1)):
        table = world.table()

        def send(request: Request, table: ClusterTable = table) -> Answer:
            answer = world.answer(request)
            if not answer.code:
                _after(options.get("afterEvict", "delete"), world, table, request)
            return answer

        def count(result: Result, *labels: str) -> None:
            counters[(result.value, *labels)] += 1  # type: ignore[index]  # five labels

        evictor = PodEvictor(
            table,
            send,
            policy.limits,
            policy.grace_period_seconds,
            policy.reports_failures,
            bool(options.get("dryRun")),
            background,
            world.now,
            count,
        )
        result = descheduler.cycle(table, evictor, now=world.now, usage=usage)
        cycles.append(_cycle(result.skipped, result.errors, result.classes, evictor))
    found: dict[str, Any] = {"cycles": cycles}
    if options.get("metrics"):
        found["metrics"] = _metrics(counters)
    return found


def _after(effect: str, world: _World, table: ClusterTable, request: Request) -> None:
    if effect == "delete":
        table.remove(request.slot)
        world.pods.pop(request.pod.key, None)
    elif effect == "terminating":
        table.mark_terminating(request.slot)
        meta = msgspec.structs.replace(
            request.pod.metadata, deletion_timestamp=datetime.fromisoformat(world.scenario["now"])
        )
        world.pods[request.pod.key] = msgspec.structs.replace(request.pod, metadata=meta)
        assert table.flags[request.slot] & Flag.TERMINATING


def _cycle(skipped: bool, errors: list[str], classes: dict[str, Any], evictor: PodEvictor) -> dict[str, Any]:
    background = 0 if evictor.background is None else len(evictor.background.requests)
    return {
        "evictions": [
            {
                "pod": one.request.pod.key,
                "node": one.request.node,
                "profile": one.request.profile,
                "strategy": one.request.strategy,
                "gracePeriodSeconds": one.request.grace_period_seconds,
                "result": str(one.answer.code) if one.answer.code else "ok",
            }
            for one in evictor.attempts
        ],
        "totalEvicted": evictor.total,
        "evictionRequests": background,
        "events": [
            {
                "pod": one.pod.key,
                "type": one.type,
                "reason": one.reason,
                "action": ACTION,
                "note": one.note,
            }
            for one in evictor.events
        ],
        "errors": errors,
        "skipped": skipped,
        "classes": classes,
    }


def _metrics(counters: Counter[tuple[str, str, str, str, str]]) -> dict[str, Any]:
    return {
        f"{name}{{namespace={namespace},node={node},profile={profile},"
        f"result={result},strategy={strategy}}}": count
        for name in ("descheduler_pods_evicted_total", "descheduler_pods_evicted")
        for (result, strategy, profile, namespace, node), count in counters.items()
    }
