"""--feature-gates as kube-scheduler reads it; what is not built here cannot be turned on."""

from __future__ import annotations

import pytest

from bayplan.api.releases import V1_36, V1_37, Release, Stage
from bayplan.config import parse_feature_gates
from bayplan.config.defaults import default_plugins
from bayplan.config.features import without_effect
from bayplan.errors import ConfigError


@pytest.mark.parametrize(
    ("values", "changed"),
    [
        pytest.param([], set(), id="nothing set"),
        pytest.param(["SchedulerAsyncPreemption=false"], {"SchedulerAsyncPreemption"}, id="off"),
        pytest.param(["kube:SchedulerAsyncPreemption=F"], {"SchedulerAsyncPreemption"}, id="prefix"),
        pytest.param(["GangScheduling=false,SchedulerQueueingHints=true"], set(), id="the default value"),
        pytest.param(["DRADeviceTaints=false", "DRADeviceTaints=true"], set(), id="the last one counts"),
        pytest.param(["AllAlpha=false"], set(), id="group"),
        pytest.param(
            ["DRADeviceBindingConditions=0, DRAResourceClaimDeviceStatus=0"],
            {"DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"},
            id="together with what depends on it",
        ),
    ],
)
def test_gates(values: list[str], changed: set[str]) -> None:
    assert parse_feature_gates(values, V1_36) ^ V1_36.gates == changed


def test_all_beta_off() -> None:
    beta = {name for name, feature in V1_36.features.items() if feature.stage is Stage.BETA}
    assert parse_feature_gates(["AllBeta=false"], V1_36) == V1_36.gates - beta


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("Foo=true", "unrecognized feature gate: Foo"),
        ("Foo", "missing bool value for Foo"),
        ("Foo=y", 'invalid value of Foo=y, err: strconv.ParseBool: parsing "y": invalid syntax'),
        (
            "SchedulerQueueingHints=false",
            "cannot set feature gate SchedulerQueueingHints to false, feature is locked to true",
        ),
        (
            "PodLevelResources=false",
            "InPlacePodLevelResourcesVerticalScaling is enabled, but depends on features that are disabled: "
            "[PodLevelResources]",
        ),
        (
            "MatchLabelKeysInPodTopologySpread=false,DRAResourceClaimDeviceStatus=false",
            "[DRADeviceBindingConditions is enabled, but depends on features that are disabled: "
            "[DRAResourceClaimDeviceStatus], MatchLabelKeysInPodTopologySpreadSelectorMerge is enabled, but "
            "depends on features that are disabled: [MatchLabelKeysInPodTopologySpread]]",
        ),
        (
            "kube:DRADeviceTaints=true,OpportunisticBatching=true",
            "set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use",
        ),
        ("GangScheduling=true", "cannot turn on feature gate GangScheduling: not implemented yet"),
        (
            "GenericWorkload=1,GangScheduling=1",
            "cannot turn on feature gates GangScheduling, GenericWorkload: not implemented yet",
        ),
    ],
)
def test_errors(value: str, error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_feature_gates([value], V1_36)
    assert str(caught.value) == error


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("SchedulerQueueingHints=true", "unrecognized feature gate: SchedulerQueueingHints"),
        ("GangScheduling=false", "unrecognized feature gate: GangScheduling"),
        (
            "NodeDeclaredFeatures=false",
            "cannot set feature gate NodeDeclaredFeatures to false, feature is locked to true",
        ),
        (
            "DRADeviceTaints=false",
            "DRADeviceTaintRules is enabled, but depends on features that are disabled: [DRADeviceTaints]",
        ),
        (
            "GenericWorkload=true,CompositePodGroup=true",
            "CompositePodGroup is enabled, but depends on features that are disabled: "
            "[TopologyAwareWorkloadScheduling]",
        ),
        (
            "TopologyAwareWorkloadScheduling=true",
            "TopologyAwareWorkloadScheduling is enabled, but depends on features that are disabled: "
            "[GenericWorkload]",
        ),
        ("CompositePodGroup=false,PodGroupPreemptionPolicy=false", ""),
    ],
)
def test_errors_of_v1_37(value: str, error: str) -> None:
    """Gates that are gone, locked, depend on others, or are off and not built."""
    if not error:
        assert parse_feature_gates([value], V1_37) == V1_37.gates
        return
    with pytest.raises(ConfigError) as caught:
        parse_feature_gates([value], V1_37)
    assert str(caught.value) == error


def test_a_built_gate_that_is_off_by_default_can_be_turned_on() -> None:
    gates = parse_feature_gates(["DRAFractionalCapacityRange=true"], V1_37)
    assert gates == V1_37.gates | {"DRAFractionalCapacityRange"}
    needs = "DRAFractionalCapacityRange is enabled, but depends on features that are disabled"
    with pytest.raises(ConfigError, match=needs):
        parse_feature_gates(["DRAFractionalCapacityRange=true,DRAConsumableCapacity=false"], V1_37)


def test_gates_of_devices_have_an_effect() -> None:
    off = "DRAPrioritizedList=false,DRAPartitionableDevices=false,DRAConsumableCapacity=false"
    release = V1_36.with_gates(parse_feature_gates([off], V1_36))
    assert without_effect(release) == []


GROUP_GATES = frozenset({"GenericWorkload", "TopologyAwareWorkloadScheduling"})


@pytest.mark.parametrize(
    ("release", "gates", "added"),
    [
        pytest.param(V1_37, frozenset(), [], id="no gate"),
        pytest.param(V1_37, {"GenericWorkload"}, [("GangScheduling", 0)], id="pod groups"),
        pytest.param(
            V1_37,
            GROUP_GATES,
            [("GangScheduling", 0), ("TopologyPlacementGenerator", 0), ("PodGroupPodsCount", 1)],
            id="topology",
        ),
        pytest.param(V1_36, {"GenericWorkload"}, [], id="1.36 has a gate for gangs"),
        pytest.param(V1_36, {"GenericWorkload", "GangScheduling"}, [("GangScheduling", 0)], id="1.36 gangs"),
    ],
)
def test_gates_of_pod_groups_add_plugins_at_the_end(
    release: Release, gates: frozenset[str], added: list[tuple[str, int]]
) -> None:
    before = default_plugins(release).enabled
    after = default_plugins(release.with_gates(release.gates | gates)).enabled
    assert [(one.name, one.weight) for one in after] == [*((one.name, one.weight) for one in before), *added]
