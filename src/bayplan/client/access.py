"""The address of an API server and the credentials for it: plain values.

`kubeconfig.py` reads them; `tls.py`, `credentials.py` and `requests.py` use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bayplan.net.tls import TLSSettings


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A program that provides credentials (client.authentication.k8s.io)."""

    command: str
    api_version: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    install_hint: str = ""
    needs_terminal: bool = False
    cluster: Mapping[str, Any] | None = None
    """The cluster information that is passed to the program, if it asks for it."""


@dataclass(frozen=True, slots=True)
class Access:
    """Everything needed to connect to an API server.

    Of token file, token, user name and program the first that is given is used. Over plain HTTP no
    credentials are sent, as upstream: anyone who listens could use them.
    """

    server: str
    """`https://host:port/prefix`, without a slash at the end."""
    tls: TLSSettings = field(default_factory=TLSSettings)
    token: str = field(default="", repr=False)
    token_file: str = ""
    """Read again every minute: service account tokens live for an hour or less."""
    username: str = ""
    password: str = field(default="", repr=False)
    exec_plugin: ExecPlugin | None = None
    impersonate: tuple[tuple[str, str], ...] = ()
    """Impersonation headers."""
    proxy: str = field(default="", repr=False)
    """Not part of the repr: it may contain a password."""

    @property
    def uses_tls(self) -> bool:
        return self.server.startswith("https:")
