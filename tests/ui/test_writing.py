"""Writes of the page: only with --allow-writes, tried first, and only from the page itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from bayplan.embedded.server.kinds import NODES, PODS
from bayplan.embedded.up.cluster import LocalCluster, LocalSettings
from bayplan.embedded.up.report import Outcomes
from bayplan.ui.serving import PageOfCluster

from .test_serving import pod

Answer = tuple[int, dict[str, Any]]


class Viewer:
    """A browser that is logged in."""

    def __init__(self, cluster: LocalCluster, session: aiohttp.ClientSession) -> None:
        self.cluster = cluster
        self._session = session
        self._root = f"http://127.0.0.1:{cluster.server.port}"

    async def write(self, origin: str = "", **body: Any) -> Answer:
        headers = {"Origin": origin or self._root}
        target = f"{self._root}/ui/api/v1/writes"
        async with self._session.post(target, json=body, headers=headers) as response:
            return response.status, await response.json()

    def is_cordoned(self) -> bool:
        spec = self.cluster.server.api.get(NODES, "n01")["spec"]
        return bool(spec.get("unschedulable"))

    async def running(self, name: str) -> str:
        """Creates a pod; its uid."""
        api = self.cluster.server.api
        api.create(PODS, pod(name, "1"), "default")
        await self.cluster.idle()
        uid: str = api.get(PODS, name, "default")["metadata"]["uid"]
        return uid


@asynccontextmanager
async def viewer(*, writes: bool) -> AsyncIterator[Viewer]:
    page = PageOfCluster()
    settings = LocalSettings(nodes=1, plain=page.plain)
    async with LocalCluster(settings, Outcomes()) as cluster:
        hub = page.attach(cluster, settings, "test", writes=writes)
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            async with session.get(page.link()) as response:
                assert response.status == 200
            yield Viewer(cluster, session)
        await hub.close()


def test_nodes_are_cordoned_and_pods_evicted() -> None:
    async def main() -> None:
        async with viewer(writes=True) as one:
            assert await one.write(action="cordon", name="n01") == (
                200,
                {"done": "cordon node n01", "dryRun": True},
            )
            assert not one.is_cordoned(), "without dryRun: false it is only tried"
            assert (await one.write(action="cordon", name="n01", dryRun=False))[0] == 200
            assert one.is_cordoned()
            assert (await one.write(action="uncordon", name="n01", dryRun=False))[0] == 200
            assert not one.is_cordoned()
            uid = await one.running("web")
            evict = {"action": "evict", "name": "default/web"}
            status, answer = await one.write(**evict, uid="another", dryRun=False)
            assert (status, "uid" in answer["error"].lower()) == (409, True), answer
            assert (await one.write(**evict, uid=uid))[0] == 200
            metadata = one.cluster.server.api.get(PODS, "web", "default")["metadata"]
            assert "deletionTimestamp" not in metadata
            assert (await one.write(**evict, uid=uid, dryRun=False))[0] == 200
            metadata = one.cluster.server.api.get(PODS, "web", "default")["metadata"]
            assert "deletionTimestamp" in metadata

    asyncio.run(main())


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param({"action": "drain", "name": "n01"}, 400, id="no such action"),
        pytest.param({"action": "cordon", "name": ""}, 400, id="no name"),
        pytest.param({"action": "cordon", "name": ["n01"]}, 400, id="not a name"),
        pytest.param({"action": "evict", "name": "default/web"}, 400, id="no uid"),
        pytest.param({"action": "evict", "name": "web", "uid": "u"}, 400, id="no namespace"),
        pytest.param({"action": "cordon", "name": "n09"}, 404, id="no such node"),
        pytest.param({"action": "cordon", "name": "n01/status?x=1"}, 404, id="a name that is a path"),
    ],
)
def test_writes_that_are_rejected(body: dict[str, Any], status: int) -> None:
    async def main() -> None:
        async with viewer(writes=True) as one:
            found, answer = await one.write(**body, dryRun=False)
            assert (found, bool(answer["error"])) == (status, True), answer
            assert not one.is_cordoned()

    asyncio.run(main())


def test_who_may_not_write() -> None:
    async def main() -> None:
        async with viewer(writes=False) as one:
            status, answer = await one.write(action="cordon", name="n01", dryRun=False)
            assert (status, "--allow-writes" in answer["error"]) == (403, True)
            assert not one.is_cordoned()
        async with viewer(writes=True) as one:
            status, _ = await one.write("http://evil.example", action="cordon", name="n01", dryRun=False)
            assert status == 403
            one._session.cookie_jar.clear()
            status, _ = await one.write(action="cordon", name="n01", dryRun=False)
            assert status == 401
            assert not one.is_cordoned()

    asyncio.run(main())
