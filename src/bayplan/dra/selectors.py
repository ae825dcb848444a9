"""Which devices the selectors of a class and a request choose, evaluated once for each device content.

Devices of one model differ in their name and little else, and often in nothing that selectors see.
`DeviceContent` is what they see; equal contents are one object, which caches the results of every
`SelectorSet` that was evaluated for it.

CEL is imported when the first selector is evaluated: most clusters have none, and it is a tenth of what a
command imports.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

import msgspec

from bayplan.api.devices import Device, DeviceAttribute
from bayplan.api.release import DeviceFeatures
from bayplan.dra.capacity import Capacity, CapacityRequests, Consumption, consumption, parse_capacity

if TYPE_CHECKING:
    from bayplan.cel import DeviceSelector, EvaluationError
    from bayplan.cel.attributes import Variables

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
        """The amount of each capacity that an allocation consumes; None if a policy forbids it
        (`capacity.py`)."""
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
def _selector_set(of_class: tuple[str, ...], of_request: tuple[str, ...]) -> SelectorSet:
    return SelectorSet(of_class, of_request)


def selector_set(of_class: Sequence[str], of_request: Sequence[str]) -> SelectorSet:
    """The set of these expressions; the same object for equal expressions."""
    return _selector_set(tuple(of_class), tuple(of_request))


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
