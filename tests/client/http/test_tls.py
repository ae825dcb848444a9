"""HTTPS with certificates of both sides, in files that change meanwhile. Over sockets, both transports."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bayplan.api.pod import Pod
from bayplan.client.access import Access, ExecPlugin
from bayplan.client.http import KubernetesCluster
from bayplan.errors import APIError, ConfigError
from bayplan.net.tls import ClientTLS, TLSSettings
from bayplan.simulate.memory.store import MemoryStore
from bayplan.testing.builders import make_pod

from .api_server import ApiServer, serving
from .certificates import Pair, authority, server_tls
from .test_credentials import V1, plugin

CLUSTER = authority("cluster").certificate


def users_seen(access: Access, *hosts: str, **after: Any) -> tuple[set[str], str]:
    """The users that the server saw in a list (a stream) and a read (a short request); or the error."""

    async def main() -> tuple[set[str], str]:
        store = MemoryStore()
        pod = store.create(make_pod("a"))
        tls = server_tls("cluster", *hosts, users="users")
        async with serving(ApiServer(store), tls, access) as server:
            async with KubernetesCluster(server.access, qps=-1) as cluster:
                try:
                    await cluster.list(Pod)
                    await cluster.get(Pod, pod.name, pod.namespace)
                except APIError as error:
                    return set(), str(error)
            return {request.user for request in server.received}, ""

    return asyncio.run(main())


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(TLSSettings(ca_data=CLUSTER), id="an authority"),
        pytest.param(
            TLSSettings(ca_data=authority("other").certificate + CLUSTER), id="one of several authorities"
        ),
        pytest.param(TLSSettings(insecure=True), id="any server"),
    ],
)
def test_trusted(settings: TLSSettings) -> None:
    assert users_seen(Access("", tls=settings)) == ({""}, "")


@pytest.mark.parametrize(
    ("settings", "hosts", "problem"),
    [
        pytest.param(
            TLSSettings(ca_data=authority("other").certificate),
            (),
            "certificate verify failed",
            id="a stranger",
        ),
        pytest.param(TLSSettings(), (), "failed to verify certificate", id="not trusted by the system"),
        pytest.param(TLSSettings(ca_data=CLUSTER), ("kubernetes",), "mismatch", id="under another name"),
    ],
)
def test_not_trusted(settings: TLSSettings, hosts: tuple[str, ...], problem: str) -> None:
    users, error = users_seen(Access("", tls=settings), *hosts)
    assert users == set()
    assert error.startswith('Get "https://127.0.0.1:')
    assert "tls: " in error
    assert problem in error or "failed to verify certificate" in error


def test_a_server_with_another_name() -> None:
    settings = TLSSettings(ca_data=CLUSTER, server_name="kubernetes")
    assert users_seen(Access("", tls=settings), "kubernetes") == ({""}, "")


def test_a_certificate_in_the_configuration() -> None:
    me = authority("users").issue("me")
    settings = TLSSettings(ca_data=CLUSTER, cert_data=me.certificate, key_data=me.key)
    assert users_seen(Access("", tls=settings)) == ({"me"}, "")


def test_a_certificate_in_files(tmp_path: Path) -> None:
    assert users_seen(Access("", tls=in_files(tmp_path, authority("users").issue("me")))) == ({"me"}, "")


def test_a_certificate_from_a_program(tmp_path: Path) -> None:
    pair = authority("users").issue("jane")
    status = {"clientCertificateData": pair.certificate.decode(), "clientKeyData": pair.key.decode()}
    exec_plugin: ExecPlugin = plugin(tmp_path, {"apiVersion": V1, "status": status})
    assert users_seen(Access("", tls=TLSSettings(ca_data=CLUSTER), exec_plugin=exec_plugin)) == ({"jane"}, "")


def in_files(folder: Path, pair: Pair) -> TLSSettings:
    folder.mkdir(exist_ok=True)
    for name, content in (("ca", CLUSTER), ("cert", pair.certificate), ("key", pair.key)):
        (folder / name).write_bytes(content)
    return TLSSettings(
        ca_file=str(folder / "ca"), cert_file=str(folder / "cert"), key_file=str(folder / "key")
    )


def test_files_that_are_replaced_are_read_again(tmp_path: Path) -> None:
    tls = ClientTLS(in_files(tmp_path, authority("users").issue("me")))
    first = tls.context()
    assert tls.context() is first, "nothing has changed"
    in_files(tmp_path, authority("users").issue("me again"))
    assert tls.context() is not first


@pytest.mark.parametrize("broken", ["cert", "key", "ca"])
def test_files_that_are_half_replaced_are_not_used_yet(
    tmp_path: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The old ones are used until all are there, and it is logged once for each change."""
    tls = ClientTLS(in_files(tmp_path, authority("users").issue("me")))
    first = tls.context()
    whole = in_files(tmp_path / "new", authority("users").issue("me again"))
    for name, path in (("cert", whole.cert_file), ("key", whole.key_file), ("ca", whole.ca_file)):
        content = Path(path).read_bytes()
        (tmp_path / name).write_bytes(content[:100] if name == broken else content)
    assert tls.context() is first
    assert tls.context() is first
    assert caplog.text.count("continuing with the old ones") == 1
    (tmp_path / broken).unlink()
    assert tls.context() is first
    (tmp_path / broken).write_bytes(Path(getattr(whole, f"{broken}_file")).read_bytes())
    assert tls.context() is not first


def test_a_certificate_of_a_program_that_is_none(tmp_path: Path) -> None:
    status = {"clientCertificateData": "x", "clientKeyData": "y"}
    exec_plugin = plugin(tmp_path, {"apiVersion": V1, "status": status})
    users, error = users_seen(Access("", tls=TLSSettings(ca_data=CLUSTER), exec_plugin=exec_plugin))
    assert users == set()
    assert error.startswith("getting credentials: exec plugin ")
    assert "cannot use the client certificate" in error


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        pytest.param(
            TLSSettings(insecure=True, ca_data=CLUSTER),
            "specifying a root certificates file with the insecure flag is not allowed",
            id="trust and no trust",
        ),
        pytest.param(TLSSettings(ca_data=b"x"), "unable to load root certificates", id="no certificate"),
        pytest.param(
            TLSSettings(cert_data=CLUSTER, key_data=authority("users").issue("me").key),
            "tls: cannot use the client certificate: KEY_VALUES_MISMATCH",
            id="the key of another certificate",
        ),
        pytest.param(TLSSettings(cert_file="/nowhere", key_file="/nowhere"), "No such file", id="no file"),
    ],
)
def test_what_is_wrong_is_reported_at_the_start(settings: TLSSettings, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        ClientTLS(settings)
