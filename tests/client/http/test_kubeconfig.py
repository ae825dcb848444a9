"""What a kubeconfig file, an address or a pod's own account means; and the errors where they are wrong."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from bayplan.client.access import Access, ExecPlugin
from bayplan.client.kubeconfig import load_access
from bayplan.errors import ConfigError
from bayplan.net.tls import TLSSettings

NOTHING = (
    "invalid configuration: no configuration has been provided, "
    "try setting KUBERNETES_MASTER environment variable"
)
SERVER = "https://k8s.example:6443"
V1 = "client.authentication.k8s.io/v1"


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def config(cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> dict[str, Any]:
    """A kubeconfig with one of everything, and another of each to be left alone."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [
            {"name": "there", "context": {"cluster": "other", "user": "other"}},
            {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "default"}},
        ],
        "clusters": [
            {"name": "other", "cluster": {"server": "https://other"}},
            {"name": "c", "cluster": {"server": SERVER} if cluster is None else cluster},
        ],
        "users": [{"name": "other", "user": {"token": "other"}}, {"name": "u", "user": user}],
    }


def load(folder: Path, content: Any, master: str = "", **environ: str) -> Access:
    """Reads a kubeconfig that is in a folder."""
    (folder / "ca.pem").write_text("a certificate")
    (folder / "me.pem").write_text("mine")
    (folder / "me.key").write_text("my key")
    path = folder / "config"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return load_access(str(path), master, environ=environ)


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        pytest.param(None, {}, id="no user"),
        pytest.param({"token": "t"}, {"token": "t"}, id="a token"),
        pytest.param({"tokenFile": "/run/t"}, {"token_file": "/run/t"}, id="a token file"),
        pytest.param({"tokenFile": "t"}, {"token_file": "HERE/t"}, id="a token file beside the kubeconfig"),
        pytest.param(
            {"username": "me", "password": "p"}, {"username": "me", "password": "p"}, id="a password"
        ),
        pytest.param(
            {"client-certificate-data": b64("cert"), "client-key-data": b64("key")},
            {"tls": TLSSettings(cert_data=b"cert", key_data=b"key")},
            id="a certificate",
        ),
        pytest.param(
            {"client-certificate": "me.pem", "client-key": "me.key"},
            {"tls": TLSSettings(cert_file="HERE/me.pem", key_file="HERE/me.key")},
            id="a certificate in files beside the kubeconfig",
        ),
        pytest.param(
            {
                "token": "t",
                "as": "jane",
                "as-uid": "7",
                "as-groups": ["g", "h"],
                "as-user-extra": {"k": ["v"]},
            },
            {
                "token": "t",
                "impersonate": (
                    ("Impersonate-User", "jane"),
                    ("Impersonate-Uid", "7"),
                    ("Impersonate-Group", "g"),
                    ("Impersonate-Group", "h"),
                    ("Impersonate-Extra-k", "v"),
                ),
            },
            id="impersonation",
        ),
        pytest.param(
            {"exec": {"command": "get-token", "apiVersion": V1, "interactiveMode": "Never", "args": None}},
            {"exec_plugin": ExecPlugin("get-token", V1)},
            id="a program on the path",
        ),
        pytest.param(
            {
                "exec": {
                    "command": "./bin/get-token",
                    "apiVersion": "client.authentication.k8s.io/v1beta1",
                    "args": ["-x"],
                    "env": [{"name": "A", "value": "b"}],
                    "installHint": "install it",
                    "interactiveMode": "Always",
                }
            },
            {
                "exec_plugin": ExecPlugin(
                    "HERE/bin/get-token",
                    "client.authentication.k8s.io/v1beta1",
                    ("-x",),
                    (("A", "b"),),
                    "install it",
                    needs_terminal=True,
                )
            },
            id="a program beside the kubeconfig",
        ),
    ],
)
def test_users(tmp_path: Path, user: dict[str, Any] | None, expected: dict[str, Any]) -> None:
    found = load(tmp_path, config(user=user))
    assert repr_of(found, tmp_path) == repr_of(Access(SERVER, **expected), tmp_path)


def repr_of(access: Access, folder: Path) -> list[str]:
    """All its fields, the secret ones too, with HERE for the folder."""
    parts = [access, access.token, access.password, access.proxy, access.tls.key_data, access.exec_plugin]
    env = access.exec_plugin.env if access.exec_plugin else ()
    return [str(part).replace(str(folder), "HERE") for part in (*parts, env)]


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        pytest.param({"server": SERVER + "/"}, Access(SERVER), id="a slash at the end is dropped"),
        pytest.param(
            {"server": "https://rancher/k8s/c-1/"}, Access("https://rancher/k8s/c-1"), id="a path in front"
        ),
        pytest.param({"server": "http://k:8080"}, Access("http://k:8080"), id="plain HTTP"),
        pytest.param({"server": "k:8080"}, Access("http://k:8080"), id="no scheme"),
        pytest.param(
            {"server": "k:6443", "certificate-authority-data": b64("ca")},
            Access("https://k:6443", tls=TLSSettings(ca_data=b"ca")),
            id="no scheme, but a CA",
        ),
        pytest.param(
            {"server": SERVER, "insecure-skip-tls-verify": True, "tls-server-name": "kubernetes"},
            Access(SERVER, tls=TLSSettings(insecure=True, server_name="kubernetes")),
            id="any certificate, under another name",
        ),
        pytest.param(
            {"server": SERVER, "proxy-url": "http://proxy:3128"},
            Access(SERVER, proxy="http://proxy:3128"),
            id="a proxy",
        ),
    ],
)
def test_clusters(tmp_path: Path, cluster: dict[str, Any], expected: Access) -> None:
    assert load(tmp_path, config(cluster)) == expected


def test_a_certificate_authority_beside_the_kubeconfig(tmp_path: Path) -> None:
    found = load(tmp_path, config({"server": SERVER, "certificate-authority": "ca.pem"}))
    assert found.tls.ca_file == str(tmp_path / "ca.pem")


def test_a_program_gets_the_cluster_if_provide_cluster_info_is_set(tmp_path: Path) -> None:
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"region": "north"}}
    cluster = {"server": SERVER, "certificate-authority": "ca.pem", "extensions": [extension]}
    plugin = {"command": "c", "apiVersion": V1, "interactiveMode": "Never", "provideClusterInfo": True}
    found = load(tmp_path, config(cluster, {"exec": plugin})).exec_plugin
    assert found is not None
    assert found.cluster == {
        "server": SERVER,
        "certificate-authority-data": b64("a certificate"),
        "config": {"region": "north"},
    }


def test_the_environment_has_a_proxy(tmp_path: Path) -> None:
    assert load(tmp_path, config(), HTTPS_PROXY="http://p").proxy == "http://p"
    assert load(tmp_path, config(), HTTPS_PROXY="http://p", NO_PROXY="example").proxy == ""


def test_an_address_beats_the_file_and_its_name_in_tls(tmp_path: Path) -> None:
    cluster = {"server": SERVER, "tls-server-name": "kubernetes", "insecure-skip-tls-verify": True}
    found = load(tmp_path, config(cluster, {"token": "t"}), master="https://10.0.0.1")
    assert (found.server, found.tls, found.token) == ("https://10.0.0.1", TLSSettings(insecure=True), "t")


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    user = {"client-certificate-data": b64("c"), "client-key-data": b64("SECRET"), "token": "SECRET"}
    cluster = {"server": SERVER, "proxy-url": "http://me:SECRET@proxy:3128"}
    found = load(tmp_path, config(cluster, user))
    assert found.proxy == "http://me:SECRET@proxy:3128"
    assert "SECRET" not in repr(found)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param("", NOTHING, id="an empty file"),
        pytest.param(config({}), NOTHING, id="an empty cluster"),
        pytest.param(
            {**config(), "current-context": "gone"},
            "invalid configuration: [context was not found for specified context: gone, "
            "cluster has no server defined]",
            id="a context that is not there",
        ),
        pytest.param(
            config({"tls-server-name": "x"}),
            'invalid configuration: no server found for cluster "c"',
            id="no address",
        ),
        pytest.param(
            config({"server": SERVER, "certificate-authority": "gone.pem"}),
            "invalid configuration: unable to read certificate-authority HERE/gone.pem for c "
            "due to open HERE/gone.pem: no such file or directory",
            id="an authority that is not there",
        ),
        pytest.param(
            config(
                {"server": SERVER, "certificate-authority": "ca.pem", "certificate-authority-data": "YQ=="}
            ),
            "invalid configuration: certificate-authority-data and certificate-authority are both specified "
            "for c. certificate-authority-data will override.",
            id="an authority twice",
        ),
        pytest.param(
            config({"server": SERVER, "proxy-url": "socks5://p"}),
            'invalid configuration: invalid \'proxy-url\' "socks5://p" for cluster "c": '
            'unsupported scheme "socks5", must be http or https',
            id="a proxy that cannot be used",
        ),
        pytest.param(
            config(user={"client-certificate": "me.pem"}),
            "invalid configuration: client-key-data or client-key must be specified for u "
            "to use the clientCert authentication method.",
            id="a certificate without its key",
        ),
        pytest.param(
            config(user={"token": "t", "username": "me"}),
            "invalid configuration: more than one authentication method found for u; "
            "found [token basicAuth], only one is allowed",
            id="a token and a password",
        ),
        pytest.param(
            config(user={"as-groups": ["g"]}),
            "invalid configuration: requesting uid, groups or user-extra for u without impersonating a user",
            id="impersonation without a user",
        ),
        pytest.param(
            config(user={"auth-provider": {"name": "gcp"}}),
            'no Auth Provider found for name "gcp"',
            id="a provider of old",
        ),
        pytest.param(
            config(user={"exec": {"apiVersion": V1}}),
            "invalid configuration: [command must be specified for u to use exec authentication plugin, "
            "interactiveMode must be specified for u to use exec authentication plugin]",
            id="a program without a name",
        ),
        pytest.param(
            config(user={"exec": {"command": "c", "apiVersion": "v7", "env": [{"value": "x"}]}}),
            'invalid configuration: [exec plugin: invalid apiVersion "v7", env variable name must be '
            "specified for u to use exec authentication plugin]",
            id="a program of another time",
        ),
        pytest.param(
            config({"server": "https://:6443"}),
            'host must be a URL or a host:port pair: "https://:6443"',
            id="no host",
        ),
        pytest.param(
            config({"server": "https://[api]:6443"}),
            'host must be a URL or a host:port pair: "https://[api]:6443"',
            id="brackets around what is no address",
        ),
        pytest.param(
            config({"server": SERVER, "proxy-url": "http://p:port"}),
            'invalid configuration: invalid \'proxy-url\' "http://p:port" for cluster "c": '
            "Port could not be cast to integer value as 'port'",
            id="a proxy without a port that is one",
        ),
        pytest.param(
            config({"server": SERVER, "certificate-authority-data": "%%%a"}),
            "certificate-authority-data is not base64",
            id="no base64",
        ),
        pytest.param(
            config({"server": SERVER, "certificate-authority-data": "é"}),
            "certificate-authority-data is not base64",
            id="not even ASCII",
        ),
        pytest.param(
            "a: [",
            'error loading config file "HERE/config": line 2: this is not YAML: while parsing',
            id="broken YAML",
        ),
        pytest.param(
            {"clusters": 5},
            'error loading config file "HERE/config": Expected `array`, got `int` - at `$.clusters`',
            id="not a kubeconfig",
        ),
    ],
)
def test_what_is_wrong_with_a_kubeconfig(tmp_path: Path, content: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(tmp_path, content)
    assert str(error.value).replace(str(tmp_path), "HERE").startswith(problem)


def test_a_kubeconfig_that_is_not_there() -> None:
    with pytest.raises(ConfigError) as error:
        load_access("/nowhere/config")
    assert str(error.value) == "stat /nowhere/config: no such file or directory"


# Without a file


def account(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).write_text(f"the {name}")
    return folder


IN_CLUSTER = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.mark.parametrize(
    ("host", "server"),
    [
        pytest.param("10.0.0.1", "https://10.0.0.1:443", id="IPv4"),
        pytest.param("fd00::1", "https://[fd00::1]:443", id="IPv6"),
    ],
)
def test_in_a_pod_it_is_its_account_that_counts(tmp_path: Path, host: str, server: str) -> None:
    environ = {**IN_CLUSTER, "KUBERNETES_SERVICE_HOST": host}
    found = load_access(environ=environ, service_account=account(tmp_path, "token", "ca.crt"))
    assert found == Access(
        server, tls=TLSSettings(ca_file=str(tmp_path / "ca.crt")), token_file=str(tmp_path / "token")
    )


def test_in_a_pod_without_certificates_those_of_the_system_are_trusted(tmp_path: Path) -> None:
    found = load_access(environ=IN_CLUSTER, service_account=account(tmp_path, "token"))
    assert found.tls == TLSSettings()


@pytest.mark.parametrize(
    ("master", "environ", "expected"),
    [
        pytest.param("http://k:8080", {}, "http://k:8080", id="an address alone"),
        pytest.param("k:8080", IN_CLUSTER, "http://k:8080", id="an address beats the pod"),
        pytest.param("", {"KUBERNETES_MASTER": "http://m"}, "http://m", id="the environment, at last"),
        pytest.param("", {}, NOTHING, id="nothing at all"),
        pytest.param("", IN_CLUSTER, NOTHING, id="a pod without an account"),
    ],
)
def test_without_a_kubeconfig(tmp_path: Path, master: str, environ: dict[str, str], expected: str) -> None:
    try:
        found = load_access(master=master, environ=environ, service_account=tmp_path).server
    except ConfigError as error:
        found = str(error)
    assert found == expected
