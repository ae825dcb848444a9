"""For every step of every recorded run of kube-scheduler, what-if predicts what the scheduler then did."""

from __future__ import annotations

import gzip
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from bayplan.answers.whatif import Cluster
from bayplan.api.decode import decode_object
from bayplan.api.kinds import KINDS
from bayplan.api.meta import Object, ObjectMeta
from bayplan.api.node import Namespace
from bayplan.api.pod import Pod
from bayplan.api.releases import V1_36
from bayplan.api.workloads import PodDisruptionBudget
from bayplan.config import parse_config

RUNS = Path(__file__).parents[3] / "conformance/runs"
NAMES = sorted(
    path.name.removesuffix(".jsonl.gz") for path in RUNS.glob("*.jsonl.gz") if "extender" not in path.name
)


def decoded(raw: Any) -> Object:
    item = decode_object(raw)
    assert item is not None
    if isinstance(item, Pod):
        # The nodes of the recordings have no kubelets: deleted pods are gone at once.
        return replace(item, spec=replace(item.spec, termination_grace_period_seconds=0))
    return item


def predicted(cluster: Cluster, step: dict[str, Any]) -> dict[str, Any]:
    """What-if on the state before the step. The step then happens."""
    pod = decoded(step["pod"])
    assert isinstance(pod, Pod)
    with cluster.branch() as branch:
        branch.put(pod)
        results = branch.schedule([f"{pod.namespace}/{pod.name}"])
        found = results[f"{pod.namespace}/{pod.name}"]
        branch.commit()
    result: dict[str, Any] = {"node": found.node} if found.fits else {"unschedulable": found.reason}
    if results.evicted:
        result["victims"] = sorted(results.evicted)
    if not found.fits:
        cluster.delete(cluster.pod(found.pod))
    elif step.get("started"):
        bound = cluster.pod(found.pod)
        started = datetime.fromisoformat(step["started"])
        cluster.put(replace(bound, status=replace(bound.status, phase="Running", start_time=started)))
    return result


@pytest.mark.parametrize("name", NAMES)
def test_the_state_before_each_step_predicts_the_step(name: str) -> None:
    with gzip.open(RUNS / f"{name}.jsonl.gz", "rt") as lines:
        runs = [json.loads(line) for line in lines]
    checked = 0
    for run in runs:
        if run.get("extenders"):
            continue
        config = parse_config(msgspec.json.encode(run["config"]).decode(), release=V1_36)
        spaces = [
            Namespace(metadata=ObjectMeta(name=space, labels=labels))
            for space, labels in run.get("namespaces", {}).items()
        ]
        cluster = Cluster.from_objects(spaces, config=config)
        budgets: dict[str, Object] = {}
        for step in run["steps"]:
            if step["op"] in ("create", "update"):
                item = decoded(step["object"])
                cluster.put(item)
                if isinstance(item, PodDisruptionBudget):
                    budgets[item.key] = item
            elif step["op"] == "delete":
                kind = KINDS[step["kind"]].record
                meta = ObjectMeta(name=step["name"], namespace=step.get("namespace", ""))
                cluster.delete(kind(metadata=meta))
            else:
                wanted = {key: step[key] for key in ("node", "unschedulable", "victims") if step.get(key)}
                assert predicted(cluster, step) == wanted, (run["name"], step["pod"]["metadata"]["name"])
                checked += 1
                for budget in budgets.values():
                    # No disruption controller runs in the recordings.
                    cluster.put(budget)
    assert checked > 20
