"""A server on a real socket, and a client."""

from __future__ import annotations

import asyncio
import io
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import aiohttp

from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.embedded.server.embedded import EmbeddedServer

T = TypeVar("T")
Body = dict[str, Any] | list[Any] | bytes | None

PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


class Reply(NamedTuple):
    status: int
    body: Any
    headers: Any

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))


class Caller:
    """Sends requests with the token of a server."""

    def __init__(self, server: EmbeddedServer, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.session = session

    async def __call__(
        self,
        method: str,
        path: str,
        body: Body = None,
        content_type: str = "application/json",
        **headers: str,
    ) -> Reply:
        sent = {"Authorization": f"Bearer {self.server.token}", **headers}
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        if data is not None:
            sent.setdefault("Content-Type", content_type)
        url = self.server.url + path
        stream = None if data is None else io.BytesIO(data)
        async with self.session.request(method, url, data=stream, headers=sent) as response:
            text = await response.read()
            is_json = response.content_type == "application/json"
            return Reply(response.status, json.loads(text) if is_json else text.decode(), response.headers)

    @asynccontextmanager
    async def watch(self, path: str) -> AsyncIterator[Callable[[], Awaitable[dict[str, Any]]]]:
        """A watch; what it gives returns the next event."""
        headers = {"Authorization": f"Bearer {self.server.token}"}
        async with self.session.get(self.server.url + path, headers=headers) as response:
            assert response.status == 200, await response.text()

            async def following() -> dict[str, Any]:
                line = await asyncio.wait_for(response.content.readline(), 10)
                event: dict[str, Any] = json.loads(line) if line else {}
                return event

            yield following


def serve(
    scenario: Callable[[Caller], Awaitable[T]],
    data_dir: Path | None = None,
    release: Release = DEFAULT_RELEASE,
    *,
    rbac: bool = False,
) -> T:
    """Runs a scenario against a server that lives as long as it."""

    async def main() -> T:
        async with EmbeddedServer(data_dir, release=release, rbac=rbac) as server:
            context = ssl.create_default_context(cafile=server.certificates.ca)
            connector = aiohttp.TCPConnector(ssl=context)
            async with aiohttp.ClientSession(connector=connector) as session:
                return await scenario(Caller(server, session))

    return asyncio.run(main())


def pod(name: str = "web", **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "nginx:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers, **spec},
    }


def config_map(name: str = "settings", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def binding(name: str = "web", node: str = "n1", **metadata: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **metadata},
        "target": {"kind": "Node", "name": node},
    }
