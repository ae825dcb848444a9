"""Other clients, and that of bayplan, on the embedded server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from kubernetes_asyncio import client as kube
from kubernetes_asyncio import config as kube_config
from kubernetes_asyncio import watch as kube_watch

from bayplan.api.cluster_api import PodStatusPatch
from bayplan.api.meta import Condition, ObjectMeta
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.client.access import Access
from bayplan.client.http import KubernetesCluster
from bayplan.client.informer import Informer
from bayplan.embedded.server.embedded import EmbeddedServer
from bayplan.embedded.server.kinds import NODES, PODS
from bayplan.net.tls import TLSSettings

T = TypeVar("T")


def test_kubernetes_asyncio_lists_watches_and_patches(tmp_path: Path) -> None:
    """The common Python client, with the kubeconfig that is written for kubectl."""

    async def scenario() -> list[tuple[str, str, str]]:
        async with EmbeddedServer() as server:
            path = tmp_path / "kubeconfig"
            server.write_kubeconfig(path)
            await kube_config.load_kube_config(config_file=str(path))
            async with kube.ApiClient() as connection:
                core = kube.CoreV1Api(connection)
                body = kube.V1Pod(
                    metadata=kube.V1ObjectMeta(name="web"),
                    spec=kube.V1PodSpec(containers=[kube.V1Container(name="c", image="nginx")]),
                )
                created = await core.create_namespaced_pod("default", body)
                await core.patch_namespaced_pod("web", "default", {"metadata": {"labels": {"a": "b"}}})
                listed = await core.list_namespaced_pod("default", label_selector="a=b")
                assert [item.metadata.name for item in listed.items] == ["web"]
                await core.delete_namespaced_pod("web", "default")
                seen = []
                version = created.metadata.resource_version
                async with kube_watch.Watch() as stream:
                    events = stream.stream(
                        core.list_namespaced_pod, "default", resource_version=version, timeout_seconds=5
                    )
                    async for event in events:
                        item = event["object"]
                        seen.append((event["type"], item.metadata.name, str(item.metadata.labels)))
                        if event["type"] == "DELETED":
                            break
                return seen

    labels = str({"a": "b"})
    assert asyncio.run(scenario()) == [("MODIFIED", "web", labels), ("DELETED", "web", labels)]


def with_client(conversation: Callable[[EmbeddedServer, KubernetesCluster], Awaitable[T]]) -> T:
    """The result of a function that gets an embedded server and bayplan's client of it."""

    async def main() -> T:
        async with EmbeddedServer() as server:
            tls = TLSSettings(ca_file=str(server.certificates.ca))
            access = Access(server.url, tls=tls, token=server.token)
            cluster = KubernetesCluster(access, qps=-1, rng=random.Random(0))
            try:
                return await conversation(server, cluster)
            finally:
                await cluster.close()

    return asyncio.run(main())


def new_pod(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def test_the_client_of_bayplan_writes_what_the_server_keeps() -> None:
    """Binding, status and deletion, as a scheduler makes them."""

    async def conversation(server: EmbeddedServer, cluster: KubernetesCluster) -> None:
        server.api.create(NODES, {"metadata": {"name": "n1"}})
        server.api.create(PODS, new_pod("a"), "default")
        (pod,), _ = await cluster.list(Pod)
        condition = Condition(type="PodScheduled", status="False", reason="Unschedulable", message="no room")
        await cluster.patch_pod_status(pod, PodStatusPatch(condition, nominated_node_name="n1"))
        status = server.api.get(PODS, "a", "default")["status"]
        assert status["nominatedNodeName"] == "n1"
        assert [known["message"] for known in status["conditions"]] == ["no room"]
        await cluster.bind(pod, "n1", {"chosen": "0-1"})
        bound = await cluster.get(Pod, "a", "default")
        assert bound.annotations["chosen"] == "0-1"
        assert (bound.spec.node_name, bound.status.nominated_node_name) == ("n1", "")
        await cluster.delete_pod(bound)
        assert server.api.get(PODS, "a", "default")["metadata"]["deletionGracePeriodSeconds"] == 30

    with_client(conversation)


class Names:
    """A handler that keeps the names of the objects."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.changed = asyncio.Event()

    def added(self, item: Node) -> None:
        self.names.add(item.name)
        self.changed.set()

    def updated(self, old: Node, new: Node) -> None:
        self.changed.set()

    def deleted(self, item: Node) -> None:
        self.names.remove(item.name)
        self.changed.set()


def test_our_own_informer_follows_it() -> None:
    """Also when the history has been dropped in the meantime."""

    async def conversation(server: EmbeddedServer, cluster: KubernetesCluster) -> set[str]:
        server.api.create(NODES, {"metadata": {"name": "n1"}})
        copy = Names()
        informer = Informer(cluster, Node, copy)
        running = asyncio.create_task(informer.run())
        await asyncio.wait_for(informer.synced.wait(), 10)
        for name in ("n2", "n3"):
            server.api.create(NODES, {"metadata": {"name": name}})
        server.api.delete(NODES, "n1")
        async with asyncio.timeout(10):
            while copy.names != {"n2", "n3"}:
                copy.changed.clear()
                await copy.changed.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return copy.names

    assert with_client(conversation) == {"n2", "n3"}


def test_names_that_are_not_there() -> None:
    """The client of bayplan understands the server's errors."""

    async def conversation(server: EmbeddedServer, cluster: KubernetesCluster) -> str:
        try:
            await cluster.bind(Pod(metadata=ObjectMeta(name="x", namespace="default")), "n1")
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    assert with_client(conversation) == 'NotFoundError: pods "x" not found'
