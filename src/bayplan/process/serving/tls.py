"""The TLS side of a connection: the server's certificate (a given one, or a self-signed one) and its clients'
CAs.
"""

from __future__ import annotations

import datetime
import ipaddress
import logging
import ssl
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bayplan.errors import ConfigError
from bayplan.files import WatchedFiles, create_private, warn_if_exposed
from bayplan.net.tls import server_context, warn_of_expiry
from bayplan.process.serving.client_authorities import ClientAuthorities
from bayplan.process.serving.settings import ServingSettings

VALID: Final = datetime.timedelta(days=365)
RENEW: Final = datetime.timedelta(days=30)
"""A self-signed certificate is replaced this long before it expires."""
SKEW: Final = datetime.timedelta(hours=1)
"""Tolerance for clocks that are behind."""
PAIR_NAME: Final = "kube-scheduler"
"""The names of the files in a certificate directory."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    certificate: bytes
    """In PEM format, like the key."""
    key: bytes = field(repr=False)


def own_pair(directory: str, bind_address: str) -> KeyPair:
    """The pair from the directory; created and stored there if it has none. Without a directory it is
    created.

    Raises:
        ConfigError: the directory cannot be read or written.
    """
    if not directory:
        return make_pair(bind_address)
    cert_path, key_path = Path(directory, f"{PAIR_NAME}.crt"), Path(directory, f"{PAIR_NAME}.key")
    try:
        if cert_path.exists() and key_path.exists():
            warn_if_exposed(key_path, "private key")
            return KeyPair(cert_path.read_bytes(), key_path.read_bytes())
        for there, missing in ((cert_path, key_path), (key_path, cert_path)):
            if there.exists():
                # As upstream: existing files are not replaced.
                raise ConfigError(f"{there} is there and {missing} is not: they must be supplied as a pair")
        pair = make_pair(bind_address)
        Path(directory).mkdir(mode=0o755, parents=True, exist_ok=True)
        create_private(key_path, pair.key)
        create_private(cert_path, pair.certificate)
        cert_path.chmod(0o644)
    except OSError as error:
        raise ConfigError(f"error creating self-signed certificates: {error}") from error
    return pair


def make_pair(bind_address: str = "", now: datetime.datetime | None = None) -> KeyPair:
    """A certificate for localhost and, if it is a specific one, the listening address."""
    now = now or datetime.datetime.now(datetime.UTC)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"localhost@{int(now.timestamp())}")])
    addresses = [ipaddress.ip_address("127.0.0.1")]
    if bind_address:
        given = ipaddress.ip_address(bind_address)
        if not given.is_unspecified and given not in addresses:
            addresses.append(given)
    names = [x509.DNSName("localhost"), *(x509.IPAddress(address) for address in addresses)]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + VALID)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        ),
    )


def expires_soon(pair: KeyPair, now: datetime.datetime | None = None) -> bool:
    now = now or datetime.datetime.now(datetime.UTC)
    return x509.load_pem_x509_certificate(pair.certificate).not_valid_after_utc < now + RENEW


def host_names(certificate: bytes) -> tuple[str, ...]:
    """The host names that a certificate is for."""
    try:
        names = x509.load_pem_x509_certificate(certificate).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except (ValueError, x509.ExtensionNotFound):
        return ()
    return tuple(names.value.get_values_for_type(x509.DNSName))


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
"""OpenSSL's names of cipher suites by Go's."""

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
        self._cert_file, self._key_file = cert_file, key_file
        self._files = WatchedFiles((cert_file, key_file))
        self.pair = self._read()
        self.names = names or host_names(self.pair.certificate)

    def reload_files(self) -> bool:
        """Whether there is a new one."""
        if not self._files.have_changed():
            return False
        try:
            self.pair = self._read()
        except ConfigError as error:
            _log.warning("keeping the previous certificate: %s", error)
            return False
        return True

    def _read(self) -> KeyPair:
        try:
            pair = KeyPair(Path(self._cert_file).read_bytes(), Path(self._key_file).read_bytes())
            server_context(pair.certificate, pair.key)  # raises if they do not match
            warn_if_exposed(self._key_file, "private key")
        except OSError as error:
            raise ConfigError(f"failed to load the certificate {self._cert_file}: {error}") from error
        return pair


class ServerTLS:
    """Creates the context of each connection.

    Raises:
        ConfigError: a certificate, a version, a cipher suite or a curve is invalid.
    """

    def __init__(self, settings: ServingSettings, authorities: ClientAuthorities) -> None:
        self._settings = settings
        self._authorities = authorities
        self._given: Certificate | None = None
        self._own: KeyPair | None = None
        if settings.cert_file or settings.key_file:
            self._given = Certificate(settings.cert_file, settings.key_file)
        else:
            self._own = own_pair(settings.cert_dir, settings.bind_address)
        self._named = [
            Certificate(given.cert_file, given.key_file, given.names) for given in settings.named_certificates
        ]
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
        changed.append(self._check_expiry())
        self._authorities.reload_files()
        if any(changed) or self._made_for != self._authorities.version:
            try:
                self._make_contexts()
            except ConfigError as error:
                _log.warning("keeping the previous certificates: %s", error)
        connection.context = self._for(name or "")

    def _check_expiry(self) -> bool:
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
        context = server_context(pair.certificate, pair.key)
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
