"""The search for devices on one node: depth first, and the first complete solution is taken.

The order of everything is kube-scheduler's, so that the same devices are chosen: claims, requests and
alternatives in order, within a request only combinations in the order of the devices, and the last choice is
changed first. Where upstream forgets to take something back after a failed step (counters of a device that a
taint or constraint rules out, or that allows multiple allocations), so does this.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final

from bayplan.api.devices import DeviceTaint, DeviceToleration
from bayplan.api.tolerations import EQUAL, EXISTS
from bayplan.devices.allocated import AllocatedState
from bayplan.devices.capacity import Consumption, fits
from bayplan.devices.constraints import Constraint, make_constraint
from bayplan.devices.errors import AllocationError
from bayplan.devices.features import Features
from bayplan.devices.pools import CounterKey, DeviceKey, NodePools, SliceDevice
from bayplan.devices.requests import MAX_RESULTS, PreparedClaim, PreparedRequest
from bayplan.devices.results import Chosen
from bayplan.devices.selectors import SelectorProblem

_NOTHING: Final[Mapping[str, int]] = {}
_CHECK_EVERY: Final = 256
"""Steps between two looks at the clock."""


class Outcome(Enum):
    FOUND = 1
    NONE = 2
    EXCEEDED = 3
    """More devices than a claim may have."""


_FOUND, _NONE, _EXCEEDED = Outcome.FOUND, Outcome.NONE, Outcome.EXCEEDED


class Search:
    """One search. `run` says whether there is a solution; `chosen` and `selected` are it."""

    def __init__(
        self,
        pools: NodePools,
        claims: Sequence[PreparedClaim],
        allocated: AllocatedState,
        available: dict[str, Mapping[CounterKey, int]],
        features: Features,
        new_share_id: Callable[[], str],
        check_deadline: Callable[[], None] | None = None,
    ) -> None:
        self._pools = pools
        self._devices = pools.devices
        self._claims = claims
        self._allocated = allocated
        self._taken = allocated.taken
        self._available = available
        self._features = features
        self._new_share_id = new_share_id
        self._check_deadline = check_deadline
        self._steps = 0
        self._all: dict[PreparedRequest, list[SliceDevice]] = {}
        self._constraints: list[list[Constraint]] = []
        self._allocating: dict[DeviceKey, list[int]] = {}
        """Devices that are taken in this search, with the indexes of their claims."""
        self._capacity: dict[DeviceKey, dict[str, int]] = {}
        """Capacity of shared devices that is used in this search."""
        self._counters: dict[str, dict[CounterKey, int]] = {}
        """Counters that are used in this search, by the name of the pool."""
        self.chosen: list[list[Chosen]] = [[] for _ in claims]
        self.selected: list[list[int]] = [[0] * len(claim.requests) for claim in claims]

    def run(self) -> bool:
        """Whether all claims can be allocated.

        Raises:
            AllocationError: a claim cannot be allocated as it is.
        """
        for claim in self._claims:
            self._prepare(claim)
        depth = sum(
            3 + 3 * len(claim.requests) + min(MAX_RESULTS, 1 + sum(map(self._most, claim.requests)))
            for claim in self._claims
        )
        if depth < sys.getrecursionlimit() // 2:
            return self._one(0, 0, -1, 0, 0) is _FOUND
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(limit + 2 * depth)
        try:
            return self._one(0, 0, -1, 0, 0) is _FOUND
        finally:
            sys.setrecursionlimit(limit)

    def _most(self, options: Sequence[PreparedRequest]) -> int:
        return max(map(self._count, options))

    # Before the search

    def _prepare(self, claim: PreparedClaim) -> None:
        spec = claim.claim.spec.devices
        if not claim.is_plain:
            least = 0
            for options in claim.requests:
                least += min([self._prepare_request(claim, request) for request in options])
            if least > MAX_RESULTS:
                raise AllocationError(
                    f"claim {claim.claim.key}: number of requested devices {least} "
                    f"exceeds the claim limit of {MAX_RESULTS}"
                )
        constraints = []
        for index, one in enumerate(spec.constraints):
            constraint = make_constraint(one)
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
        if not request.is_all:
            return request.count
        found = self._all[request] = []
        for pool in self._pools.pools:
            if not pool.is_usable:
                state = "being updated" if pool.is_incomplete else "invalid"
                raise AllocationError(
                    f"claim {claim.claim.key}, request {request.name}: asks for all devices, "
                    f"but resource pool {'/'.join(pool.key)} is currently {state}"
                )
            found += [
                device
                for device in pool.devices
                if self._is_selectable(claim, request, device)
                and self._consumption(request, device) is not None
            ]
        return len(found)

    # The search

    def _one(self, index: int, request_index: int, sub: int, k: int, start: int) -> Outcome:
        """Finds device number `k` of a request; `sub` is the alternative that is being tried, or -1."""
        self._steps += 1
        if self._check_deadline is not None and self._steps % _CHECK_EVERY == 0:
            self._check_deadline()
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
        needed = self._count(request)
        if request.is_all and not needed:
            return _NONE
        if k >= needed:
            return self._one(index, request_index + 1, -1, 0, 0)
        if len(self.chosen[index]) + needed - k > MAX_RESULTS:
            return _EXCEEDED
        if request.is_all:
            device = self._all[request][k]
            if not self._take(claim, index, request, device):
                return _NONE
            found = self._one(index, request_index, sub, k + 1, 0)
            if found is not _FOUND:
                self._give_back(index, request, device)
            return found
        return self._first_device(claim, index, request_index, sub, k, start)

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
        self, claim: PreparedClaim, index: int, request_index: int, sub: int, k: int, start: int
    ) -> Outcome:
        request = claim.requests[request_index][sub]
        devices = self._devices
        for position in range(start, len(devices)):
            device = devices[position]
            if (
                self._is_used(index, request, device)
                or not self._is_selectable(claim, request, device)
                or self._consumption(request, device) is None
                or not self._take(claim, index, request, device)
            ):
                continue
            found = self._one(index, request_index, sub, k + 1, position + 1)
            if found is _FOUND:
                return found
            self._give_back(index, request, device)
            if found is _EXCEEDED:
                return found
        return _NONE

    def _count(self, request: PreparedRequest) -> int:
        return len(self._all[request]) if request.is_all else request.count

    # One device

    def _is_used(self, index: int, request: PreparedRequest, device: SliceDevice) -> bool:
        key = device.key
        if request.admin_access:
            return index in self._allocating.get(key, ())
        return key in self._taken or bool(self._allocating.get(key))

    def _is_selectable(self, claim: PreparedClaim, request: PreparedRequest, device: SliceDevice) -> bool:
        if device.device.binding_conditions and not self._features.binding_conditions:
            return False
        found = device.content.matches(request.selectors)
        if found is True:
            return device.selection is None or self._pools.is_on_node(device)
        if isinstance(found, SelectorProblem):
            of = f"claim {claim.claim.key}"
            if found.of_class and request.class_ is not None:
                of = f"class {request.class_.name}"
            raise AllocationError(f"{of}: selector #{found.index}: {found.problem}")
        return False

    def _consumption(self, request: PreparedRequest, device: SliceDevice) -> Consumption | None:
        """What the request takes of the device's capacity now; None where there is not enough left."""
        content = device.content
        if not self._features.consumable_capacity or (not content.capacities and not request.capacity):
            return {}
        taken = content.consumption(request.capacity)
        if taken is None:
            return None
        used, here = self._allocated.used(device.key), self._capacity.get(device.key, _NOTHING)
        return taken if fits(content.capacities, taken, used, here) else None

    def _take(self, claim: PreparedClaim, index: int, request: PreparedRequest, device: SliceDevice) -> bool:
        """Allocates the device, if it may be."""
        features, key = self._features, device.key
        multiple = device.allow_multiple and features.consumable_capacity
        if (
            request.is_all
            and self._is_used(index, request, device)
            and not (multiple and request.admin_access)
        ):
            return False
        if device.counters or device.device.consumes_counters:
            if not features.partitionable_devices:
                return False
            shared = multiple and (key in self._allocated.used_capacity or key in self._capacity)
            if not shared and not self._consume_counters(device):
                return False
        if device.blocking_taints and features.device_taints and not tolerated(device, request.tolerations):
            return False
        constraints = self._constraints[index]
        for added, constraint in enumerate(constraints):
            if not constraint.add(request.parent, request.full_name, device):
                if request.is_all:
                    raise AllocationError(
                        f"claim {claim.claim.key}, request {request.name}: cannot add device {'/'.join(key)} "
                        "because a claim constraint would not be satisfied"
                    )
                for earlier in constraints[:added]:
                    earlier.remove(request.parent, request.full_name)
                return False
        if not multiple:
            self._allocating.setdefault(key, []).append(index)
        consumed = self._consumption(request, device) if request.is_all or multiple else {}
        if consumed is None:
            return False
        share_id = None
        if multiple:
            share_id = self._new_share_id()
            used = self._capacity.setdefault(key, {})
            for name, amount in consumed.items():
                used[name] = used.get(name, 0) + amount.nano
        self.chosen[index].append(Chosen(request, device, share_id, consumed if multiple else None))
        return True

    def _give_back(self, index: int, request: PreparedRequest, device: SliceDevice) -> None:
        for constraint in self._constraints[index]:
            constraint.remove(request.parent, request.full_name)
        chosen = self.chosen[index].pop()
        if chosen.share_id is not None:
            if chosen.consumed:
                used = self._capacity.get(device.key)
                if used is not None:
                    for name, amount in chosen.consumed.items():
                        used[name] -= amount.nano
                    if not any(used.values()):
                        del self._capacity[device.key]
            return
        self._allocating[device.key].remove(index)
        if device.counters:
            self._release_counters(device)

    # Counters

    def _consume_counters(self, device: SliceDevice) -> bool:
        pool = self._pools.by_key[device.pool_key]
        name = device.pool_key[1]
        available = self._available.get(name)
        if available is None:
            available = self._available[name] = pool.available_counters(self._allocated)
        used = self._counters.setdefault(name, {})
        for counter, amount in device.counters:
            used[counter] = used.get(counter, 0) + amount
        if all(left >= used.get(counter, 0) for counter, left in available.items()):
            return True
        self._release_counters(device)
        return False

    def _release_counters(self, device: SliceDevice) -> None:
        used = self._counters[device.pool_key[1]]
        for counter, amount in device.counters:
            used[counter] -= amount


def tolerated(device: SliceDevice, tolerations: Sequence[DeviceToleration]) -> bool:
    """Whether every taint that keeps the device from being allocated is tolerated."""
    return all(any(tolerates(one, taint) for one in tolerations) for taint in device.blocking_taints)


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Whether this toleration covers this taint; an empty key or effect stands for all of them."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", EQUAL):
        return toleration.value == taint.value
    return toleration.operator == EXISTS
