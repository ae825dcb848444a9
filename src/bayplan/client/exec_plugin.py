"""Credentials from a program (client.authentication.k8s.io): runs it and reads its output.

The environment tells the program that there is no terminal, and about the cluster if it asks for it.
`credentials.py` decides when to run it.
"""

from __future__ import annotations

import asyncio
import os
from datetime import datetime
from typing import Any, Final

import msgspec

from bayplan.client.access import ExecPlugin
from bayplan.errors import APIError

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
