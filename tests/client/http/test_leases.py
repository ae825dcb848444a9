"""Leader election over sockets: the requests, and that nothing delays them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from bayplan.api.cluster_api import Lease, PodStatusPatch
from bayplan.api.pod import Pod
from bayplan.client.http import KubernetesCluster
from bayplan.client.leader_election import (
    ElectionSettings,
    LeaderElection,
    LeadershipLostError,
    lease_client,
)
from bayplan.client.requests import NotLeadingError
from bayplan.errors import ConflictError
from bayplan.simulate.memory.store import MemoryStore
from bayplan.testing.builders import make_node, make_pod, make_pv

from .api_server import ApiServer, ReceivedRequest, serving
from .clients import until, with_server

PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"

QUICK = ElectionSettings(lease_duration=600.0, renew_deadline=400.0, retry_period=0.05)
"""Renews often, and does not lose its lease while the machine is busy with something else."""


def elect(cluster: KubernetesCluster, settings: ElectionSettings = QUICK, name: str = "me") -> LeaderElection:
    return LeaderElection(
        lease_client(cluster.connections, settings),
        settings,
        name,
        component="batch-scheduler",
        events=cluster.events(),
        now=lambda: 1_800_000_000.0,
        rng=random.Random(0),
    )


def test_a_lease_as_it_is_written() -> None:
    """Made, renewed and given back, every time with six digits of a second and all fields."""

    async def act(server: ApiServer, cluster: KubernetesCluster) -> list[tuple[str, str, Any]]:
        election = elect(cluster, ElectionSettings())
        await election.acquire()
        holding = asyncio.ensure_future(election.hold())
        await until(lambda: bool(server.of("PUT")))
        holding.cancel()
        await asyncio.wait([holding])
        await election.release()
        return [
            (a.method, a.path, a.json["spec"]) for a in server.received if a.path.startswith(PATH) and a.body
        ]

    moment = "2027-01-15T08:00:00.000000Z"
    ours = {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": moment,
        "renewTime": moment,
        "leaseTransitions": 0,
    }
    assert with_server(MemoryStore(), act) == [
        ("POST", PATH, ours),
        ("PUT", f"{PATH}/kube-scheduler", ours),
        ("PUT", f"{PATH}/kube-scheduler", {**ours, "holderIdentity": "", "leaseDurationSeconds": 1}),
    ]


def test_an_event_of_the_old_form_names_the_leader() -> None:
    async def act(server: ApiServer, cluster: KubernetesCluster) -> tuple[ReceivedRequest, Lease]:
        await elect(cluster).acquire()
        await until(lambda: bool(server.of("POST", "/api/v1/namespaces/kube-system/events")))
        return server.of("POST", "/events")[0], await cluster.get(Lease, "kube-scheduler", "kube-system")

    received, lease = with_server(MemoryStore(), act)
    event = received.json
    assert event["message"] == "me became leader"
    assert (event["reason"], event["type"]) == ("LeaderElection", "Normal")
    assert event["source"] == {"component": "batch-scheduler"}
    assert event["involvedObject"] == {
        "kind": "Lease",
        "apiVersion": "coordination.k8s.io/v1",
        "namespace": "kube-system",
        "name": "kube-scheduler",
        "uid": lease.uid,
        "resourceVersion": lease.metadata.resource_version,
    }
    assert "events.k8s.io" not in received.path


def test_what_others_have_put_into_a_lease_stays() -> None:
    async def act(server: ApiServer, cluster: KubernetesCluster) -> dict[str, Any]:
        election = elect(cluster)
        await election.acquire()
        (made,) = server.store.list(Lease)
        server.unknown[made.key] = {"metadata": {"finalizers": ["example.com/keep"], "labels": {"a": "b"}}}
        holding = asyncio.ensure_future(election.hold())
        await until(lambda: len(server.of("PUT")) >= 2)
        holding.cancel()
        meta: dict[str, Any] = server.of("PUT")[1].json["metadata"]
        return meta

    meta = with_server(MemoryStore(), act)
    assert (meta["finalizers"], meta["labels"]) == (["example.com/keep"], {"a": "b"})


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"qps": 0.01, "burst": 1}, id="the rate limit"),
        pytest.param({}, id="requests that hang"),
    ],
)
def test_nothing_delays_a_renewal(options: dict[str, Any]) -> None:
    """However many writes wait, and for whatever reason."""
    store = MemoryStore()
    pods = [store.create(make_pod(f"p{number}")) for number in range(100)]

    async def hang(received: ReceivedRequest) -> web.StreamResponse | None:
        if received.path.endswith("/binding"):
            await asyncio.sleep(60)
        return None

    async def act(server: ApiServer, cluster: KubernetesCluster) -> tuple[int, int]:
        election = elect(cluster)
        await election.acquire()
        binding = [asyncio.ensure_future(cluster.bind(pod, "n")) for pod in pods]
        holding = asyncio.ensure_future(election.hold())
        await until(lambda: len(server.of("PUT")) >= 5)
        for task in (holding, *binding):
            task.cancel()
        await asyncio.wait([holding, *binding])
        return len(server.of("POST", "/binding")), len(server.of("PUT"))

    bound, renewed = with_server(store, act, options=options, interfere=hang)
    assert bound <= 64
    assert renewed >= 5


def test_a_write_that_waits_while_leadership_is_lost_is_not_sent() -> None:
    """It began while the process led, and then waited for the rate limit."""
    store = MemoryStore()
    pods = [store.create(make_pod(f"p{number}")) for number in range(3)]
    leads = True

    async def act(server: ApiServer, cluster: KubernetesCluster) -> tuple[list[object], int]:
        nonlocal leads
        binding = [asyncio.ensure_future(cluster.bind(pod, "n")) for pod in pods]
        await until(lambda: len(server.of("POST")) == 1)
        leads = False
        ends = await asyncio.gather(*binding, return_exceptions=True)
        await cluster.get(type(pods[0]), "p1", "default")
        return [type(end) for end in ends], len(server.of("POST"))

    options = {"qps": 10, "burst": 1, "may_write": lambda: leads}
    ends, sent = with_server(store, act, options=options)
    assert ends == [type(None), NotLeadingError, NotLeadingError]
    assert sent == 1


@pytest.mark.parametrize(
    ("clock", "wall", "may_write"),
    [
        pytest.param(14, 14, True, id="after less than the lease: it may"),
        pytest.param(15, 15, False, id="after the lease: it may not"),
        pytest.param(0, 15, False, id="with a clock that stopped meanwhile: the other one shows it"),
        pytest.param(15, 0, False, id="with a wall clock that was set back meanwhile"),
    ],
)
def test_a_process_that_resumes_late_starts_no_write(clock: float, wall: float, may_write: bool) -> None:
    """Of none of the verbs; it may read all the same."""
    store = MemoryStore()
    pod, volume = store.create(make_pod("p")), store.create(make_pv("v"))
    passed = {"clock": 0.0, "wall": 0.0}

    async def act(server: ApiServer, cluster: KubernetesCluster) -> list[list[str]]:
        settings = ElectionSettings()
        election = LeaderElection(
            lease_client(cluster.connections, settings),
            settings,
            "paused",
            now=lambda: 1_800_000_000.0 + passed["wall"],
            clock=lambda: passed["clock"],
        )
        await election.acquire()
        passed.update(clock=clock, wall=wall)
        paused = KubernetesCluster(cluster.connections, qps=-1, may_write=election.may_write)
        writes: dict[str, Callable[[], Awaitable[object]]] = {
            "PATCH": lambda: paused.patch_pod_status(pod, PodStatusPatch(nominated_node_name="n")),
            "PATCH a volume": lambda: paused.update(volume),
            "POST a binding": lambda: paused.bind(pod, "n"),
            "POST": lambda: paused.create(make_pod("q")),
            "DELETE": lambda: paused.delete_pod(pod),
        }
        server.received.clear()
        done = []
        for name, write in writes.items():
            try:
                await write()
                done.append(name.split()[0])
            except NotLeadingError:
                pass
        assert (await paused.list(Pod))[0]
        return [done, [received.method for received in server.received if received.method != "GET"]]

    written = ["PATCH", "PATCH", "POST", "POST", "DELETE"] if may_write else []
    assert with_server(store, act) == [written, written]


def test_a_write_under_way_can_only_lose() -> None:
    """It was sent in time and arrives late: the pod is bound by the new leader, and bound once."""
    store = MemoryStore()
    pod = store.create(make_pod("p"))
    arrived, lapsed = asyncio.Event(), asyncio.Event()
    leads = True

    async def delay(received: ReceivedRequest) -> web.StreamResponse | None:
        if received.path.endswith("/binding") and not arrived.is_set():
            arrived.set()
            await lapsed.wait()
        return None

    async def act(server: ApiServer, cluster: KubernetesCluster) -> str:
        nonlocal leads
        late = asyncio.ensure_future(cluster.bind(pod, "ours"))
        await arrived.wait()
        leads = False
        await KubernetesCluster(cluster.connections, qps=-1).bind(pod, "theirs")
        lapsed.set()
        with pytest.raises(ConflictError) as rejected:
            await late
        return str(rejected.value)

    message = with_server(store, act, options={"may_write": lambda: leads}, interfere=delay)
    assert 'already assigned to node "theirs"' in message
    assert store.get(Pod, "p", "default").spec.node_name == "theirs"


def test_two_processes_take_turns() -> None:
    """The second leads as soon as the first has gone, and the first reports it when it is cut off."""

    async def act(server: ApiServer, cluster: KubernetesCluster) -> tuple[list[str], str]:
        settings = ElectionSettings(lease_duration=5.0, renew_deadline=3.0, retry_period=0.05)
        first, second = elect(cluster, settings, "first"), elect(cluster, settings, "second")
        leaders = []
        await first.acquire()
        holding = asyncio.ensure_future(first.hold())
        waiting = asyncio.ensure_future(second.acquire())
        await until(lambda: second.leader == "first")
        leaders.append(first.leader)
        holding.cancel()
        await asyncio.wait([holding])
        await first.release()
        await waiting
        leaders.append(second.leader)

        async def reject(received: ReceivedRequest) -> web.StreamResponse | None:
            return web.Response(status=500) if received.path.startswith(PATH) else None

        server.interfere = reject
        with pytest.raises(LeadershipLostError) as lost:
            await second.hold()
        return leaders, str(lost.value)

    assert with_server(MemoryStore(), act) == (["first", "second"], "Leaderelection lost")


def test_a_server_that_comes_late_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    async def act(server: ApiServer, cluster: KubernetesCluster) -> str:
        late = ApiServer(MemoryStore())
        late.store.create(make_node("n"))
        async with serving(late) as gone:
            access = gone.access
        port = int(access.server.rpartition(":")[2])
        async with KubernetesCluster(access, qps=-1) as other:
            election = elect(other)
            waiting = asyncio.ensure_future(election.acquire())
            await until(lambda: "connection refused" in caplog.text)
            async with serving(late, port=port):
                await waiting
                await until(lambda: bool(late.of("POST", "/events")))
                await other.close()
            return election.leader

    assert with_server(MemoryStore(), act) == "me"
