"""A client that stops reading its watch: others do not wait for it, and nothing piles up for it."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from socket import SHUT_RDWR
from typing import Any

import pytest
from aiohttp import web

from bayplan.embedded.server.embedded import open_api
from bayplan.embedded.server.http.application import Application
from bayplan.embedded.server.http.reading import Watcher
from bayplan.embedded.server.kinds import CONFIG_MAPS
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.server.tables.printer import Printer

TOKEN = "t"
HISTORY = 50
LARGE = "x" * 100_000


@asynccontextmanager
async def served(api: ObjectAPI, stall_seconds: float) -> AsyncIterator[int]:
    """A server without TLS; what it gives is its port."""
    watcher = Watcher(api, Printer(api.time), stall_seconds=stall_seconds)
    runner = web.ServerRunner(Application(api, [TOKEN], watcher=watcher).server(), shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def watch(port: int, version: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A watch by hand, so that not reading means not reading."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**16)
    writer.write(
        f"GET /api/v1/configmaps?watch=1&resourceVersion={version} HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {TOKEN}\r\n\r\n".encode()
    )
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def next_event(reader: asyncio.StreamReader) -> dict[str, Any]:
    """The next chunks of the body up to the end of a line, which is one event as long as the client reads."""
    line = b""
    while not line.endswith(b"\n"):
        size = int(await reader.readline(), 16)
        line += await reader.readexactly(size)
        await reader.readline()
    event: dict[str, Any] = json.loads(line)
    return event


def test_others_do_not_wait_and_history_stays_short() -> None:
    """Ten times as much happens as the history holds; a client that reads sees all of it, in order."""

    async def scenario() -> list[str]:
        api = open_api(clock=lambda: 1.8e9, history=HISTORY)
        async with served(api, stall_seconds=60) as port:
            start = api.store.version
            _, idle_writer = await watch(port, start)
            reader, writer = await watch(port, start)
            seen = []
            for number in range(10 * HISTORY):
                content = {"metadata": {"name": f"c{number}"}, "data": {"a": LARGE}}
                api.create(CONFIG_MAPS, content, "default")
                event = await asyncio.wait_for(next_event(reader), 10)
                seen.append(event["object"]["metadata"]["name"])
            assert api.store.table(CONFIG_MAPS).history.read(0) is None, "what no watch waits for is dropped"
            for stream in (writer, idle_writer):
                stream.close()
            return seen

    assert asyncio.run(scenario()) == [f"c{number}" for number in range(10 * HISTORY)]


def test_a_client_that_reads_nothing_is_disconnected() -> None:
    """After a while its connection ends, with whatever it had in its buffers."""

    async def scenario() -> None:
        api = open_api(clock=lambda: 1.8e9)
        async with served(api, stall_seconds=0.05) as port:
            reader, writer = await watch(port, api.store.version)
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport has it
            for number in range(200):
                content = {"metadata": {"name": f"c{number}"}, "data": {"a": LARGE}}
                api.create(CONFIG_MAPS, content, "default")
            await asyncio.sleep(0.3)  # longer than the server's patience
            writer.transport.resume_reading()  # type: ignore[attr-defined]
            read = 0
            try:
                while chunk := await asyncio.wait_for(reader.read(2**20), 10):
                    read += len(chunk)
            except ConnectionError:
                pass
            assert read < 200 * len(LARGE)
            writer.close()

    asyncio.run(scenario())


def test_a_client_that_disconnects_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """Its socket is closed in the same turn of the loop in which there is an event to send."""

    async def scenario() -> None:
        api = open_api(clock=lambda: 1.8e9)
        async with served(api, stall_seconds=60) as port:
            for number in range(10):
                _, writer = await watch(port, api.store.version)
                await asyncio.sleep(0.01)  # the watcher waits for an event
                socket = writer.get_extra_info("socket")
                socket.shutdown(SHUT_RDWR)
                await asyncio.sleep(0)
                # The server reads the end of the connection in this turn and detects its loss in the
                # next one, in which it writes first.
                api.create(CONFIG_MAPS, {"metadata": {"name": f"c{number}"}}, "default")
                writer.close()
                await asyncio.sleep(0.01)

    with caplog.at_level(logging.INFO):
        asyncio.run(scenario())
    assert [record.getMessage() for record in caplog.records] == []


def test_a_client_behind_the_history_has_to_list_again() -> None:
    """It gets an ERROR event with 410."""

    async def scenario() -> dict[str, Any]:
        api = open_api(clock=lambda: 1.8e9, history=HISTORY)
        async with served(api, stall_seconds=60) as port:
            reader, writer = await watch(port, api.store.version)
            for number in range(10 * HISTORY):  # in one step: the watcher has no turn in between
                api.create(CONFIG_MAPS, {"metadata": {"name": f"c{number}"}}, "default")
            event = await asyncio.wait_for(next_event(reader), 10)
            writer.close()
            return event

    event = asyncio.run(scenario())
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert re.fullmatch(r"too old resource version: \d+ \(\d+\)", event["object"]["message"])
