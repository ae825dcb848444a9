"""Consumable capacity: how much of a device one allocation takes.

A device that allows multiple allocations is shared: each takes a part of its capacities, rounded up to what
the request policy allows. Amounts are exact, in nano units.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from bayplan.api.devices import CapacityRequestPolicy, DeviceCapacity
from bayplan.api.meta import Quantity
from bayplan.api.quantity import NANO, canonical_quantity, parse_quantity, quantity_text, whole_units

CapacityRequests = tuple[tuple[str, Quantity], ...]
"""Requested capacities by name, in order of the names."""


class Amount(NamedTuple):
    """A quantity: exact, and as it is written."""

    nano: int
    text: str


Consumption = dict[str, Amount]


class Policy(NamedTuple):
    """A request policy with its quantities parsed."""

    default: Amount | None
    valid_values: tuple[Amount, ...]
    has_range: bool
    min: Amount | None
    max: Amount | None
    step: Amount | None


class Capacity(NamedTuple):
    value: Amount
    policy: Policy | None


def parse_capacity(capacity: DeviceCapacity) -> Capacity:
    policy = capacity.request_policy
    return Capacity(_amount(capacity.value), None if policy is None else _policy(policy))


def capacity_requests(requests: Mapping[str, Quantity]) -> CapacityRequests:
    return tuple(sorted(requests.items()))


def consumption(capacities: Mapping[str, Capacity], requests: CapacityRequests) -> Consumption | None:
    """What an allocation takes of each capacity; None if a policy forbids it or a capacity is missing."""
    requested = dict(requests)
    if not requested.keys() <= capacities.keys():
        return None
    taken: Consumption = {}
    for name, capacity in capacities.items():
        quantity = requested.get(name)
        amount = _consumed(None if quantity is None else _amount(quantity), capacity)
        if capacity.policy is not None and _violates(amount, capacity.policy):
            return None
        taken[name] = amount
    return taken


def fits(
    capacities: Mapping[str, Capacity],
    taken: Consumption,
    used: Mapping[str, int],
    allocating: Mapping[str, int],
) -> bool:
    """Whether the consumption fits beside what others use already."""
    for name, amount in taken.items():
        if amount.nano + used.get(name, 0) + allocating.get(name, 0) > capacities[name].value.nano:
            return False
    return True


def _consumed(requested: Amount | None, capacity: Capacity) -> Amount:
    policy = capacity.policy
    if requested is None:
        return capacity.value if policy is None or policy.default is None else policy.default
    if policy is None:
        return requested
    if policy.min is not None:
        return _rounded_to_range(requested, policy.min, policy.step)
    return next((valid for valid in policy.valid_values if requested.nano <= valid.nano), requested)


def _rounded_to_range(requested: Amount, lowest: Amount, step: Amount | None) -> Amount:
    if requested.nano < lowest.nano:
        return lowest
    if step is None or not step.nano:
        return requested
    first, by = whole_units(lowest.nano), whole_units(step.nano)
    nano = (first + by * -(-(whole_units(requested.nano) - first) // by)) * NANO
    return Amount(nano, quantity_text(nano, binary=True))


def _violates(amount: Amount, policy: Policy) -> bool:
    if policy.default is not None and amount.nano == policy.default.nano:
        return False
    if policy.has_range:
        if policy.max is not None and amount.nano > policy.max.nano:
            return True
        if policy.step is None or not policy.step.nano:
            return False
        lowest = 0 if policy.min is None else whole_units(policy.min.nano)
        return (whole_units(amount.nano) - lowest) % whole_units(policy.step.nano) != 0
    return bool(policy.valid_values) and all(amount.nano != valid.nano for valid in policy.valid_values)


def _policy(policy: CapacityRequestPolicy) -> Policy:
    limits = policy.valid_range
    return Policy(
        _optional(policy.default),
        tuple(map(_amount, policy.valid_values)),
        limits is not None,
        None if limits is None else _optional(limits.min),
        None if limits is None else _optional(limits.max),
        None if limits is None else _optional(limits.step),
    )


def _optional(quantity: Quantity | None) -> Amount | None:
    return None if quantity is None else _amount(quantity)


def _amount(quantity: Quantity) -> Amount:
    return Amount(parse_quantity(quantity), canonical_quantity(quantity))
