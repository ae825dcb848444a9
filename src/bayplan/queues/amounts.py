"""Amounts of resources by type, and the three readings of an absent type.

An amount is a mapping from resource type to an integer in base units: `vcore` in millicores, `memory` in
bytes, `pods` as a count, any other type in whole units. Limits are sparse, and what an absent type means
depends on the question: in a ceiling it is unlimited, on a node it is zero, in a guarantee it is invisible.
So there is a function for each question instead of one comparison with flags. None is "no limit at all".

All functions return new dictionaries and leave their arguments unchanged, except `add_to` and
`subtract_from`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias, TypeVar

Amounts: TypeAlias = Mapping[str, int]
NumberT = TypeVar("NumberT", int, float)
"""Volcano divides amounts, so that they become fractions (`volcano/resources.py`)."""


def fits(room: Amounts | None, asked: Amounts) -> bool:
    """Whether a request fits into a room; a type that the room does not have is unlimited."""
    if not room:
        return True
    for kind, amount in asked.items():
        left = room.get(kind)
        if left is not None and amount > left and amount > 0:
            return False
    return True


def fits_on(available: Amounts, asked: Amounts) -> bool:
    """Whether a request fits into what is available; a type that is not available counts as zero."""
    return all(amount <= 0 or amount <= available.get(kind, 0) for kind, amount in asked.items())


def covers(limit: Amounts, asked: Amounts) -> bool:
    """Whether a limit that may be negative covers a request, in the types of the limit."""
    for kind, amount in asked.items():
        left = limit.get(kind)
        if left is not None and amount > left:
            return False
    return True


def covers_common(limit: Amounts | None, used: Amounts) -> bool:
    """Whether a limit covers the use of all types that both have.

    An empty limit covers nothing, and without any use every amount of the limit has to be positive.
    """
    if not limit:
        return False
    if not used:
        return all(amount > 0 for amount in limit.values())
    return all(used[kind] <= amount for kind, amount in limit.items() if kind in used)


def first_exceeded(limit: Amounts, used: Amounts, asked: Amounts) -> str | None:
    """The first type of a limit that use and request exceed together; None if there is none."""
    for kind, most in limit.items():
        if used.get(kind, 0) + asked.get(kind, 0) > most:
            return kind
    return None


def exceeds_common(amounts: Amounts, other: Amounts) -> bool:
    """Whether no common type is larger in the other, and one differs.

    Without any amount in the other, all have to be positive; without common types it is true.
    """
    if not amounts:
        return False
    if not other:
        return all(amount > 0 for amount in amounts.values())
    common = [kind for kind in amounts if kind in other]
    if not common:
        return True
    if any(other[kind] > amounts[kind] for kind in common):
        return False
    return any(other[kind] != amounts[kind] for kind in common)


def lowest(left: Amounts | None, right: Amounts | None) -> dict[str, int] | None:
    """The smaller amount of each type; an absent type does not limit."""
    if left is None:
        return None if right is None else dict(right)
    result = dict(left)
    if right is not None:
        for kind, amount in right.items():
            known = result.get(kind)
            if known is None or amount < known:
                result[kind] = amount
    return result


def left_over(limit: Amounts, used: Amounts | None) -> dict[str, int]:
    """What is left of a limit, in its own types; may be negative."""
    if not used:
        return dict(limit)
    return {kind: amount - used.get(kind, 0) for kind, amount in limit.items()}


def plus(left: Mapping[str, NumberT], right: Mapping[str, NumberT]) -> dict[str, NumberT]:
    result = dict(left)
    for kind, amount in right.items():
        result[kind] = result.get(kind, 0) + amount
    return result


def minus(left: Mapping[str, NumberT], right: Mapping[str, NumberT]) -> dict[str, NumberT]:
    """The difference, which may be negative, without types that become zero."""
    result = dict(left)
    for kind, amount in right.items():
        rest = result.get(kind, 0) - amount
        if rest:
            result[kind] = rest
        else:
            result.pop(kind, None)
    return result


def add_to(amounts: dict[str, int], more: Amounts) -> None:
    """Adds in place."""
    for kind, amount in more.items():
        try:
            amounts[kind] += amount
        except KeyError:
            amounts[kind] = amount


def subtract_from(amounts: dict[str, int], less: Amounts) -> None:
    """Subtracts in place, and removes types that become zero."""
    for kind, amount in less.items():
        rest = amounts.get(kind, 0) - amount
        if rest:
            amounts[kind] = rest
        else:
            amounts.pop(kind, None)


def total(parts: Iterable[Mapping[str, NumberT]]) -> dict[str, NumberT]:
    result: dict[str, NumberT] = {}
    for part in parts:
        for kind, amount in part.items():
            result[kind] = result.get(kind, 0) + amount
    return result


def shortfall(asked: Mapping[str, NumberT], available: Mapping[str, NumberT]) -> dict[str, NumberT]:
    """What is missing of a request, by type; types that are not missing are absent."""
    return {
        kind: missing for kind, amount in asked.items() if (missing := amount - available.get(kind, 0)) > 0
    }


def is_positive(amounts: Amounts | None) -> bool:
    """Whether some amount is above zero, and none below."""
    if not amounts:
        return False
    return min(amounts.values()) >= 0 and max(amounts.values()) > 0


def is_zero(amounts: Amounts | None) -> bool:
    return not amounts or not any(amounts.values())


def share_a_type(left: Amounts, right: Amounts) -> bool:
    return not left.keys().isdisjoint(right)


def readable(kind: str, amount: int) -> str:
    """An amount in the units of queues.yaml."""
    if kind == "vcore":
        return f"{amount // 1000}" if amount % 1000 == 0 else f"{amount}m"
    if kind in ("memory", "ephemeral-storage") or kind.startswith("hugepages-"):
        for power, unit in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
            if amount and amount % 1024**power == 0:
                return f"{amount // 1024**power}{unit}"
        for power, unit in ((4, "T"), (3, "G"), (2, "M"), (1, "k")):
            if amount and amount % 1000**power == 0:
                return f"{amount // 1000**power}{unit}"
    return str(amount)


def rounded(kind: str, amount: int) -> str:
    """The same for tables: an amount in bytes that is no multiple of a unit is rounded."""
    exact = readable(kind, amount)
    if exact.isdecimal() and readable(kind, 1024) == "1Ki":
        for power, unit in ((4, "Ti"), (3, "Gi"), (2, "Mi")):
            if amount >= 1024**power:
                return f"{amount / 1024**power:.1f}{unit}"
    return exact
