"""A server and a client of it, for one test."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from bayplan.client.access import Access
from bayplan.client.http import KubernetesCluster
from bayplan.net.tls import TLSSettings
from bayplan.simulate.memory.store import MemoryStore

from .api_server import ApiServer, serving
from .certificates import authority, server_tls

T = TypeVar("T")

PATIENCE_SECONDS = 60
"""For something to happen that must happen, on a busy machine, too."""


@asynccontextmanager
async def connected(
    store: MemoryStore, *, options: dict[str, Any] | None = None, tls: bool = False, **server: Any
) -> AsyncIterator[tuple[ApiServer, KubernetesCluster]]:
    """A server of this store (`server` are its settings) and a client with these options."""
    chosen = {"qps": -1, "rng": random.Random(0), **(options or {})}
    running = ApiServer(store, **server)
    trusting = Access("", tls=TLSSettings(ca_data=authority("cluster").certificate))
    async with (
        serving(running, server_tls() if tls else None, trusting),
        KubernetesCluster(running.access, **chosen) as cluster,
    ):
        yield running, cluster


def with_server(
    store: MemoryStore, act: Callable[[ApiServer, KubernetesCluster], Awaitable[T]], **settings: Any
) -> T:
    """The result of a function that gets a server of this store and a client of the server."""

    async def main() -> T:
        async with connected(store, **settings) as (server, cluster):
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await act(server, cluster)

    return asyncio.run(main())


async def until(true: Callable[[], bool]) -> None:
    """Waits for something to come true."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not true():
            await asyncio.sleep(0.005)
