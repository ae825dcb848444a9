"""Constraints of a claim: devices that must agree in an attribute, or differ in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from bayplan.api.devices import Device
from bayplan.api.releases import DeviceRules
from bayplan.api.resource_claims import DeviceConstraint
from bayplan.dra.pools import SliceDevice

Value = tuple[str, object]
"""The type of an attribute, and its value."""

_UNKNOWN: Value = ("", None)


class Constraint(Protocol):
    """Restricts the devices of a claim, depending on those that were chosen before."""

    def add(self, request: str, name: str, device: SliceDevice) -> bool:
        """Adds a device for a request (`name` is its alternative, `request/sub`), if it may be added."""

    def remove(self, request: str, name: str) -> None:
        """Removes the device that was added last for this request."""


class _Attribute:
    __slots__ = ("_name", "_requests")

    def __init__(self, name: str, requests: Iterable[str]) -> None:
        self._name = name
        self._requests = frozenset(requests)

    def _applies(self, request: str, name: str) -> bool:
        requests = self._requests
        return not requests or request in requests or name in requests

    def _value(self, device: SliceDevice) -> Value | None:
        return attribute_value(device.device, device.key[0], self._name)


class MatchAttribute(_Attribute):
    """All devices have the same value of the attribute."""

    __slots__ = ("_devices", "_expected")

    def __init__(self, name: str, requests: Iterable[str] = ()) -> None:
        super().__init__(name, requests)
        self._devices = 0
        self._expected: Value = _UNKNOWN

    def add(self, request: str, name: str, device: SliceDevice) -> bool:
        if not self._applies(request, name):
            return True
        value = self._value(device)
        if value is None:
            return False
        if not self._devices:
            self._expected = value
        elif value != self._expected or value == _UNKNOWN:
            return False
        self._devices += 1
        return True

    def remove(self, request: str, name: str) -> None:
        if self._applies(request, name):
            self._devices -= 1


class DistinctAttribute(_Attribute):
    """Devices differ in the attribute, each from all others."""

    __slots__ = ("_values",)

    def __init__(self, name: str, requests: Iterable[str] = ()) -> None:
        super().__init__(name, requests)
        self._values: list[Value] = []

    def add(self, request: str, name: str, device: SliceDevice) -> bool:
        if not self._applies(request, name):
            return True
        value = self._value(device)
        if value is None or any(value in (known, _UNKNOWN) for known in self._values):
            return False
        self._values.append(value)
        return True

    def remove(self, request: str, name: str) -> None:
        if self._applies(request, name):
            self._values.pop()


class DistinctAttributeByRequest(_Attribute):
    """Devices differ in the attribute, as v1.36 understands it.

    One value is stored for each request, not for each device: of a request for several devices only the last
    one counts, and taking back a device forgets the value of its request.
    """

    __slots__ = ("_devices", "_values")

    def __init__(self, name: str, requests: Iterable[str] = ()) -> None:
        super().__init__(name, requests)
        self._devices = 0
        self._values: dict[str, Value] = {}

    def add(self, request: str, name: str, device: SliceDevice) -> bool:
        if not self._applies(request, name):
            return True
        value = self._value(device)
        if value is None:
            return False
        if not self._devices:
            self._values[request] = value
            self._devices = 1
            return True
        if any(value in (known, _UNKNOWN) for known in self._values.values()):
            return False
        self._values[request] = value
        self._devices += 1
        return True

    def remove(self, request: str, name: str) -> None:
        if self._applies(request, name):
            self._values.pop(request, None)
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
