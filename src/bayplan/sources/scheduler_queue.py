"""Asks a running bayplan where a pod stands in its queue: `GET /queue` of its serving port.

The credentials are those of the kubeconfig: the scheduler has the API server check them, and whether the user
may get the path.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import msgspec

from bayplan.client.access import Access, TLSSettings
from bayplan.client.kubeconfig import load_access
from bayplan.client.requests import Connections, Requests
from bayplan.errors import APIError
from bayplan.sources.loading import default_kubeconfig
from bayplan.sources.options import SourceOptions


def ask_queue(options: SourceOptions, url: str, pod: str, *, ca_file: str = "") -> dict[str, Any]:
    """The position of a pod, as the scheduler at this URL gives it.

    Args:
        options: the kubeconfig and context with the credentials.
        ca_file: the certificate of the scheduler's authority; empty: the system's.

    Raises:
        ConfigError: the kubeconfig is invalid.
        APIError: the scheduler cannot be reached, or rejects the request.
    """
    kubeconfig = options.kubeconfig or default_kubeconfig(context=options.context)
    access = load_access(kubeconfig, context=options.context)
    tls: TLSSettings = replace(access.tls, ca_file=ca_file, ca_data=b"", server_name="", insecure=False)
    return asyncio.run(ask(replace(access, server=url.rstrip("/"), tls=tls), pod))


async def ask(access: Access, pod: str) -> dict[str, Any]:
    """One request to the scheduler."""
    connections = Connections(access)
    try:
        body = await Requests(connections, component="explain").send(
            "GET", f"/queue?pod={quote(pod, safe='/')}"
        )
        found: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
        return found
    except msgspec.DecodeError as error:
        raise APIError(f"the answer is not a position in a queue: {error}") from error
    finally:
        await connections.close()
