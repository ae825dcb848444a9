"""What cannot be built is rejected, with upstream's messages; what can be built is complete."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bayplan.config import PluginEntry, build_profiles, builtin_catalog, completed
from bayplan.errors import ConfigError, DecodeError
from bayplan.framework.args import FieldError, Gates, PluginArgs, at, invalid
from bayplan.framework.builtin_args import NodeAffinityArgs, NodeResourcesFitArgs
from bayplan.framework.points import Point

from .yaml_config import make_config, make_profile_config, plugin_set

PROFILE_P = "initializing profiles: creating profile for scheduler name p: "


class PenaltyArgs(PluginArgs, frozen=True):
    """The arguments of a user's plugin."""

    zone_penalty: int
    labels: tuple[str, ...] = ()

    def validate(self, path: str, gates: Gates) -> Iterator[FieldError]:
        if self.zone_penalty < 0:
            yield invalid(at(path, "zonePenalty"), self.zone_penalty, "must not be negative")


CATALOG = builtin_catalog().with_plugins(
    {
        "Penalty": PluginEntry(frozenset({Point.FILTER, Point.SCORE}), PenaltyArgs),
        "Sorter": PluginEntry(frozenset({Point.QUEUE_SORT})),
        "Generator": PluginEntry(frozenset({Point.PLACEMENT_GENERATE})),
    }
)


@pytest.mark.parametrize(
    ("sets", "error"),
    [
        pytest.param({"filter": ["Foo"]}, 'FilterPlugin "Foo" does not exist', id="unknown at a point"),
        pytest.param(
            {"multiPoint": ["Foo"]}, 'PreFilterPlugin "Foo" does not exist', id="unknown in multiPoint"
        ),
        pytest.param(
            {"multiPoint": ["Foo"], "preFilter": ["-*"]},
            'FilterPlugin "Foo" does not exist',
            id="unknown in multiPoint, found where it is expanded first",
        ),
        pytest.param(
            {"multiPoint": ["EBSLimits"]},
            'PreFilterPlugin "EBSLimits" does not exist',
            id="removed, in multiPoint",
        ),
        pytest.param(
            {"reserve": ["NodeName"]},
            'plugin "NodeName" does not extend ReservePlugin plugin',
            id="wrong point",
        ),
        pytest.param(
            {"bind": ["DefaultBinder", "DefaultBinder"]},
            'plugin "DefaultBinder" already registered as "BindPlugin"',
            id="twice at a point",
        ),
        pytest.param(
            {"multiPoint": ["NodeName", "NodeName"]},
            'plugin "NodeName" already registered as "PreFilterPlugin"',
            id="twice in multiPoint",
        ),
        pytest.param(
            {"multiPoint": ["Foo"], "queueSort": ["NodeName"]},
            'plugin "NodeName" does not extend QueueSortPlugin plugin',
            id="all own lists come before multiPoint",
        ),
        pytest.param(
            {"queueSort": ["Bar"], "permit": ["Foo"]},
            'PermitPlugin "Foo" does not exist',
            id="order of points",
        ),
        pytest.param(
            {"queueSort": ["-*"]},
            'only one queue sort plugin required for profile with scheduler name "p", but got 0',
            id="nothing sorts the queue",
        ),
        pytest.param(
            {"queueSort": ["Sorter"]},
            'only one queue sort plugin required for profile with scheduler name "p", but got 2',
            id="two sort the queue",
        ),
        pytest.param(
            {"bind": ["-DefaultBinder"]},
            'at least one bind plugin is needed for profile with scheduler name "p"',
            id="nothing binds",
        ),
        pytest.param(
            {"placementGenerate": ["Generator", "TopologyPlacementGenerator"]},
            'at most one placement generate plugin is allowed for profile with scheduler name "p"',
            id="two generate placements",
        ),
        pytest.param(
            {"multiPoint": ["Penalty"]},
            'initializing plugin "Penalty": its arguments must be given: zonePenalty',
            id="arguments that must be given",
        ),
    ],
)
def test_build_errors(sets: dict[str, list[str]], error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_profiles(make_profile_config(sets, catalog=CATALOG), CATALOG)
    assert str(caught.value) == PROFILE_P + error


def test_arguments_are_checked_when_the_plugin_is_built() -> None:
    """NodeResourcesFit is not checked before: where it is disabled, its arguments do not matter."""
    args = {"NodeResourcesFit": {"ignoredResourceGroups": ["a/b"], "scoringStrategy": {"type": "Best"}}}
    with pytest.raises(ConfigError) as caught:
        build_profiles(make_profile_config(args=args))
    assert str(caught.value) == PROFILE_P + (
        'initializing plugin "NodeResourcesFit": [ignoredResourceGroups[0]: Invalid value: "a/b": '
        "resource group "
        "name can't contain '/', scoringStrategy.type: Unsupported value: \"Best\": supported values: "
        '"LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]'
    )
    build_profiles(make_profile_config({"multiPoint": ["-NodeResourcesFit"]}, args))


def test_the_plan_carries_decoded_arguments() -> None:
    config = make_profile_config(
        catalog=CATALOG,
        sets={"multiPoint": ["Penalty=4"]},
        args={
            "Penalty": {"kind": "PenaltyArgs", "zonePenalty": 3},
            "NodeName": {"free": "form"},
            "Unused": 1,
        },
    )
    (plan,) = build_profiles(config, CATALOG)
    assert plan.args["Penalty"] == PenaltyArgs(zone_penalty=3)
    assert plan.args["NodeName"] == {"free": "form"}
    assert plan.args["NodeAffinity"] == NodeAffinityArgs()
    assert "Unused" not in plan.args
    assert plan.weights["Penalty"] == 4


def test_arguments_of_user_plugins_are_checked_like_built_in_ones() -> None:
    config = make_profile_config({"multiPoint": ["Penalty"]}, {"Penalty": {"zonePenalty": -1}}, CATALOG)
    with pytest.raises(ConfigError) as caught:
        build_profiles(config, CATALOG)
    text = "profiles[0].pluginConfig[0].args.zonePenalty: Invalid value: -1: must not be negative"
    assert str(caught.value) == text
    with pytest.raises(DecodeError, match=r'zonePenalti: unknown field, did you mean "zonePenalty"'):
        make_profile_config(catalog=CATALOG, args={"Penalty": {"zonePenalty": 1, "zonePenalti": 2}})


def test_a_users_arguments_are_written_back() -> None:
    config = make_profile_config({"multiPoint": ["Penalty"]}, {"Penalty": {"zonePenalty": 2}}, CATALOG)
    result: Any = completed(config, CATALOG)
    written = {entry["name"]: entry["args"] for entry in result["profiles"][0]["pluginConfig"]}
    assert written["Penalty"] == {"zonePenalty": 2}


@pytest.mark.parametrize(
    ("first", "second", "error"),
    [
        pytest.param(
            {"plugins": {"multiPoint": plugin_set(["Sorter", "-PrioritySort"])}},
            {},
            'different queue sort plugins for profile "b": "PrioritySort", first: "Sorter"',
            id="other plugin",
        ),
        pytest.param(
            {"pluginConfig": [{"name": "PrioritySort", "args": {"a": 1}}]},
            {},
            'different queue sort plugin args for profile "b"',
            id="other arguments",
        ),
    ],
)
def test_profiles_share_one_queue(first: dict[str, Any], second: dict[str, Any], error: str) -> None:
    config = make_config(
        catalog=CATALOG, profiles=[{"schedulerName": "a", **first}, {"schedulerName": "b", **second}]
    )
    with pytest.raises(ConfigError) as caught:
        build_profiles(config, CATALOG)
    assert str(caught.value) == f"initializing profiles: {error}"


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ConfigError, match="a plugin named NodeName already exists"):
        builtin_catalog().with_plugins({"NodeName": PluginEntry(frozenset())})


@pytest.mark.parametrize(("own", "expected"), [(None, 40), (0, 0), (70, 70)])
def test_percentage_of_nodes_to_score(own: int | None, expected: int) -> None:
    """A profile's own value counts, 0 included."""
    config = make_config(
        percentageOfNodesToScore=40, profiles=[{"schedulerName": "p", "percentageOfNodesToScore": own}]
    )
    assert build_profiles(config)[0].percentage_of_nodes_to_score == expected


def test_default_arguments_are_those_of_the_record() -> None:
    (plan,) = build_profiles(make_profile_config())
    assert plan.args["NodeResourcesFit"] == NodeResourcesFitArgs()
