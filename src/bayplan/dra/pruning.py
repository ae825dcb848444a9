"""A quick proof that a search has no solution, for searches that become long.

In whatever order devices are tried, every request needs enough devices of its own: each device satisfies one
request, unless it allows multiple allocations. If there are too few, there is no solution, and the search can
stop.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from bayplan.dra.pools import DeviceKey


class Need:
    """Devices that one request needs: `count` of `exclusive` and `shared` ones, each at most once."""

    __slots__ = ("count", "exclusive", "shared")

    def __init__(self, count: int, exclusive: Iterable[DeviceKey], shared: int) -> None:
        self.count = count
        self.exclusive = tuple(exclusive)
        self.shared = shared


def can_be_met(needs: Sequence[Need]) -> bool:
    """Whether all needs can be met together, if each device is used once.

    Devices that satisfy the same needs are interchangeable, and are assigned many at a time: the work depends
    on the number of different devices, of which a node has few.
    """
    users: dict[DeviceKey, int] = {}
    for index, need in enumerate(needs):
        for key in need.exclusive:
            users[key] = users.get(key, 0) | 1 << index
    groups = _Groups(Counter(users.values()), len(needs))
    for index, need in enumerate(needs):
        missing = need.count - need.shared
        while missing > 0:
            given = groups.give(index, missing)
            if not given:
                return False
            missing -= given
    return True


class _Groups:
    """Devices by the needs that they serve, and how many each need has been given."""

    def __init__(self, sizes: Mapping[int, int], needs: int) -> None:
        self._free = list(sizes.values())
        self._of_need = [
            [at for at, users in enumerate(sizes) if users >> index & 1] for index in range(needs)
        ]
        """The groups that serve each need."""
        self._given: list[dict[int, int]] = [{} for _ in sizes]
        """By group and need."""

    def give(self, index: int, wanted: int) -> int:
        """Assigns up to `wanted` devices to a need, reassigning those of others if necessary.

        Returns how many.
        """
        path = self._path(index)
        if not path:
            return 0
        amount = min(wanted, self._free[path[-1][1]])
        for (_, group), (holder, _) in pairwise(path):
            amount = min(amount, self._given[group][holder])
        self._free[path[-1][1]] -= amount
        for (_, group), (holder, _) in pairwise(path):
            self._given[group][holder] -= amount
        for need, group in path:
            given = self._given[group]
            given[need] = given.get(need, 0) + amount
        return amount

    def _path(self, index: int) -> list[tuple[int, int]]:
        """The shortest way to free devices: each need takes from the group, whose holder is the next need."""
        came_from: dict[int, tuple[int, int] | None] = {index: None}
        """For each need that was reached: the need that would take its devices, and of which group."""
        seen: set[int] = set()
        waiting = deque([index])
        while waiting:
            need = waiting.popleft()
            for group in self._of_need[need]:
                if group in seen:
                    continue
                seen.add(group)
                if self._free[group]:
                    path = [(need, group)]
                    while (step := came_from[path[-1][0]]) is not None:
                        path.append(step)
                    return path[::-1]
                for holder, amount in self._given[group].items():
                    if amount and holder not in came_from:
                        came_from[holder] = need, group
                        waiting.append(holder)
        return []
