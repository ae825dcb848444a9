"""The TLS side of a connection: our certificates, the protocol versions, the accepted client CAs.

Every connection gets its context after the ClientHello, so that a replaced certificate or CA is used from the
next connection on. A client certificate of an unknown CA ends the connection here (upstream accepts it and
responds with 401).
"""

from __future__ import annotations

import logging
import ssl
import time
from pathlib import Path
from typing import Any, Final

from bayplan.errors import ConfigError
from bayplan.files import stamp, warn_if_exposed
from bayplan.net.tls import show, warn_of_expiry
from bayplan.process.serving.certificates import KeyPair, expires_soon, host_names, make_pair, own_pair
from bayplan.process.serving.client_authorities import ClientAuthorities
from bayplan.process.serving.settings import ServingSettings

VERSIONS: Final = {
    "": ssl.TLSVersion.TLSv1_2,
    # Whatever is configured, OpenSSL supports nothing older any more.
    "VersionTLS10": ssl.TLSVersion.TLSv1_2,
    "VersionTLS11": ssl.TLSVersion.TLSv1_2,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}

CIPHERS: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
}
"""Go's names of curves and cipher suites that OpenSSL names differently."""

TLS13_CIPHERS: Final = frozenset(
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
)
"""Always enabled with TLS 1.3."""

CURVES: Final = {
    "23": "prime256v1",
    "CurveP256": "prime256v1",
    "24": "secp384r1",
    "CurveP384": "secp384r1",
    "25": "secp521r1",
    "CurveP521": "secp521r1",
    "29": "X25519",
    "X25519": "X25519",
}

POLL_SECONDS: Final = 24 * 60 * 60.0
"""Interval between checks for expiring certificates."""

_log = logging.getLogger(__name__)


class Certificate:
    """A server certificate, read again when its files change."""

    def __init__(self, cert_file: str, key_file: str, names: tuple[str, ...] = ()) -> None:
        self._files = (cert_file, key_file)
        self._stamps = [stamp(path) for path in self._files]
        self.pair = self._read()
        self.names = names or host_names(self.pair.certificate)

    def reload_files(self) -> bool:
        """Whether there is a new one."""
        stamps = [stamp(path) for path in self._files]
        if stamps == self._stamps:
            return False
        self._stamps = stamps
        try:
            pair = self._read()
        except ConfigError as error:
            _log.warning("keeping the previous certificate: %s", error)
            return False
        self.pair = pair
        return True

    def _read(self) -> KeyPair:
        try:
            pair = KeyPair(Path(self._files[0]).read_bytes(), Path(self._files[1]).read_bytes())
            show(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), pair.certificate, pair.key)
            warn_if_exposed(self._files[1], "private key")
        except OSError as error:
            raise ConfigError(f"failed to load the certificate {self._files[0]}: {error}") from error
        return pair


class ServerTLS:
    """Creates the context of each connection.

    Raises:
        ConfigError: a certificate, a version, a cipher suite or a curve is invalid.
    """

    def __init__(self, settings: ServingSettings, authorities: ClientAuthorities) -> None:
        self._settings = settings
        self._authorities = authorities
        self._given = (
            Certificate(settings.cert_file, settings.key_file)
            if settings.cert_file or settings.key_file
            else None
        )
        self._named = [
            Certificate(given.cert_file, given.key_file, given.names) for given in settings.named_certificates
        ]
        own = None if self._given is not None else own_pair(settings.cert_dir, settings.bind_address)
        self._own = own
        self._next_check = time.monotonic() + POLL_SECONDS
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._made_for = -1
        self._make_contexts()

    def context(self) -> ssl.SSLContext:
        """The context to listen with. It passes each connection to the context that is current then."""
        context = self._make(self._default())
        context.sni_callback = self._hello
        return context

    def _hello(self, connection: Any, name: str | None, context: ssl.SSLContext) -> None:
        changed = [each.reload_files() for each in (self._given, *self._named) if each is not None]
        changed.append(self._heed_expiry())
        self._authorities.reload_files()
        if any(changed) or self._made_for != self._authorities.version:
            try:
                self._make_contexts()
            except ConfigError as error:
                _log.warning("keeping the previous certificates: %s", error)
        connection.context = self._for(name or "")

    def _heed_expiry(self) -> bool:
        """Once a day: warns of certificates that expire, and replaces a self-signed one in time."""
        now = time.monotonic()
        if now < self._next_check:
            return False
        self._next_check = now + POLL_SECONDS
        for each in (self._given, *self._named):
            if each is not None:
                warn_of_expiry(each.pair.certificate)
        if self._own is None or self._settings.cert_dir or not expires_soon(self._own):
            return False
        self._own = make_pair(self._settings.bind_address)
        return True

    def _for(self, name: str) -> ssl.SSLContext:
        name = name.lower()
        wild = f"*.{name.partition('.')[2]}"
        return self._contexts.get(name) or self._contexts.get(wild) or self._contexts[""]

    def _default(self) -> KeyPair:
        pair = self._own if self._given is None else self._given.pair
        assert pair is not None
        return pair

    def _make_contexts(self) -> None:
        made = {"": self._make(self._default())}
        for certificate in reversed(self._named):
            context = self._make(certificate.pair)
            made.update((name.lower(), context) for name in certificate.names)
        self._contexts = made
        self._made_for = self._authorities.version

    def _make(self, pair: KeyPair) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        show(context, pair.certificate, pair.key)
        _restrict(context, self._settings)
        accepted = self._authorities.pem
        if accepted or self._authorities.asks_cluster:
            # Set before there is a CA: a connection inherits it from the context that accepted it.
            context.verify_mode = ssl.CERT_OPTIONAL
            # Go trusts exactly the given certificates, whether they are roots or not.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if accepted:
            context.load_verify_locations(cadata=accepted)
        return context


def _restrict(context: ssl.SSLContext, settings: ServingSettings) -> None:
    if settings.min_version not in VERSIONS:
        raise ConfigError(f'unknown tls version "{settings.min_version}"')
    context.minimum_version = VERSIONS[settings.min_version]
    for name in settings.cipher_suites:
        if name not in CIPHERS and name not in TLS13_CIPHERS:
            raise ConfigError(f"Cipher suite {name} not supported or doesn't exist")
    wanted = [CIPHERS[name] for name in settings.cipher_suites if name in CIPHERS]
    if wanted:
        context.set_ciphers(":".join(wanted))
    for curve in settings.curves:
        if curve not in CURVES:
            raise ConfigError(f'unsupported curve "{curve}": one of {", ".join(sorted(CURVES))}')
    if len(settings.curves) == 1:
        # Python can set one; with several, OpenSSL's default, which includes all of them, is used.
        context.set_ecdh_curve(CURVES[settings.curves[0]])
