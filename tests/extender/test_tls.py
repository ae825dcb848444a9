"""HTTPS to an extender: trusted certificates, the expected name, and the client certificate."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.config.model import Extender as ExtenderConfig
from bayplan.config.model import ExtenderTLSConfig
from bayplan.errors import ConfigError
from bayplan.extender.client import ExtenderClient, ExtenderError

from .certificates import Pair, authority
from .webhook import Webhook, make_config

CA = authority("cluster")
STRANGER = authority("a stranger's")
SERVER = CA.issue("extender", "127.0.0.1", "extender.example")
ELSEWHERE = CA.issue("elsewhere", "elsewhere.example")
NAMELESS = CA.issue("127.0.0.1")
CLIENT = CA.issue("scheduler")
LOCKED = CA.issue("scheduler", password=b"secret")


def server_context(tmp_path: Path, pair: Pair = SERVER, *, verify: bool = False) -> ssl.SSLContext:
    """The TLS settings of the extender; with `verify` it requires a client certificate of the CA."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*written(tmp_path, "server", pair))
    if verify:
        context.load_verify_locations(cadata=CA.certificate.decode())
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def written(tmp_path: Path, name: str, pair: Pair) -> tuple[str, str]:
    certificate, key = tmp_path / f"{name}.crt", tmp_path / f"{name}.key"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    return str(certificate), str(key)


def make_tls_config(url: str, *, https: bool = False, **tls: Any) -> ExtenderConfig:
    return replace(make_config(url), enable_https=https, tls_config=ExtenderTLSConfig(**tls) if tls else None)


async def call(client: ExtenderClient) -> str:
    """ "ok", or how the call failed, without the URL."""
    try:
        await client.post("filter", b"{}", repeatable=True)
    except ExtenderError as error:
        return str(error).partition('/filter": ')[2]
    return "ok"


def outcome(context: ssl.SSLContext, **settings: Any) -> str:
    async def scenario() -> str:
        async with Webhook({"filter": {}}, context) as webhook:
            client = ExtenderClient(make_tls_config(webhook.url, **settings))
            try:
                return await call(client)
            finally:
                await client.close()

    return asyncio.run(scenario())


UNVERIFIED = "tls: failed to verify certificate: "
UNKNOWN = f"{UNVERIFIED}unable to get local issuer certificate"
OTHER_ADDRESS = f"{UNVERIFIED}IP address mismatch, certificate is not valid for '127.0.0.1'"
OTHER_NAME = f"{UNVERIFIED}Hostname mismatch, certificate is not valid for 'elsewhere.example'"


@pytest.mark.parametrize(
    ("pair", "settings", "expected"),
    [
        pytest.param(SERVER, {"ca_data": CA.certificate}, "ok", id="a CA that is trusted"),
        pytest.param(SERVER, {"ca_data": CA.certificate, "https": True}, "ok", id="with enableHTTPS too"),
        pytest.param(
            SERVER, {"ca_data": "© cluster\n".encode() + CA.certificate}, "ok", id="a comment above the CA"
        ),
        pytest.param(SERVER, {"ca_data": SERVER.certificate}, "ok", id="the certificate itself is trusted"),
        pytest.param(SERVER, {"ca_data": STRANGER.certificate}, UNKNOWN, id="another CA"),
        pytest.param(SERVER, {}, UNKNOWN, id="the system's CAs"),
        pytest.param(SERVER, {"https": True}, "ok", id="enableHTTPS without a CA trusts any certificate"),
        pytest.param(
            ELSEWHERE, {"insecure": True}, "ok", id="insecure trusts any certificate under any name"
        ),
        pytest.param(ELSEWHERE, {"ca_data": CA.certificate}, OTHER_ADDRESS, id="another name"),
        pytest.param(
            ELSEWHERE,
            {"ca_data": CA.certificate, "server_name": "elsewhere.example"},
            "ok",
            id="the name that is expected instead",
        ),
        pytest.param(
            SERVER,
            {"ca_data": CA.certificate, "server_name": "elsewhere.example"},
            OTHER_NAME,
            id="not the name that is expected instead",
        ),
        pytest.param(NAMELESS, {"ca_data": CA.certificate}, OTHER_ADDRESS, id="the common name is no name"),
    ],
)
def test_trust(tmp_path: Path, pair: Pair, settings: dict[str, Any], expected: str) -> None:
    assert outcome(server_context(tmp_path, pair), **settings) == expected


def test_a_ca_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    file.write_bytes(CA.certificate)
    assert outcome(server_context(tmp_path), ca_file=str(file)) == "ok"


def test_data_beats_file(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    file.write_bytes(STRANGER.certificate)
    assert outcome(server_context(tmp_path), ca_file=str(file), ca_data=CA.certificate) == "ok"


@pytest.mark.parametrize(
    ("certificate", "key"),
    [("data", "data"), ("file", "file"), ("data", "file"), ("file", "data")],
    ids=["data", "files", "the key from a file", "the certificate from a file"],
)
def test_a_client_certificate(tmp_path: Path, certificate: str, key: str) -> None:
    cert_file, key_file = written(tmp_path, "client", CLIENT)
    settings: dict[str, Any] = {
        f"cert_{certificate}": CLIENT.certificate if certificate == "data" else cert_file,
        f"key_{key}": CLIENT.key if key == "data" else key_file,
    }
    context = server_context(tmp_path, verify=True)
    assert outcome(context, ca_data=CA.certificate, **settings) == "ok"


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="none"),
        pytest.param({"cert_data": CLIENT.certificate}, id="half of one is not used"),
    ],
)
def test_no_client_certificate(tmp_path: Path, settings: dict[str, Any]) -> None:
    context = server_context(tmp_path, verify=True)
    assert outcome(context, ca_data=CA.certificate, **settings) != "ok"


def test_a_client_certificate_that_was_renewed_is_used(tmp_path: Path) -> None:
    cert_file, key_file = written(tmp_path, "client", CA.issue("first"))
    context = server_context(tmp_path, verify=True)

    async def scenario() -> list[str]:
        async with Webhook({"filter": {}}, context) as webhook:
            client = ExtenderClient(
                make_tls_config(webhook.url, https=True, cert_file=cert_file, key_file=key_file)
            )
            assert [await call(client), await call(client)] == ["ok", "ok"]
            written(tmp_path, "client", CA.issue("the second one"))
            assert await call(client) == "ok"
            await client.close()
            return [shown["subject"][0][0][1] for shown in webhook.certificates]

    assert asyncio.run(scenario()) == ["first", "first", "the second one"]


def test_a_client_certificate_that_is_not_there_fails_the_call(tmp_path: Path) -> None:
    files = {"cert_file": str(tmp_path / "none.crt"), "key_file": str(tmp_path / "none.key")}
    expected = "tls: cannot use the client certificate: No such file or directory"
    assert outcome(server_context(tmp_path), https=True, **files) == expected


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        pytest.param({"ca_file": "/no/such/ca"}, "open /no/such/ca: no such file or directory", id="no CA"),
        pytest.param({"ca_data": b"hello"}, "unable to load root certificates: ", id="an invalid CA"),
        pytest.param({"cert_data": b"hello", "key_data": b"hello"}, "tls: ", id="an invalid certificate"),
        pytest.param({"cert_data": CLIENT.certificate, "key_data": SERVER.key}, "tls: ", id="another's key"),
        pytest.param(
            {"cert_data": LOCKED.certificate, "key_data": LOCKED.key}, "tls: ", id="a key with a password"
        ),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ExtenderClient(make_tls_config("https://x", **settings))
    assert str(caught.value).startswith(f"couldn't build extenders: {text}")
