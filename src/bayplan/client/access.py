"""The address of an API server and the credentials for it, as plain values, and the proxy to reach it by.

`kubeconfig.py` reads them; `credentials.py` and `requests.py` use them.

Proxies come from the environment, by the rules of Go's HTTP client, as for other Kubernetes programs:
`HTTPS_PROXY` or `HTTP_PROXY` by the scheme of the server, upper case first. `NO_PROXY` is a list of `*`, host
names (with their subdomains; with a leading dot only the subdomains), addresses and networks, each with or
without a port. Connections to this machine never use a proxy.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from bayplan.errors import ConfigError
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


def proxy_problem(proxy: str) -> str:
    """Why this is not a valid proxy URL; empty if it is one."""
    try:
        parts = urlsplit(proxy)
        if parts.scheme not in ("http", "https"):
            return f'unsupported scheme "{parts.scheme}", must be http or https'
        return "" if parts.hostname and parts.port != 0 else "it has no host"
    except ValueError as error:
        return str(error)


def environment_proxy(server: str, environ: Mapping[str, str]) -> str:
    """The URL of the proxy for this server; empty if it is reached directly.

    Raises:
        ConfigError: the proxy has an unsupported scheme.
    """
    parts = urlsplit(server)
    name = "HTTPS_PROXY" if parts.scheme == "https" else "HTTP_PROXY"
    proxy = environ.get(name) or environ.get(name.lower()) or ""
    if not proxy:
        return ""
    host = (parts.hostname or "").rstrip(".")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if _is_local(host) or _is_exempt(host, port, environ.get("NO_PROXY") or environ.get("no_proxy") or ""):
        return ""
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    if problem := proxy_problem(proxy):
        raise ConfigError(f"{name}: {problem}")
    return proxy


def _is_local(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _is_exempt(host: str, port: int, exempt: str) -> bool:
    address = _address(host)
    for entry in exempt.lower().split(","):
        entry = entry.strip()
        if entry == "*":
            return True
        name, colon, wanted_port = entry.rpartition(":")
        if colon and wanted_port.isdecimal() and ("]" in name or ":" not in name):
            if int(wanted_port) != port:
                continue
            entry = name
        entry = entry.strip("[]")
        if not entry:
            continue
        if "/" in entry:
            found = address is not None and _covers(entry, address)
        elif (below := entry.removeprefix("*")).startswith("."):
            found = host.endswith(below)
        else:
            found = host == entry or host.endswith(f".{entry}")
        if found:
            return True
    return False


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _covers(network: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
