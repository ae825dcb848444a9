"""The server's certificate: a given one, or a self-signed one."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bayplan.errors import ConfigError
from bayplan.files import create_private, warn_if_exposed

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
