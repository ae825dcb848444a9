"""Where to listen, with which certificate, and whom to believe. Each value is a flag of `bayplan run`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

DEFAULT_PORT: Final = 10259
OPEN_PATHS: Final = ("/healthz", "/readyz", "/livez")


@dataclass(frozen=True, slots=True)
class NamedCertificate:
    """A certificate for who asks for one of these host names; without names, for those it is made for."""

    cert_file: str
    key_file: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServingSettings:
    """The connection. Without `cert_file` a certificate is made, and kept in `cert_dir` or in memory."""

    bind_address: str = "0.0.0.0"
    port: int = DEFAULT_PORT
    """0: any that is free."""
    cert_file: str = ""
    key_file: str = ""
    cert_dir: str = ""
    named_certificates: tuple[NamedCertificate, ...] = ()
    min_version: str = ""
    """`VersionTLS12`, `VersionTLS13`; empty: 1.2."""
    cipher_suites: tuple[str, ...] = ()
    """Go's names; for TLS 1.2 only."""
    curves: tuple[str, ...] = ()
    """Go's names or numbers."""
    reuse_port: bool = False
    reuse_address: bool = False


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """Proxies that say in headers for whom they ask. They must have a certificate of these authorities."""

    ca_file: str = ""
    """Empty: as the cluster says, and the other fields do not count."""
    allowed_names: tuple[str, ...] = ()
    """Common names of such proxies; empty: any."""
    username_headers: tuple[str, ...] = ("x-remote-user",)
    group_headers: tuple[str, ...] = ("x-remote-group",)
    uid_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ("x-remote-extra-",)


@dataclass(frozen=True, slots=True)
class AuthenticationSettings:
    skip_lookup: bool = False
    """Do not ask the cluster whose certificates count."""
    tolerate_lookup_failure: bool = True
    client_ca_file: str = ""
    """Empty: as the cluster says."""
    proxy: ProxySettings = field(default_factory=ProxySettings)
    token_seconds: float = 10.0
    """How long an answer about a token is remembered."""


@dataclass(frozen=True, slots=True)
class AuthorizationSettings:
    open_paths: tuple[str, ...] = OPEN_PATHS
    """Open to all; a `*` at the end stands for anything."""
    allowed_seconds: float = 10.0
    """How long a yes is remembered."""
    denied_seconds: float = 10.0
