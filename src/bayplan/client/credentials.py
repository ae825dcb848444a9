"""Credentials of each request: headers that may change at run time.

A token file is read again every 50 seconds (upstream's minute minus ten seconds of leeway), and a program
(client.authentication.k8s.io) is run again when its credentials expire. After a 401 both are renewed at once,
and the request is sent once more.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from bayplan.client.access import Access, ExecPlugin
from bayplan.client.transport import Headers
from bayplan.errors import APIError, ConfigError
from bayplan.net.tls import ClientTLS

TOKEN_FILE_SECONDS: Final = 50.0

_FOREVER: Final = float("inf")

_log = logging.getLogger(__name__)


class Credentials:
    """The current credentials: the same `Headers` as long as nothing has changed.

    Args:
        access: the configuration.
        tls: gets the client certificate that a program returns.
        now: seconds since the epoch, in which expiries are given.
        certificate_changed: called when the client certificate has changed.
    """

    def __init__(
        self,
        access: Access,
        tls: ClientTLS | None,
        *,
        now: Callable[[], float],
        certificate_changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._access = access
        self._tls = tls
        self._now = now
        self._certificate_changed = certificate_changed
        self._identity = Headers()
        self._fresh_until = float("-inf")
        self._renewing: asyncio.Task[None] | None = None
        self._token = ""
        has_certificate = bool(access.tls.cert_file or access.tls.cert_data)
        has_other = bool(access.token or access.token_file or access.username or has_certificate)
        # As upstream, the program is not run if other credentials are configured.
        self._plugin = None if has_other or tls is None else access.exec_plugin
        self._token_file = access.token_file if tls is not None else ""
        if self._plugin is None and not self._token_file:
            self._set_identity(access.token)
            self._fresh_until = _FOREVER

    def fresh(self) -> Headers | None:
        """The headers for a request that is sent now; None if they must be renewed first (`identity`)."""
        return self._identity if self._now() < self._fresh_until else None

    async def identity(self) -> Headers:
        """The headers for a request that is sent now.

        Raises:
            APIError: there are no credentials.
        """
        if self.fresh() is None:
            await self._renew()
        return self._identity

    async def renew_after_401(self, identity: Headers) -> bool:
        """Renews credentials that the server rejected. True if they changed, so that a retry may help."""
        if self._plugin is None and not self._token_file:
            return False
        if identity is self._identity:
            await self._renew()
        return self._identity is not identity

    async def _renew(self) -> None:
        """Concurrent requests that find the credentials stale wait for the same renewal."""
        if self._renewing is None:
            renewal = self._read_file() if self._plugin is None else self._run(self._plugin)
            self._renewing = asyncio.ensure_future(renewal)
            self._renewing.add_done_callback(self._renewed)
        await asyncio.shield(self._renewing)

    def _renewed(self, renewing: asyncio.Task[None]) -> None:
        self._renewing = None
        if not renewing.cancelled():
            renewing.exception()  # marks it as retrieved: waiters get it

    async def _read_file(self) -> None:
        path = self._token_file
        try:
            token = Path(path).read_text().strip()
            problem = "" if token else f'read empty token from file "{path}"'
        except (OSError, UnicodeDecodeError) as error:
            token, problem = "", f'failed to read token file "{path}": {error}'
        if problem:
            token = self._token or self._access.token
            if not token:
                raise APIError(problem)
            _log.error("cannot renew the token, continuing with the old one: %s", problem)
        if token != self._token:
            self._set_identity(token)
        self._fresh_until = self._now() + TOKEN_FILE_SECONDS

    async def _run(self, plugin: ExecPlugin) -> None:
        assert self._tls is not None
        status = await run_plugin(plugin)
        if status.client_certificate_data and status.client_key_data:
            try:
                self._tls.use_certificate(
                    status.client_certificate_data.encode(), status.client_key_data.encode()
                )
            except ConfigError as error:
                raise APIError(f"getting credentials: exec plugin {plugin.command}: {error}") from error
            self._certificate_changed()
        self._set_identity(status.token or "")
        expires = status.expiration_timestamp
        self._fresh_until = _FOREVER if expires is None else expires.timestamp()

    def _set_identity(self, token: str) -> None:
        access = self._access
        headers: list[tuple[str, str]] = []
        if self._tls is not None:
            if token:
                headers.append(("Authorization", f"Bearer {token}"))
            elif access.username or access.password:
                pair = f"{access.username}:{access.password}".encode()
                headers.append(("Authorization", f"Basic {base64.b64encode(pair).decode()}"))
        self._identity = Headers((*headers, *access.impersonate))
        self._token = token


# Programs that provide credentials

TIMEOUT_SECONDS: Final = 60.0
_PREFIX: Final = "getting credentials: "


class ExecStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The program's credentials. Without an expiry they are valid until they are rejected."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: ExecStatus | None = None


async def run_plugin(plugin: ExecPlugin) -> ExecStatus:
    """Runs the program once.

    Raises:
        APIError: it cannot be run, fails, takes too long, or prints something other than credentials.
    """
    if plugin.needs_terminal:
        raise _error("exec plugin cannot support interactive mode: standard input is not a terminal")
    spec: dict[str, Any] = {"interactive": False}
    if plugin.cluster is not None:
        spec["cluster"] = plugin.cluster
    info = {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}
    environment = {
        **os.environ,
        **dict(plugin.env),
        "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode(),
    }
    return _status(plugin, await _output(plugin, environment))


async def _output(plugin: ExecPlugin, environment: dict[str, str]) -> bytes:
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.args,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
    except FileNotFoundError as error:
        hint = f"\n\n{plugin.install_hint}" if plugin.install_hint else ""
        raise _error(f"exec: executable {plugin.command} not found{hint}") from error
    except OSError as error:
        raise _error(f"exec: {plugin.command}: {(error.strerror or str(error)).lower()}") from error
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError as error:
        raise _error(f"exec: {plugin.command} did not end within {TIMEOUT_SECONDS:g} seconds") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise _error(f"exec: executable {plugin.command} failed with exit code {process.returncode}")
    return output


def _status(plugin: ExecPlugin, output: bytes) -> ExecStatus:
    try:
        answer = msgspec.json.decode(output, type=_ExecCredential)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _error(f"decoding stdout: {error}") from error
    if answer.api_version != plugin.api_version:
        raise _error(
            f"exec plugin is configured to use API version {plugin.api_version}, "
            f"plugin returned version {answer.api_version}"
        )
    status = answer.status
    if status is None:
        raise _error("exec plugin didn't return a status field")
    if not status.token and not status.client_certificate_data and not status.client_key_data:
        raise _error("exec plugin didn't return a token or cert/key pair")
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise _error("exec plugin returned only certificate or key, not both")
    return status


def _error(text: str) -> APIError:
    return APIError(_PREFIX + text)
