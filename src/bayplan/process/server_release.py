"""The release that a process decides as if no flag names one: that of its API server at the start.

A later upgrade of the server has no effect before the next start: rules that change while pods wait would be
hard to explain. If the server is not reachable yet, the process waits for it, because the scheduler of a
control plane often starts first.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import Final

from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.client.access import Access
from bayplan.client.http import read_version
from bayplan.client.requests import Connections, Requests
from bayplan.errors import APIError, BayplanError, ForbiddenError, NotFoundError
from bayplan.process.logs import log

RETRY_SECONDS: Final = 2.0
COMPONENT: Final = "version"

_log = logging.getLogger(__name__)


class StoppedError(BayplanError):
    """A signal arrived before the server responded."""


def release_of_server(access: Access) -> Release:
    """The release nearest to the version of the API server. Waits until the server responds.

    Raises:
        StoppedError: the process was asked to stop meanwhile.
    """
    try:
        return asyncio.run(_release_of_server(access))
    except asyncio.CancelledError:
        raise StoppedError("stopped while waiting for the API server") from None


async def _release_of_server(access: Access) -> Release:
    connections = Connections(access)
    waiting = asyncio.current_task()
    assert waiting is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, waiting.cancel)
    try:
        requests = Requests(connections, None, component=COMPONENT)
        while True:
            try:
                version = await read_version(requests)
            except (ForbiddenError, NotFoundError) as error:
                log(
                    _log,
                    logging.WARNING,
                    "The version of the API server is unknown; choose one with --emulated-version",
                    emulated=DEFAULT_RELEASE.version,
                    err=error,
                )
                return DEFAULT_RELEASE
            except (APIError, OSError) as error:
                log(_log, logging.WARNING, "Waiting for the version of the API server", err=error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            release, is_same = version.nearest_release()
            if not is_same:
                log(
                    _log,
                    logging.WARNING,
                    "The version of the API server is not implemented; using the nearest one",
                    server=version.git_version,
                    emulated=release.version,
                )
            return release
    finally:
        await connections.close()
