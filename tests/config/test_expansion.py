"""Which plugins run at a point: their order and their weights."""

from __future__ import annotations

import pytest

from bayplan.config import PluginEntry, ProfilePlan, build_profiles, builtin_catalog, default_config
from bayplan.config.build import weights
from bayplan.config.model import PluginRef, Plugins, PluginSet
from bayplan.errors import ConfigError
from bayplan.framework.points import Point

from .yaml_config import make_profile_config

CATALOG = builtin_catalog().with_plugins(
    {name: PluginEntry(frozenset({Point.FILTER, Point.SCORE})) for name in ("Mine", "Other")}
)
BIND_AND_SORT = {"queueSort": ["PrioritySort"], "bind": ["DefaultBinder"]}
FILTERS = [
    "NodeName",
    "NodeUnschedulable",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
    "DynamicResources",
    "NodeDeclaredFeatures",
]


def plan(**sets: list[str]) -> ProfilePlan:
    (only,) = build_profiles(make_profile_config(sets, catalog=CATALOG), CATALOG)
    return only


def without(*names: str) -> list[str]:
    return [name for name in FILTERS if name not in names]


def test_defaults() -> None:
    """As kube-scheduler runs them without any configuration."""
    (default,) = build_profiles(default_config())
    scoring = ["TaintToleration", "NodeAffinity", "NodeResourcesFit", "VolumeBinding", "PodTopologySpread"]
    scoring.append("InterPodAffinity")
    assert default.scheduler_name == "default-scheduler"
    assert {point: list(names) for point, names in default.plugins.items()} == {
        Point.PRE_ENQUEUE: ["SchedulingGates", "DynamicResources", "DefaultPreemption"],
        Point.QUEUE_SORT: ["PrioritySort"],
        Point.PRE_FILTER: FILTERS,
        Point.FILTER: FILTERS,
        Point.POST_FILTER: ["DynamicResources", "DefaultPreemption"],
        Point.PRE_SCORE: [*scoring, "NodeResourcesBalancedAllocation"],
        Point.SCORE: [*scoring, "DynamicResources", "NodeResourcesBalancedAllocation", "ImageLocality"],
        Point.RESERVE: ["VolumeBinding", "DynamicResources"],
        Point.PERMIT: [],
        Point.PRE_BIND: ["VolumeBinding", "DynamicResources"],
        Point.BIND: ["DefaultBinder"],
        Point.POST_BIND: [],
        Point.PLACEMENT_GENERATE: [],
        Point.PLACEMENT_SCORE: ["NodeResourcesFit"],
        Point.POD_GROUP_POST_FILTER: ["DynamicResources", "DefaultPreemption"],
    }
    assert default.weights == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "VolumeBinding": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "DynamicResources": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
    }
    assert default.placement_weights == {"NodeResourcesFit": 1}


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        pytest.param({"filter": ["Mine"]}, [*FILTERS, "Mine"], id="a new plugin runs last"),
        pytest.param({"multiPoint": ["Mine"]}, [*FILTERS, "Mine"], id="a new plugin in multiPoint runs last"),
        pytest.param(
            {"filter": ["VolumeZone", "Mine", "NodeName"]},
            ["VolumeZone", "NodeName", *without("VolumeZone", "NodeName"), "Mine"],
            id="defaults that are listed again move to the front, in the order of the list",
        ),
        pytest.param({"filter": ["-NodeName"]}, without("NodeName"), id="disabled at the point"),
        pytest.param({"filter": ["-NoSuch"]}, FILTERS, id="what is not there can be disabled"),
        pytest.param({"multiPoint": ["-NodeName"]}, without("NodeName"), id="disabled everywhere"),
        pytest.param(
            {"multiPoint": ["-NodeName"], "filter": ["NodeName"]},
            [*without("NodeName"), "NodeName"],
            id="disabling in multiPoint leaves the point's own list alone",
        ),
        pytest.param(
            {"filter": ["NodeName", "-NodeName"]},
            [*without("NodeName"), "NodeName"],
            id="disabled and enabled at a point runs last",
        ),
        pytest.param(
            {"filter": ["Mine", "NodeName", "-*"]}, ["Mine", "NodeName"], id="all disabled at the point"
        ),
        pytest.param(
            {"multiPoint": ["Other", "Mine", "-*"], **BIND_AND_SORT}, ["Other", "Mine"], id="all disabled"
        ),
        pytest.param(
            {"multiPoint": ["Mine", "VolumeZone"], "filter": ["Other", "Mine"]},
            ["Mine", *FILTERS, "Other"],
            id="listed in multiPoint and at the point",
        ),
        pytest.param(
            {"multiPoint": ["NodeName", "-NodeName"]},
            [*without("NodeName"), "NodeName"],
            id="enabled beats disabled, but the position is lost",
        ),
    ],
)
def test_order(sets: dict[str, list[str]], expected: list[str]) -> None:
    assert list(plan(**sets).plugins[Point.FILTER]) == expected


@pytest.mark.parametrize(
    ("sets", "name", "weight"),
    [
        pytest.param({}, "TaintToleration", 3, id="default"),
        pytest.param({"multiPoint": ["TaintToleration=7"]}, "TaintToleration", 7, id="multiPoint"),
        pytest.param({"multiPoint": ["TaintToleration"]}, "TaintToleration", 1, id="listed without weight"),
        pytest.param({"score": ["TaintToleration"]}, "TaintToleration", 1, id="at the point without weight"),
        pytest.param({"score": ["TaintToleration=0"]}, "TaintToleration", 1, id="zero is one"),
        pytest.param(
            {"score": ["TaintToleration=5"], "multiPoint": ["TaintToleration=7"]},
            "TaintToleration",
            5,
            id="the point wins",
        ),
        pytest.param(
            {"filter": ["TaintToleration=5"]}, "TaintToleration", 3, id="other points do not matter"
        ),
        pytest.param({"score": ["Mine"]}, "Mine", 1, id="new plugin"),
        pytest.param({"score": ["Mine=-4"]}, "Mine", -4, id="negative weights are taken"),
    ],
)
def test_weights(sets: dict[str, list[str]], name: str, weight: int) -> None:
    assert plan(**sets).weights[name] == weight


def test_a_plugin_that_does_not_score_has_no_weight() -> None:
    assert "TaintToleration" not in plan(score=["-TaintToleration"]).weights


def test_weights_must_not_overflow() -> None:
    """Upstream sums scores in 64 bits."""
    plugins = Plugins(score=PluginSet(enabled=(PluginRef(name="Mine", weight=2**62),)))
    with pytest.raises(ConfigError, match="total score of Score plugins could overflow"):
        weights(plugins, Point.SCORE, CATALOG)
