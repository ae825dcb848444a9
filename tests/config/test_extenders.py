"""What extenders change in the configuration, and when they cannot be reached."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.config import apply_extenders, build_profiles, completed
from bayplan.errors import ConfigError
from bayplan.framework.args import Duration
from bayplan.framework.builtin_args import NodeResourcesFitArgs

from .yaml_config import make_config, plugin_set

PEM = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t"  # -----BEGIN CERTIFICATE-----
IGNORING = {"urlPrefix": "http://x", "managedResources": [{"name": "a.b/c", "ignoredByScheduler": True}]}


@pytest.mark.parametrize(("given", "seconds"), [(None, 5), ("0s", 5), ("100ms", 0.1)])
def test_timeout(given: str | None, seconds: float) -> None:
    config = apply_extenders(make_config(extenders=[{"urlPrefix": "http://x", "httpTimeout": given}]))
    assert config.extenders[0].http_timeout == Duration.of(seconds)


def test_resources_an_extender_manages_replace_what_the_fit_ignores() -> None:
    fit = {"name": "NodeResourcesFit", "args": {"ignoredResources": ["other.io/x"]}}
    config = make_config(extenders=[IGNORING], profiles=[{"pluginConfig": [fit]}])
    (plan,) = build_profiles(config)
    assert plan.args["NodeResourcesFit"] == NodeResourcesFitArgs(ignored_resources=("a.b/c",))


def test_a_profile_without_the_fit_cannot_ignore() -> None:
    sets = {"multiPoint": plugin_set(["PrioritySort", "DefaultBinder", "-*"])}
    with pytest.raises(ConfigError) as caught:
        build_profiles(make_config(extenders=[IGNORING], profiles=[{"plugins": sets}]))
    assert str(caught.value) == "couldn't build extenders: can't find NodeResourcesFitArgs in plugin config"


def test_applying_twice_changes_nothing() -> None:
    once = apply_extenders(make_config(extenders=[IGNORING]))
    assert apply_extenders(once) == once


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        pytest.param(
            {"tlsConfig": {"insecure": True, "caData": PEM}},
            "specifying a root certificates file with the insecure flag is not allowed",
            id="insecure with a CA",
        ),
        pytest.param(
            {"tlsConfig": {"caFile": "/no/such/ca"}},
            "open /no/such/ca: no such file or directory",
            id="no file",
        ),
        pytest.param(
            {"tlsConfig": {"caData": "aGVsbG8="}},
            "unable to load root certificates: unable to parse bytes as PEM block",
            id="an invalid CA",
        ),
        pytest.param(
            {"tlsConfig": {"certData": "aGVsbG8=", "keyData": PEM}},
            "tls: failed to find any PEM data in certificate input",
            id="an invalid certificate",
        ),
    ],
)
def test_tls_that_cannot_work(fields: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_profiles(make_config(extenders=[{"urlPrefix": "https://x", **fields}]))
    assert str(caught.value) == f"couldn't build extenders: {error}"


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"enableHTTPS": True}, id="no CA, so no certificate is checked"),
        pytest.param({"enableHTTPS": True, "tlsConfig": {"caData": PEM}}, id="a CA"),
        pytest.param(
            {"tlsConfig": {"certFile": "/no/such"}}, id="a certificate without key is no certificate"
        ),
        pytest.param({"tlsConfig": {}}, id="nothing set"),
    ],
)
def test_tls_that_can_work(fields: dict[str, Any]) -> None:
    build_profiles(make_config(extenders=[{"urlPrefix": "https://x", **fields}]))


def test_how_an_extender_is_written() -> None:
    extender = {
        "urlPrefix": "https://x",
        "bindVerb": "bind",
        "weight": 0,
        "ignorable": False,
        "enableHTTPS": True,
        "tlsConfig": {"caData": PEM, "serverName": ""},
        "managedResources": [{"name": "a.b/c", "ignoredByScheduler": False}],
    }
    result: Any = completed(make_config(extenders=[extender]))
    assert result["extenders"] == [
        {
            "urlPrefix": "https://x",
            "bindVerb": "bind",
            "enableHTTPS": True,
            "httpTimeout": "5s",
            "tlsConfig": {"caData": PEM},
            "managedResources": [{"name": "a.b/c"}],
        }
    ]
