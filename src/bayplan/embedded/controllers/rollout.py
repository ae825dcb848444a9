"""How far a rolling update may go now: how many pods the new ReplicaSet and the old ones should have.

Numbers in, numbers out; `deployment.py` writes them. Two bounds hold at every moment: there are never more
pods than asked for plus maxSurge, and never fewer available ones than asked for less maxUnavailable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bayplan.embedded.controllers.templates import rounded


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the deployment asks for."""

    replicas: int
    max_surge: int = 0
    max_unavailable: int = 0

    @property
    def most(self) -> int:
        return self.replicas + self.max_surge

    @property
    def fewest_available(self) -> int:
        return self.replicas - self.max_unavailable


@dataclass(frozen=True, slots=True)
class Size:
    """A ReplicaSet: how many pods it should have, has, and has available."""

    name: str
    desired: int
    available: int


def bounds(replicas: int, strategy: dict[str, object]) -> Bounds:
    """From spec.strategy. Where both shares come out as 0, one pod may be missing, or nothing would move."""
    if strategy.get("type") != "RollingUpdate":
        return Bounds(replicas)
    rolling = strategy.get("rollingUpdate") or {}
    assert isinstance(rolling, dict)
    surge = rounded(rolling.get("maxSurge"), replicas, up=True)
    unavailable = min(rounded(rolling.get("maxUnavailable"), replicas, up=False), replicas)
    return Bounds(replicas, surge, unavailable if surge or unavailable else min(1, replicas))


def new_size(wanted: Bounds, new: Size, total: int) -> int:
    """How many pods the new ReplicaSet should have; `total` is what all should have together."""
    if new.desired >= wanted.replicas:
        return wanted.replicas
    return min(new.desired + max(wanted.most - total, 0), wanted.replicas)


def old_sizes(wanted: Bounds, new: Size, old: Sequence[Size]) -> dict[str, int]:
    """How many pods the old ReplicaSets, oldest first, should have. First those go that are not available."""
    total = new.desired + sum(each.desired for each in old)
    new_unavailable = new.desired - new.available
    may_go = total - wanted.fewest_available - new_unavailable
    sizes = {each.name: each.desired for each in old}
    if may_go <= 0:
        return sizes
    for each in old:
        useless = min(each.desired - each.available, may_go)
        if useless > 0:
            sizes[each.name] -= useless
            may_go -= useless
    available = new.available + sum(each.available for each in old)
    may_go = available - wanted.fewest_available
    for each in old:
        going = min(sizes[each.name], max(may_go, 0))
        sizes[each.name] -= going
        may_go -= going
    return sizes


def proportional_sizes(wanted: Bounds, sets: Sequence[tuple[Size, int]]) -> dict[str, int]:
    """A deployment that is resized in the middle of an update: all its sets grow or shrink by their share.

    `sets` are the ones with pods, newest first, each with the most pods that the deployment might have had
    when the set was last resized.
    """
    total = sum(size.desired for size, _ in sets)
    to_add = (wanted.most if wanted.replicas > 0 else 0) - total
    # What is left over after rounding goes to the largest; growing favours newer sets, shrinking older ones.
    order = list(sets) if to_add >= 0 else list(reversed(sets))
    order.sort(key=lambda each: each[0].desired, reverse=True)
    sizes: dict[str, int] = {}
    added = 0
    for size, most_before in order:
        share = _share(size.desired, wanted, most_before or total or 1, to_add - added) if to_add else 0
        sizes[size.name] = size.desired + share
        added += share
    if order and added != to_add:
        largest = order[0][0].name
        sizes[largest] = max(sizes[largest] + to_add - added, 0)
    return sizes


def _share(desired: int, wanted: Bounds, most_before: int, left: int) -> int:
    if wanted.replicas == 0:
        return -desired
    ideal = desired * wanted.most / most_before
    share = int(ideal + 0.5) - desired
    return min(share, left) if left > 0 else max(share, left)
