"""What we show ourselves with: a certificate that we are given, or one that we make and sign ourselves."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bayplan.errors import ConfigError

VALID: Final = datetime.timedelta(days=365)
SKEW: Final = datetime.timedelta(hours=1)
"""Clocks of others may be a little behind."""
PAIR_NAME: Final = "kube-scheduler"
"""What the files in a certificate directory are called."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    certificate: bytes
    """PEM, as is the key."""
    key: bytes = field(repr=False)


def own_pair(directory: str, bind_address: str) -> KeyPair:
    """The pair from the directory; made, and left there, if it has none. Without a directory it is made.

    Raises:
        ConfigError: the directory cannot be read or written.
    """
    if not directory:
        return make_pair(bind_address)
    cert_path, key_path = Path(directory, f"{PAIR_NAME}.crt"), Path(directory, f"{PAIR_NAME}.key")
    try:
        if cert_path.exists() and key_path.exists():
            return KeyPair(cert_path.read_bytes(), key_path.read_bytes())
        pair = make_pair(bind_address)
        Path(directory).mkdir(mode=0o755, parents=True, exist_ok=True)
        cert_path.write_bytes(pair.certificate)
        with contextlib.suppress(FileNotFoundError):
            key_path.unlink()
        with os.fdopen(os.open(key_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(pair.key)
    except OSError as error:
        raise ConfigError(f"error creating self-signed certificates: {error}") from error
    return pair


def make_pair(bind_address: str = "", now: datetime.datetime | None = None) -> KeyPair:
    """A certificate for localhost and, if it is one in particular, the address that we listen at."""
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


def host_names(certificate: bytes) -> tuple[str, ...]:
    """The host names that a certificate is for."""
    try:
        names = x509.load_pem_x509_certificate(certificate).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except (ValueError, x509.ExtensionNotFound):
        return ()
    return tuple(names.value.get_values_for_type(x509.DNSName))
