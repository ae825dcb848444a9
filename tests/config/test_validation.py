"""Invalid values are rejected with upstream's messages."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bayplan.config import default_config, validate
from bayplan.config.model import LeaderElection
from bayplan.errors import ConfigError

from .yaml_config import make_config, plugin_set

REMOVED = (
    'was invalid in version "v1" (KubeSchedulerConfiguration is version "kubescheduler.config.k8s.io/v1")'
)


def profiles(*settings: dict[str, Any]) -> dict[str, Any]:
    return {"profiles": [{"schedulerName": f"s{i}", **profile} for i, profile in enumerate(settings)]}


def extender(**fields: Any) -> dict[str, Any]:
    return {"extenders": [{"urlPrefix": "http://x", **fields}]}


def args(name: str, **fields: Any) -> dict[str, Any]:
    return profiles({"pluginConfig": [{"name": name, "args": fields}]})


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        (
            {"clientConnection": {"burst": -1}},
            "clientConnection.burst: Invalid value: -1: must be non-negative",
        ),
        (
            {"leaderElection": {"leaseDuration": "-1s", "renewDeadline": "-2s"}},
            '[leaderElection.leaseDuration: Invalid value: "-1s": must be greater than zero, '
            'leaderElection.renewDeadline: Invalid value: "-2s": must be greater than zero]',
        ),
        (
            {"leaderElection": {"leaseDuration": "10s"}},
            'leaderElection.leaseDuration: Invalid value: "10s": must be greater than `RenewDeadline`',
        ),
        (
            {"leaderElection": {"resourceLock": "endpoints"}},
            'leaderElection.resourceLock: Invalid value: "endpoints": resourceLock value must be "leases"',
        ),
        ({"parallelism": 0}, "parallelism: Invalid value: 0: should be an integer value greater than zero"),
        (
            {"percentageOfNodesToScore": 101},
            "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]",
        ),
        (
            {"podInitialBackoffSeconds": 0},
            "podInitialBackoffSeconds: Invalid value: 0: must be greater than 0",
        ),
        (
            {"podInitialBackoffSeconds": 11},
            "podMaxBackoffSeconds: Invalid value: 10: must be greater than or equal to "
            "PodInitialBackoffSeconds",
        ),
        (
            {"profiles": [{}, {}]},
            "[profiles[0].schedulerName: Required value, profiles[1].schedulerName: Required value, "
            "profiles[1].schedulerName: Duplicate value: {}]",
        ),
        (
            profiles({"percentageOfNodesToScore": -1}),
            "profiles[0].percentageOfNodesToScore: Invalid value: -1: not in valid range [0-100]",
        ),
        (
            profiles({"plugins": {"score": plugin_set(["NodeName", "EBSLimits"])}}),
            f'profiles[0].plugins.score.enabled[1]: Invalid value: "EBSLimits": {REMOVED}',
        ),
        (args("GCEPDLimits"), f'profiles[0].pluginConfig[0]: Invalid value: "GCEPDLimits": {REMOVED}'),
        (
            profiles({"pluginConfig": [{"name": "X"}, {"name": "X"}]}),
            'profiles[0].pluginConfig[1]: Duplicate value: "X"',
        ),
        (
            args("NodeResourcesFitArgs", b="<", a=1),
            'profiles[0].pluginConfig[0].args: Invalid value: {"a":1,"b":"\\u003c"}: has to match '
            "plugin args",
        ),
        (
            profiles({"pluginConfig": [{"name": "NodeResourcesFitArgs"}]}),
            'profiles[0].pluginConfig[0].args: Invalid value: "null": has to match plugin args',
        ),
        (
            profiles({"plugins": {"queueSort": plugin_set(["PrioritySort", "Q"])}}),
            "profiles[0].plugins.queueSort.Enabled: Invalid value: 2: only one queue sort plugin can "
            "be enabled",
        ),
        (
            profiles({"plugins": {"queueSort": plugin_set(["PrioritySort"])}}, {}),
            'profiles[1].plugins.queueSort: Invalid value: {"Enabled":null,"Disabled":null}: '
            "must be the same for all profiles",
        ),
        (
            profiles({}, {"plugins": {"queueSort": plugin_set(["PrioritySort=2", "-Q=3"])}}),
            'profiles[1].plugins.queueSort: Invalid value: {"Enabled":[{"Name":"PrioritySort","Weight":2}],'
            '"Disabled":[{"Name":"Q","Weight":0}]}: must be the same for all profiles',
        ),
        (
            profiles(
                {"plugins": {"queueSort": plugin_set(["PrioritySort"])}},
                {
                    "plugins": {"queueSort": plugin_set(["PrioritySort"])},
                    "pluginConfig": [{"name": "PrioritySort", "args": {"a": 1}}],
                },
            ),
            'profiles[1].pluginConfig.args: Invalid value: {"a":1}: queueSort must be the same for '
            "all profiles",
        ),
        (
            extender(prioritizeVerb="p"),
            "extenders[0].weight: Invalid value: 0: must have a positive weight applied to it",
        ),
        (
            extender(managedResources=[{"name": "cpu"}]),
            'extenders[0].managedResources[0].name: Invalid value: "cpu": is an invalid extended '
            "resource name",
        ),
        (
            extender(managedResources=[{"name": "a.b/c"}, {"name": "a.b/c"}]),
            'extenders[0].managedResources[1].name: Invalid value: "a.b/c": duplicate extender '
            "managed resource name",
        ),
        (
            {"extenders": [{"bindVerb": "b"}, {"bindVerb": "b"}]},
            'extenders: Invalid value: "found 2 extenders implementing bind": only one extender can '
            "implement bind",
        ),
    ],
)
def test_errors(fields: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate(make_config(**fields))
    assert str(caught.value) == error


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="nothing given"),
        pytest.param({"clientConnection": {"qps": -1}}, id="no rate limit"),
        pytest.param(
            {"leaderElection": {"leaderElect": False, "resourceLock": "x"}}, id="no leader election"
        ),
        pytest.param({"leaderElection": {"leaseDuration": "0s"}}, id="zero is the default"),
        pytest.param(extender(filterVerb="f", weight=-1), id="a weight that is not used"),
        pytest.param(args("NoSuchPlugin", anything=[1]), id="arguments of an unknown plugin"),
        pytest.param(profiles({"plugins": {"filter": plugin_set(["-NoSuch"])}}), id="disabling the unknown"),
        pytest.param(
            profiles({"plugins": {"multiPoint": plugin_set(["EBSLimits"])}}), id="found out when built"
        ),
    ],
)
def test_what_is_fine(fields: dict[str, Any]) -> None:
    validate(make_config(**fields))


def test_names_that_flags_made_empty() -> None:
    """A file cannot leave them empty, but an explicit empty flag can."""
    config = msgspec.structs.replace(
        default_config(),
        leader_election=msgspec.structs.replace(_election(), resource_name="", resource_lock=""),
    )
    with pytest.raises(ConfigError) as caught:
        validate(config)
    assert str(caught.value) == (
        "[leaderElection.resourceLock: Required value, leaderElection.resourceName: Required value, "
        'leaderElection.resourceLock: Invalid value: "": resourceLock value must be "leases"]'
    )


def _election() -> LeaderElection:
    return default_config().leader_election
