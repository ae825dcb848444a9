"""The connection: certificates, versions, ciphers, and addresses."""

from __future__ import annotations

import asyncio
import datetime
import os
import ssl
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509

from bayplan.errors import ConfigError
from bayplan.process.serving.access import delegated_access
from bayplan.process.serving.server import SecureServer
from bayplan.process.serving.settings import (
    AuthenticationSettings,
    AuthorizationSettings,
    ListenError,
    NamedCertificate,
    ServingSettings,
    listen,
)
from bayplan.process.serving.tls import make_pair
from tests.client.http.certificates import Authority, authority

from .secure_server import Client, as_files, here, make_routes, with_server


async def shown(client: Client, server_name: str = "") -> x509.Certificate:
    return x509.load_der_x509_certificate(await client.certificate(server_name))


def common_name(certificate: x509.Certificate) -> str:
    return str(certificate.subject.rfc4514_string()).removeprefix("CN=")


def test_without_a_certificate_it_makes_its_own() -> None:
    made = with_server(shown, settings=ServingSettings(bind_address="127.0.0.1", port=0))
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert made.not_valid_after_utc - made.not_valid_before_utc == datetime.timedelta(days=365, hours=1)


def test_it_is_made_for_the_listening_address_too() -> None:
    made = x509.load_pem_x509_certificate(make_pair("10.1.2.3").certificate)
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == [
        "127.0.0.1",
        "10.1.2.3",
    ]


def test_it_is_kept_in_the_given_directory_and_used_again(tmp_path: Path) -> None:
    settings = ServingSettings(bind_address="127.0.0.1", port=0, cert_dir=str(tmp_path / "certs"))
    first, second = with_server(shown, settings=settings), with_server(shown, settings=settings)
    assert first == second
    assert sorted(os.listdir(tmp_path / "certs")) == ["kube-scheduler.crt", "kube-scheduler.key"]
    assert (tmp_path / "certs" / "kube-scheduler.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("there", ["kube-scheduler.crt", "kube-scheduler.key"])
def test_half_a_pair_is_not_replaced(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("precious")
    with pytest.raises(ConfigError, match="must be supplied as a pair"):
        with_server(shown, settings=ServingSettings(bind_address="127.0.0.1", port=0, cert_dir=str(tmp_path)))
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [(there, "precious")]


def test_its_own_certificate_is_renewed_before_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs for longer than a certificate is good for, and nothing else would renew it."""
    now = datetime.datetime.now(datetime.UTC)
    old = make_pair(now=now - datetime.timedelta(days=340))
    monkeypatch.setattr("bayplan.process.serving.tls.own_pair", lambda *_: old)
    monkeypatch.setattr("bayplan.process.serving.tls.POLL_SECONDS", 0.0)
    served = with_server(shown, settings=ServingSettings(bind_address="127.0.0.1", port=0))
    assert served.not_valid_after_utc > now + datetime.timedelta(days=300)


def test_a_certificate_that_was_replaced_is_shown_from_then_on(tmp_path: Path) -> None:
    cert_file, key_file = as_files(authority("one").issue("first"), tmp_path)

    async def act(client: Client) -> list[str]:
        names = [common_name(await shown(client))]
        Path(cert_file).write_text("being written")
        names.append(common_name(await shown(client)))
        as_files(authority("one").issue("second"), tmp_path)
        return [*names, common_name(await shown(client))]

    assert with_server(act, settings=here(cert_file=cert_file, key_file=key_file)) == [
        "first",
        "first",
        "second",
    ]


def named(directory: Path, issuer: Authority, name: str, hosts: list[str], *names: str) -> NamedCertificate:
    (directory / name).mkdir()
    cert_file, key_file = as_files(issuer.issue(name, *hosts), directory / name)
    return NamedCertificate(cert_file, key_file, names)


def test_a_certificate_for_each_host_name(tmp_path: Path) -> None:
    issuer = authority("one")
    certificates = (
        named(tmp_path, issuer, "own", ["a.example.com"]),
        named(tmp_path, issuer, "given", ["x"], "b.example.com", "*.c.example.com"),
    )

    async def act(client: Client) -> list[str]:
        hosts = ("a.example.com", "b.example.com", "x.c.example.com", "d.example.com", "")
        return [common_name(await shown(client, host)) for host in hosts]

    found = with_server(act, settings=here(named_certificates=certificates))
    assert found == ["own", "given", "given", "server", "server"]


@pytest.mark.parametrize(
    ("changed", "most", "accepted"),
    [
        pytest.param({}, ssl.TLSVersion.TLSv1_2, True, id="1.2 by default"),
        pytest.param({"min_version": "VersionTLS13"}, ssl.TLSVersion.TLSv1_2, False, id="1.3 at least"),
        pytest.param({"min_version": "VersionTLS13"}, ssl.TLSVersion.TLSv1_3, True, id="1.3"),
        pytest.param(
            {"cipher_suites": ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",), "curves": ("23",)},
            ssl.TLSVersion.TLSv1_2,
            True,
            id="one cipher suite and one curve",
        ),
        pytest.param(
            {"cipher_suites": ("TLS_RSA_WITH_AES_128_CBC_SHA",)},
            ssl.TLSVersion.TLSv1_2,
            False,
            id="a cipher suite that does not match the key",
        ),
    ],
)
def test_versions_and_ciphers(changed: dict[str, object], most: ssl.TLSVersion, accepted: bool) -> None:
    async def act(client: Client) -> bool:
        try:
            return (await client.request("/healthz", most=most)).status == 200
        except aiohttp.ClientConnectorError:
            return False

    assert with_server(act, settings=here(**changed)) is accepted


def make(settings: ServingSettings, authentication: AuthenticationSettings | None = None) -> SecureServer:
    access = delegated_access(
        authentication or AuthenticationSettings(),
        AuthorizationSettings(),
        authentication_client=None,
        authorization_client=None,
    )
    return SecureServer(settings, make_routes(), access)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        pytest.param({"min_version": "TLS13"}, 'unknown tls version "TLS13"', id="an unknown version"),
        pytest.param(
            {"cipher_suites": ("RC4",)},
            "Cipher suite RC4 not supported",
            id="an unknown cipher",
        ),
        pytest.param({"curves": ("99",)}, 'unsupported curve "99"', id="an unknown curve"),
        pytest.param({"cert_file": "/nowhere"}, "failed to load the certificate", id="a missing file"),
    ],
)
def test_settings_that_make_no_sense(changed: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make(here(**changed))


def test_authorities_that_make_no_sense(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("no certificate")
    with pytest.raises(ConfigError, match=r"unable to load the certificates in .*ca\.crt"):
        make(here(), AuthenticationSettings(client_ca_file=str(tmp_path / "ca.crt")))


def test_a_port_that_another_client_has() -> None:
    async def main() -> None:
        (taken,) = await listen(here())
        with taken:
            port = taken.getsockname()[1]
            with pytest.raises(ListenError, match=rf"failed to listen on 127\.0\.0\.1:{port}"):
                await listen(here(port=port))

    asyncio.run(main())


def test_a_client_certificate_of_an_unknown_authority_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(authority("users").certificate)
    settings = AuthenticationSettings(client_ca_file=str(tmp_path / "ca.crt"))

    async def act(client: Client) -> None:
        with pytest.raises((aiohttp.ClientError, ConnectionError, ssl.SSLError)):
            await client.request("/healthz", pair=authority("strangers").issue("mallory"))
        assert (await client.request("/healthz")).status == 200

    with_server(act, authentication=settings)
