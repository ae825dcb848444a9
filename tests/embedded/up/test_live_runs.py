"""Recorded runs through the embedded server's HTTPS: the same as in process.

The embedded server computes priorities from PriorityClasses, as a real one does, and takes no others. So each
priority of a run becomes a class.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from bayplan.cli.replay import first_difference
from conformance.harness.admin import Admin
from conformance.harness.embedded_plane import EmbeddedPlane
from conformance.harness.live_run import play

RUNS = Path(__file__).parents[3] / "conformance" / "runs"


def _run(kind: str, steps: int) -> dict[str, Any]:
    with gzip.open(RUNS / f"{kind}.jsonl.gz", "rt") as lines:
        run: dict[str, Any] = json.loads(next(lines))
    return _with_classes({**run, "steps": run["steps"][:steps]})


def _with_classes(run: dict[str, Any]) -> dict[str, Any]:
    classes: dict[str, dict[str, Any]] = {}
    steps = []
    for step in run["steps"]:
        if step["op"] == "schedule":
            spec = dict(step["pod"]["spec"])
            priority, policy = spec.pop("priority", 0), spec.get("preemptionPolicy", "PreemptLowerPriority")
            name = f"{'minus-' if priority < 0 else ''}{abs(priority)}-{policy.lower()}"
            classes[name] = {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": priority,
                "preemptionPolicy": policy,
            }
            step = {**step, "pod": {**step["pod"], "spec": {**spec, "priorityClassName": name}}}
        steps.append(step)
    return {**run, "classes": list(classes.values()), "steps": steps}


@pytest.mark.parametrize("kind", ["mixed", "preemption"])
def test_a_run_comes_out_the_same(tmp_path: Path, kind: str) -> None:
    run = _run(kind, 60)
    with EmbeddedPlane(tmp_path) as plane:
        assert first_difference(run, asyncio.run(_played(plane, run))) is None


async def _played(plane: EmbeddedPlane, run: dict[str, Any]) -> dict[str, Any]:
    async with Admin(plane.access()) as admin:
        await admin.create_all(run["classes"])
    return await play(plane, run)
