"""From flags to a running process, and from its end to an exit status.

    0   stopped by a signal while leading or waiting to lead; or only a configuration was written
    1   anything else: the log has `"command failed" err="…"`

If no flag names the release to decide as, it is that of the API server at the start. A later upgrade of the
server has no effect before the next start: rules that change while pods wait would be hard to explain. If the
server is not reachable yet, the process waits for it, because the scheduler of a control plane often starts
first.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from bayplan.api.releases import DEFAULT_RELEASE, RELEASES, Release
from bayplan.client.access import Access
from bayplan.client.http import read_version
from bayplan.client.leader_election import LeadershipLostError
from bayplan.client.requests import Connections, Requests, make_bucket
from bayplan.config.features import without_effect
from bayplan.errors import APIError, BayplanError, ConfigError, ForbiddenError, NotFoundError
from bayplan.process.command_line import FlagValues
from bayplan.process.logs import log, verbosity
from bayplan.process.process import Companion, FinishedError, Process
from bayplan.process.serving.settings import serving_settings
from bayplan.process.settings import Settings, make_settings, shown_config, write_config

OK: Final = 0
FAILED: Final = 1

_log = logging.getLogger(__name__)


def start(flags: FlagValues, make_companion: Callable[[], Companion] | None = None) -> int:
    """Runs a scheduler with these flags until its end; returns the exit status.

    Args:
        make_companion: makes what runs beside the scheduler.
    """
    try:
        companion = None if make_companion is None else make_companion()
        if flags["emulated-version"] or flags["write-config-to"]:
            settings = make_settings(flags)
        else:
            settings = settings_of_any_release(flags)
            _check(settings)
            try:
                settings = make_settings(flags, release_of_server(settings.access))
            except StoppedError:
                if settings.election() is None:
                    raise FinishedError("finished without leader elect") from None
                log(_log, logging.INFO, "Requested to terminate, exiting")
                return OK
        for gate in without_effect(settings.config.release):
            log(_log, logging.WARNING, "Turning this feature gate off has no effect here", gate=gate)
        if _log.isEnabledFor(verbosity(2)):
            log(_log, verbosity(2), "Using component config", config=shown_config(settings))
        if flags["write-config-to"]:
            write_config(settings, flags["write-config-to"])
            log(_log, logging.INFO, "Wrote configuration", file=flags["write-config-to"])
            return OK
        asyncio.run(Process(settings, companion).run())
        return OK
    except LeadershipLostError as lost:
        log(_log, logging.ERROR, str(lost))
        return FAILED
    except (BayplanError, OSError) as error:
        unknown = error.unknown_plugin if isinstance(error, ConfigError) else ""
        hint = {"hint": f"if {unknown} is your own, pass --plugin SOURCE:CLASS"} if unknown else {}
        log(_log, logging.ERROR, "command failed", err=error, **hint)
        return FAILED


def settings_of_any_release(flags: FlagValues) -> Settings:
    """The settings as the first release that accepts flags and file.

    They are checked before the version of the server is requested, so that errors are reported at once, and
    again for the server's release. The first check accepts everything that is valid in some release.

    Raises:
        BayplanError: no release accepts them; the error is that of the default one.
    """
    try:
        return make_settings(flags)
    except BayplanError:
        for release in RELEASES.values():
            if release is not DEFAULT_RELEASE:
                with suppress(BayplanError):
                    return make_settings(flags, release)
        raise


def _check(settings: Settings) -> None:
    """Checks what would otherwise fail only after the server has responded, when the process is assembled.

    Raises:
        BayplanError: the settings of leader election, rate limit or serving are wrong.
    """
    election = settings.election()
    if election is not None:
        election.check()
    connection = settings.config.client_connection
    make_bucket(connection.qps, connection.burst)
    serving_settings(settings.flags)


RETRY_SECONDS: Final = 2.0
COMPONENT: Final = "version"


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
