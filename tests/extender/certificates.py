"""A small certificate authority for the tests."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True)
class Authority:
    """Signs certificates; `certificate` is what its clients trust."""

    certificate: bytes
    _certificate: x509.Certificate
    _key: ec.EllipticCurvePrivateKey

    def issue(self, name: str, *alternatives: str, password: bytes = b"") -> Pair:
        """A certificate for a name, valid for these hosts and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(name, self._certificate.subject, key)
        if alternatives:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general_name(text) for text in alternatives]), critical=False
            )
        return Pair(_pem(builder.sign(self._key, hashes.SHA256())), _key_pem(key, password))


@cache
def authority(name: str) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(name, subject, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(_pem(certificate), certificate, key)


def _builder(name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
    )


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey, password: bytes) -> bytes:
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password:
        encryption = serialization.BestAvailableEncryption(password)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
