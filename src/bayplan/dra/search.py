"""The search for devices on one node: depth first, and the first complete solution is taken.

The order of everything is kube-scheduler's, so that the same devices are chosen: claims, requests and
alternatives in order, within a request only combinations in the order of the devices, and the last choice is
changed first. A search that becomes long leaves out branches that cannot have a solution (`pruning.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import Final

from bayplan.api.release import DeviceFeatures
from bayplan.dra.allocated import AllocatedState
from bayplan.dra.budget import SearchBudget
from bayplan.dra.candidates import (
    Candidate,
    Candidates,
    Chosen,
    Constraint,
    make_constraint,
    tolerated,
)
from bayplan.dra.content import fits
from bayplan.dra.pools import CounterKey, DeviceKey, NodePools, PoolKey, SliceDevice
from bayplan.dra.pruning import Bounds, EquivalentDevices
from bayplan.dra.requests import MAX_RESULTS, PreparedClaim, PreparedRequest
from bayplan.errors import AllocationError

_CHECK_EVERY: Final = 256
"""Steps between two checks of the budget."""
_NOTHING: Final[Mapping[str, int]] = {}
_LONG: Final = 128
"""Steps after which a search counts as long: in a branch, until it is proved that it may have a solution."""


class Outcome(Enum):
    FOUND = 1
    NONE = 2
    EXCEEDED = 3
    """The claim would have more devices than allowed."""


_FOUND, _NONE, _EXCEEDED = Outcome.FOUND, Outcome.NONE, Outcome.EXCEEDED


class Search:
    """One search. `run` says whether there is a solution; `chosen` and `selected` are it."""

    def __init__(
        self,
        pools: NodePools,
        claims: Sequence[PreparedClaim],
        allocated: AllocatedState,
        available: dict[PoolKey, Mapping[CounterKey, int]],
        features: DeviceFeatures,
        budget: SearchBudget,
    ) -> None:
        self._pools = pools
        self._claims = claims
        self._allocated = allocated
        self._available = available
        self._features = features
        self._budget = budget
        self.steps = 0
        """Devices that were tried, and calls for a further one."""
        self._next_check = _CHECK_EVERY
        self._candidates: dict[PreparedRequest, Candidates] = {}
        self._constraints: list[list[Constraint]] = []
        self._allocating: dict[DeviceKey, list[int]] = {}
        """Devices that are taken in this search, with the indexes of their claims."""
        self._capacity: dict[DeviceKey, dict[str, int]] = {}
        """Capacity of shared devices that is used in this search."""
        self._shares: dict[DeviceKey, int] = {}
        """Shares of devices that are taken in this search."""
        self._counters: dict[PoolKey, dict[CounterKey, int]] = {}
        """Counters that are used in this search."""
        self.chosen: list[list[Chosen]] = [[] for _ in claims]
        self.selected: list[list[int]] = [[0] * len(claim.requests) for claim in claims]

    def run(self) -> bool:
        """Whether all claims can be allocated.

        Raises:
            AllocationLimitError: the search exceeds its budget.
            AllocationError: a claim cannot be allocated as it is.
        """
        for claim in self._claims:
            self._prepare(claim)
        depth = 2 * sum(5 + 3 * len(claim.requests) + MAX_RESULTS for claim in self._claims)
        limit = sys.getrecursionlimit()
        if depth > limit // 2:
            sys.setrecursionlimit(limit + depth)
        self._budget.start_search()
        try:
            return self._one(0, 0, -1, 0, 0) is _FOUND
        finally:
            self._budget.end_search(self.steps)
            if depth > limit // 2:
                sys.setrecursionlimit(limit)

    # Before the search

    def _prepare(self, claim: PreparedClaim) -> None:
        least, names_request = 0, self._features.rules.device_limit_names_request
        for options in claim.requests:
            count = min([self._prepare_request(claim, request) for request in options])
            if names_request and count > MAX_RESULTS - least:
                raise AllocationError(
                    f"claim {claim.claim.key}, request {options[0].parent}: adding {count} devices exceeds "
                    f"the claim limit of {MAX_RESULTS}, with {least} already accounted for"
                )
            least += count
        if least > MAX_RESULTS:
            raise AllocationError(
                f"claim {claim.claim.key}: number of requested devices {least} "
                f"exceeds the claim limit of {MAX_RESULTS}"
            )
        constraints = []
        for index, one in enumerate(claim.claim.spec.devices.constraints):
            constraint = make_constraint(one, self._features.rules)
            if constraint is None:
                raise AllocationError(
                    f"claim {claim.claim.key}, constraint #{index}: "
                    "empty constraint (unsupported constraint type?)"
                )
            constraints.append(constraint)
        self._constraints.append(constraints)

    def _prepare_request(self, claim: PreparedClaim, request: PreparedRequest) -> int:
        """How many devices the request needs."""
        if request.problem:
            raise AllocationError(request.problem)
        candidates = Candidates(claim, request, self._pools, self._allocated, self._features)
        self._candidates[request] = candidates
        return len(candidates.all_devices()) if request.is_all else request.count

    # The search

    def _one(self, index: int, request_index: int, sub: int, k: int, start: int) -> Outcome:
        """Finds device number `k` of a request; `sub` is the alternative that is being tried, or -1."""
        # allocator_incubating.go: allocateOne
        self.steps += 1
        if self.steps >= self._next_check:
            self._next_check = self.steps + _CHECK_EVERY
            self._budget.check(self.steps)
        if index == len(self._claims):
            return _FOUND
        claim = self._claims[index]
        if request_index == len(claim.requests):
            found = self._one(index + 1, 0, -1, 0, 0)
            return _NONE if found is _EXCEEDED else found
        if sub < 0:
            if claim.has_alternatives[request_index]:
                return self._first_available(claim, index, request_index)
            sub = 0
        request = claim.requests[request_index][sub]
        needed = len(self._candidates[request].found) if request.is_all else request.count
        if request.is_all and not needed:
            return _NONE
        if k >= needed:
            return self._one(index, request_index + 1, -1, 0, 0)
        if len(self.chosen[index]) + needed - k > MAX_RESULTS:
            return _EXCEEDED
        if not request.is_all:
            return self._first_device(request, index, request_index, sub, k, start)
        candidate = self._candidates[request].found[k]
        if not self._take_all(claim, index, request, candidate):
            return _NONE
        found = self._one(index, request_index, sub, k + 1, 0)
        if found is not _FOUND:
            self._give_back(index, request, candidate.device)
        return found

    def _first_available(self, claim: PreparedClaim, index: int, request_index: int) -> Outcome:
        exceeded = True
        for sub in range(len(claim.requests[request_index])):
            found = self._one(index, request_index, sub, 0, 0)
            if found is _EXCEEDED:
                continue
            exceeded = False
            if found is _FOUND:
                self.selected[index][request_index] = sub
                return _FOUND
        return _EXCEEDED if exceeded else _NONE

    def _first_device(
        self, request: PreparedRequest, index: int, request_index: int, sub: int, k: int, start: int
    ) -> Outcome:
        candidates = self._candidates[request]
        allocating, admin, found_candidates = self._allocating, request.admin_access, candidates.found
        failed: set[Hashable] = set()
        position, proved = start, self.steps
        while position < len(found_candidates) or candidates.has(position):
            if self.steps - proved > _LONG:
                if not self._bounds.allow(index, request_index, sub, request.count - k, position):
                    return _NONE
                proved = self.steps
            candidate = found_candidates[position]
            position += 1
            device = candidate.device
            holders = allocating.get(device.key)
            if holders and (not admin or index in holders):
                continue
            if candidate.error:
                raise AllocationError(candidate.error)
            self.steps += 1
            if failed and self._equivalence_key(device) in failed:
                continue
            if not self._take(index, request, candidate):
                continue
            found = self._one(index, request_index, sub, k + 1, position)
            if found is _FOUND:
                return found
            self._give_back(index, request, device)
            if found is _EXCEEDED:
                return found
            if self.steps > _LONG and self._equivalents.exist:
                failed.add(self._equivalence_key(device))
        return _NONE

    @cached_property
    def _bounds(self) -> Bounds:
        return Bounds(
            self._claims,
            self._candidates,
            self._constraints,
            self._allocating,
            self._counters,
            self._pools,
            self._allocated,
            self._features,
        )

    @cached_property
    def _equivalents(self) -> EquivalentDevices:
        return EquivalentDevices(self._candidates, self._constraints, self._pools, self._allocated)

    def _equivalence_key(self, device: SliceDevice) -> Hashable:
        """Equal for devices that are equivalent in the current state."""
        found = self._equivalents.key(device)
        if device.key in self._shares:
            return found, self._shares[device.key], tuple(sorted(self._capacity[device.key].items()))
        return found

    # One device

    def _take_all(
        self, claim: PreparedClaim, index: int, request: PreparedRequest, candidate: Candidate
    ) -> bool:
        """Allocates a device of a request for all devices, if it may be.

        Raises:
            AllocationError: a constraint forbids it.
        """
        device = candidate.device
        holders = self._allocating.get(device.key)
        if request.admin_access:
            multiple = device.allow_multiple and self._features.consumable_capacity
            if not multiple and holders and index in holders:
                return False
        elif holders or device.key in self._allocated.taken:
            return False
        return self._take(index, request, candidate, claim)

    def _take(
        self,
        index: int,
        request: PreparedRequest,
        candidate: Candidate,
        all_of: PreparedClaim | None = None,
    ) -> bool:
        """Allocates a device that is free, if capacity, counters, taints and constraints allow it."""
        # allocator_incubating.go: allocateDevice
        device, features = candidate.device, self._features
        key = device.key
        multiple = device.allow_multiple and features.consumable_capacity
        counted = False
        if device.has_counters:
            if not features.partitionable_devices:
                return False
            if all_of is None and key in self._shares and not self._has_room(candidate):
                return False
            if not multiple or not self._is_shared(key):
                if not self._consume_counters(device):
                    return False
                counted = True
        allowed = not (
            device.blocking_taints and features.device_taints and not tolerated(device, request.tolerations)
        )
        if not allowed or not self._add_to_constraints(index, request, device, all_of):
            if counted:
                self._release_counters(device)
            return False
        # Otherwise the candidate's capacity was checked when it was found.
        unchecked = key in self._shares or (
            all_of is not None and features.rules.all_includes_exhausted_devices
        )
        if unchecked and not self._has_room(candidate):
            self._remove_from_constraints(index, request)
            if counted:
                self._release_counters(device)
            return False
        if multiple:
            self._shares[key] = self._shares.get(key, 0) + 1
            used = self._capacity.setdefault(key, {})
            for name, amount in candidate.consumption.items():
                used[name] = used.get(name, 0) + amount.nano
        else:
            self._allocating.setdefault(key, []).append(index)
        self.chosen[index].append(Chosen(request, device, multiple, counted, candidate.consumption))
        return True

    def _give_back(self, index: int, request: PreparedRequest, device: SliceDevice) -> None:
        self._remove_from_constraints(index, request)
        key, chosen = device.key, self.chosen[index].pop()
        if chosen.counted:
            self._release_counters(device)
        if not chosen.is_shared:
            self._allocating[key].remove(index)
            return
        used = self._capacity[key]
        for name, amount in chosen.consumption.items():
            used[name] -= amount.nano
        self._shares[key] -= 1
        if not self._shares[key]:
            del self._shares[key], self._capacity[key]

    def _has_room(self, candidate: Candidate) -> bool:
        """Whether the device has the capacity, beside what others and this search already use of it."""
        key = candidate.device.key
        capacities, used = candidate.device.content.capacities, self._allocated.used(key)
        return fits(capacities, candidate.consumption, used, self._capacity.get(key, _NOTHING))

    def _is_shared(self, key: DeviceKey) -> bool:
        """Whether a share of the device exists already, which consumes its counters."""
        allocated = self._allocated
        return (
            key in self._shares
            or key in allocated.used_capacity
            or (self._features.rules.share_without_capacity_is_use and key in allocated.shared)
        )

    def _add_to_constraints(
        self, index: int, request: PreparedRequest, device: SliceDevice, all_of: PreparedClaim | None
    ) -> bool:
        constraints = self._constraints[index]
        for added, constraint in enumerate(constraints):
            if not constraint.add(request, device):
                if all_of is not None:
                    raise AllocationError(
                        f"claim {all_of.claim.key}, request {request.name}: cannot add device "
                        f"{'/'.join(device.key)} because a claim constraint would not be satisfied"
                    )
                for earlier in constraints[:added]:
                    earlier.remove(request)
                return False
        return True

    def _remove_from_constraints(self, index: int, request: PreparedRequest) -> None:
        for constraint in self._constraints[index]:
            constraint.remove(request)

    # Counters

    def _consume_counters(self, device: SliceDevice) -> bool:
        key = device.pool_key
        available = self._available.get(key)
        if available is None:
            available = self._pools.by_key[key].available_counters(self._allocated)
            self._available[key] = available
        used = self._counters.setdefault(key, {})
        for counter, amount in device.counters:
            used[counter] = used.get(counter, 0) + amount
        if all(left >= used.get(counter, 0) for counter, left in available.items()):
            return True
        self._release_counters(device)
        return False

    def _release_counters(self, device: SliceDevice) -> None:
        used = self._counters[device.pool_key]
        for counter, amount in device.counters:
            used[counter] -= amount
