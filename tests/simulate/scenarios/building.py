"""Scenarios for tests, from plain values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bayplan.api.documents import Document
from bayplan.api.meta import OWN_API_VERSION, Object
from bayplan.simulate.scenarios.reading import LoadedScenario, load_scenario
from bayplan.simulate.scenarios.run import Finished, simulate
from bayplan.simulate.scenarios.schema import KIND

ROOT = Path(__file__).parents[3]


def template(cpu: str = "1", memory: str = "1Gi", **spec: Any) -> dict[str, Any]:
    """A pod template with one container."""
    container = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    return {"metadata": {"labels": {"app": "test"}}, "spec": {"containers": [container], **spec}}


def nodes(count: int, cpu: str = "4", **group: Any) -> dict[str, Any]:
    allocatable = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
    return {"name": "n", "count": count, "allocatable": allocatable, **group}


def load(
    *workloads: dict[str, Any],
    groups: list[dict[str, Any]] | None = None,
    directory: Path = Path(),
    objects: list[Object] | None = None,
    **fields: Any,
) -> LoadedScenario:
    """A scenario of one hour with these workloads, by default on two nodes with 4 cores each."""
    cluster = {"nodes": [nodes(2)] if groups is None else groups, **fields.pop("cluster", {})}
    content = {
        "apiVersion": OWN_API_VERSION,
        "kind": KIND,
        "duration": "1h",
        "cluster": cluster,
        "workloads": [{"template": template(), **workload} for workload in workloads],
        **fields,
    }
    return load_scenario(Document(content, "test.yaml", None), directory, objects or [])


def run(*workloads: dict[str, Any], **fields: Any) -> Finished:
    return simulate(load(*workloads, **fields))
