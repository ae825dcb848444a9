"""The next step of a rolling update: how many pods the new ReplicaSet and the old ones should have.

Numbers in, numbers out; `deployment.py` writes them. Two bounds always hold: there are at most `replicas`
plus maxSurge pods, and at least `replicas` minus maxUnavailable are available.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bayplan.embedded.controllers.templates import rounded


@dataclass(frozen=True, slots=True)
class Bounds:
    """Replicas and bounds of a deployment."""

    replicas: int
    max_surge: int = 0
    max_unavailable: int = 0

    @property
    def max_total(self) -> int:
        return self.replicas + self.max_surge

    @property
    def min_available(self) -> int:
        return self.replicas - self.max_unavailable


@dataclass(frozen=True, slots=True)
class Size:
    """Desired and available pods of a ReplicaSet."""

    name: str
    desired: int
    available: int


def bounds(replicas: int, strategy: dict[str, object]) -> Bounds:
    """From spec.strategy. If both are 0 after rounding, one pod may be unavailable: otherwise the update
    stalls."""
    if strategy.get("type") != "RollingUpdate":
        return Bounds(replicas)
    rolling = strategy.get("rollingUpdate") or {}
    assert isinstance(rolling, dict)
    surge = rounded(rolling.get("maxSurge"), replicas, up=True)
    unavailable = min(rounded(rolling.get("maxUnavailable"), replicas, up=False), replicas)
    return Bounds(replicas, surge, unavailable if surge or unavailable else min(1, replicas))


def new_size(wanted: Bounds, new: Size, total: int) -> int:
    """How many pods the new ReplicaSet should have; `total` is the sum over all ReplicaSets."""
    if new.desired >= wanted.replicas:
        return wanted.replicas
    return min(new.desired + max(wanted.max_total - total, 0), wanted.replicas)


def old_sizes(wanted: Bounds, new: Size, old: Sequence[Size]) -> dict[str, int]:
    """How many pods the old ReplicaSets, oldest first, should have. Unavailable pods are removed first."""
    total = new.desired + sum(each.desired for each in old)
    new_unavailable = new.desired - new.available
    may_go = total - wanted.min_available - new_unavailable
    sizes = {each.name: each.desired for each in old}
    if may_go <= 0:
        return sizes
    for each in old:
        useless = min(each.desired - each.available, may_go)
        if useless > 0:
            sizes[each.name] -= useless
            may_go -= useless
    available = new.available + sum(each.available for each in old)
    may_go = available - wanted.min_available
    for each in old:
        going = min(sizes[each.name], max(may_go, 0))
        sizes[each.name] -= going
        may_go -= going
    return sizes


def proportional_sizes(wanted: Bounds, sets: Sequence[tuple[Size, int]]) -> dict[str, int]:
    """The sizes after a deployment is scaled during an update: ReplicaSets are scaled in proportion.

    `sets` are those with pods, newest first, each with the deployment's maximum number of pods when the set
    was last scaled.
    """
    total = sum(size.desired for size, _ in sets)
    to_add = (wanted.max_total if wanted.replicas > 0 else 0) - total
    # The remainder of rounding goes to the largest. Scaling up prefers newer sets, scaling down older ones.
    order = list(sets) if to_add >= 0 else list(reversed(sets))
    order.sort(key=lambda each: each[0].desired, reverse=True)
    sizes: dict[str, int] = {}
    added = 0
    for size, max_before in order:
        share = _share(size.desired, wanted, max_before or total or 1, to_add - added) if to_add else 0
        sizes[size.name] = size.desired + share
        added += share
    if order and added != to_add:
        largest = order[0][0].name
        sizes[largest] = max(sizes[largest] + to_add - added, 0)
    return sizes


def _share(desired: int, wanted: Bounds, max_before: int, left: int) -> int:
    if wanted.replicas == 0:
        return -desired
    ideal = desired * wanted.max_total / max_before
    share = int(ideal + 0.5) - desired
    return min(share, left) if left > 0 else max(share, left)
