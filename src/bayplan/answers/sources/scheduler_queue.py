"""Reads the position of a pod in the queue of a running bayplan: `GET /queue`.

`bayplan run` answers at its serving port, the embedded cluster of `bayplan up` at its API server. The
credentials are those of the kubeconfig: the scheduler has the API server check them, and whether the user may
get the path.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

import msgspec

from bayplan.answers.sources.loading import default_kubeconfig
from bayplan.answers.sources.options import SourceOptions
from bayplan.client.access import Access
from bayplan.client.api_errors import NotServedError
from bayplan.client.kubeconfig import load_access
from bayplan.client.requests import Connections, Requests
from bayplan.embedded.server.http.discovery import EMBEDDED_SUFFIX
from bayplan.errors import APIError, ForbiddenError, NotFoundError, UnauthorizedError

_FAILED: Final = "the queue of the scheduler at {url} cannot be read: {why}"
_NOT_ALLOWED: Final = "{error}. Allow the user to get the non-resource URL /queue"
_NO_QUEUE: Final = "it is not a bayplan, which would serve /queue"
_TRUST: Final = ". Pass the CA of the scheduler's certificate with --scheduler-ca"
_NO_POSITION: Final = "the answer is not a position in a queue: {error}"


def queue_position(options: SourceOptions, url: str, pod: str, *, ca_file: str = "") -> dict[str, Any]:
    """The position of a pod, as the scheduler at this URL gives it.

    Args:
        options: the kubeconfig and context with the credentials.
        ca_file: the certificate of the scheduler's authority; empty: the system's.

    Raises:
        ConfigError: the kubeconfig is invalid.
        APIError: the scheduler cannot be reached, or rejects the request.
    """
    access = _access(options)
    tls = replace(access.tls, ca_file=ca_file, ca_data=b"", server_name="", insecure=False)
    try:
        return asyncio.run(read_position(replace(access, server=url.rstrip("/"), tls=tls), pod))
    except (NotServedError, NotFoundError) as error:
        raise APIError(_FAILED.format(url=url, why=_NO_QUEUE)) from error
    except (ForbiddenError, UnauthorizedError) as error:
        raise APIError(_FAILED.format(url=url, why=_NOT_ALLOWED.format(error=error))) from error
    except APIError as error:
        hint = _TRUST if not ca_file and "certificate" in str(error).lower() else ""
        raise APIError(_FAILED.format(url=url, why=f"{error}{hint}")) from error


def embedded_queue_position(options: SourceOptions, server_version: str, pod: str) -> dict[str, Any] | None:
    """The same for the embedded cluster; None if it is another one, or no scheduler runs in it."""
    if not server_version.endswith(EMBEDDED_SUFFIX):
        return None
    try:
        return asyncio.run(read_position(_access(options), pod))
    except (NotServedError, NotFoundError):
        return None


def _access(options: SourceOptions) -> Access:
    kubeconfig = options.kubeconfig or default_kubeconfig(context=options.context)
    return load_access(kubeconfig, context=options.context)


async def read_position(access: Access, pod: str) -> dict[str, Any]:
    """One request to the scheduler."""
    connections = Connections(access)
    try:
        body = await Requests(connections, component="explain").send(
            "GET", f"/queue?pod={quote(pod, safe='/')}"
        )
        found: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
        return found
    except msgspec.DecodeError as error:
        raise APIError(_NO_POSITION.format(error=error)) from error
    finally:
        await connections.close()
