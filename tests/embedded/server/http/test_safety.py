"""Nothing is visible to clients before it would survive a crash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from bayplan.embedded.server import kinds
from bayplan.embedded.server.documents import Document, DocumentStore, Journal
from bayplan.embedded.server.http.application import Application
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.objects import ObjectAPI

TOKEN = "t"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


class Disk(Journal):
    """A disk that writes nothing before `is_done` is set."""

    def __init__(self) -> None:
        self.written = 0
        self.is_done = asyncio.Event()
        self.broken: Exception | None = None

    def record(self, resource: Resource, document: Document, *, removed: bool) -> None:
        self.written = document.version

    def advance(self, version: int) -> None:
        self.written = version

    @property
    def committed(self) -> int:
        return self.written if self.is_done.is_set() else 0

    @property
    def failure(self) -> Exception | None:
        return self.broken

    async def wait(self, version: int) -> None:
        await self.is_done.wait()


@asynccontextmanager
async def served(api: ObjectAPI) -> AsyncIterator[aiohttp.ClientSession]:
    runner = web.ServerRunner(Application(api, [TOKEN]).server(), shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with aiohttp.ClientSession(url, headers=headers) as session:
            yield session
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("method", "path", "size"),
    [
        pytest.param("GET", f"{CONFIG_MAPS}/c0", 10, id="one object"),
        pytest.param("GET", CONFIG_MAPS, 10, id="a list"),
        pytest.param("GET", CONFIG_MAPS, 200_000, id="a list so long that it is sent in pieces"),
        pytest.param("GET", f"{CONFIG_MAPS}?watch=1&timeoutSeconds=1", 10, id="what a watch begins with"),
        pytest.param("DELETE", f"{CONFIG_MAPS}/c0", 10, id="the answer to a write"),
    ],
)
def test_answers_wait_for_the_disk(method: str, path: str, size: int) -> None:
    """None comes before, and all come after."""

    async def scenario() -> tuple[bool, int]:
        disk = Disk()
        api = ObjectAPI(DocumentStore(journal=disk), clock=lambda: 1.8e9)
        api.create(kinds.NAMESPACES, {"metadata": {"name": "default"}})
        for number in range(10):
            content = {"metadata": {"name": f"c{number}"}, "data": {"a": "x" * size}}
            api.create(kinds.CONFIG_MAPS, content, "default")
        async with served(api) as session:
            pending = asyncio.ensure_future(session.request(method, path))
            await asyncio.wait([pending], timeout=0.1)
            was_early = pending.done()
            disk.is_done.set()
            async with await asyncio.wait_for(pending, 10) as response:
                await response.read()
                return was_early, response.status

    assert asyncio.run(scenario()) == (False, 200)


@pytest.mark.parametrize(
    ("broken", "status", "text"),
    [
        pytest.param(None, 200, "ok", id="the disk works, slow as it is"),
        pytest.param(OSError("no space left"), 500, "[-]storage failed: no space left", id="it does not"),
    ],
)
def test_health_is_that_of_the_disk(broken: Exception | None, status: int, text: str) -> None:
    """A probe is answered at once, whatever is being written."""

    async def scenario() -> tuple[int, str]:
        disk = Disk()
        disk.broken = broken
        api = ObjectAPI(DocumentStore(journal=disk), clock=lambda: 1.8e9)
        api.create(kinds.NAMESPACES, {"metadata": {"name": "default"}})
        async with served(api) as session, session.get("/readyz") as response:
            return response.status, await response.text()

    assert asyncio.run(scenario()) == (status, text)
