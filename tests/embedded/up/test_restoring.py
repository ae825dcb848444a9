"""A snapshot becomes an embedded cluster: pods stay on their nodes, and pending ones are scheduled."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import msgspec
import pytest

from bayplan.answers.sources.files import read_cluster
from bayplan.answers.sources.snapshot import Header, encode_snapshot
from bayplan.api.meta import Object, OwnerReference
from bayplan.api.pod import Pod
from bayplan.embedded.server.kinds import NODES, POD_DISRUPTION_BUDGETS, PODS, REPLICA_SETS
from bayplan.embedded.up.cluster import LocalCluster, LocalSettings
from bayplan.embedded.up.manifests import Snapshot, read_manifests_or_snapshots
from bayplan.embedded.up.report import Outcomes
from bayplan.testing.builders import make_namespace, make_node, make_pdb, make_pod, make_replica_set

SET = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid="set", controller=True)
JOB = OwnerReference(api_version="batch/v1", kind="Job", name="job", uid="gone", controller=True)


def stored(item: Object, uid: str = "") -> Object:
    metadata = msgspec.structs.replace(item.metadata, uid=uid or f"uid-{item.key}", resource_version="7")
    return msgspec.structs.replace(item, metadata=metadata)


OBJECTS = [
    *(stored(make_node(name, cpu="4")) for name in ("n1", "n2")),
    stored(make_namespace("team")),
    stored(make_replica_set("web", {"app": "web"}), "set"),
    stored(make_pdb("budget", {"app": "web"}, allowed=1)),
    *(
        stored(make_pod(f"web-{i}", node=f"n{i}", cpu="1", labels={"app": "web"}, owner=SET, image="i"))
        for i in (1, 2)
    ),
    stored(make_pod("waiting", cpu="2", labels={"app": "web"}, owner=SET, image="i")),
    stored(make_pod("job", namespace="team", node="n1", cpu="1", owner=JOB, image="i")),
]


def test_a_snapshot_lives_on(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.json"
    path.write_bytes(encode_snapshot(OBJECTS, Header(server_version="v1.36.0", kinds=("Pod",))))
    (snapshot,) = read_manifests_or_snapshots([str(path)])
    assert isinstance(snapshot, Snapshot)

    async def live() -> tuple[dict[str, Pod], int, list[str]]:
        async with LocalCluster(LocalSettings(nodes=0), Outcomes()) as cluster:
            assert await cluster.apply(snapshot) == len(OBJECTS)
            async with asyncio.timeout(60):
                await cluster.idle()
            budget = cluster.server.api.get(POD_DISRUPTION_BUDGETS, "budget", "default")
            nodes = [item["metadata"]["name"] for item in cluster.server.api.list(NODES)]
            assert len(cluster.server.api.list(PODS)) == 4
            return {pod.key: pod for pod in cluster.pods()}, budget["spec"]["minAvailable"], nodes

    pods, min_available, nodes = asyncio.run(live())
    assert sorted(nodes) == ["n1", "n2"]
    assert {key: pod.uid for key, pod in pods.items()} == {
        item.key: item.uid for item in OBJECTS if isinstance(item, Pod)
    }
    assert {key: pod.status.phase for key, pod in pods.items()} == dict.fromkeys(pods, "Running")
    assert [pods[key].spec.node_name for key in ("default/web-1", "default/web-2", "team/job")] == [
        "n1",
        "n2",
        "n1",
    ]
    assert pods["default/waiting"].spec.node_name
    assert min_available == 1


MANIFESTS = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: "4", pods: "10"}}}
- apiVersion: apps/v1
  kind: ReplicaSet
  metadata: {name: web, namespace: shop, uid: set}
  spec: {selector: {matchLabels: {app: web}}}
- apiVersion: apps/v1
  kind: StatefulSet
  metadata: {name: db, namespace: shop}
  spec: {selector: {matchLabels: {app: db}}}
- apiVersion: policy/v1
  kind: PodDisruptionBudget
  metadata: {name: web, namespace: shop}
  spec: {selector: {matchLabels: {app: web}}}
- apiVersion: v1
  kind: Pod
  metadata:
    name: web-1
    namespace: shop
    labels: {app: web}
    ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: set, controller: true}]
  spec: {containers: [{name: c, image: i}]}
"""


def test_a_snapshot_of_manifests_has_no_generations(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nor has it uids and namespaces: `bayplan snapshot -f` wrote it."""
    (tmp_path / "manifests.yaml").write_text(MANIFESTS)
    objects = read_cluster([str(tmp_path / "manifests.yaml")]).objects
    path = tmp_path / "snapshot.json"
    path.write_bytes(encode_snapshot(objects, Header(server_version="v1.36.0", kinds=("Pod",))))
    (snapshot,) = read_manifests_or_snapshots([str(path)])

    async def live() -> tuple[int, int]:
        async with LocalCluster(LocalSettings(nodes=0), Outcomes()) as cluster:
            await cluster.apply(snapshot)
            async with asyncio.timeout(60):
                await cluster.idle()
            replicas = cluster.server.api.get(REPLICA_SETS, "web", "shop")
            return replicas["status"]["observedGeneration"], cluster.census().running

    assert asyncio.run(live()) == (1, 1)
    assert not [record.message for record in caplog.records if record.levelno >= logging.WARNING]
