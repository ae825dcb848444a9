"""Clusters and scenarios for the tests of `bayplan decide`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

CONFIG = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def node(name: str, *, cpu: str = "4", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": spec,
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}},
    }


def pod(name: str, *, cpu: str = "1", phase: str = "", nominated: str = "", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}], **spec},
        "status": {"phase": phase, "nominatedNodeName": nominated},
    }


def as_yaml(*documents: Any) -> bytes:
    return yaml.safe_dump_all(documents).encode()


def as_lines(*scenarios: Any) -> bytes:
    return "".join(f"{json.dumps(scenario)}\n" for scenario in scenarios).encode()


OBJECTS = (node("n1"), pod("running", cpu="3", nodeName="n1"), pod("waiting", cpu="2"))
SCENARIO = {"name": "case", "objects": OBJECTS[:2], "pods": OBJECTS[2:]}


def cluster_file(directory: Path) -> Path:
    """Two nodes, a running pod, a pod that fits and one that does not."""
    path = directory / "cluster.yaml"
    path.write_bytes(
        as_yaml(node("n1"), node("n2", cpu="8"), pod("runs", nodeName="n1"), pod("a"), pod("b", cpu="90"))
    )
    return path
