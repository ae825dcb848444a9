"""Certificates of the embedded server: a CA of its own, and a serving certificate for loopback.

kubectl sends a token only over TLS, and checks who it talks to by the CA in the kubeconfig. Both are made
when a data directory is first used and kept in it, so that kubeconfigs stay valid. The key of the CA is
thrown away once it has signed: nobody can sign another certificate with it. So when the files cannot be used
any more (they expire, do not belong together, or are for another host) both are made again, and kubeconfigs
that were written before are no longer valid; `bayplan up` writes its own at every start.
"""

from __future__ import annotations

import ipaddress
import logging
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bayplan.files import write_private
from bayplan.net.tls import server_context

CA_NAME: Final = "bayplan CA"

_YEARS: Final = timedelta(days=3650)
_RENEW: Final = timedelta(days=365)
"""Certificates that expire sooner are renewed at the start: the server may run for long."""
_SKEW: Final = timedelta(hours=1)
"""Clocks differ: a certificate is valid from a little before it was created."""
_NAMES: Final = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
_ADDRESSES: Final = ("127.0.0.1", "::1")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Certificates:
    """The paths of the files."""

    ca: Path
    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """For a server."""
        return server_context(str(self.certificate), str(self.key))


def certificates_in(
    directory: Path, *, hosts: tuple[str, ...] = (), now: datetime | None = None
) -> Certificates:
    """The certificates of a directory; created if there are none, or they cannot be used.

    Args:
        hosts: names and addresses besides those of loopback.
    """
    found = Certificates(directory / "ca.crt", directory / "server.crt", directory / "server.key")
    now = now or datetime.now(UTC)
    if not all(path.exists() for path in (found.ca, found.certificate, found.key)):
        _make(found, hosts, now)
    elif (problem := _problem(found, hosts, now)) is not None:
        _log.warning(
            "%s: %s; making new certificates, kubeconfigs have to be written again", directory, problem
        )
        _make(found, hosts, now)
    return found


def _problem(files: Certificates, hosts: tuple[str, ...], now: datetime) -> str | None:
    """Why the files cannot be used (any longer); None if they can."""
    try:
        ca = x509.load_pem_x509_certificate(files.ca.read_bytes())
        certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        certificate.verify_directly_issued_by(ca)
        files.context()
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, OSError, x509.ExtensionNotFound) as error:
        return f"the certificates do not belong together ({error or type(error).__name__})"
    expiry = min(ca.not_valid_after_utc, certificate.not_valid_after_utc)
    if expiry < now + _RENEW:
        return f"the certificates {'have expired' if expiry < now else 'expire'} on {expiry:%Y-%m-%d}"
    missing = [name.value for name in _alternatives(hosts) if name not in names]
    return f"the certificate is not for {missing[0]}" if missing else None


def _make(files: Certificates, hosts: tuple[str, ...], now: datetime) -> None:
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = _name(CA_NAME)
    ca = (
        _builder(ca_name, ca_name, ca_key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(for_ca=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_name("bayplan"), ca_name, key.public_key(), now)
        .add_extension(x509.SubjectAlternativeName(_alternatives(hosts)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(for_ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_private(files.key, private)
    write_private(files.certificate, certificate.public_bytes(serialization.Encoding.PEM))
    write_private(files.ca, ca.public_bytes(serialization.Encoding.PEM))


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _YEARS)
    )


def _usage(*, for_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=for_ca,
        crl_sign=for_ca,
        encipher_only=False,
        decipher_only=False,
    )


def _alternatives(hosts: tuple[str, ...]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in _NAMES]
    names += [x509.IPAddress(ipaddress.ip_address(address)) for address in _ADDRESSES]
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return names
