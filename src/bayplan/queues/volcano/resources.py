"""Amounts as Volcano compares them.

cpu is in millicores, everything else in whole units, and shares of a cluster are fractions of both. Two
readings of an absent resource exist: a limit of zero, or no limit. Amounts below 0.1 count as zero; of other
resources than cpu and memory, which Volcano counts in thousandths, those below 0.0001. Each pod asks for one
of `pods`, which most comparisons leave out.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final, TypeAlias

from bayplan.queues.amounts import minus, plus, total
from bayplan.queues.amounts import shortfall as exceeding

__all__ = [
    "MIN_AMOUNT",
    "PODS",
    "Resources",
    "at_most",
    "exceeded",
    "exceeding",
    "exceeds_some",
    "fits_some",
    "highest",
    "is_empty",
    "largest_ratio",
    "min_amount",
    "minus",
    "names",
    "plus",
    "ratio",
    "share_some",
    "times",
    "total",
    "within",
    "within_zero",
]

Resources: TypeAlias = Mapping[str, float]

MIN_AMOUNT: Final = 0.1
"""resource_info.go: minResource"""
MIN_SCALAR: Final = MIN_AMOUNT / 1000
"""The same for a resource that Volcano counts in thousandths."""
_STANDARD: Final = ("cpu", "memory")
PODS: Final = "pods"


def min_amount(kind: str) -> float:
    """The smallest amount of a resource that is not zero."""
    return MIN_AMOUNT if kind in _STANDARD else MIN_SCALAR


def times(amounts: Resources, factor: float) -> dict[str, float]:
    return {kind: amount * factor for kind, amount in amounts.items()}


def highest(left: Resources, right: Resources) -> dict[str, float]:
    """The larger amount of each resource."""
    result = dict(left)
    for kind, amount in right.items():
        result[kind] = max(result.get(kind, 0.0), amount)
    return result


def within(amounts: Resources, limit: Resources) -> dict[str, float]:
    """At most the limit; an absent cpu or memory is a limit of zero, others are not limited."""
    # resource_info.go: MinDimensionResource with Infinity
    return {
        kind: min(amount, limit.get(kind, 0.0 if kind in _STANDARD else inf))
        for kind, amount in amounts.items()
    }


def within_zero(amounts: Resources, limit: Resources) -> dict[str, float]:
    """At most the limit; an absent resource is a limit of zero."""
    return {kind: min(amount, limit.get(kind, 0.0)) for kind, amount in amounts.items()}


def at_most(left: Resources, right: Resources) -> bool:
    """Whether no resource of left exceeds right, with a tolerance; absent is zero."""
    # resource_info.go: LessEqual with Zero
    return all(
        amount < (limit := right.get(kind, 0.0)) or abs(amount - limit) < min_amount(kind)
        for kind, amount in left.items()
    )


def exceeded(used: Resources, limit: Resources, asked: Resources) -> list[str]:
    """The resources that are asked for and used above the limit; an absent limit is zero."""
    # resource_info.go: LessEqualWithDimensionAndResourcesName
    return [
        kind
        for kind, amount in asked.items()
        if amount > 0 and kind != PODS and used.get(kind, 0.0) > limit.get(kind, 0.0)
    ]


def not_fitting(allocated: Resources, limit: Resources, asked: Resources) -> list[str]:
    """The resources of a request that would be above the limit with what is allocated; absent is zero."""
    return [
        kind
        for kind, amount in asked.items()
        if amount > 0 and kind != PODS and allocated.get(kind, 0.0) + amount > limit.get(kind, 0.0)
    ]


def fits_some(used: Resources, limit: Resources, asked: Resources) -> bool:
    """Whether a resource that is asked for, and not zero in both, is used within the limit."""
    # resource_info.go: LessEqualPartlyWithDimensionZeroFiltered
    for kind, amount in asked.items():
        if amount <= 0 or kind == PODS:
            continue
        have, most, least = used.get(kind, 0.0), limit.get(kind, 0.0), min_amount(kind)
        if have < least and most < least:
            continue
        if have < most or abs(have - most) < least:
            return True
    return False


def exceeds_some(used: Resources, limit: Resources, asked: Resources) -> bool:
    """Whether a resource that is asked for, and that the limit names, is used above the limit."""
    # resource_info.go: GreaterPartlyWithRelevantDimensions
    for kind, amount in asked.items():
        if amount <= 0 or kind == PODS:
            continue
        if (kind in _STANDARD and limit.get(kind, 0.0) < MIN_AMOUNT) or kind not in limit:
            continue
        if used.get(kind, 0.0) > limit[kind]:
            return True
    return False


def names(amounts: Resources) -> list[str]:
    """The resources that are not zero."""
    return [kind for kind, amount in amounts.items() if amount >= min_amount(kind)]


def share_some(left: Resources, right: Resources, *, count_pods: bool = True) -> bool:
    """Whether both have something of the same resource."""
    others = set(names(right))
    return any(kind in others and (count_pods or kind != PODS) for kind in names(left))


def is_empty(amounts: Resources) -> bool:
    return all(amount < min_amount(kind) or kind == PODS for kind, amount in amounts.items())


def ratio(amount: float, limit: float) -> float:
    """Nothing of nothing is 0, something of nothing is 1."""
    # helpers.go: Share
    if limit == 0:
        return 0.0 if amount == 0 else 1.0
    return amount / limit


def largest_ratio(amounts: Resources, limits: Resources) -> float:
    """The largest ratio over the resources of the limits."""
    largest = 0.0
    for kind, amount in amounts.items():
        limit = limits.get(kind, 0.0)
        # An amount that large counts for every kind; `min_amount` is asked about the others only.
        if limit >= MIN_AMOUNT or limit >= min_amount(kind):
            part = amount / limit
            if part > largest:
                largest = part
    return largest
