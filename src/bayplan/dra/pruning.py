"""Branches of a search that cannot have a solution, so that a long search ends early.

kube-scheduler tries every combination. The first solution in its order is also the first of a search that
leaves out branches without one, as long as those branches would not end with an error. `Bounds` proves that
the devices that are left are too few for the requests that are left: in whatever order devices are tried,
every request needs devices of its own, unless they allow multiple allocations, and the devices under a
constraint have one value of its attribute, or all have different ones. Of the counters of a pool they consume
at least what the smallest of them do. Capacity is ignored.

`EquivalentDevices` finds devices that all requests and constraints treat alike: if one has no solution, the
others have none.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from bayplan.api.release import DeviceFeatures
from bayplan.dra.allocated import AllocatedState
from bayplan.dra.candidates import (
    Candidate,
    Candidates,
    Constraint,
    DistinctAttributeByRequest,
    MatchAttribute,
    Value,
)
from bayplan.dra.pools import CounterKey, DeviceKey, NodePools, PoolKey, SliceDevice
from bayplan.dra.requests import PreparedClaim, PreparedRequest


class Need:
    """Devices that one request needs: `count` of `exclusive` and `shared` ones, each at most once."""

    __slots__ = ("count", "exclusive", "shared")

    def __init__(self, count: int, exclusive: Iterable[Hashable], shared: int) -> None:
        self.count = count
        self.exclusive = tuple(exclusive)
        self.shared = shared

    @property
    def is_possible(self) -> bool:
        """Whether it can be met alone."""
        return self.count <= len(self.exclusive) + self.shared


class _Option(NamedTuple):
    """One alternative of a request that has no devices yet, or not all."""

    claim: int
    """Its index."""
    request: PreparedRequest
    needed: int
    candidates: Sequence[Candidate]


class Bounds:
    """Whether the devices that are left suffice for the requests that are left, in one search."""

    def __init__(
        self,
        claims: Sequence[PreparedClaim],
        candidates: Mapping[PreparedRequest, Candidates],
        constraints: Sequence[Sequence[Constraint]],
        allocating: Mapping[DeviceKey, list[int]],
        counters: Mapping[PoolKey, Mapping[CounterKey, int]],
        pools: NodePools,
        allocated: AllocatedState,
        features: DeviceFeatures,
    ) -> None:
        """`allocating` and `counters` are what the search uses so far."""
        for request, of in candidates.items():
            if not request.is_all:
                of.find_all()
        self._claims = claims
        self._candidates = {request: of.found for request, of in candidates.items()}
        self._constraints = constraints
        self._allocating = allocating
        self._counters = counters
        self._pools = pools
        self._allocated = allocated
        self._multiple = features.consumable_capacity
        self._values: list[list[dict[DeviceKey, Value | None]]] = [
            [
                {
                    candidate.device.key: constraint.value(candidate.device)
                    for options in claim.requests
                    for request in options
                    for candidate in self._candidates[request]
                }
                for constraint in of_claim
            ]
            for claim, of_claim in zip(claims, constraints, strict=True)
        ]
        """The value of each device, for each constraint of each claim."""
        self._apply = self._may_be_left_out()

    def _may_be_left_out(self) -> bool:
        """Whether no branch ends with an error, and the outcome of one does not depend on those before it."""
        if any(candidate.error for found in self._candidates.values() for candidate in found):
            return False
        for claim, constraints in zip(self._claims, self._constraints, strict=True):
            for request in (request for options in claim.requests for request in options):
                if request.is_all and constraints:
                    return False
                # Taking back one device of several makes it forget the others.
                if request.count > 1 and any(
                    isinstance(one, DistinctAttributeByRequest) and one.applies_to(request)
                    for one in constraints
                ):
                    return False
        return True

    def allow(self, index: int, request_index: int, sub: int, count: int, position: int) -> bool:
        """Whether there may be a solution with the devices chosen so far, or an error that ends the search.

        Args:
            sub: the alternative that is being tried of the request.
            count: the devices that this alternative still needs.
            position: of its first candidate that may still be chosen.
        """
        if not self._apply:
            return True
        request = self._claims[index].requests[request_index][sub]
        left = [[_Option(index, request, count, self._candidates[request][position:])]]
        for later in range(index, len(self._claims)):
            requests = self._claims[later].requests
            left += (
                [self._option(later, one) for one in options]
                for options in (requests[request_index + 1 :] if later == index else requests)
            )
        return (
            self._can_be_met(left)
            and all(self._has_match(left, at, n) for at, n in self._undecided(index))
            and all(self._has_distinct(left, at, n) for at, n in self._distinct(index))
            and self._has_counters(left)
        )

    def _option(self, index: int, request: PreparedRequest) -> _Option:
        found = self._candidates[request]
        count = max(len(found), 1) if request.is_all else request.count
        return _Option(index, request, count, found)

    def _undecided(self, index: int) -> Iterable[tuple[int, int]]:
        """The constraints whose devices must match, but have no value yet."""
        for at in range(index, len(self._claims)):
            for n, one in enumerate(self._constraints[at]):
                if isinstance(one, MatchAttribute) and one.expected is None:
                    yield at, n

    def _distinct(self, index: int) -> Iterable[tuple[int, int]]:
        for at in range(index, len(self._claims)):
            for n, one in enumerate(self._constraints[at]):
                if not isinstance(one, MatchAttribute):
                    yield at, n

    def _has_match(self, left: Sequence[Sequence[_Option]], at: int, n: int) -> bool:
        """Whether the devices under a constraint can have the same value."""
        values, constraint = self._values[at][n], self._constraints[at][n]
        possible: set[Value | None] | None = None
        for options in left:
            option = options[0]
            if len(options) > 1 or option.claim != at or not constraint.applies_to(option.request):
                continue
            counts = Counter(values[device.key] for device in self._free(option))
            enough = {value for value, number in counts.items() if number >= option.needed}
            possible = enough if possible is None else possible & enough
        if possible is None:
            return True
        return any(value is not None and self._can_be_met(left, (at, n), value) for value in possible)

    def _has_distinct(self, left: Sequence[Sequence[_Option]], at: int, n: int) -> bool:
        """Whether there are enough different values for the devices under a constraint."""
        values, constraint = self._values[at][n], self._constraints[at][n]
        return can_be_met(
            [
                Need(option.needed, {values[device.key] for device in self._free(option)}, 0)
                for option, *others in left
                if not others and option.claim == at and constraint.applies_to(option.request)
            ]
        )

    def _has_counters(self, left: Sequence[Sequence[_Option]]) -> bool:
        """Whether the counters suffice if the smallest devices are chosen, whichever request they are for."""
        needed, devices = 0, dict[DeviceKey, SliceDevice]()
        for option, *others in left:
            free = self._free(option)
            if others or option.request.admin_access or any(device.allow_multiple for device in free):
                continue
            needed += option.needed
            devices.update((device.key, device) for device in free)
        for key in {device.pool_key for device in devices.values() if device.counters}:
            amounts: dict[CounterKey, list[int]] = {}
            for device in devices.values():
                if device.pool_key == key:
                    for counter in {name for name, _ in device.counters}:
                        total = sum(amount for name, amount in device.counters if name == counter)
                        amounts.setdefault(counter, []).append(total)
            available, used = (
                self._pools.by_key[key].available_counters(self._allocated),
                self._counters.get(key, {}),
            )
            for counter, remaining in available.items():
                consumed = sorted(amounts.get(counter, ()))
                without = len(devices) - len(consumed)
                least = sum(consumed[: max(needed - without, 0)])
                if least > 0 and least > remaining - used.get(counter, 0):
                    return False
        return True

    def _can_be_met(
        self,
        left: Sequence[Sequence[_Option]],
        match: tuple[int, int] | None = None,
        value: Value | None = None,
    ) -> bool:
        """Whether there are enough devices, with this value under this constraint."""
        needs = []
        for options in left:
            found = [self._need(option, match, value) for option in options]
            possible = [need for need in found if need.is_possible]
            if not possible:
                return False
            need = possible[0]
            if len(possible) > 1:  # Any of these may be the one.
                exclusive = {key for need in possible for key in need.exclusive}
                shared = sum(need.shared for need in possible)
                need = Need(min(need.count for need in possible), exclusive, shared)
            needs.append(need)
        return can_be_met(needs)

    def _need(self, option: _Option, match: tuple[int, int] | None, value: Value | None) -> Need:
        devices = self._free(option)
        if match is not None and match[0] == option.claim:
            at, n = match
            if self._constraints[at][n].applies_to(option.request):
                values = self._values[at][n]
                devices = [device for device in devices if values[device.key] == value]
        if option.request.admin_access:
            return Need(option.needed, (), len(devices))
        exclusive = [device.key for device in devices if not (self._multiple and device.allow_multiple)]
        return Need(option.needed, exclusive, len(devices) - len(exclusive))

    def _free(self, option: _Option) -> list[SliceDevice]:
        """The devices that may still be chosen, under constraints that have a value."""
        request, devices = option.request, [candidate.device for candidate in option.candidates]
        if not request.admin_access:
            allocating, taken = self._allocating, self._allocated.taken
            devices = [
                device
                for device in devices
                if not allocating.get(device.key) and not (request.is_all and device.key in taken)
            ]
        for one, values in zip(self._constraints[option.claim], self._values[option.claim], strict=True):
            if one.applies_to(request):
                devices = [device for device in devices if one.may_add(values[device.key])]
        return devices


class EquivalentDevices:
    """Finds devices that all requests and constraints of a search treat alike."""

    def __init__(
        self,
        requests: Iterable[PreparedRequest],
        constraints: Iterable[Iterable[Constraint]],
        pools: NodePools,
        allocated: AllocatedState,
    ) -> None:
        self._requests = tuple(requests)
        self._constraints = tuple(one for of_claim in constraints for one in of_claim)
        self._pools = pools
        self._allocated = allocated
        self.exist = not any(request.is_all or request.admin_access for request in self._requests)
        """Whether there may be any; otherwise devices have to be tried one by one."""
        self._keys: dict[DeviceKey, Hashable] = {}

    def key(self, device: SliceDevice) -> Hashable:
        """Equal for devices that are equivalent, apart from what the search has chosen so far."""
        found = self._keys.get(device.key)
        if found is None:
            found = self._keys[device.key] = (
                tuple(device.content.matches(request.selectors) for request in self._requests),
                tuple(constraint.value(device) for constraint in self._constraints),
                id(device.content) if device.content.capacities else 0,
                device.has_counters and (device.pool_key, device.counters),
                tuple((taint.key, taint.value, taint.effect) for taint in device.blocking_taints),
                device.selection is None or self._pools.is_on_node(device),
                device.allow_multiple,
                tuple(sorted(self._allocated.used(device.key).items())),
            )
        return found


def can_be_met(needs: Sequence[Need]) -> bool:
    """Whether all needs can be met together, if each device is used once.

    Devices that satisfy the same needs are interchangeable, and are assigned many at a time: the work depends
    on the number of different devices, of which a node has few.
    """
    users: dict[Hashable, int] = {}
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
