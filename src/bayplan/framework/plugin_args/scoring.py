"""Parts of plugin arguments that define how a node's resources become a score.

Weights of resources, shapes (piecewise linear functions from utilization to score) and the strategy of
NodeResourcesFit. `args.py` puts them together and is what others import.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from bayplan.framework.plugin_args.base import ArgsRecord, Int32, Int64
from bayplan.framework.plugin_args.field_errors import (
    FieldError,
    at,
    forbidden,
    invalid,
    required,
    unsupported,
)

LEAST_ALLOCATED: Final = "LeastAllocated"
MOST_ALLOCATED: Final = "MostAllocated"
REQUESTED_TO_CAPACITY_RATIO: Final = "RequestedToCapacityRatio"
SCORING_STRATEGIES: Final = (LEAST_ALLOCATED, MOST_ALLOCATED, REQUESTED_TO_CAPACITY_RATIO)

MAX_SHAPE_SCORE: Final = 10
"""Scores in a shape are between 0 and this; plugins scale them to 100."""


class ResourceSpec(ArgsRecord, frozen=True):
    """A resource and its weight among the resources of a score."""

    name: str = ""
    weight: Int64 = 1

    def __post_init__(self) -> None:
        if self.weight == 0:
            msgspec.structs.force_setattr(self, "weight", 1)


DEFAULT_RESOURCES: Final = (ResourceSpec(name="cpu"), ResourceSpec(name="memory"))


class UtilizationShapePoint(ArgsRecord, frozen=True):
    """One point of a piecewise linear function from utilization (percent) to score (0 to 10)."""

    utilization: Int32 = 0
    score: Int32 = 0


class RequestedToCapacityRatioParam(ArgsRecord, frozen=True):
    shape: tuple[UtilizationShapePoint, ...] = ()


class ScoringStrategy(ArgsRecord, frozen=True):
    """How NodeResourcesFit scores. A strategy that is given must have a type."""

    type: str = ""
    resources: tuple[ResourceSpec, ...] = DEFAULT_RESOURCES
    requested_to_capacity_ratio: RequestedToCapacityRatioParam | None = None

    def __post_init__(self) -> None:
        if not self.resources:
            msgspec.structs.force_setattr(self, "resources", DEFAULT_RESOURCES)

    def problems(self, path: str) -> Iterator[FieldError]:
        if self.type not in SCORING_STRATEGIES:
            yield unsupported(at(path, "type"), self.type, SCORING_STRATEGIES)
        for i, resource in enumerate(self.resources):
            if not 0 < resource.weight <= 100:
                detail = f"resource weight of {resource.name} not in valid range (0, 100]"
                yield invalid(at(path, "resources", i, "weight"), resource.weight, detail)
        ratio, where = self.requested_to_capacity_ratio, at(path, "requestedToCapacityRatio")
        if self.type == REQUESTED_TO_CAPACITY_RATIO:
            if ratio is None:
                yield required(where, "must be specified when type is RequestedToCapacityRatio")
            else:
                yield from shape_problems(ratio.shape, at(where, "shape"))
        elif ratio is not None:
            yield forbidden(where, "must be nil when type is not RequestedToCapacityRatio")


def shape_problems(shape: Sequence[UtilizationShapePoint], path: str) -> Iterator[FieldError]:
    """The errors of a shape; only the first point that is out of order is reported."""
    if not shape:
        yield required(path, "at least one point must be specified")
    for i in range(1, len(shape)):
        if shape[i - 1].utilization >= shape[i].utilization:
            detail = "values must be sorted in increasing order"
            yield invalid(at(path, i, "utilization"), shape[i].utilization, detail)
            break
    for i, point in enumerate(shape):
        if not 0 <= point.utilization <= 100:
            yield invalid(at(path, i, "utilization"), point.utilization, "not in valid range [0, 100]")
        if not 0 <= point.score <= MAX_SHAPE_SCORE:
            yield invalid(at(path, i, "score"), point.score, "not in valid range [0, 10]")


def shape_scores(shape: Sequence[UtilizationShapePoint]) -> tuple[int, ...]:
    """The score (0 to 100) for each utilization from 0 to 100 percent."""
    points = [(point.utilization, point.score * (100 // MAX_SHAPE_SCORE)) for point in shape]
    return tuple(broken_linear(points, percent) for percent in range(101))


def broken_linear(points: Sequence[tuple[int, int]], at: int) -> int:
    """The value at `at` of the straight lines through the points, cut towards zero as Go divides."""
    x0, y0 = points[0]
    if at <= x0:
        return y0
    for x1, y1 in points[1:]:
        if at <= x1:
            rise = abs(y1 - y0) * (at - x0) // (x1 - x0)
            return y0 + rise if y1 >= y0 else y0 - rise
        x0, y0 = x1, y1
    return y0
