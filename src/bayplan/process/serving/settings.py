"""Where to listen, with which certificate, and whom to trust: plain values from the flags of `bayplan run`.

Not in `endpoints.py`, which imports the server: a start needs the address at once, and the server later.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import Final

from bayplan.errors import BayplanError, ConfigError
from bayplan.net.ports import bind
from bayplan.process.command_line import FlagValues

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


class ListenError(BayplanError):
    """The port cannot be listened on."""


async def listen(settings: ServingSettings) -> list[socket.socket]:
    """Raises ListenError: the port is in use, or not permitted."""
    address, port = settings.bind_address, settings.port
    try:
        return await bind(address, port, reuse_address=settings.reuse_address, reuse_port=settings.reuse_port)
    except OSError as error:
        where = f"{address}:{port}"
        raise ListenError(f"failed to create listener: failed to listen on {where}: {error}") from error


_FILES: Final = (
    "tls-cert-file",
    "tls-sni-cert-key",
    "client-ca-file",
    "requestheader-client-ca-file",
    "authentication-kubeconfig",
    "authorization-kubeconfig",
)


def reads_files(flags: FlagValues) -> bool:
    """Whether serving depends on files of the user, which may be invalid."""
    return any(flags[name] for name in _FILES)


def serving_settings(flags: FlagValues) -> ServingSettings:
    """Raises ConfigError if only one half of a certificate pair is given."""
    if bool(flags["tls-cert-file"]) != bool(flags["tls-private-key-file"]):
        raise ConfigError(
            "missing filename for serving cert: --tls-cert-file and --tls-private-key-file belong together"
        )
    return ServingSettings(
        bind_address=flags["bind-address"],
        port=flags["secure-port"],
        cert_file=flags["tls-cert-file"],
        key_file=flags["tls-private-key-file"],
        cert_dir=flags["cert-dir"],
        named_certificates=tuple(_named(text) for text in flags["tls-sni-cert-key"]),
        min_version=flags["tls-min-version"],
        cipher_suites=flags["tls-cipher-suites"],
        curves=tuple(str(curve) for curve in flags["tls-curve-preferences"]),
        reuse_port=flags["permit-port-sharing"],
        reuse_address=flags["permit-address-sharing"],
    )


def _named(text: str) -> NamedCertificate:
    """`cert,key` or `cert,key:name,name`."""
    files, _, names = text.partition(":")
    certificate, _, key = files.partition(",")
    return NamedCertificate(certificate, key, tuple(name for name in names.split(",") if name))


def authentication_settings(flags: FlagValues) -> AuthenticationSettings:
    return AuthenticationSettings(
        skip_lookup=flags["authentication-skip-lookup"],
        tolerate_lookup_failure=flags["authentication-tolerate-lookup-failure"],
        client_ca_file=flags["client-ca-file"],
        proxy=ProxySettings(
            ca_file=flags["requestheader-client-ca-file"],
            allowed_names=flags["requestheader-allowed-names"],
            username_headers=flags["requestheader-username-headers"],
            group_headers=flags["requestheader-group-headers"],
            uid_headers=flags["requestheader-uid-headers"],
            extra_prefixes=flags["requestheader-extra-headers-prefix"],
        ),
        token_seconds=flags["authentication-token-webhook-cache-ttl"].seconds,
    )


def authorization_settings(flags: FlagValues) -> AuthorizationSettings:
    return AuthorizationSettings(
        open_paths=flags["authorization-always-allow-paths"],
        allowed_seconds=flags["authorization-webhook-cache-authorized-ttl"].seconds,
        denied_seconds=flags["authorization-webhook-cache-unauthorized-ttl"].seconds,
    )
