"""What-if on a snapshot of the embedded cluster predicts what its scheduler then does.

Groups, volumes, spreading, affinity and preemption, with the controllers and kubelets of the cluster at work.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

from bayplan.answers.sources.live import read_kinds
from bayplan.answers.whatif import Cluster, Placements
from bayplan.api.documents import Document, read_documents
from bayplan.api.kinds import Watch
from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.embedded.kubelets import make_nodes
from bayplan.embedded.server.embedded_cluster import EmbeddedCluster
from bayplan.embedded.up.cluster import LocalCluster, LocalSettings
from bayplan.embedded.up.report import Outcomes
from bayplan.embedded.up.watched_files import WatchedDevices
from bayplan.errors import NotFoundError
from bayplan.plugins.library.coscheduling import Coscheduling

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"


def pod_spec(cpu: str, memory: str = "1Gi", **more: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    return {
        "terminationGracePeriodSeconds": 2,
        "containers": [{"name": "c", "image": "i", "resources": resources}],
        **more,
    }


def pod(name: str, spec: dict[str, Any], **labels: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def workload(kind: str, name: str, replicas: int, spec: dict[str, Any], **more: Any) -> dict[str, Any]:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
            **more,
        },
    }


SPREAD = {
    "maxSkew": 1,
    "topologyKey": ZONE,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
}
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "apart"}}}
        ]
    }
}
GROUP = "scheduling.x-k8s.io/pod-group"


def objects() -> list[dict[str, Any]]:
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "storageClassName": "disk",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"}
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "urgent"},
            "value": 1000,
        },
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "disk"},
            "provisioner": "example.com/disk",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        workload("ReplicaSet", "web", 6, pod_spec("500m", topologySpreadConstraints=[SPREAD])),
        workload("ReplicaSet", "apart", 3, pod_spec("250m", affinity=APART)),
        workload("StatefulSet", "db", 1, pod_spec("1"), volumeClaimTemplates=[claim]),
        {**group, "metadata": {"name": "g", "namespace": "default"}, "spec": {"minMember": 3}},
        *(pod(f"g-{i}", pod_spec("1"), **{GROUP: "g"}) for i in range(3)),
        {**group, "metadata": {"name": "never", "namespace": "default"}, "spec": {"minMember": 3}},
        *(pod(f"never-{i}", pod_spec("900"), **{GROUP: "never"}) for i in range(3)),
        pod("urgent", pod_spec("7", memory="1Gi", priorityClassName="urgent")),
        pod("huge", pod_spec("1000")),
    ]


def definition() -> Document:
    """The kind PodGroup, as users install it."""
    documents = read_documents(Path(__file__).parents[3] / "examples/tour/1-platform.yaml")
    [found] = [one for one in documents if one.content["kind"] == "CustomResourceDefinition"]
    return found


async def listed(cluster: LocalCluster) -> list[Object]:
    api = EmbeddedCluster(cluster.server.api)
    found: list[Object] = []
    for kind in read_kinds():
        try:
            found += (await api.list(kind.record))[0]
        except NotFoundError:
            assert kind.watch is not Watch.REQUIRED, "a kind that this release does not have"
    return found


def by_owner(pods: list[tuple[Pod, str]]) -> dict[str, Counter[str]]:
    """The nodes of pods that have a name, and of those that are created again under another one."""
    found: dict[str, Counter[str]] = {}
    for one, node in pods:
        owner = one.metadata.controller()
        found.setdefault(one.name if owner is None else owner.name, Counter())[node] += 1
    return found


async def predicted_and_actual(
    applied: list[Document], **settings: Any
) -> tuple[dict[str, Counter[str]], dict[str, Counter[str]], Placements]:
    """Where the pods are after what-if and after the scheduler; what-if does not see the scheduler's work."""
    settings_used = LocalSettings(plugins=[Coscheduling], schedules=False, stop_seconds=2.0, **settings)
    async with LocalCluster(settings_used, Outcomes(), [definition()]) as cluster, asyncio.timeout(60):
        await cluster.apply(applied)
        await cluster.idle()
        model = Cluster.from_objects(await listed(cluster), plugins=[Coscheduling])
        result = model.schedule([one for one in model.pods if not one.spec.node_name])
        predicted = by_owner([(one, one.spec.node_name) for one in model.pods])
        cluster._start_scheduler()
        await cluster._synced()
        await cluster.idle()
        actual = by_owner([(one, one.spec.node_name) for one in cluster.pods() if not one.is_terminating])
        return predicted, actual, result


def test_the_scheduler_does_what_was_predicted() -> None:
    names = [node["metadata"]["name"] for node in make_nodes(6)]
    batch = [pod(f"batch-{name}", pod_spec("5", nodeName=name)) for name in names]
    applied = [Document(item, "test", None) for item in (*batch, *objects())]
    predicted, actual, result = asyncio.run(predicted_and_actual(applied, nodes=6))
    assert predicted == actual
    assert len(result.evicted) == 1
    assert result.evicted[0].startswith("default/batch-")
    assert sum(predicted["web"].values()) == 6
    assert all("" not in predicted[name] for name in ("web", "apart", "db", "g-0", "g-1", "g-2", "urgent"))
    assert all(set(predicted[name]) == {""} for name in ("huge", "never-0", "never-1", "never-2"))


def test_devices_are_allocated_where_it_was_predicted() -> None:
    """Claims and templates, several requests, constraints, parts of devices, extended resources."""
    examples = Path(__file__).parents[3] / "examples"
    applied = list(read_documents(examples / "gpu-pods.yaml"))
    devices = WatchedDevices(examples / "gpus.yaml")
    predicted, actual, result = asyncio.run(predicted_and_actual(applied, nodes=3, devices=devices))
    assert predicted == actual
    assert sum("" not in nodes for nodes in predicted.values()) >= 5
    assumed = [one.message for one in result.warnings if one.pod == "gpus/loader"]
    assert "driver storage.example.com has to prepare device array-0 " in "".join(assumed)
