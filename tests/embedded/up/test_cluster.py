"""When a cluster is idle, and in which order objects are brought into it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bayplan.api.documents import Document
from bayplan.api.releases import DEFAULT_RELEASE
from bayplan.config import KubeSchedulerConfiguration, parse_config
from bayplan.embedded.server.kinds import (
    DAEMON_SETS,
    DEPLOYMENTS,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    Resource,
)
from bayplan.embedded.up import cluster as local
from bayplan.embedded.up.cluster import Census, LocalCluster, LocalSettings
from bayplan.embedded.up.report import Outcomes, State
from bayplan.framework.plugin_api import NodePlugin, Plugin, Wait
from bayplan.plugin import CycleState, NodeInfo, Pod

CONTAINER = {"name": "c", "image": "web", "resources": {"requests": {"cpu": "1"}}}
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [CONTAINER]}}


class Raises(NodePlugin):
    def filter_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> None:
        raise ValueError("oops")


class Holds(Plugin):
    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Wait:
        return Wait(2)


def _document(content: dict[str, Any]) -> Document:
    return Document(content, "file", 1)


def _config() -> KubeSchedulerConfiguration:
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    return parse_config(f"{head}podMaxBackoffSeconds: 1\n")


@pytest.mark.parametrize(
    ("plugin", "state"),
    [
        pytest.param(Raises, {State.ERROR}, id="a plugin that raises"),
        pytest.param(Holds, {State.REJECTED, State.WAITING}, id="a pod that is never allowed"),
    ],
)
def test_a_cluster_that_repeats_what_fails_is_idle(
    monkeypatch: pytest.MonkeyPatch, plugin: type[Plugin], state: set[State]
) -> None:
    """And not before it has failed: a pod that waits at Permit for the first time may yet be bound."""
    monkeypatch.setattr(local, "STALLED_SECONDS", 0.3)

    async def scenario() -> tuple[set[State], int]:
        outcomes = Outcomes()
        settings = LocalSettings(nodes=2, config=_config(), plugins=[plugin])
        async with LocalCluster(settings, outcomes) as cluster, asyncio.timeout(20):
            await cluster.apply([_document(POD)])
            await cluster.idle()
            (pod,) = cluster.pods()
            outcome = outcomes.get(pod.uid)
            assert outcome is not None
            return {outcome.state}, outcome.failures

    found, failures = asyncio.run(scenario())
    assert found <= state
    assert failures >= 1


def test_nodes_are_ready_before_there_are_pods_for_them() -> None:
    """Otherwise the first attempt fails on nodes of which nothing but the name is known."""
    nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"x{i}"}} for i in range(300)]

    async def scenario() -> tuple[int, int]:
        outcomes = Outcomes()
        async with LocalCluster(LocalSettings(), outcomes) as cluster:
            count = await cluster.apply([_document(POD), *map(_document, nodes)])
            await cluster.idle()
            assert count == 301
            return outcomes.scheduled, outcomes.failed

    assert asyncio.run(scenario()) == (1, 0)


def test_a_cluster_whose_pod_waits_for_a_config_map_is_idle() -> None:
    volumes = [{"name": "v", "configMap": {"name": "missing"}}]
    pod = {**POD, "spec": {"containers": [CONTAINER], "volumes": volumes}}

    async def scenario() -> Census:
        async with LocalCluster(LocalSettings(nodes=1), Outcomes()) as cluster, asyncio.timeout(20):
            await cluster.apply([_document(pod)])
            await cluster.idle()
            return cluster.census()

    assert asyncio.run(scenario()) == Census(nodes=1, ready_nodes=1, waiting=1)


def _workload(kind: str) -> dict[str, Any]:
    metadata = {"labels": {"app": "web"}}
    spec = {
        "minReadySeconds": 1,
        "selector": {"matchLabels": metadata["labels"]},
        "template": {"metadata": metadata, "spec": {"containers": [CONTAINER]}},
    }
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"}, "spec": spec}


@pytest.mark.parametrize("resource", [DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS], ids=lambda one: one.kind)
def test_a_cluster_in_which_pods_become_available_is_not_idle(resource: Resource) -> None:
    """A rollout would continue after minReadySeconds."""

    async def scenario() -> dict[str, Any]:
        async with LocalCluster(LocalSettings(nodes=1), Outcomes()) as cluster, asyncio.timeout(20):
            await cluster.apply([_document(_workload(resource.kind))])
            await cluster.idle()
            (document,) = cluster.server.api.documents(resource)
            status: dict[str, Any] = document.parse()["status"]
            return status

    status = asyncio.run(scenario())
    assert status.get("availableReplicas", status.get("numberAvailable")) == 1


def test_a_cluster_with_a_group_that_does_not_fit_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though kube-scheduler retries such groups forever, without any change."""
    monkeypatch.setattr(local, "STALLED_SECONDS", 600)
    group = {
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "kind": "PodGroup",
        "metadata": {"name": "gang"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
    }
    large = {"name": "c", "image": "web", "resources": {"requests": {"cpu": "7"}}}
    spec = {"containers": [large], "schedulingGroup": {"podGroupName": "gang"}}
    pods = [{**POD, "metadata": {"name": f"p{number}"}, "spec": spec} for number in range(2)]

    async def scenario() -> tuple[Census, int]:
        outcomes = Outcomes()
        release = DEFAULT_RELEASE.with_gates(DEFAULT_RELEASE.gates | {"GenericWorkload"})
        settings = LocalSettings(nodes=1, release=release)
        async with LocalCluster(settings, outcomes) as cluster, asyncio.timeout(20):
            await cluster.apply([_document(content) for content in (group, *pods)])
            await cluster.idle()
            return cluster.census(), outcomes.failed

    census, attempts = asyncio.run(scenario())
    assert census == Census(nodes=1, ready_nodes=1, pending=2)
    assert attempts >= 2


CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
DATABASE = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "db"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "db"}},
        "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [CONTAINER]}},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": CLAIM}],
    },
}
OWN_CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "own"},
    "provisioner": "example.com/disk",
}


@pytest.mark.parametrize(
    ("more", "classes", "running"),
    [
        pytest.param([], ["standard"], 2, id="claims without a class get the default one"),
        pytest.param([OWN_CLASS], ["own"], 0, id="a cluster with a class of its own has no other"),
    ],
)
def test_a_new_cluster_has_a_storage_class(
    more: list[dict[str, Any]], classes: list[str], running: int
) -> None:
    documents = [_document(content) for content in (*more, DATABASE)]

    async def scenario() -> tuple[list[str], int]:
        settings = LocalSettings(nodes=2, storage_class=True)
        async with LocalCluster(settings, Outcomes(), documents) as cluster, asyncio.timeout(20):
            await cluster.apply(documents)
            await cluster.idle()
            found = [document.key for document in cluster.server.api.documents(STORAGE_CLASSES)]
            return found, cluster.census().running

    assert asyncio.run(scenario()) == (classes, running)
