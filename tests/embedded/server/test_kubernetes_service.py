"""The Service `kubernetes`: it exists with the address of the server."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from bayplan.embedded.server.embedded import EmbeddedServer
from bayplan.embedded.server.kinds import ENDPOINT_SLICES, ENDPOINTS, SERVICES


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


def test_a_data_directory_keeps_its_port(tmp_path: Path) -> None:
    """Kubeconfigs stay valid. If another process has the port now, the server starts on another one."""

    async def ports() -> list[int]:
        found = []
        for _ in range(2):
            async with EmbeddedServer(tmp_path) as server:
                found.append(server.port)
        with socket.create_server(("127.0.0.1", found[0])):
            async with EmbeddedServer(tmp_path) as server:
                found.append(server.port)
        return found

    first, second, third = asyncio.run(ports())
    assert first == second != third


def test_it_is_there_and_follows_the_port(tmp_path: Path) -> None:
    """After a restart on another port, too."""

    async def scenario() -> None:
        taken: list[EmbeddedServer] = []
        for _ in range(2):
            async with EmbeddedServer(tmp_path, port=0 if not taken else free_port()) as server:
                assert not taken or server.port != taken[0].port
                taken.append(server)
                spec = server.api.get(SERVICES, "kubernetes", "default")["spec"]
                assert spec["clusterIP"] == "10.96.0.1"
                (port,) = spec["ports"]
                assert (port["name"], port["port"], port["targetPort"]) == ("https", 443, server.port)
                (subset,) = server.api.get(ENDPOINTS, "kubernetes", "default")["subsets"]
                (slice_port,) = server.api.get(ENDPOINT_SLICES, "kubernetes", "default")["ports"]
                assert (subset["ports"][0]["port"], slice_port["port"]) == (server.port, server.port)
                assert server.api.root_ca.startswith("-----BEGIN CERTIFICATE-----")

    asyncio.run(scenario())
