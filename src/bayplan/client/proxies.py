"""Proxies from the environment, by the rules of Go's HTTP client, as other Kubernetes programs.

`HTTPS_PROXY` or `HTTP_PROXY` by the scheme of the server, upper case first. `NO_PROXY` is a list of `*`, host
names (with their subdomains; with a leading dot only the subdomains), addresses and networks, each with or
without a port. Connections to this machine never use a proxy.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from bayplan.errors import ConfigError


def proxy_problem(proxy: str) -> str:
    """Why this is not a valid proxy URL; empty if it is one."""
    try:
        parts = urlsplit(proxy)
        if parts.scheme not in ("http", "https"):
            return f'unsupported scheme "{parts.scheme}", must be http or https'
        return "" if parts.hostname and parts.port != 0 else "there is no host in it"
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
