"""A server over real TLS, the API server that reviews its users, and a client."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from aiohttp import web

from bayplan.client.access import Access
from bayplan.client.requests import Connections, Requests
from bayplan.process.serving.access import delegated_access
from bayplan.process.serving.pages import About, HealthCheck, Routes
from bayplan.process.serving.server import SecureServer
from bayplan.process.serving.settings import (
    AuthenticationSettings,
    AuthorizationSettings,
    ServingSettings,
    listen,
)
from tests.client.http.certificates import Pair, authority

T = TypeVar("T")

ALICE = {"username": "alice", "uid": "u1", "groups": ["team"], "extra": {"scope": ["a", "b"]}}


@dataclass
class Cluster:
    """An API server with users by token, and what they may do."""

    tokens: Mapping[str, dict[str, Any]] = field(default_factory=lambda: {"alices": ALICE})
    allowed: set[tuple[str, str, str]] = field(default_factory=set)
    """User, verb, path."""
    config_map: Any = None
    """Of kube-system/extension-apiserver-authentication; None: it may not be read."""
    errors: list[int] = field(default_factory=list)
    """The status codes of the next responses instead."""
    reviews: list[dict[str, Any]] = field(default_factory=list)
    """The specs of all reviews."""

    async def answer(self, request: web.Request) -> web.Response:
        if request.method == "GET":
            if self.config_map is None:
                return error_response(403, "you may not")
            return web.json_response({"data": self.config_map})
        review = await request.json()
        self.reviews.append(review["spec"])
        if self.errors:
            return error_response(self.errors.pop(0), "not now")
        if review["kind"] == "TokenReview":
            user = self.tokens.get(review["spec"]["token"])
            return web.json_response({"status": {"authenticated": user is not None, "user": user or {}}})
        spec = review["spec"]
        wanted = spec["nonResourceAttributes"]
        allowed = (spec["user"], wanted["verb"], wanted["path"]) in self.allowed
        return web.json_response({"status": {"allowed": allowed, "reason": "" if allowed else "no rule"}})


def error_response(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "message": message, "code": code}, status=code)


@asynccontextmanager
async def running(cluster: Cluster) -> AsyncIterator[Requests]:
    """The cluster, and a client of it."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", cluster.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    connections = Connections(Access(f"http://127.0.0.1:{runner.addresses[0][1]}"))
    try:
        yield Requests(connections)
    finally:
        await connections.close()
        await runner.cleanup()


@dataclass(frozen=True)
class Response:
    status: int
    text: str
    headers: Mapping[str, str]


class Client:
    """Sends requests to a server and trusts any certificate."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def request(
        self,
        path: str,
        method: str = "GET",
        *,
        token: str = "",
        headers: Mapping[str, str] | list[tuple[str, str]] | None = None,
        pair: Pair | None = None,
        body: str = "",
        most: ssl.TLSVersion | None = None,
    ) -> Response:
        sent = [*(headers.items() if isinstance(headers, Mapping) else headers or [])]
        if token:
            sent.append(("Authorization", f"Bearer {token}"))
        connector = aiohttp.TCPConnector(ssl=client_tls(pair, most), force_close=True)
        async with (
            aiohttp.ClientSession(connector=connector, skip_auto_headers=["Accept"]) as session,
            session.request(
                method,
                f"https://127.0.0.1:{self.port}{path}",
                headers=sent,
                data=body or None,
            ) as response,
        ):
            return Response(response.status, await response.text(), dict(response.headers))

    async def certificate(self, server_name: str = "") -> bytes:
        """The certificate that the server presents for this name."""
        _, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=client_tls(None), server_hostname=server_name
        )
        try:
            shown: bytes = writer.get_extra_info("ssl_object").getpeercert(True)
            return shown
        finally:
            writer.close()
            await writer.wait_closed()


def client_tls(pair: Pair | None, most: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if most is not None:
        context.maximum_version = most
    if pair is not None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(pair.certificate + pair.key)
            file.flush()
            context.load_cert_chain(file.name)
    return context


def make_routes(**changed: Any) -> Routes:
    shown: dict[str, Any] = {
        "metrics": lambda: b"up 1\n",
        "reset_metrics": lambda: None,
        "resources": lambda: (),
        "config": lambda: {"kind": "KubeSchedulerConfiguration"},
        "flags": {"v": "2", "config": "/etc/config.yaml"},
        "livez": (HealthCheck("ping"),),
        "about": About("1.37.1", "1.37", started=1_000_000_000.0, runtime="python3"),
        "now": lambda: 1_000_003_723.0,
    }
    return Routes(**{**shown, **changed})


@cache
def pair_files() -> tuple[str, str]:
    """A certificate for servers; making one of their own takes a while."""
    directory = Path(tempfile.mkdtemp())
    pair = authority("serving").issue("server", "localhost", "127.0.0.1")
    return as_files(pair, directory)


def as_files(pair: Pair, directory: Path) -> tuple[str, str]:
    paths = directory / "tls.crt", directory / "tls.key"
    for path, content in zip(paths, (pair.certificate, pair.key), strict=True):
        path.write_bytes(content)
    return str(paths[0]), str(paths[1])


def here(**changed: Any) -> ServingSettings:
    """At a free port, with a certificate that is there."""
    cert_file, key_file = pair_files()
    shown = {"bind_address": "127.0.0.1", "port": 0, "cert_file": cert_file, "key_file": key_file}
    return ServingSettings(**{**shown, **changed})


OPEN = AuthorizationSettings(open_paths=("/*",))


def with_server(
    act: Callable[[Client], Awaitable[T]],
    *,
    routes: Routes | None = None,
    settings: ServingSettings | None = None,
    authentication: AuthenticationSettings | None = None,
    authorization: AuthorizationSettings | None = None,
    cluster: Cluster | None = None,
    clock: Callable[[], float] = lambda: 0.0,
) -> T:
    """The result of a function that gets a client of a server. Without a cluster there are no reviews."""

    async def main() -> T:
        async with asyncio.timeout(20), running(cluster or Cluster()) as requests:
            access = delegated_access(
                authentication or AuthenticationSettings(),
                authorization or AuthorizationSettings(),
                authentication_client=None if cluster is None else requests,
                authorization_client=None if cluster is None else requests,
                clock=clock,
            )
            where = settings or here()
            server = SecureServer(where, routes or make_routes(), access)
            sockets = await listen(where)
            try:
                await server.start(sockets)
                return await act(Client(server.port))
            finally:
                await server.close()
                for each in sockets:
                    each.close()

    return asyncio.run(main())


def get(path: str, method: str = "GET", **how: Any) -> Response:
    """The response of a server that is open to all, unless `how` has other settings."""
    options = {name: how.pop(name) for name in ("token", "headers", "pair", "body") if name in how}
    how.setdefault("authorization", OPEN)
    return with_server(lambda client: client.request(path, method, **options), **how)
