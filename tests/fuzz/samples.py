"""Valid documents that mutation begins with: an object of each kind that scheduling reads, and pods that use
every field that it uses."""

from __future__ import annotations

import gzip
import json
import random
from functools import cache
from pathlib import Path
from typing import Any, Final

from bayplan.api.meta import Content

CONFORMANCE: Final = Path(__file__).parents[2] / "conformance"
ZONE: Final = "topology.kubernetes.io/zone"
STARTED: Final = "2026-01-01T08:00:00Z"


NOT_READ: Final = ("Deployment", "DaemonSet", "Job", "Lease", "ConfigMap", "PriorityClass")
"""Kinds that a scheduler does not use."""


def node(name: str, *, zone: str = "z0", cpu: str = "8", memory: str = "16Gi") -> Content:
    amounts = {
        "cpu": cpu,
        "memory": memory,
        "pods": "110",
        "ephemeral-storage": "100Gi",
        "x.example/gpu": "4",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, ZONE: zone, "disk": "ssd"},
        },
        "spec": {
            "taints": [{"key": "a", "value": "b", "effect": "PreferNoSchedule"}],
            "unschedulable": False,
        },
        "status": {
            "capacity": amounts,
            "allocatable": dict(amounts),
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": STARTED}],
            "images": [{"names": ["web:1"], "sizeBytes": 100_000_000}],
        },
    }


def plain_pod(name: str, *, cpu: str = "100m", memory: str = "64Mi") -> Content:
    requests = {"cpu": cpu, "memory": memory}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "web:1", "resources": {"requests": requests}}]},
    }


def rich_pod(name: str) -> Content:
    """A pod with every field that scheduling reads."""
    pod = plain_pod(name)
    selector = {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}
    term = {
        "labelSelector": selector,
        "topologyKey": ZONE,
        "namespaces": ["default"],
    }
    node_term = {
        "matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd", "hdd"]}],
        "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}],
    }
    required, preferred = (
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    )
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
    ]
    pod["spec"] |= {
        "priority": 100,
        "preemptionPolicy": "PreemptLowerPriority",
        "terminationGracePeriodSeconds": 30,
        "overhead": {"cpu": "10m"},
        "initContainers": [
            {
                "name": "i",
                "image": "web:1",
                "restartPolicy": "Always",
                "resources": {"requests": {"cpu": "50m"}, "limits": {"cpu": "1", "x.example/gpu": "1"}},
            }
        ],
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}],
        "affinity": {
            "nodeAffinity": {
                required: {"nodeSelectorTerms": [node_term]},
                preferred: [{"weight": 10, "preference": node_term}],
            },
            "podAffinity": {preferred: [{"weight": 5, "podAffinityTerm": term}]},
            "podAntiAffinity": {required: [{**term, "topologyKey": "kubernetes.io/hostname"}]},
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "minDomains": 1,
                "topologyKey": ZONE,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": selector,
                "matchLabelKeys": ["app"],
                "nodeTaintsPolicy": "Honor",
            }
        ],
        "volumes": [
            {"name": "v", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "e", "emptyDir": {"sizeLimit": "1Gi"}},
        ],
        "resources": {"requests": {"cpu": "200m"}},
    }
    pod["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080, "hostIP": "0.0.0.0"}]
    return pod


def bound_pod(name: str, node_name: str) -> Content:
    pod = rich_pod(name)
    pod["spec"]["nodeName"] = node_name
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": STARTED}
    pod["status"] = {"phase": "Running", "startTime": STARTED, "conditions": [condition]}
    return pod


def other_objects() -> list[Content]:
    """One of each other kind, referring to each other."""
    selector = {"matchLabels": {"app": "web"}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": plain_pod("t")["spec"]}

    def made(api_version: str, kind: str, name: str, namespaced: bool = True, **parts: Any) -> Content:
        metadata = {"name": name, **({"namespace": "default"} if namespaced else {})}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts}

    workload = {"replicas": 2, "selector": selector, "template": template}
    return [
        made("v1", "PersistentVolume", "pv", False, spec={
            "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "slow",
            "hostPath": {"path": "/x"}, "persistentVolumeReclaimPolicy": "Delete",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]}},
        }),
        made("v1", "PersistentVolumeClaim", "data", spec={
            "accessModes": ["ReadWriteOnce"], "storageClassName": "slow",
            "resources": {"requests": {"storage": "5Gi"}},
        }),
        made("storage.k8s.io/v1", "StorageClass", "slow", False,
             provisioner="kubernetes.io/no-provisioner", volumeBindingMode="WaitForFirstConsumer"),
        made("storage.k8s.io/v1", "CSINode", "n0", False, spec={"drivers": [
            {"name": "d", "nodeID": "n0", "topologyKeys": ["a"], "allocatable": {"count": 5}}]}),
        made("storage.k8s.io/v1", "CSIDriver", "d", False, spec={"storageCapacity": True}),
        made("storage.k8s.io/v1", "CSIStorageCapacity", "c", storageClassName="slow", capacity="1Gi",
             nodeTopology=selector),
        made("policy/v1", "PodDisruptionBudget", "b", spec={"minAvailable": "50%", "selector": selector},
             status={"disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
                     "disruptedPods": {"w": STARTED}}),
        made("v1", "Service", "web", spec={"selector": {"app": "web"}, "ports": [{"port": 80}]}),
        made("apps/v1", "Deployment", "web", spec=workload),
        made("apps/v1", "ReplicaSet", "web", spec=workload),
        made("apps/v1", "StatefulSet", "db", spec={**workload, "serviceName": "web"}),
        made("apps/v1", "DaemonSet", "agent", spec={"selector": selector, "template": template}),
        made("batch/v1", "Job", "job", spec={"completions": 2, "parallelism": 1, "template": {
            **template, "spec": {**template["spec"], "restartPolicy": "Never"}}}),
        made("scheduling.k8s.io/v1", "PriorityClass", "high", False, value=1000),
        made("v1", "ConfigMap", "settings", data={"a": "b"}),
        made("v1", "Namespace", "team", False),
        made("coordination.k8s.io/v1", "Lease", "lease", spec={
            "holderIdentity": "x", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T08:00:00.000000Z"}),
    ]  # fmt: skip


def definition() -> Content:
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["size"],
                "properties": {
                    "size": {"type": "integer", "minimum": 0, "maximum": 10, "default": 3},
                    "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 20},
                    "parts": {"type": "array", "items": {"type": "string"}, "maxItems": 5},
                    "any": {"x-kubernetes-preserve-unknown-fields": True},
                    "port": {"x-kubernetes-int-or-string": True},
                },
            }
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "shortNames": ["gd"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"}
                    ],
                }
            ],
        },
    }


def custom_object(name: str) -> Content:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Gadget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"size": 3, "name": "abc", "parts": ["a"], "any": {"x": [1]}, "port": "http"},
    }


def cluster(rng: random.Random, *, pods: int = 4) -> list[Content]:
    """Nodes, pods on them and pods that wait."""
    made = [node(f"n{number}", zone=f"z{number % 2}") for number in range(3)]
    made += [bound_pod(f"b{number}", f"n{rng.randrange(3)}") for number in range(2)]
    made += [
        rich_pod(f"r{number}") if rng.random() < 0.6 else plain_pod(f"r{number}") for number in range(pods)
    ]
    others = [item for item in other_objects() if item["kind"] not in NOT_READ]
    return made + rng.sample(others, rng.randrange(len(others) + 1))


@cache
def recorded(folder: str, file: str) -> list[Any]:
    """Lines of a recorded file of conformance/: the shorter half, which mutate faster."""
    lines = gzip.decompress((CONFORMANCE / folder / file).read_bytes()).splitlines()
    lines.sort(key=len)
    return [json.loads(line) for line in lines[: max(len(lines) // 2, 1)]]
