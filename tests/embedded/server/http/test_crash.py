"""kill -9 while clients write: what was acknowledged is there, and versions never decrease.

`make test` tries it a few times, with `BAYPLAN_CRASHES=50` in the environment fifty times.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import ssl
import sys
from pathlib import Path

import aiohttp
import pytest

from bayplan.embedded.server.embedded import EmbeddedServer
from bayplan.embedded.server.kinds import CONFIG_MAPS

CRASHES = int(os.environ.get("BAYPLAN_CRASHES", "3"))
WRITERS = 8
SERVER = """
import asyncio, sys
from pathlib import Path
from bayplan.embedded.server.embedded import EmbeddedServer

async def main():
    async with EmbeddedServer(Path(sys.argv[1])) as server:
        print(server.url, server.token, server.certificates.ca, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def write_until_it_dies(directory: Path, seed: int) -> dict[str, int]:
    """Starts a server, writes to it, kills it, and returns what it acknowledged: names and versions."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, str(directory), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    url, token, ca = (await process.stdout.readline()).decode().split()
    path = f"{url}/api/v1/namespaces/default/configmaps"
    acknowledged: dict[str, int] = {}
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=ca))
    headers = {"Authorization": f"Bearer {token}"}

    async def write(session: aiohttp.ClientSession, writer: int) -> None:
        for number in range(1_000_000):
            name = f"c{seed}-{writer}-{number}"
            try:
                async with session.post(path, json={"metadata": {"name": name}}) as response:
                    body = await response.json()
                    acknowledged[name] = int(body["metadata"]["resourceVersion"])
            except (aiohttp.ClientError, ConnectionError):
                return

    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        writers = [asyncio.create_task(write(session, writer)) for writer in range(WRITERS)]
        enough = random.Random(seed).randrange(5, 60)
        while len(acknowledged) < enough:
            await asyncio.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        await asyncio.gather(*writers)
    return acknowledged


@pytest.mark.parametrize("seed", range(CRASHES))
def test_nothing_that_was_acknowledged_is_lost(tmp_path: Path, seed: int) -> None:
    """After two crashes of the same data directory."""

    async def scenario() -> None:
        known = await write_until_it_dies(tmp_path, 2 * seed)
        later = await write_until_it_dies(tmp_path, 2 * seed + 1)
        assert min(later.values()) > max(known.values())
        async with EmbeddedServer(tmp_path) as server:
            stored = {
                content["metadata"]["name"]: int(content["metadata"]["resourceVersion"])
                for content in server.api.list(CONFIG_MAPS, "default")
            }
            assert {name: stored.get(name) for name in {**known, **later}} == {**known, **later}
            assert server.api.store.version >= max(later.values())

    asyncio.run(scenario())
