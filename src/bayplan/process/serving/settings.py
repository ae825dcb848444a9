"""Where to listen, with which certificate, and whom to trust. Each value is a flag of `bayplan run`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

DEFAULT_PORT: Final = 10259
OPEN_PATHS: Final = ("/healthz", "/readyz", "/livez")


@dataclass(frozen=True, slots=True)
class NamedCertificate:
    """A certificate for clients that request one of these host names; without names, for the names in it."""

    cert_file: str
    key_file: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServingSettings:
    """The connection. Without `cert_file` a certificate is created, and stored in `cert_dir` or in memory."""

    bind_address: str = "0.0.0.0"
    port: int = DEFAULT_PORT
    """0: any free port."""
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
    """Front proxies that name the user in headers. They need a certificate of these CAs."""

    ca_file: str = ""
    """Empty: as the cluster defines, and the other fields are ignored."""
    allowed_names: tuple[str, ...] = ()
    """Common names of such proxies; empty: any."""
    username_headers: tuple[str, ...] = ("x-remote-user",)
    group_headers: tuple[str, ...] = ("x-remote-group",)
    uid_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ("x-remote-extra-",)


@dataclass(frozen=True, slots=True)
class AuthenticationSettings:
    skip_lookup: bool = False
    """Do not read the client CAs from the cluster."""
    tolerate_lookup_failure: bool = True
    client_ca_file: str = ""
    """Empty: as the cluster defines."""
    proxy: ProxySettings = field(default_factory=ProxySettings)
    token_seconds: float = 10.0
    """How long the result of a TokenReview is cached."""


@dataclass(frozen=True, slots=True)
class AuthorizationSettings:
    open_paths: tuple[str, ...] = OPEN_PATHS
    """Always allowed; a `*` at the end matches anything."""
    allowed_seconds: float = 10.0
    """How long a positive result is cached."""
    denied_seconds: float = 10.0
