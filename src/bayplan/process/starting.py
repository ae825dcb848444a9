"""From flags to a running process, and from its end to an exit status.

0   stopped by a signal while leading or waiting to lead; or only a configuration was written
1   anything else: the log has `"command failed" err="…"`
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final

from bayplan.api.releases import DEFAULT_RELEASE, RELEASES
from bayplan.client.leader_election import LeadershipLostError
from bayplan.client.requests import make_bucket
from bayplan.config.features import without_effect
from bayplan.errors import BayplanError
from bayplan.process.command_line import FlagValues
from bayplan.process.logs import log, verbosity
from bayplan.process.process import FinishedError, Process
from bayplan.process.server_release import StoppedError, release_of_server
from bayplan.process.serving_flags import serving_settings
from bayplan.process.settings import Settings, make_settings, shown_config, write_config

OK: Final = 0
FAILED: Final = 1

_log = logging.getLogger(__name__)


def start(flags: FlagValues) -> int:
    """Runs a scheduler with these flags until its end; returns the exit status."""
    try:
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
        asyncio.run(Process(settings).run())
        return OK
    except LeadershipLostError as lost:
        log(_log, logging.ERROR, str(lost))
        return FAILED
    except (BayplanError, OSError) as error:
        log(_log, logging.ERROR, "command failed", err=error)
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
