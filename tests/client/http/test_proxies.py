"""Which proxy the environment names."""

from __future__ import annotations

import pytest

from bayplan.client.access import environment_proxy
from bayplan.errors import ConfigError

HTTPS = {"HTTPS_PROXY": "http://proxy:3128"}


@pytest.mark.parametrize(
    ("environ", "server", "expected"),
    [
        pytest.param({}, "https://k8s:6443", "", id="nothing set"),
        pytest.param(HTTPS, "https://k8s:6443", "http://proxy:3128", id="for https"),
        pytest.param(HTTPS, "http://k8s:6443", "", id="the one for https is not for http"),
        pytest.param({"http_proxy": "p:1"}, "http://k8s", "http://p:1", id="lower case, without a scheme"),
        pytest.param(
            {"HTTPS_PROXY": "http://a", "https_proxy": "http://b"}, "https://k", "http://a", id="upper first"
        ),
        pytest.param(HTTPS, "https://localhost:6443", "", id="never for this machine"),
        pytest.param(HTTPS, "https://127.0.0.5:6443", "", id="never for a loopback address"),
        pytest.param(HTTPS, "https://[::1]:6443", "", id="never for the loopback address of IPv6"),
    ],
)
def test_the_proxy_for_a_server(environ: dict[str, str], server: str, expected: str) -> None:
    assert environment_proxy(server, environ) == expected


@pytest.mark.parametrize(
    ("exempt", "is_exempt"),
    [
        pytest.param("*", True, id="everything"),
        pytest.param("api.example.com", True, id="the name itself"),
        pytest.param("example.com", True, id="a name covers what is below it"),
        pytest.param("ample.com", False, id="but not another name with the same ending"),
        pytest.param(".example.com", True, id="a dot in front: what is below"),
        pytest.param("*.example.com", True, id="a star and a dot in front: the same"),
        pytest.param(".api.example.com", False, id="a dot in front: not the name itself"),
        pytest.param("other, EXAMPLE.com", True, id="one of several, in any case"),
        pytest.param("api.example.com:6443", True, id="with its port"),
        pytest.param("api.example.com:443", False, id="with another port"),
        pytest.param("", False, id="nothing"),
        pytest.param(",,", False, id="nothing, several times"),
    ],
)
def test_names_that_are_reached_without(exempt: str, is_exempt: bool) -> None:
    proxy = environment_proxy("https://api.example.com:6443", {**HTTPS, "NO_PROXY": exempt})
    assert (proxy == "") is is_exempt


@pytest.mark.parametrize(
    ("host", "exempt", "is_exempt"),
    [
        pytest.param("10.1.2.3", "10.0.0.0/8", True, id="in the network"),
        pytest.param("11.1.2.3", "10.0.0.0/8", False, id="in another network"),
        pytest.param("10.1.2.3", "10.1.2.3", True, id="the address itself"),
        pytest.param("[fd00::1]", "fd00::/8", True, id="a network of IPv6"),
        pytest.param("[fd00::1]", "[fd00::1]:443", True, id="an address of IPv6 with a port"),
        pytest.param("name", "10.0.0.0/8", False, id="a name is in no network"),
        pytest.param("10.1.2.3", "10.0.0.0/99", False, id="an invalid network"),
    ],
)
def test_addresses_that_are_reached_without(host: str, exempt: str, is_exempt: bool) -> None:
    assert (environment_proxy(f"https://{host}", {**HTTPS, "no_proxy": exempt}) == "") is is_exempt


@pytest.mark.parametrize(
    ("proxy", "problem"),
    [
        pytest.param("socks5://p", 'unsupported scheme "socks5"', id="another protocol"),
        pytest.param("http://[p]:3128", "'p' does not appear to be an IPv4 or IPv6", id="not an address"),
        pytest.param("http://p:port", "Port could not be cast", id="not a port"),
        pytest.param("http://:3128", "it has no host", id="no host"),
    ],
)
def test_a_proxy_that_we_cannot_use_is_rejected(proxy: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"HTTPS_PROXY: {problem}"):
        environment_proxy("https://k8s", {"HTTPS_PROXY": proxy})
