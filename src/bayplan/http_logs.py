"""What may be logged about HTTP: nothing that a client sent by mistake, and no password.

A request that cannot be parsed may hold a token anywhere, and aiohttp logs the bytes it stumbled on. Servers
therefore give it the logger from here, which says in one line that there was such a request.
"""

from __future__ import annotations

import logging
from urllib.parse import urlsplit, urlunsplit

from aiohttp.http_exceptions import HttpProcessingError

HIDDEN = "***"


def request_logger(name: str) -> logging.Logger:
    """The logger for an aiohttp server."""
    logger = logging.getLogger(f"{name}.requests")
    if not logger.filters:
        logger.addFilter(_without_content)
    return logger


def _without_content(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    if isinstance(error, HttpProcessingError):
        remote = record.args[0] if isinstance(record.args, tuple) and record.args else "unknown"
        record.msg, record.args = "malformed HTTP request from %s: %s", (remote, type(error).__name__)
        record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        record.exc_info = record.exc_text = None
    return True


def shown_url(url: str) -> str:
    """A URL for logs and messages: without its password, as Go shows it."""
    try:
        parts = urlsplit(url)
        password = parts.password
    except ValueError:
        return url
    if password is None:
        return url
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}:{HIDDEN}@{host}"))
