"""Why claims have no devices on a node, for display. Slow: every device is checked for every request.

The search only returns that there is no solution. Here each request is evaluated alone, with the current
devices: which check does every device fail first? If enough devices pass, the request fails only because of
constraints, counters, or other requests for the same devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bayplan.api.devices import ResourceClaim
from bayplan.api.node import Node
from bayplan.dra.allocated import AllocatedState
from bayplan.dra.candidates import make_constraint, selector_error, tolerated
from bayplan.dra.content import SelectorProblem, fits
from bayplan.dra.pools import NodePools, SliceDevice
from bayplan.dra.requests import ClassLister, PreparedClaim, PreparedRequest
from bayplan.dra.state import Inventory
from bayplan.errors import AllocationError


class Failure(StrEnum):
    """The checks that a device can fail, in their order; the last is the nearest miss."""

    SELECTOR = "selector"
    NODE = "node"
    CAPACITY = "capacity"
    IN_USE = "in use"
    COUNTERS = "counters"
    TAINT = "taint"
    CONSTRAINT = "constraint"


_ORDER = tuple(Failure)


@dataclass(frozen=True, slots=True)
class DeviceFailure:
    """Devices that fail one check in the same way."""

    failure: Failure
    detail: str
    devices: int

    def __str__(self) -> str:
        noun = "device" if self.devices == 1 else "devices"
        return f"{self.devices} {noun} {self.detail}"


@dataclass(frozen=True, slots=True)
class RequestExplanation:
    """Why a request, or one alternative of it, has no devices."""

    claim: str
    """`namespace/name`."""
    request: str
    """`request`, or `request/alternative`."""
    needed: int
    """Number of requested devices; 0 for all devices."""
    free: int
    """Devices that pass all checks by themselves."""
    failures: tuple[DeviceFailure, ...]
    """The devices that do not, the nearest miss first."""
    problem: str = ""
    """A problem of the request or the pools, if there is one."""
    constraint: str = ""
    """The constraint of the claim that the free devices cannot meet, if this request alone violates it."""

    @property
    def fails_alone(self) -> bool:
        """Whether the request could not be met even if it were the only one."""
        if self.problem or self.constraint or self.free < max(self.needed, 1):
            return True
        # All devices that are selected and on the node are requested: none of them may fail.
        elsewhere = (Failure.SELECTOR, Failure.NODE)
        return not self.needed and any(one.failure not in elsewhere for one in self.failures)

    @property
    def nearest_miss(self) -> DeviceFailure | None:
        return self.failures[0] if self.failures else None

    @property
    def reasons(self) -> list[str]:
        """Why not more devices than `free` pass."""
        if self.constraint:
            return [self.constraint]
        others = "other " if self.free else ""
        return [str(failure) for failure in self.failures] or [f"the node has no {others}devices"]

    def __str__(self) -> str:
        of = f"claim {self.claim}, request {self.request}"
        if self.problem:
            return f"{of}: {self.problem}"
        wanted = f"{self.free} of {self.needed} devices" if self.needed else f"{self.free} devices"
        return f"{of}: {wanted} available: {'; '.join(self.reasons)}"


def explain(
    inventory: Inventory,
    allocated: AllocatedState,
    classes: ClassLister,
    node: Node,
    claims: Sequence[ResourceClaim],
) -> tuple[RequestExplanation, ...]:
    """One entry for each request and alternative of the claims, in order."""
    try:
        pools = inventory.pools(node)
    except AllocationError as error:
        return tuple(RequestExplanation(claim.key, "", 0, 0, (), str(error)) for claim in claims)
    explainer = _RequestExplainer(inventory, allocated, pools)
    return tuple(
        explainer.explained(prepared, request)
        for claim in claims
        for prepared in [PreparedClaim(claim, classes, inventory.features)]
        for options in prepared.requests
        for request in options
    )


def why_not(explanations: Iterable[RequestExplanation]) -> tuple[RequestExplanation, ...]:
    """The requests that prevent the allocation: those that fail alone, or all if none does."""
    found = tuple(explanations)
    return tuple(one for one in found if one.fails_alone) or found


class _RequestExplainer:
    def __init__(self, inventory: Inventory, allocated: AllocatedState, pools: NodePools) -> None:
        self._features = inventory.features
        self._allocated = allocated
        self._pools = pools

    def explained(self, claim: PreparedClaim, request: PreparedRequest) -> RequestExplanation:
        needed = 0 if request.is_all else request.count
        name, key = request.full_name, claim.claim.key
        if request.problem:
            return RequestExplanation(key, name, needed, 0, (), request.problem)
        free: list[SliceDevice] = []
        counts: Counter[tuple[Failure, str]] = Counter()
        try:
            for device in self._pools.devices:
                failed = self._first_failure(claim, request, device)
                if failed is None:
                    free.append(device)
                else:
                    counts[failed] += 1
        except AllocationError as error:
            return RequestExplanation(key, name, needed, 0, (), str(error))
        failures = [DeviceFailure(failure, detail, devices) for (failure, detail), devices in counts.items()]
        failures += self._violated(claim, request, free)
        failures.sort(key=lambda one: (-_ORDER.index(one.failure), -one.devices))
        problem = "" if failures or free else "; ".join(self._pool_problems())
        constraint = next(self._unmet(claim, request, free, needed or len(free)), "")
        return RequestExplanation(key, name, needed, len(free), tuple(failures), problem, constraint)

    def _first_failure(
        self, claim: PreparedClaim, request: PreparedRequest, device: SliceDevice
    ) -> tuple[Failure, str] | None:
        failed = request.selectors.first_failed(device.content.variables)
        if isinstance(failed, SelectorProblem):
            raise AllocationError(selector_error(claim, request, failed, device, self._features.rules))
        if failed is not None:
            of_class, index = failed
            of = f"class {request.class_.name}" if of_class and request.class_ is not None else "the request"
            selectors = request.selectors.of_class if of_class else request.selectors.of_request
            return Failure.SELECTOR, f"not matched by selector #{index} of {of}: {selectors[index]}"
        if not self._pools.is_on_node(device):
            return Failure.NODE, "for other nodes"
        if problem := self._capacity_problem(claim, request, device):
            return Failure.CAPACITY, problem
        if not request.admin_access and self._allocated.is_taken(device.key):
            return Failure.IN_USE, f"allocated to {', '.join(self._allocated.holders(device.key))}"
        if problem := self._counter_problem(device):
            return Failure.COUNTERS, problem
        if self._features.device_taints and not tolerated(device, request.tolerations):
            taints = ", ".join(f"{taint.key}:{taint.effect}" for taint in device.blocking_taints)
            return Failure.TAINT, f"with taints that are not tolerated ({taints})"
        return None

    def _capacity_problem(self, claim: PreparedClaim, request: PreparedRequest, device: SliceDevice) -> str:
        if not self._features.consumable_capacity:
            return ""
        capacities = device.content.capacities
        missing = [name for name, _ in request.capacity if name not in capacities]
        if missing:
            return f"without capacity {', '.join(missing)}"
        consumption = device.content.consumption(request.capacity, self._features)
        if isinstance(consumption, str):
            raise AllocationError(
                f"claim {claim.claim.key}, request {request.name}: "
                f"checking capacity for device {'/'.join(device.key)}: {consumption}"
            )
        if consumption is None:
            return "whose request policy does not allow the requested capacity"
        used = self._allocated.used(device.key)
        short = [
            name for name, amount in consumption.items() if not fits(capacities, {name: amount}, used, {})
        ]
        if not short:
            return ""
        holders = self._allocated.holders(device.key)
        shared = f", shared by {', '.join(holders)}" if holders else ""
        return f"without enough {', '.join(short)} left{shared}"

    def _counter_problem(self, device: SliceDevice) -> str:
        if not device.has_counters or (device.allow_multiple and device.key in self._allocated.used_capacity):
            return ""
        if not self._features.partitionable_devices:
            return "that consume counters, which is disabled"
        left = self._pools.by_key[device.pool_key].available_counters(self._allocated)
        wanted = dict(device.counters)
        short = [f"{name[0]}/{name[1]}" for name, amount in left.items() if amount < wanted.get(name, 0)]
        return f"whose counters are exhausted ({', '.join(short)})" if short else ""

    def _violated(
        self, claim: PreparedClaim, request: PreparedRequest, free: list[SliceDevice]
    ) -> Iterator[DeviceFailure]:
        """Removes the devices that fail a constraint by themselves, because they lack its attribute."""
        for one in claim.claim.spec.devices.constraints:
            lacking = []
            for device in free:
                constraint = make_constraint(one, self._features.rules)
                if constraint is not None and not constraint.add(request, device):
                    lacking.append(device)
            if lacking:
                free[:] = [device for device in free if device not in lacking]
                attribute = one.match_attribute or one.distinct_attribute
                detail = f"without attribute {attribute}, which a constraint needs"
                yield DeviceFailure(Failure.CONSTRAINT, detail, len(lacking))

    def _unmet(
        self, claim: PreparedClaim, request: PreparedRequest, free: list[SliceDevice], needed: int
    ) -> Iterator[str]:
        """The constraints that the request violates even if it is the only one: no set of free devices, as
        large as needed, meets them."""
        if needed > len(free):
            return
        for one in claim.claim.spec.devices.constraints:
            largest, left = 0, free
            while left and largest < needed:
                constraint = make_constraint(one, self._features.rules)
                if constraint is None:
                    largest = needed
                    break
                accepted = [device for device in free if constraint.add(request, device)]
                largest = max(largest, len(accepted))
                # A set that begins with another device: first those that no set has had.
                left = [device for device in left if device not in accepted]
                free = [*left, *(device for device in free if device not in left)]
            if largest < needed:
                same = "the same" if one.match_attribute else "different values of"
                attribute = one.match_attribute or one.distinct_attribute
                yield (
                    f"the request needs {needed} devices with {same} {attribute}, "
                    f"and at most {largest} of the free ones have that"
                )

    def _pool_problems(self) -> Iterator[str]:
        for pool in self._pools.pools:
            if pool.is_incomplete:
                yield f"resource pool {'/'.join(pool.key)} is being updated"
            elif pool.problem:
                yield f"resource pool {'/'.join(pool.key)} is invalid: {pool.problem}"
