"""From a file to a complete configuration: defaults, and invalid files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from bayplan.api.releases import V1_36
from bayplan.config import default_config, load_config, parse_config
from bayplan.config.model import PluginRef
from bayplan.errors import DecodeError, InputError
from bayplan.framework.args import Duration
from bayplan.framework.builtin_args import (
    DefaultPreemptionArgs,
    DynamicResourcesArgs,
    NodeResourcesFitArgs,
)

from .yaml_config import config_text, make_config, make_profile_config


def test_an_empty_file_is_the_default(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(config_text())
    assert load_config(file) == default_config()


def test_json_is_read_too() -> None:
    text = '{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}'
    assert parse_config(text) == default_config()


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(config_text(parallelism=3).encode()))
    monkeypatch.setattr("sys.stdin", stdin)
    assert load_config("-").parallelism == 3


@pytest.mark.parametrize(
    ("fields", "path", "expected"),
    [
        ({}, "enable_contention_profiling", True),
        ({"enableProfiling": False}, "enable_contention_profiling", False),
        ({"enableProfiling": False, "enableContentionProfiling": True}, "enable_contention_profiling", True),
        ({"clientConnection": {"qps": 0, "burst": 0}}, "client_connection.qps", 50.0),
        ({"clientConnection": {"qps": 0, "burst": 0}}, "client_connection.burst", 100),
        ({"clientConnection": {"qps": -1}}, "client_connection.qps", -1.0),
        ({"leaderElection": {"leaderElect": None}}, "leader_election.leader_elect", True),
        ({"leaderElection": {"leaseDuration": "0s"}}, "leader_election.lease_duration", Duration.of(15)),
        ({"leaderElection": {"retryPeriod": "-1s"}}, "leader_election.retry_period", Duration.of(-1)),
        ({"leaderElection": {"resourceName": ""}}, "leader_election.resource_name", "kube-scheduler"),
        ({"podMaxBackoffSeconds": 0}, "pod_max_backoff_seconds", 0),
        ({"parallelism": None}, "parallelism", 16),
        ({"parallelism": 0}, "parallelism", 0),
    ],
)
def test_defaults(fields: dict[str, Any], path: str, expected: object) -> None:
    """Zero is "not given" for some fields, and zero for others."""
    value: Any = make_config(**fields)
    for name in path.split("."):
        value = getattr(value, name)
    assert value == expected


@pytest.mark.parametrize(
    ("profiles", "names"),
    [
        pytest.param([], ["default-scheduler"], id="no profile"),
        pytest.param([{}], ["default-scheduler"], id="one without a name"),
        pytest.param([None], ["default-scheduler"], id="one that is empty"),
        pytest.param([{"schedulerName": ""}], [""], id="an empty name is kept, and rejected later"),
        pytest.param([{}, {"schedulerName": "b"}], ["", "b"], id="among several a name must be given"),
    ],
)
def test_scheduler_names(profiles: list[Any], names: list[str]) -> None:
    assert [profile.scheduler_name for profile in make_config(profiles=profiles).profiles] == names


def merged(names: list[str]) -> tuple[PluginRef, ...]:
    config = make_profile_config({"multiPoint": names})
    return config.profiles[0].plugins.multi_point.enabled


def test_a_default_that_is_enabled_again_keeps_its_place() -> None:
    """The last mention counts; others stay, and are rejected when the profile is built."""
    result = merged(["NodeName=4", "Mine", "NodeName=5"])
    assert [plugin.name for plugin in result[2:5]] == ["NodeName", "NodeUnschedulable", "TaintToleration"]
    assert result[2].weight == 5
    assert [(plugin.name, plugin.weight) for plugin in result[-2:]] == [("NodeName", 4), ("Mine", 0)]


def test_default_arguments_follow_those_given_by_name() -> None:
    config = make_profile_config(args={"VolumeBinding": None, "NodeAffinity": {}})
    assert [entry.name for entry in config.profiles[0].plugin_config] == [
        "VolumeBinding",
        "NodeAffinity",
        "DefaultPreemption",
        "DynamicResources",
        "InterPodAffinity",
        "NodeResourcesBalancedAllocation",
        "NodeResourcesFit",
        "PodTopologySpread",
    ]


def test_arguments_may_name_their_kind() -> None:
    given = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "NodeResourcesFitArgs"}
    config = make_profile_config(args={"NodeResourcesFit": given})
    assert config.profiles[0].plugin_config[0].args == NodeResourcesFitArgs()


def test_defaults_of_preemption_mean_the_same_whether_given_or_left_out() -> None:
    given = {"minCandidateNodesPercentage": 10, "minCandidateNodesAbsolute": None}
    spelled_out = make_profile_config(args={"DefaultPreemption": given}).profiles[0].plugin_config[0].args
    left_out = make_profile_config(args={"DefaultPreemption": {}}).profiles[0].plugin_config[0].args
    assert spelled_out == left_out == DefaultPreemptionArgs()


def test_gates_decide_on_defaults() -> None:
    """Without the gate there is no time-out to default to, and the plugin of a gate is not enabled."""
    config = default_config(release=V1_36.with_gates(frozenset()))
    args = config.profiles[0].plugin_config[1].args
    assert args == DynamicResourcesArgs(filter_timeout=None, binding_timeout=None)
    names = [plugin.name for plugin in config.profiles[0].plugins.multi_point.enabled]
    assert "NodeDeclaredFeatures" not in names


ARGS = "profiles[0].pluginConfig[0].args"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "f:1: expected a mapping with apiVersion and kind", id="empty"),
        pytest.param("- a", "f:1: expected a mapping with apiVersion and kind", id="list"),
        pytest.param(
            "kind: KubeSchedulerConfiguration", "f:1: apiVersion: missing; it should be", id="no version"
        ),
        pytest.param(
            "apiVersion: kubescheduler.config.k8s.io/v1", "f:1: kind: missing; it should be", id="no kind"
        ),
        pytest.param(
            config_text(apiVersion="kubescheduler.config.k8s.io/v1beta3"),
            "f:1: apiVersion: 'kubescheduler.config.k8s.io/v1beta3' is not known; it should be",
            id="old version",
        ),
        pytest.param(config_text(kind="Pod"), "f:2: kind: 'Pod' is not known; it should be", id="other kind"),
        pytest.param(
            config_text(Profiles=[]), 'f:1: Profiles: unknown field, did you mean "profiles"?', id="case"
        ),
        pytest.param(
            config_text(profiles=[{"plugins": {"filters": {}}}]),
            'f:5: profiles[0].plugins.filters: unknown field, did you mean "filter"?',
            id="unknown point",
        ),
        pytest.param(
            config_text(profiles=[{"pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoring": 1}}]}]),
            f"f:6: {ARGS}.scoring: unknown field",
            id="unknown argument",
        ),
        pytest.param(
            config_text(profiles=[{"pluginConfig": [{"name": "NodeResourcesFit", "args": [1]}]}]),
            f"f:5: {ARGS}: expected a mapping, got a list",
            id="arguments that are a list",
        ),
        pytest.param(
            config_text(profiles=[{"pluginConfig": [{"name": "NodeAffinity", "args": {"kind": "PodArgs"}}]}]),
            f"f:6: {ARGS}.kind: 'PodArgs' is not known here; it should be NodeAffinityArgs",
            id="arguments of another kind",
        ),
    ],
)
def test_files_that_are_no_configuration(text: str, message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        parse_config(text, "f")
    assert str(caught.value).startswith(message)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.yaml: no such file or directory"):
        load_config(tmp_path / "none.yaml")


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    file = tmp_path / "binary.yaml"
    file.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(DecodeError, match=r"binary\.yaml:2: this is not UTF-8"):
        load_config(file)
