"""From flags to a running process, and from its end to an exit status.

0   stopped while leading or waiting to lead; or only asked to write something
1   anything else: the log has `"command failed" err="…"`
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from bayplan.client.leader_election import LeadershipLostError
from bayplan.config.features import without_effect
from bayplan.errors import BayplanError
from bayplan.operating.command_line import FlagValues
from bayplan.operating.logs import log, verbosity
from bayplan.operating.process import FinishedError, Process
from bayplan.operating.server_release import StoppedError, release_of_server
from bayplan.operating.settings import make_settings, shown_config, write_config

OK: Final = 0
FAILED: Final = 1

_log = logging.getLogger(__name__)


def start(flags: FlagValues) -> int:
    """Runs a scheduler with these flags until its end; returns the exit status."""
    try:
        settings = make_settings(flags)
        if not flags["emulated-version"] and not flags["write-config-to"]:
            # Flags and file are checked before the server is asked, and again as its release.
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
