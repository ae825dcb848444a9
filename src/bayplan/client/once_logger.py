"""Logs a repeated problem once, not at every retry."""

from __future__ import annotations

import logging
import re
from typing import Final

_QUERY: Final = re.compile(r'\?[^"\s]*')
"""The query of a URL: the timeout of a watch is random and says nothing about the cause."""


class OnceLogger:
    """The problems of one operation that is retried: each cause is logged when it first occurs.

    Repetitions are logged at debug level. When the operation works again, that is logged too.
    """

    def __init__(self, log: logging.Logger, level: int = logging.ERROR) -> None:
        self._log = log
        self._level = level
        self._cause = ""

    def log(self, problem: str, cause: str = "") -> None:
        """Logs a problem. `cause` distinguishes causes where the text of the problem does not."""
        cause = cause or _QUERY.sub("", problem)
        level = logging.DEBUG if cause == self._cause else self._level
        self._log.log(level, "%s", problem, stacklevel=2)
        self._cause = cause

    def resolved(self, message: str) -> None:
        """The operation works; logged only if a problem was."""
        if self._cause:
            self._log.info("%s", message, stacklevel=2)
            self._cause = ""
