"""The devices of a node that may satisfy a request, and the constraints between the devices of a claim.

`Candidates` are found lazily; what never changes during a search is checked there, once. A `Constraint`
depends on the devices that were chosen before: they must agree in an attribute, or differ in it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from bayplan.api.devices import Device, DeviceConstraint, DeviceToleration
from bayplan.api.pod import tolerates
from bayplan.api.release import DeviceFeatures
from bayplan.api.releases import DeviceRules
from bayplan.dra.allocated import AllocatedState
from bayplan.dra.content import Consumption, SelectorProblem, fits
from bayplan.dra.pools import NodePools, SliceDevice
from bayplan.dra.requests import PreparedClaim, PreparedRequest
from bayplan.errors import AllocationError

Value = tuple[str, object]
"""The type of an attribute, and its value."""

_UNKNOWN: Value = ("", None)


class Constraint(ABC):
    """Restricts the devices of a claim, depending on those that were chosen before, in one search."""

    def __init__(self, attribute: str, requests: Iterable[str] = ()) -> None:
        self._attribute = attribute
        self._requests = frozenset(requests)
        """Names of requests, or of alternatives (`request/sub`); empty for all requests of the claim."""

    def applies_to(self, request: PreparedRequest) -> bool:
        names = self._requests
        return not names or request.parent in names or request.full_name in names

    def value(self, device: SliceDevice) -> Value | None:
        """The attribute of a device; None if it has none."""
        return attribute_value(device.device, device.key[0], self._attribute)

    @abstractmethod
    def may_add(self, value: Value | None) -> bool:
        """Whether a device with this value may be added."""

    def add(self, request: PreparedRequest, device: SliceDevice) -> bool:
        """Adds a device for a request, if it may be added."""
        if not self.applies_to(request):
            return True
        value = self.value(device)
        if value is None or not self.may_add(value):
            return False
        self._add(request, value)
        return True

    @abstractmethod
    def _add(self, request: PreparedRequest, value: Value) -> None: ...

    @abstractmethod
    def remove(self, request: PreparedRequest) -> None:
        """Removes the device that was added last for this request."""


class MatchAttribute(Constraint):
    """All devices have the same value of the attribute."""

    def __init__(self, attribute: str, requests: Iterable[str] = ()) -> None:
        super().__init__(attribute, requests)
        self._devices = 0
        self.expected: Value | None = None
        """The value of the devices; None while there are none."""

    def may_add(self, value: Value | None) -> bool:
        if self.expected is None:
            return value is not None
        return value == self.expected and value != _UNKNOWN

    def _add(self, request: PreparedRequest, value: Value) -> None:
        self.expected = value
        self._devices += 1

    def remove(self, request: PreparedRequest) -> None:
        if self.applies_to(request):
            self._devices -= 1
            if not self._devices:
                self.expected = None


class DistinctAttribute(Constraint):
    """Devices differ in the attribute, each from all others."""

    def __init__(self, attribute: str, requests: Iterable[str] = ()) -> None:
        super().__init__(attribute, requests)
        self._values: list[Value] = []

    def may_add(self, value: Value | None) -> bool:
        return value is not None and not any(value in (known, _UNKNOWN) for known in self._values)

    def _add(self, request: PreparedRequest, value: Value) -> None:
        self._values.append(value)

    def remove(self, request: PreparedRequest) -> None:
        if self.applies_to(request):
            self._values.pop()


class DistinctAttributeByRequest(Constraint):
    """Devices differ in the attribute, as v1.36 understands it.

    One value is stored for each request, not for each device: of a request for several devices only the last
    one counts, and taking back a device forgets the value of its request.
    """

    def __init__(self, attribute: str, requests: Iterable[str] = ()) -> None:
        super().__init__(attribute, requests)
        self._devices = 0
        self._values: dict[str, Value] = {}

    def may_add(self, value: Value | None) -> bool:
        if value is None:
            return False
        return not self._devices or not any(value in (known, _UNKNOWN) for known in self._values.values())

    def _add(self, request: PreparedRequest, value: Value) -> None:
        self._values[request.parent] = value
        self._devices += 1

    def remove(self, request: PreparedRequest) -> None:
        if self.applies_to(request):
            self._values.pop(request.parent, None)
            self._devices -= 1


def make_constraint(constraint: DeviceConstraint, rules: DeviceRules) -> Constraint | None:
    """The constraint, to be used in one search; None if it has no supported field."""
    if constraint.match_attribute is not None:
        return MatchAttribute(constraint.match_attribute, constraint.requests)
    if constraint.distinct_attribute is not None:
        distinct = DistinctAttribute if rules.distinct_over_all_devices else DistinctAttributeByRequest
        return distinct(constraint.distinct_attribute, constraint.requests)
    return None


def attribute_value(device: Device, driver: str, name: str) -> Value | None:
    """The attribute `domain/id` of a device; without a domain its attributes belong to the driver."""
    # allocator_incubating.go: lookupAttribute
    attribute = device.attributes.get(name)
    if attribute is None:
        domain, slash, identifier = name.partition("/")
        if not slash or domain != driver:
            return None
        attribute = device.attributes.get(identifier)
        if attribute is None:
            return None
    if attribute.string_value is not None:
        return "string", attribute.string_value
    if attribute.int_value is not None:
        return "int", attribute.int_value
    if attribute.bool_value is not None:
        return "bool", attribute.bool_value
    if attribute.version_value is not None:
        return "version", attribute.version_value
    return _UNKNOWN


OPTIONAL_FIELDS_HINT: Final = (
    ". consider using CEL optional chaining (.? followed by orValue()) "
    "or guarding the check with has() for optional fields"
)

_NOTHING: Final[Mapping[str, int]] = {}


class Candidate(NamedTuple):
    """A device that the search may try for a request."""

    device: SliceDevice
    consumption: Consumption
    """The amount of each capacity of the device that it consumes."""
    error: str
    """Why the selectors cannot be evaluated; raised when the search comes to the device while it is free."""


class Chosen(NamedTuple):
    """A device that was chosen for a request."""

    request: PreparedRequest
    device: SliceDevice
    is_shared: bool
    """Whether the device can be shared."""
    counted: bool
    """Whether it consumes counters that no other share of it does."""
    consumption: Consumption


class Candidates:
    """The candidates of one request, in order. What never changes during a search is checked here, once."""

    __slots__ = ("_allocated", "_claim", "_features", "_next", "_pools", "_request", "found")

    def __init__(
        self,
        claim: PreparedClaim,
        request: PreparedRequest,
        pools: NodePools,
        allocated: AllocatedState,
        features: DeviceFeatures,
    ) -> None:
        self._claim = claim
        self._request = request
        self._pools = pools
        self._allocated = allocated
        self._features = features
        self._next = 0
        self.found: list[Candidate] = []

    def has(self, index: int) -> bool:
        """Whether there is a candidate with this index."""
        found = self.found
        if index < len(found):
            return True
        devices, free = self._pools.devices, not self._request.admin_access
        taken = self._allocated.taken
        while self._next < len(devices):
            device = devices[self._next]
            self._next += 1
            if free and device.key in taken:
                continue
            candidate = self._checked(device)
            if candidate is not None:
                found.append(candidate)
                return True
        return False

    def find_all(self) -> None:
        """Finds all candidates now."""
        index = len(self.found)
        while self.has(index):
            index += 1

    def all_devices(self) -> list[Candidate]:
        """The devices of a request for all devices, including those in use.

        Raises:
            AllocationError: a pool is incomplete or invalid, or a selector cannot be evaluated.
        """
        for pool in self._pools.pools:
            if not pool.is_usable:
                state = "being updated" if pool.is_incomplete else "invalid"
                raise AllocationError(
                    f"claim {self._claim.claim.key}, request {self._request.name}: asks for all devices, "
                    f"but resource pool {'/'.join(pool.key)} is currently {state}"
                )
            for device in pool.devices:
                candidate = self._checked(device)
                if candidate is not None:
                    if candidate.error:
                        raise AllocationError(candidate.error)
                    self.found.append(candidate)
        return self.found

    def _checked(self, device: SliceDevice) -> Candidate | None:
        features, request = self._features, self._request
        if device.device.binding_conditions and not features.binding_conditions:
            return None
        matches = device.content.matches(request.selectors)
        if isinstance(matches, SelectorProblem):
            return Candidate(
                device, {}, selector_error(self._claim, request, matches, device, features.rules)
            )
        if not matches:
            return None
        if device.selection is not None:
            try:
                if not self._pools.is_on_node(device):
                    return None
            except AllocationError as error:
                return Candidate(device, {}, str(error))
        consumption: Consumption = {}
        content = device.content
        if features.consumable_capacity and (content.capacities or request.capacity):
            consumed = content.consumption(request.capacity, features)
            if isinstance(consumed, str):
                name = device.device.name if request.is_all else "/".join(device.key)
                where = f"claim {self._claim.claim.key}, request {request.name}"
                return Candidate(device, {}, f"{where}: checking capacity for device {name}: {consumed}")
            used = self._allocated.used(device.key)
            if request.is_all and features.rules.all_includes_exhausted_devices:
                used = _NOTHING  # The search checks what is left, and fails.
            if consumed is None or not fits(content.capacities, consumed, used, _NOTHING):
                return None
            consumption = consumed
        if request.is_all:
            return Candidate(device, consumption, "")
        if device.has_counters:
            # The search has to come to its taints: see `Search`.
            return Candidate(device, consumption, "") if features.partitionable_devices else None
        if device.blocking_taints and features.device_taints and not tolerated(device, request.tolerations):
            return None
        return Candidate(device, consumption, "")


def selector_error(
    claim: PreparedClaim,
    request: PreparedRequest,
    problem: SelectorProblem,
    device: SliceDevice,
    rules: DeviceRules,
) -> str:
    """The text of a selector that cannot be evaluated."""
    of = f"claim {claim.claim.key}"
    if problem.of_class and request.class_ is not None:
        of = f"class {request.class_.name}"
    if not problem.is_runtime or not rules.cel_error_names_device:
        return f"{of}: selector #{problem.index}: {problem.problem}"
    hint = OPTIONAL_FIELDS_HINT if "no such key:" in problem.problem else ""
    return f"{of}: selector #{problem.index} on device {'/'.join(device.key)}: {problem.problem}{hint}"


def tolerated(device: SliceDevice, tolerations: Sequence[DeviceToleration]) -> bool:
    """Whether every taint that keeps the device from being allocated is tolerated."""
    return all(any(tolerates(one, taint) for one in tolerations) for taint in device.blocking_taints)
