"""Feature gates: their stage, default and dependencies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """The maturity of a feature; locked gates cannot be changed."""

    ALPHA = "alpha"
    BETA = "beta"
    GA = "GA"
    LOCKED = "GA locked"


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature gate, as a release has it."""

    stage: Stage
    enabled: bool
    """Whether it is on unless `--feature-gates` turns it off."""
    needs: tuple[str, ...] = ()
    """Features that must be on while this one is."""
    compatible_from: int | None = None
    """It is on by default if `--min-compatibility-version` is this minor version or a later one."""


def on(stage: Stage, *needs: str) -> Feature:
    """A feature that is on by default."""
    return Feature(stage, True, needs)


def off(stage: Stage, *needs: str) -> Feature:
    """A feature that is off by default."""
    return Feature(stage, False, needs)


def default_gates(features: Mapping[str, Feature]) -> frozenset[str]:
    """The gates that are on by default."""
    return frozenset(name for name, feature in features.items() if feature.enabled)
