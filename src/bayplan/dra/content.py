"""What selectors and capacity requests see of a device: its content.

Devices of one model differ in their name and little else, and often in nothing that selectors see. Equal
contents are one object (`DeviceContent`), which caches the results of every `SelectorSet` and capacity
request that was evaluated for it.

A device that allows multiple allocations is shared: each consumes a part of its capacities, rounded up to a
value that the request policy allows. Amounts are exact, in nano units.

CEL is imported when the first selector is evaluated: most clusters have none, and it is a tenth of what a
command imports.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from bayplan.api.devices import CapacityRequestPolicy, Device, DeviceAttribute, DeviceCapacity
from bayplan.api.meta import Quantity
from bayplan.api.quantity import (
    MAX_INT64,
    MILLI,
    NANO,
    canonical_quantity,
    parse_quantity,
    quantity_text,
    quantity_text_like,
    whole_units,
)
from bayplan.api.release import DeviceFeatures

if TYPE_CHECKING:
    from bayplan.cel import DeviceSelector, EvaluationError
    from bayplan.cel.steps import Variables

NOT_REPRESENTABLE: Final = "capacity request cannot be represented in the device's range arithmetic"
NEGATIVE: Final = "capacity value is negative"

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


def consumption(
    capacities: Mapping[str, Capacity], requests: CapacityRequests, features: DeviceFeatures
) -> Consumption | str | None:
    """The amount of each capacity that an allocation consumes.

    None if a policy forbids it or a capacity is missing; a text if the amount cannot be computed and the
    release treats that as an error.
    """
    # consumable_capacity.go: cmpRequestOverCapacity
    requested = dict(requests)
    if not requested.keys() <= capacities.keys():
        return None
    taken: Consumption = {}
    for name in sorted(capacities):
        quantity = requested.get(name)
        amount = _consumed(None if quantity is None else _amount(quantity), capacities[name], features)
        if features.rules.uncomputable_capacity_is_error:
            problem = amount if isinstance(amount, str) else NEGATIVE if amount.nano < 0 else ""
            if problem:
                return f'capacity "{name}": {problem}'
        if isinstance(amount, str):
            return None
        taken[name] = amount
    for name, capacity in capacities.items():
        if capacity.policy is not None and _violates(taken[name], capacity.policy, features):
            return None
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


def _consumed(requested: Amount | None, capacity: Capacity, features: DeviceFeatures) -> Amount | str:
    """The amount that is consumed, or why it cannot be computed."""
    # consumable_capacity.go: calculateConsumedCapacity
    policy = capacity.policy
    if requested is None:
        return capacity.value if policy is None or policy.default is None else policy.default
    if policy is None:
        return requested
    if policy.min is not None:
        return _rounded_to_range(requested, policy, policy.min, features)
    return next((valid for valid in policy.valid_values if requested.nano <= valid.nano), requested)


def _rounded_to_range(
    requested: Amount, policy: Policy, lowest: Amount, features: DeviceFeatures
) -> Amount | str:
    """Rounds up to the lowest value plus a multiple of the step, in whole units or in thousandths."""
    # consumable_capacity.go: roundUpRange
    step = policy.step
    if requested.nano < lowest.nano:
        return lowest
    if step is None or not step.nano:
        return requested
    unit = _unit(policy, features)
    if unit != NANO and (requested.nano % unit or requested.nano > MAX_INT64 * unit):
        return f"{NOT_REPRESENTABLE}: request {requested.text} is not a representable milli value"
    if requested.nano > MAX_INT64 * unit:
        return f"{NOT_REPRESENTABLE}: request {requested.text} exceeds MaxInt64"
    first, by = _units(lowest.nano, unit), _units(step.nano, unit)
    rounded = first + by * -(-(_units(requested.nano, unit) - first) // by)
    if rounded > MAX_INT64:
        limit = "MaxInt64" if unit == NANO else "the milli-value range"
        return f"{NOT_REPRESENTABLE}: rounding request {requested.text} up to the next step passes {limit}"
    nano = rounded * unit
    if features.rules.consumed_capacity_format_of_step:
        return Amount(nano, quantity_text_like(nano, step.text))
    return Amount(nano, quantity_text(nano, binary=True))


def _unit(policy: Policy, features: DeviceFeatures) -> int:
    """The unit in which a range is computed: thousandths if the release does that and all values allow it."""
    values = [value for value in (policy.min, policy.max, policy.step) if value is not None]
    if features.fractional_ranges and all(
        value.nano % MILLI == 0 and value.nano <= MAX_INT64 * MILLI for value in values
    ):
        return MILLI
    return NANO


def _units(nano: int, unit: int) -> int:
    return whole_units(nano) if unit == NANO else nano // unit


def _violates(amount: Amount, policy: Policy, features: DeviceFeatures) -> bool:
    # consumable_capacity.go: violatesPolicy
    if policy.default is not None and amount.nano == policy.default.nano:
        return False
    if policy.has_range:
        if policy.max is not None and amount.nano > policy.max.nano:
            return True
        if policy.step is None or not policy.step.nano:
            return False
        unit = _unit(policy, features)
        if unit != NANO and amount.nano % unit:
            return True
        lowest = 0 if policy.min is None else _units(policy.min.nano, unit)
        return (_units(amount.nano, unit) - lowest) % _units(policy.step.nano, unit) != 0
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


_MAX_RESULTS: Final = 256
"""Maximum number of selector sets whose results a content caches; then the cache is cleared."""

_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class SelectorProblem(msgspec.Struct, frozen=True):
    """A selector that cannot be evaluated for a device."""

    of_class: bool
    index: int
    problem: str
    is_runtime: bool = False
    """Whether it depends on the device; the others do not compile."""


class SelectorSet:
    """The selectors of a class and of a request, in the order in which they are evaluated."""

    __slots__ = ("__weakref__", "of_class", "of_request")

    def __init__(self, of_class: tuple[str, ...], of_request: tuple[str, ...]) -> None:
        self.of_class = of_class
        self.of_request = of_request

    def evaluate(self, variables: Variables | EvaluationError) -> bool | SelectorProblem:
        """Whether all selectors choose a device with these variables."""
        failed = self.first_failed(variables)
        return failed if isinstance(failed, SelectorProblem) else failed is None

    def first_failed(
        self, variables: Variables | EvaluationError
    ) -> tuple[bool, int] | SelectorProblem | None:
        """The first selector that does not choose the device: whether it is the class's, and its index."""
        from bayplan.cel import EvaluationError

        for of_class, expressions in ((True, self.of_class), (False, self.of_request)):
            for index, expression in enumerate(expressions):
                selector = _compiled(expression)
                if isinstance(selector, str):
                    return SelectorProblem(of_class, index, f"CEL compile error: {selector}")
                try:
                    if isinstance(variables, EvaluationError):
                        raise variables
                    if not selector.matches(variables):
                        return of_class, index
                except EvaluationError as error:
                    return SelectorProblem(of_class, index, f"CEL runtime error: {error}", is_runtime=True)
        return None


class DeviceContent:
    """What selectors and capacity requests see of a device: everything but its name and its node."""

    __slots__ = ("__weakref__", "_consumptions", "_device", "_driver", "_results", "_variables", "capacities")

    def __init__(self, driver: str, device: Device) -> None:
        self._driver = driver
        self._device = device
        self._variables: Variables | EvaluationError | None = None
        self._results: dict[SelectorSet, bool | SelectorProblem] = {}
        self._consumptions: dict[tuple[CapacityRequests, DeviceFeatures], Consumption | str | None] = {}
        self.capacities: dict[str, Capacity] = {
            name: parse_capacity(capacity) for name, capacity in device.capacity.items()
        }

    @property
    def variables(self) -> Variables | EvaluationError:
        """The device as selectors see it, or why they cannot."""
        if self._variables is None:
            from bayplan.cel import EvaluationError, device_variables

            device = self._device
            try:
                self._variables = device_variables(
                    self._driver,
                    {name: _raw(attribute) for name, attribute in device.attributes.items()},
                    {name: {"value": capacity.value} for name, capacity in device.capacity.items()},
                    device.allow_multiple_allocations,
                )
            except EvaluationError as error:
                self._variables = error
        return self._variables

    def matches(self, selectors: SelectorSet) -> bool | SelectorProblem:
        """Whether the selectors choose devices with this content."""
        found = self._results.get(selectors)
        if found is None:
            found = selectors.evaluate(self.variables)
            if len(self._results) >= _MAX_RESULTS:
                self._results.clear()
            self._results[selectors] = found
        return found

    def consumption(self, requests: CapacityRequests, features: DeviceFeatures) -> Consumption | str | None:
        """The amount of each capacity that an allocation consumes; None if a policy forbids it."""
        try:
            return self._consumptions[requests, features]
        except KeyError:
            if len(self._consumptions) >= _MAX_RESULTS:
                self._consumptions.clear()
            found = consumption(self.capacities, requests, features)
            self._consumptions[requests, features] = found
            return found


_contents: WeakValueDictionary[bytes, DeviceContent] = WeakValueDictionary()


def device_content(driver: str, device: Device) -> DeviceContent:
    """The content of a device; the same object for all devices that have it."""
    key = _encode((driver, device.attributes, device.capacity, device.allow_multiple_allocations))
    found = _contents.get(key)
    if found is None:
        found = _contents[key] = DeviceContent(driver, device)
    return found


@lru_cache(maxsize=4096)
def selector_set(of_class: tuple[str, ...], of_request: tuple[str, ...]) -> SelectorSet:
    """The set of these expressions; the same object for equal expressions."""
    return SelectorSet(of_class, of_request)


@lru_cache(maxsize=4096)
def _compiled(expression: str) -> DeviceSelector | str:
    from bayplan.cel import CompileError, compile_selector

    try:
        return compile_selector(expression)
    except CompileError as error:
        return str(error)


def _raw(attribute: DeviceAttribute) -> dict[str, object]:
    raw: dict[str, object] = msgspec.to_builtins(attribute)
    return raw
