"""The Service `kubernetes`: it exists with the address of the server."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bayplan.embedded.server.embedded import EmbeddedServer
from bayplan.embedded.server.kinds import ENDPOINT_SLICES, ENDPOINTS, SERVICES


def test_it_is_there_and_follows_the_port(tmp_path: Path) -> None:
    """After a restart on another port, too."""

    async def scenario() -> None:
        for _ in range(2):
            async with EmbeddedServer(tmp_path) as server:
                spec = server.api.get(SERVICES, "kubernetes", "default")["spec"]
                assert spec["clusterIP"] == "10.96.0.1"
                (port,) = spec["ports"]
                assert (port["name"], port["port"], port["targetPort"]) == ("https", 443, server.port)
                (subset,) = server.api.get(ENDPOINTS, "kubernetes", "default")["subsets"]
                (slice_port,) = server.api.get(ENDPOINT_SLICES, "kubernetes", "default")["ports"]
                assert (subset["ports"][0]["port"], slice_port["port"]) == (server.port, server.port)
                assert server.api.root_ca.startswith("-----BEGIN CERTIFICATE-----")

    asyncio.run(scenario())
