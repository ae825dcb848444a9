"""Settings of the HTTPS server from flags.

Not in `endpoints.py`, which imports the server: a start needs the address at once, and the server later.
"""

from __future__ import annotations

from typing import Final

from bayplan.errors import ConfigError
from bayplan.process.command_line import FlagValues
from bayplan.process.serving.settings import (
    AuthenticationSettings,
    AuthorizationSettings,
    NamedCertificate,
    ProxySettings,
    ServingSettings,
)

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
