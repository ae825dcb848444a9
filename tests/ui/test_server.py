"""The page over HTTP: the API, its stream of changes, and what is rejected."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.api.meta import Object, ObjectMeta, OwnerReference
from bayplan.api.pod import Pod
from bayplan.api.workloads import PodDisruptionBudget
from bayplan.errors import InputError
from bayplan.process.history import History
from bayplan.testing import MemoryCluster, MemoryStore, SchedulingCore, make_node, make_pod
from bayplan.ui import hub as hub_module
from bayplan.ui.hub import ClusterFeed, Hub
from bayplan.ui.questions import Subject, decision_state
from bayplan.ui.responses import body_of
from bayplan.ui.server import Page
from bayplan.ui.serving import Address, link_of, listen
from bayplan.ui.sources import from_loaded

JOB = OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="t", controller=True)
WEB = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid="w", controller=True)
ZONE = "topology.kubernetes.io/zone"
CLUSTER: tuple[Object, ...] = (
    make_node("a", cpu="4", labels={ZONE: "x"}),
    make_node("b", cpu="4", labels={ZONE: "y"}),
    make_pod("web-1", cpu="3", node="a", owner=WEB),
    *(make_pod(f"train-{n}", namespace="ml", cpu="8", owner=JOB) for n in range(3)),
    make_pod("small", namespace="ml", cpu="1"),
    make_pod("gated", namespace="ml", cpu="1", gates=["example.com/quota"]),
)


class Client:
    """A browser that is logged in."""

    def __init__(self, session: aiohttp.ClientSession, page: Page, root: str) -> None:
        self.session = session
        self.page = page
        self.root = root

    async def get(self, path: str, status: int = 200, **headers: str) -> Any:
        async with self.session.get(self.root + path, headers=headers) as response:
            assert response.status == status, await response.text()
            assert "script-src 'self'" in response.headers["Content-Security-Policy"]
            return (
                await response.json()
                if response.content_type == "application/json"
                else await response.text()
            )

    async def post(self, path: str, body: object, status: int = 200, origin: str = "") -> Any:
        headers = {"Origin": origin or self.root.removesuffix("/ui/"), "Content-Type": "application/json"}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.session.post(self.root + path, data=data, headers=headers) as response:
            assert response.status == status, await response.text()
            return await response.json()


@asynccontextmanager
async def client_of(subject: Subject, hub: Hub) -> AsyncIterator[Client]:
    address = Address()
    jar = aiohttp.CookieJar(unsafe=True)
    async with listen(subject, hub, address) as page, aiohttp.ClientSession(cookie_jar=jar) as session:
        link = link_of(page, address)
        async with session.get(link) as response:
            assert response.status == 200
        async with session.get(link) as response:
            assert response.status == 401
        yield Client(session, page, link.partition("login")[0])


def visit(work: Callable[[Client], Awaitable[None]], objects: tuple[Object, ...] = CLUSTER) -> None:
    async def main() -> None:
        subject, hub = from_loaded(LoadedCluster("dump.yaml", objects), time.time)
        async with client_of(subject, hub) as client:
            await work(client)

    asyncio.run(main())


def test_the_api_answers() -> None:
    async def work(client: Client) -> None:
        info = await client.get("api/v1/info")
        assert (info["source"], info["name"], info["live"]) == ("files", "dump.yaml", False)
        assert info["weights"]["NodeResourcesFit"] == 1
        cluster = await client.get("api/v1/cluster")
        assert cluster["nodes"]["name"] == ["a", "b"]
        assert cluster["pods"]["a"][0][0] == "default/web-1"
        node = await client.get("api/v1/nodes/a")
        assert node["pods"][0]["requests"]["cpu"] == 3000
        assert [one["fits"] for one in node["pendingPods"]] == [False, True]
        pod = await client.get("api/v1/pods/ml/train-1")
        assert pod["funnel"] == [
            {
                "plugin": "NodeResourcesFit",
                "rejected": 2,
                "left": 0,
                "reasons": [{"reason": "Insufficient cpu", "nodes": 2}],
            }
        ]
        assert pod["identicalCount"] == 2
        assert pod["workload"] == "Job train"
        small = await client.get("api/v1/pods/ml/small")
        assert small["table"]["chosen"] == small["result"]["node"]
        assert len(small["table"]["nodes"]) == 2
        assigned = await client.get("api/v1/pods/default/web-1")
        assert assigned["node"] == "a"
        fit = await client.get("api/v1/fit?pod=ml/train-1")
        assert fit["rejected"] == {"NodeResourcesFit": ["a", "b"]}
        assert (await client.get("api/v1/fit?pod=ml/gated"))["reason"].startswith("it is gated")
        assert (await client.get("api/v1/search?q=TRAIN"))["pods"] == [f"ml/train-{n}" for n in range(3)]
        assert (await client.get("api/v1/search?q=%20"))["pods"] == []
        workloads = (await client.get("api/v1/workloads"))["workloads"]
        assert {one["workload"] for one in workloads} == {"default/web", "ml/train"}
        assert "KubeSchedulerConfiguration" in (await client.get("api/v1/configuration"))["yaml"]
        assert (await client.get("api/v1/timeline"))["samples"]
        assert (await client.get("api/v1/decisions"))["decisions"] == []
        assert (await client.get("api/v1/changes?from=0&to=0"))["nodes"] == []

    visit(work)


def test_pending_pods_are_grouped_by_workload_and_reason() -> None:
    async def work(client: Client) -> None:
        queue = await client.get("api/v1/queue")
        assert queue["exact"] is False
        assert (queue["counts"]["active"], queue["counts"]["gated"]) == (4, 1)
        by_workload = {one["workload"]: one for one in queue["groups"]}
        assert by_workload["Job train"]["count"] == 3
        assert "Insufficient cpu" in by_workload["Job train"]["forecast"]
        assert by_workload["Pod small"]["forecast"].startswith("would go to")
        assert by_workload["Pod gated"]["reason"] == "scheduling gates: example.com/quota"
        assert by_workload["Pod gated"]["waitsFor"][0]["plugin"] == "SchedulingGates"

    visit(work)


def test_what_if() -> None:
    async def work(client: Client) -> None:
        manifest = (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: new}\nspec: {containers: [{name: c, image: i}]}"
        )
        changes = [
            {"type": "drain", "node": "a"},
            {"type": "cordon", "node": "b"},
            {"type": "addNodes", "count": 2, "like": "cpu=16,memory=64Gi"},
            {"type": "scale", "workload": "default/web", "replicas": 2},
            {"type": "apply", "manifest": manifest},
            {"type": "weights", "weights": {"NodeResourcesFit": 9, "ImageLocality": 0}},
            {"type": "removeNode", "node": "b"},
        ]
        found = await client.post("api/v1/whatif", {"changes": changes})
        assert len(found["changes"]) == 7
        assert found["removedNodes"] == ["b"]
        assert found["moved"] == 1
        assert {one["pod"] for one in found["pods"] if one["outcome"] == "Scheduled"} >= {
            "default/new",
            "ml/small",
        }
        assert found["nodes"]["a"][1][0] == 0
        assert (found["notScheduled"], found["stayPending"]) == (1, 1)  # the gated pod
        yaml = (await client.get("api/v1/configuration"))["yaml"]
        found = await client.post("api/v1/whatif", {"changes": [{"type": "config", "config": yaml}]})
        assert found["changes"] == ["schedule with another configuration"]
        assert found["stayPending"] == 4
        assert (await client.get("api/v1/cluster"))["nodes"]["requested"][0] == [3000, 0]

    visit(work)


@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        ({"type": "explode"}, 400, "one of the types"),
        ({"type": "drain", "node": "zzz"}, 404, "no such node"),
        ({"type": "drain"}, 400, "needs the text 'node'"),
        ({"type": "addNodes", "count": -1}, 400, "whole number"),
        ({"type": "scale", "workload": "default/web", "replicas": "x"}, 400, "whole number"),
        ({"type": "weights", "weights": {"NodeResourcesFit": 1000}}, 400, "0 to 100"),
        ({"type": "apply", "manifest": "kind: ["}, 400, "the manifest"),
        ({"type": "config", "config": "kind: Nothing"}, 400, "configuration"),
    ],
)
def test_changes_that_cannot_be_made(change: dict[str, Any], status: int, text: str) -> None:
    async def work(client: Client) -> None:
        async with client.session.post(
            client.root + "api/v1/whatif",
            json={"changes": [change]},
            headers={"Origin": client.root.removesuffix("/ui/")},
        ) as response:
            assert response.status in (400, 404), await response.text()
            assert text.split()[0] in (await response.json())["error"] or response.status == status

    visit(work)


def test_compare() -> None:
    async def work(client: Client) -> None:
        variants = [{"version": "1.36"}, {"weights": {"NodeResourcesFit": 10}}]
        found = await client.post("api/v1/compare", {"variants": variants, "fromScratch": True})
        assert found["variants"] == ["Kubernetes 1.36", "Kubernetes 1.37"]
        assert found["figures"]["scheduled"][0]["mean"] == 2
        assert found["differenceCount"] == len(found["differences"])
        await client.post("api/v1/compare", {"variants": variants[:1]}, status=400)
        await client.post("api/v1/compare", {"variants": [{"version": "0.9"}, {}]}, status=400)

    visit(work)


def test_what_is_rejected() -> None:
    async def work(client: Client) -> None:
        for path in (
            "api/v1/nothing",
            "api/v1/nodes/zzz",
            "api/v1/pods/a/b",
            "api/v1/decisions/7",
            "other",
            "static/x.js",
        ):
            await client.get(path, status=404)
        for path in ("static/..%2fserver.py", "static/server.py", "static/%2e%2e/access.py"):
            async with client.session.get(client.root + path) as response:
                assert response.status == 404
        await client.get("api/v1/cluster?at=x", status=400)
        await client.get("api/v1/changes?from=0&time=soon", status=400)
        await client.get("api/v1/info", status=403, Host="evil.example.com")
        await client.get("api/v1/info", status=403, Origin="https://evil.example.com")
        await client.post("api/v1/whatif", {"changes": []}, status=403, origin="https://evil.example.com")
        await client.post("api/v1/whatif", b"[1]", status=400)
        await client.post("api/v1/whatif", {"changes": 1}, status=400)
        await client.post("api/v1/whatif", {"changes": [], "at": "x"}, status=400)
        await client.post("api/v1/other", {}, status=404)
        origin = {"Origin": client.root.removesuffix("/ui/")}
        async with client.session.post(
            client.root + "api/v1/whatif", data={"a": "b"}, headers=origin
        ) as response:
            assert response.status == 415
        async with client.session.delete(client.root + "api/v1/info", headers=origin) as response:
            assert response.status == 405
        async with client.session.get(client.root.removesuffix("ui/"), allow_redirects=False) as response:
            assert response.headers["Location"] == "/ui/"
        async with client.session.get(client.root.removesuffix("ui/") + "api/v1/nodes") as response:
            assert response.status == 404
        await client.post("logout", {})
        assert "Open the link" in await client.get("", status=401)
        await client.get("api/v1/info", status=401)
        assert "font" in await client.get("static/style.css")

    visit(work)


HOSTILE = "<img src=x onerror=alert(1)>"


def test_texts_of_the_cluster_are_shown_as_they_are() -> None:
    """Markup stays text, and characters that act on a display become visible."""
    assert json.loads(body_of({"a": HOSTILE})) == {"a": HOSTILE}
    assert json.loads(body_of({"a\x1b[2J": ["b\u202ec", 1]})) == {"a\\x1b[2J": ["b\\u202ec", 1]}


# Live


class Live:
    """A cluster in memory with a scheduler that decides when it is told to."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.store.create(make_node("a", cpu="4"))
        self.subscriptions = 0
        self.history = History(time.time)
        feed = ClusterFeed(self._connect, [type(make_node("x")), Pod], self._observe)
        self.subject = Subject("memory", "cluster")
        self.hub = Hub(self.history, self.subject.release.accounting.assigned_requests, feed)

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[MemoryCluster]:
        yield MemoryCluster(self.store)

    def _observe(self, history: History) -> Callable[[], None]:
        self.subscriptions += 1

        def stop() -> None:
            self.subscriptions -= 1

        return stop

    def schedule(self, name: str) -> None:
        pod = self.store.create(make_pod(name, cpu="1"))
        core = SchedulingCore()
        core.load([make_node("a", cpu="4")])
        self.history.decided(core.decide(pod))
        self.store.bind(name, "default", "a", uid=pod.uid)


async def next_event(stream: aiohttp.StreamReader) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while True:
        line = (await asyncio.wait_for(stream.readline(), 10)).decode().rstrip("\n")
        if not line and "data" in found:
            return found | {"data": json.loads(found["data"])}
        key, _, value = line.partition(": ")
        if key:
            found[key] = value


def test_viewers_share_one_subscription_and_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "LEAVING_SECONDS", 0.05)
    monkeypatch.setattr(hub_module, "FLUSH_SECONDS", 0.01)

    async def main() -> None:
        live = Live()
        async with client_of(live.subject, live.hub) as client:
            assert live.subscriptions == 0
            url = client.root + "api/v1/events"
            async with client.session.get(url) as one, client.session.get(url) as two:
                await one.content.readline()
                await two.content.readline()
                assert live.subscriptions == 1
                live.schedule("web")
                for response in (one, two):
                    event = await next_event(response.content)
                    decisions = event["data"]["decisions"]
                    while not event["data"]["nodes"]:
                        event = await next_event(response.content)
                    assert [one["pod"] for one in decisions] == ["default/web"]
                    assert event["data"]["nodes"][0]["pods"] == 1
            seen = int(event["id"])
            live.schedule("more")
            async with client.session.get(url, headers={"Last-Event-ID": str(seen)}) as response:
                event = await next_event(response.content)
                assert event["event"] == "changes"
                assert [one["pod"] for one in event["data"]["decisions"]] == ["default/more"]
            async with client.session.get(url, headers={"Last-Event-ID": "999999"}) as response:
                assert (await next_event(response.content))["event"] == "reset"
            for _ in range(100):
                if live.subscriptions == 0:
                    break
                await asyncio.sleep(0.05)
            assert (live.subscriptions, live.hub.viewers) == (0, 0)
            # What was deleted meanwhile is noticed when somebody looks again.
            live.store.delete(Pod, "web", "default")
            cluster = await client.get("api/v1/cluster")
            assert cluster["nodes"]["pods"] == [1]
            decisions = (await client.get("api/v1/decisions?q=web"))["decisions"]
            found = await client.get(f"api/v1/decisions/{decisions[0]['seq']}")
            assert found["explanation"]["result"]["node"] == "a"
            assert (await client.get("api/v1/decisions?result=error"))["decisions"] == []
            before = decisions[0]["seq"]
            assert (await client.get(f"api/v1/decisions?before={before}"))["decisions"] == []
            past = await client.get(f"api/v1/cluster?at={before}")
            assert past["seq"] == before
            step = await client.get(f"api/v1/changes?from={before}&step=next")
            assert step["decisions"][-1]["pod"] == "default/more"
            back = await client.get(f"api/v1/changes?from={step['seq']}&step=previous")
            assert back["seq"] == before
            by_time = await client.get(f"api/v1/changes?from=0&time={time.time()}")
            assert by_time["seq"] == live.history.last
            assert (await client.get(f"api/v1/queue?at={before}"))["seq"] == before

    asyncio.run(main())


def test_a_feed_that_fails_is_reported() -> None:
    class Broken:
        async def run(self, history: History, synced: asyncio.Event) -> None:
            raise InputError("no cluster")

    async def main() -> None:
        subject = Subject("x", "live")
        hub = Hub(History(time.time), subject.release.accounting.assigned_requests, Broken())
        async with client_of(subject, hub) as client:
            assert (await client.get("api/v1/info"))["problem"] == "no cluster"

    asyncio.run(main())


def test_an_object_that_reached_the_scheduler_first_is_part_of_the_explanation() -> None:
    """Its time of creation says that it was there; one that was created later was not."""

    async def main() -> None:
        live = Live()
        async with client_of(live.subject, live.hub) as client:
            await client.get("api/v1/info")
            core, pod = SchedulingCore(), make_pod("web", cpu="1")
            core.load([make_node("a", cpu="4")])
            live.history.put(pod)
            live.history.decided(core.decide(pod))
            attempt = next(live.history.attempts())
            for name, age in (("before", 1.0), ("after", -2.0)):
                meta = ObjectMeta(
                    name=name, creation_timestamp=datetime.fromtimestamp(attempt.time - age, UTC)
                )
                live.history.put(PodDisruptionBudget(metadata=meta))
            objects, _ = decision_state(live.history, attempt)
            budgets = [one.name for one in objects.values() if isinstance(one, PodDisruptionBudget)]
            assert budgets == ["before"]

    asyncio.run(main())


def test_a_pod_that_reached_the_scheduler_first_can_be_explained() -> None:
    """The decision may be there before the history has seen its pod."""

    async def main() -> None:
        live = Live()
        async with client_of(live.subject, live.hub) as client:
            await client.get("api/v1/info")
            core = SchedulingCore()
            core.load([make_node("a", cpu="4")])
            pod = make_pod("early", cpu="1")
            live.history.decided(core.decide(pod))
            seq = live.history.last
            found = await client.get(f"api/v1/decisions/{seq}")
            assert found["explanation"] is None
            live.history.put(pod)
            live.history.put(replace(pod, spec=replace(pod.spec, node_name="a")))
            found = await client.get(f"api/v1/decisions/{seq}")
            assert found["explanation"]["result"]["node"] == "a"

    asyncio.run(main())
