"""A quick proof that a search is in vain, for searches that become long.

Whatever the order in which devices are tried, every request needs enough devices of its own: each device
serves one request, unless it allows multiple allocations. If the devices do not suffice for that there is no
solution, and what is left of the search can be spared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bayplan.devices.pools import DeviceKey


class Need:
    """Devices that one request needs: `count` of `exclusive` and `shared` ones, each at most once."""

    __slots__ = ("count", "exclusive", "shared")

    def __init__(self, count: int, exclusive: Iterable[DeviceKey], shared: int) -> None:
        self.count = count
        self.exclusive = tuple(exclusive)
        self.shared = shared


def can_be_met(needs: Sequence[Need]) -> bool:
    """Whether all needs can be met together, each device being given once."""
    holder: dict[DeviceKey, int] = {}
    for index, need in enumerate(needs):
        for _ in range(need.count - need.shared):
            if not _assign(index, needs, holder, set()):
                return False
    return True


def _assign(index: int, needs: Sequence[Need], holder: dict[DeviceKey, int], tried: set[DeviceKey]) -> bool:
    """Finds one more device for a need, if necessary by giving others different ones."""
    for key in needs[index].exclusive:
        if key in tried or holder.get(key) == index:
            continue
        tried.add(key)
        if key not in holder or _assign(holder[key], needs, holder, tried):
            holder[key] = index
            return True
    return False
