"""Certificates for servers and users, signed by authorities that exist for one test."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import tempfile
from collections.abc import Sequence
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
    _subject: x509.Name
    _key: ec.EllipticCurvePrivateKey

    def issue(self, name: str, *hosts: str, groups: Sequence[str] = ()) -> Pair:
        """A certificate for a name; servers need the hosts and addresses that they answer for."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name, groups), self._subject, key)
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        form = serialization.PrivateFormat.PKCS8
        secret = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        return Pair(_pem(builder.sign(self._key, hashes.SHA256())), secret)


@cache
def authority(name: str) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    constraints = x509.BasicConstraints(ca=True, path_length=None)
    builder = _builder(_name(name), _name(name), key).add_extension(constraints, critical=True)
    return Authority(_pem(builder.sign(key, hashes.SHA256())), _name(name), key)


@cache
def server_tls(ca: str = "cluster", *hosts: str, users: str = "") -> ssl.SSLContext:
    """The TLS settings of a server. `users`: the authority of the client certificates that it requests."""
    pair = authority(ca).issue("kube-apiserver", *(hosts or ("127.0.0.1", "localhost")))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        file.write(pair.certificate + pair.key)
        file.flush()
        context.load_cert_chain(file.name)
    if users:
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=authority(users).certificate.decode())
    return context


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
    )


def _name(text: str, groups: Sequence[str] = ()) -> x509.Name:
    common = x509.NameAttribute(NameOID.COMMON_NAME, text)
    return x509.Name([*(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups), common])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
