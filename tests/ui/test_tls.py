"""Beyond loopback: TLS with a certificate of a CA, over real sockets."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.embedded.server.tls import Certificates, certificates_in
from bayplan.errors import InputError
from bayplan.testing import make_node
from bayplan.ui.serving import Address, link_of, listen
from bayplan.ui.sources import from_loaded

NAME = "page.example.com"


class Everything(AbstractResolver):
    """Every name is this machine, as with DNS rebinding."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = ResolveResult(
            hostname=host, host="127.0.0.1", port=port, family=socket.AF_INET, proto=0, flags=0
        )
        return [found]

    async def close(self) -> None:
        pass


def address_of(files: Certificates) -> Address:
    return Address("0.0.0.0", 0, str(files.certificate), str(files.key), (NAME,))


def test_a_page_beyond_loopback(tmp_path: Path) -> None:
    """Browsers that trust the CA log in with the token; other hosts, sites and schemes are rejected."""
    files = certificates_in(tmp_path, hosts=(NAME, "evil.example.com"))
    address = address_of(files)

    async def main() -> None:
        subject, hub = from_loaded(LoadedCluster("dump.yaml", (make_node("a"),)), time.time)
        trusting = ssl.create_default_context(cafile=str(files.ca))
        connector = aiohttp.TCPConnector(ssl=trusting, resolver=Everything())
        async with (
            listen(subject, hub, address) as page,
            aiohttp.ClientSession(connector=connector) as session,
        ):

            async def status(method: str, url: str, **headers: str) -> int:
                async with session.request(method, url, headers=headers) as response:
                    await response.read()
                    return response.status

            link = link_of(page, address)
            site = f"https://{NAME}:{page.access.port}"
            root = f"{site}/ui/"
            assert link.startswith(f"{root}login?token=")
            assert await status("GET", f"{root}api/v1/info") == 401
            assert await status("GET", f"{root}login?token=guess") == 401
            async with session.get(link) as response:
                assert response.status == 200
                assert response.headers["Set-Cookie"].endswith("Secure")
            assert await status("GET", f"{root}api/v1/info") == 200
            assert await status("GET", f"{root}static/main.js") == 200
            async with session.get(f"{root}api/v1/events") as response:
                assert (await response.content.readline()).startswith(b"retry:")
            evil = root.replace(NAME, "evil.example.com")
            assert await status("GET", link_of(page, address).replace(NAME, "evil.example.com")) == 403
            assert await status("GET", f"{evil}api/v1/info") == 403
            assert await status("GET", f"{root}api/v1/info", Origin="https://evil.example.com") == 403
            assert await status("POST", f"{root}logout", Origin=site.replace("https", "http")) == 403
            assert await status("POST", f"{root}logout", Origin=site) == 200
            assert await status("GET", f"{root}api/v1/info") == 401
            assert await status("GET", root.replace("https", "http")) == 400
            unknowing = aiohttp.TCPConnector(resolver=Everything())
            async with aiohttp.ClientSession(connector=unknowing) as stranger:
                with pytest.raises(aiohttp.ClientConnectorCertificateError):
                    await stranger.get(root)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param({"cert_file": "", "key_file": ""}, "with TLS only", id="no certificate"),
        pytest.param({"cert_file": ""}, "pass both", id="only a key"),
        pytest.param({"names": ()}, "pass --host-name", id="every address, and none that browsers use"),
        pytest.param({"cert_file": "none"}, "cannot be loaded", id="no such file"),
    ],
)
def test_an_address_that_cannot_be_served(change: dict[str, Any], problem: str, tmp_path: Path) -> None:
    files = {"cert_file": str(tmp_path / "certificate"), "key_file": str(tmp_path / "key")}
    with pytest.raises(InputError, match=problem):
        Address(**{"host": "0.0.0.0", "names": (NAME,), **files, **change}).tls()


def test_loopback_needs_no_certificate() -> None:
    assert Address().tls() is None
    assert Address("localhost").tls() is None
    assert Address("::1").shown == "[::1]"
