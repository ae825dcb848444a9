"""Saying what is wrong once, not at each of a thousand tries."""

from __future__ import annotations

import logging
import re
from typing import Final

_QUERY: Final = re.compile(r'\?[^"\s]*')
"""Of a URL: how long a watch is asked for is left to chance, and says nothing about the cause."""


class Complaints:
    """What goes wrong again and again in one place: each cause is logged when it comes up.

    The same cause once more is a matter for those who debug. When it is over that is worth a line, too.
    """

    def __init__(self, log: logging.Logger, level: int = logging.ERROR) -> None:
        self._log = log
        self._level = level
        self._cause = ""

    def about(self, problem: str, cause: str = "") -> None:
        """Something did not work. `cause` tells causes apart where the problem's text does not."""
        cause = cause or _QUERY.sub("", problem)
        level = logging.DEBUG if cause == self._cause else self._level
        self._log.log(level, "%s", problem, stacklevel=2)
        self._cause = cause

    def over(self, relief: str) -> None:
        """It works; said only where there was a complaint."""
        if self._cause:
            self._log.info("%s", relief, stacklevel=2)
            self._cause = ""
