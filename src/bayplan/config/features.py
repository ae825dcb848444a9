"""`--feature-gates`: which features are on.

`--feature-gates=A=true,B=false` is parsed with kube-scheduler's rules and messages. One rule is bayplan's
own: most features whose gates are off by default are not implemented yet, so turning one on is an error
instead of having no effect. Turning off a gate is allowed if kube-scheduler allows it; if this changes
nothing in bayplan (`without_effect`), the scheduler logs a warning at the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from bayplan.api.release import default_gates
from bayplan.api.releases import DEFAULT_RELEASE, Release, Stage
from bayplan.errors import ConfigError
from bayplan.framework.args import Gates, aggregate

_EFFECTIVE: Final = frozenset(
    {
        "SchedulerPopFromBackoffQ",
        "NodeDeclaredFeatures",
        "DRASchedulerFilterTimeout",
        "DRADeviceBindingConditions",
        "DRAResourceClaimDeviceStatus",
        "StorageCapacityScoring",
        "VolumeLimitScaling",
        "DRADeviceTaintRules",
        "DRAPrioritizedList",
        "DRAPartitionableDevices",
        "DRAConsumableCapacity",
        "DRADeviceTaints",
        "DRAExtendedResource",
        # There is nothing of it here to turn off, or it is the API server's.
        "OpportunisticBatching",
        "ClearingNominatedNodeNameAfterBinding",
        "PodTopologyLabelsAdmission",
        "PodLevelResourcesFixDefaulting",
        "DRAResourceClaimGranularStatusAuthorization",
    }
)
"""Gates that have an effect when they are turned off."""

_IMPLEMENTED: Final = frozenset({"DRAFractionalCapacityRange"})
"""Gates that are off by default and can be turned on."""
_IMPLEMENTED_FROM: Final = (
    37,
    frozenset(
        {
            "CompositePodGroup",
            "DRAWorkloadResourceClaims",
            "GenericWorkload",
            "PodGroupPreemptionPolicy",
            "TopologyAwareWorkloadScheduling",
        }
    ),
)
"""The same since this minor release, whose design of pod groups differs from the one before."""

_GROUPS: Final = {"AllAlpha": Stage.ALPHA, "AllBeta": Stage.BETA}
_PREFIX: Final = "kube:"
_MIXED_PREFIXES: Final = (
    "set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use"
)
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def parse_bool(text: str) -> bool:
    """A boolean of a flag, as Go parses it; ValueError with Go's text if it is not one."""
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ValueError(f'strconv.ParseBool: parsing "{text}": invalid syntax')


def parse_feature_gates(values: Iterable[str], release: Release = DEFAULT_RELEASE) -> Gates:
    """The gates that are on after one or more `--feature-gates` values, `A=true,B=false` each.

    `release` is the release whose gates these are.

    Raises:
        ConfigError: with kube-scheduler's text, or because the gate is not implemented here.
    """
    features = release.features
    settings = _parse_settings(values, release)
    enabled = {name: feature.enabled for name, feature in features.items()}
    for group, stage in _GROUPS.items():
        if group in settings:
            for name, feature in features.items():
                if feature.stage is stage:
                    enabled[name] = settings[group]
    enabled |= {name: value for name, value in settings.items() if name not in _GROUPS}
    turned_on = {name for name, is_on in enabled.items() if is_on and not features[name].enabled}
    since, later = _IMPLEMENTED_FROM
    _reject_unimplemented(turned_on - _IMPLEMENTED - (later if release.minor >= since else frozenset()))
    errors = []
    for name in sorted(enabled):
        missing = [need for need in features[name].needs if not enabled[need]]
        if enabled[name] and missing:
            needs = " ".join(missing)
            errors.append(f"{name} is enabled, but depends on features that are disabled: [{needs}]")
    if errors:
        raise ConfigError(aggregate(errors))
    return frozenset(name for name, is_on in enabled.items() if is_on)


def without_effect(release: Release) -> list[str]:
    """Gates that are turned off although their features are always on in bayplan."""
    return sorted(default_gates(release.features) - release.gates - _EFFECTIVE)


def _parse_settings(values: Iterable[str], release: Release) -> dict[str, bool]:
    features = release.features
    settings: dict[str, bool] = {}
    prefixes: set[bool] = set()
    for pair in _pairs(values):
        prefixes.add(pair.startswith(_PREFIX))
        if len(prefixes) > 1:
            raise ConfigError(_MIXED_PREFIXES)
        name, equals, text = (part.strip() for part in pair.removeprefix(_PREFIX).partition("="))
        if not equals:
            raise ConfigError(f"missing bool value for {name}")
        try:
            is_on = parse_bool(text)
        except ValueError as error:
            raise ConfigError(f"invalid value of {name}={text}, err: {error}") from None
        if name not in features and name not in _GROUPS:
            raise ConfigError(f"unrecognized feature gate: {name}")
        if name in features and features[name].stage is Stage.LOCKED and not is_on:
            raise ConfigError(f"cannot set feature gate {name} to false, feature is locked to true")
        settings[name] = is_on
    return settings


def _pairs(values: Iterable[str]) -> Iterator[str]:
    for value in values:
        yield from (pair.strip() for pair in value.split(",") if pair.strip())


def _reject_unimplemented(names: Iterable[str]) -> None:
    missing = sorted(names)
    if missing:
        what = "feature gate" if len(missing) == 1 else "feature gates"
        raise ConfigError(f"cannot turn on {what} {', '.join(missing)}: not implemented yet")
