"""Where an API server is and as whom we speak to it: plain values, wherever they were read from.

`kubeconfig.py` reads them; `tls.py`, `credentials.py` and `requests.py` act on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class TLSSettings:
    """Whom to trust and what to show. Where there is data it beats the file, which is then not read."""

    ca_file: str = ""
    ca_data: bytes = b""
    insecure: bool = False
    """Trust whoever answers."""
    server_name: str = ""
    """The name to ask for and to expect, where it is not the one in the URL."""
    cert_file: str = ""
    cert_data: bytes = b""
    key_file: str = ""
    key_data: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A program that is asked for credentials (client.authentication.k8s.io)."""

    command: str
    api_version: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    install_hint: str = ""
    needs_terminal: bool = False
    cluster: Mapping[str, Any] | None = None
    """What the program is told about the cluster, where it wants to know."""


@dataclass(frozen=True, slots=True)
class Access:
    """All it takes to speak to an API server.

    Of token file, token, user name and program the first that is given is used. Over plain HTTP nothing is
    shown to the server, as upstream: whoever listens could use it.
    """

    server: str
    """`https://host:port/prefix`, without a slash at the end."""
    tls: TLSSettings = TLSSettings()
    token: str = field(default="", repr=False)
    token_file: str = ""
    """Read again every minute: tokens of service accounts live for an hour or less."""
    username: str = ""
    password: str = field(default="", repr=False)
    exec_plugin: ExecPlugin | None = None
    impersonate: tuple[tuple[str, str], ...] = ()
    """Headers that ask to be treated as somebody else."""
    proxy: str = field(default="", repr=False)
    """Not shown: there may be a password in it."""

    @property
    def uses_tls(self) -> bool:
        return self.server.startswith("https:")
