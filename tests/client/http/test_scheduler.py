"""A whole scheduler over HTTP: what is pending gets a node, and an event reports it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api.cluster_api import Event
from bayplan.api.pod import Pod
from bayplan.api.storage import BIND_COMPLETED_ANNOTATION, PersistentVolumeClaim
from bayplan.client.http import KubernetesCluster
from bayplan.scheduler.context import LoopSettings
from bayplan.scheduler.loop import Scheduler
from bayplan.scheduler.recorder import EventOutput
from bayplan.simulate.memory.store import MemoryStore
from bayplan.testing.builders import make_node, make_pod, make_pv, make_pvc, make_storage_class

from .api_server import BREAK, ApiServer, ReceivedRequest
from .clients import until, with_server


def bound(store: MemoryStore) -> dict[str, str]:
    return {pod.name: pod.spec.node_name for pod in store.list(Pod) if pod.spec.node_name}


def notes(store: MemoryStore, reason: str) -> list[str]:
    return sorted(event.note for event in store.list(Event) if event.reason == reason)


async def schedule(cluster: KubernetesCluster, work: Any) -> None:
    """Runs a scheduler while the work is done."""
    scheduler = Scheduler(cluster, settings=LoopSettings(eager=False), events=EventOutput(hostname="host"))
    running = asyncio.ensure_future(scheduler.run())
    try:
        await work
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="streams"),
        pytest.param({"streaming": False}, id="lists"),
        pytest.param({"tls": True}, id="https"),
    ],
)
def test_a_workload_is_scheduled(settings: dict[str, Any]) -> None:
    """Pods that are there and pods that come, one that fits nowhere until a node comes for it."""
    store = MemoryStore()
    for i in range(4):
        store.create(make_node(f"n{i}", cpu="4", memory="16Gi"))
    for i in range(20):
        store.create(make_pod(f"early-{i}", requests={"cpu": "100m"}))

    async def act(server: ApiServer, cluster: KubernetesCluster) -> None:
        async def work() -> None:
            await until(lambda: len(bound(store)) == 20)
            store.create(make_pod("large", requests={"cpu": "64"}))
            await until(lambda: bool(notes(store, "FailedScheduling")))
            store.create(make_node("huge", cpu="128", memory="16Gi"))
            await until(lambda: len(bound(store)) == 21 and len(notes(store, "Scheduled")) == 21)

        await schedule(cluster, work())

    with_server(store, act, **settings)
    assert bound(store)["large"] == "huge"
    assert set(bound(store).values()) == {"n0", "n1", "n2", "n3", "huge"}
    assert "Successfully assigned default/large to huge" in notes(store, "Scheduled")
    assert notes(store, "FailedScheduling")[0].startswith("0/4 nodes are available: 4 Insufficient cpu.")
    [condition] = store.get(Pod, "large", "default").status.conditions
    assert (condition.type, condition.status) == ("PodScheduled", "True")


def test_a_pod_makes_room_for_itself() -> None:
    store = MemoryStore()
    store.create(make_node("n", cpu="1", memory="1Gi"))
    small = store.create(make_pod("small", requests={"cpu": "1"}, priority=0))
    store.bind(small.name, small.namespace, "n")

    async def act(server: ApiServer, cluster: KubernetesCluster) -> None:
        async def work() -> None:
            await asyncio.sleep(0.1)
            store.create(make_pod("important", requests={"cpu": "1"}, priority=100))
            await until(lambda: "important" in bound(store) and bool(notes(store, "Preempted")))

        await schedule(cluster, work())

    with_server(store, act)
    assert bound(store) == {"important": "n"}


@pytest.mark.usefixtures("impatient")
def test_volumes_are_bound_with_their_unknown_fields() -> None:
    """An existing one is bound to its claim, one is provisioned; both are waited for."""
    store = MemoryStore()
    store.create(make_node("n", cpu="1", memory="1Gi"))
    store.create(make_storage_class("static", provisioner="kubernetes.io/no-provisioner"))
    store.create(make_storage_class("made"))
    store.create(make_pv("v", storage_class="static"))
    for name in ("static", "made"):
        store.create(make_pvc(name, storage_class=name))
    store.create(make_pod("p", claims=["static", "made"]))

    def complete(claim_name: str, volume_name: str) -> None:
        claim = store.get(PersistentVolumeClaim, claim_name, "default")
        notes = {**claim.annotations, BIND_COMPLETED_ANNOTATION: "yes"}
        meta, spec = replace(claim.metadata, annotations=notes), replace(claim.spec, volume_name=volume_name)
        store.update(replace(claim, metadata=meta, spec=spec))

    async def act(server: ApiServer, cluster: KubernetesCluster) -> None:
        async def work() -> None:
            claim = store.get(PersistentVolumeClaim, "made", "default")
            await until(lambda: bool(server.of("PATCH", "/persistentvolumeclaims/made")))
            complete("static", "v")
            store.create(make_pv("new", storage_class="made", claim=claim))
            complete("made", "new")
            await until(lambda: bool(bound(store)))

        server.unknown["v"] = {"spec": {"hostPath": {"path": "/srv"}}}
        await schedule(cluster, work())
        paths = [each.path.rpartition("/") for each in server.received]
        writes = [name for kind, _, name in paths if "persistentvolume" in kind]
        assert writes == ["v", "made"]
        (volume,) = server.of("PATCH", "/persistentvolumes/v")
        assert volume.json["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
        assert volume.json["metadata"]["resourceVersion"]
        assert volume.json["spec"].keys() == {"claimRef"}
        (claim,) = server.of("PATCH", "/persistentvolumeclaims/made")
        assert claim.json["metadata"]["annotations"] == {"volume.kubernetes.io/selected-node": "n"}
        assert "spec" not in claim.json

    with_server(store, act)
    assert bound(store) == {"p": "n"}


def test_lost_responses_bind_no_pod_twice_and_lose_none() -> None:
    """Every third binding is carried out, and its answer lost; every fifth is lost on the way."""
    store = MemoryStore()
    store.create(make_node("a", cpu="100", memory="100Gi"))
    store.create(make_node("b", cpu="100", memory="100Gi"))
    for i in range(30):
        store.create(make_pod(f"p{i}", requests={"cpu": "1"}))
    count = 0

    async def lose(received: ReceivedRequest) -> str | None:
        nonlocal count
        if not received.path.endswith("/binding"):
            return None
        count += 1
        body = received.json
        if count % 3 == 0 and not store.get(Pod, body["metadata"]["name"], "default").spec.node_name:
            store.bind(
                body["metadata"]["name"], "default", body["target"]["name"], uid=body["metadata"]["uid"]
            )
            return BREAK
        return BREAK if count % 5 == 0 else None

    async def act(server: ApiServer, cluster: KubernetesCluster) -> None:
        await schedule(cluster, until(lambda: len(notes(store, "Scheduled")) >= 30))

    with_server(store, act, interfere=lose)
    expected = [f"Successfully assigned default/{name} to {node}" for name, node in bound(store).items()]
    assert notes(store, "Scheduled") == sorted(expected)
    assert len(expected) == 30
    assert count > 30, "some had to be tried again"


@pytest.mark.usefixtures("impatient")
def test_a_server_that_stops_and_comes_back() -> None:
    store = MemoryStore()
    node = store.create(make_node("n", cpu="100", memory="100Gi"))

    async def act(server: ApiServer, cluster: KubernetesCluster) -> None:
        gone = False

        async def away(received: ReceivedRequest) -> str | None:
            return BREAK if gone else None

        server.interfere = away

        async def work() -> None:
            nonlocal gone
            store.create(make_pod("first"))
            await until(lambda: "first" in bound(store))
            gone = True
            server.cut_after = lambda: 1
            store.update(replace(node, metadata=replace(node.metadata, labels={"a": "b"})))
            store.create(make_pod("second"))
            await asyncio.sleep(0.2)
            gone = False
            server.cut_after = lambda: None
            await until(lambda: "second" in bound(store))

        await schedule(cluster, work())

    with_server(store, act)
