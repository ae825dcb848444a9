"""What may be logged about HTTP: no passwords. `listening.py` keeps out what clients send by mistake."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

HIDDEN = "***"


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
