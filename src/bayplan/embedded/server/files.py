"""The token of a data directory."""

from __future__ import annotations

import secrets
from pathlib import Path

from bayplan.errors import ConfigError
from bayplan.files import read_private, warn_if_exposed, write_private


def token_in(directory: Path) -> str:
    """The token of a data directory; created if the file is missing or empty.

    Raises:
        ConfigError: the file has something that cannot be a token.
    """
    path = directory / "token"
    try:
        token = read_private(path).decode("ascii").strip()
    except FileNotFoundError:
        token = ""
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: a token has no characters but letters, digits and signs") from None
    if not token:
        token = secrets.token_urlsafe(32)
        write_private(path, f"{token}\n".encode())
    if not token.isprintable() or " " in token:
        raise ConfigError(f"{path}: a token has no characters but letters, digits and signs")
    warn_if_exposed(path, "token")
    return token
