"""Small fleets and workloads for tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from bayplan.answers.whatif import Cluster
from bayplan.answers.whatif.manifests import Manifest, Manifests, manifests_of
from bayplan.api.meta import Content, Object
from bayplan.fleet.members import Member
from bayplan.testing import make_node

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def member(
    name: str, *objects: Object, nodes: int = 0, cpu: str = "4", zones: Iterable[str] = ("a",)
) -> Member:
    """A member with equal nodes, in zones in turn, and other objects."""
    names = list(zones)
    made = [
        make_node(
            f"{name}-{number}",
            cpu=cpu,
            memory="16Gi",
            labels={HOST: f"{name}-{number}", ZONE: names[number % len(names)]},
        )
        for number in range(nodes)
    ]
    return Member(name, Cluster.from_objects([*made, *objects]))


def deployment(name: str = "web", *, replicas: int = 3, cpu: str = "1", **spec: Any) -> Content:
    """A Deployment in the namespace shop; `spec` are further fields of its pods."""
    labels = {"app": name}
    container = {"name": "app", "image": "app", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    if "ports" in spec:
        container["ports"] = spec.pop("ports")
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop", "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container], **spec}},
        },
    }


def anti_affinity(name: str = "web", key: str = HOST) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": name}}}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def spread(name: str = "web", key: str = ZONE, skew: int = 1) -> dict[str, Any]:
    constraint = {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": name}},
    }
    return {"topologySpreadConstraints": [constraint]}


def manifest(content: Content) -> Manifest:
    return manifests_of(content).objects[0]


NOTHING_ELSE = Manifests("", ())


def write_nodes(path: Path, name: str, count: int, *, cpu: str = "4", zones: Iterable[str] = ("a",)) -> str:
    """A file with nodes, as a cluster for the command line."""
    names = list(zones)
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"{name}-{number}",
                "labels": {HOST: f"{name}-{number}", ZONE: names[number % len(names)]},
            },
            "status": {"allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "110"}},
        }
        for number in range(count)
    ]
    file = path / f"{name}.yaml"
    file.write_text(yaml.safe_dump_all(nodes))
    return f"{name}={file}"


def write(path: Path, name: str, *contents: Content) -> str:
    file = path / name
    file.write_text(yaml.safe_dump_all(contents))
    return str(file)
