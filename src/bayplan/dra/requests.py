"""Claims prepared for the search: requests with their classes, selectors and limits.

Errors of a request are found here, and raised when the search reaches it: their order is part of the
behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from bayplan.api.devices import (
    ALL_DEVICES,
    EXACT_COUNT,
    DeviceClass,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from bayplan.api.release import DeviceFeatures
from bayplan.api.releases import DeviceRules
from bayplan.dra.content import capacity_requests, selector_set

MAX_RESULTS: Final = 32
"""Devices of a claim."""

_RequestT = TypeVar("_RequestT", ExactDeviceRequest, DeviceSubRequest)

ClassLister = Callable[[str], DeviceClass | None]

_encode: Final = msgspec.json.Encoder(order="deterministic").encode


def spec_key(claims: Sequence[ResourceClaim]) -> bytes:
    """Equal for claims with equal specs."""
    return _encode([claim.spec for claim in claims])


def content_key(claims: Sequence[ResourceClaim], classes: ClassLister) -> bytes:
    """Equal for claims that get the same devices everywhere: with the content of classes for their names."""
    numbers: dict[str, int] = {}

    def unnamed(of: _RequestT) -> _RequestT:
        number = numbers.setdefault(of.device_class_name, len(numbers))
        return replace(of, device_class_name=str(number))

    specs = [
        [
            [
                (
                    request.name,
                    request.exactly and unnamed(request.exactly),
                    *map(unnamed, request.first_available),
                )
                for request in claim.spec.devices.requests
            ],
            claim.spec.devices.constraints,
            claim.spec.devices.config,
        ]
        for claim in claims
    ]
    found = {name: classes(name) for name in numbers}
    contents = [name if one is None else (one.spec.selectors, one.spec.config) for name, one in found.items()]
    return _encode((specs, contents))


class PreparedRequest:
    """A request, or one alternative of a request."""

    __slots__ = (
        "admin_access", "capacity", "class_", "count", "full_name", "is_all", "mode", "name", "parent",
        "problem", "selectors", "tolerations",
    )  # fmt: skip

    def __init__(
        self,
        claim: ResourceClaim,
        parent: str,
        name: str,
        of: ExactDeviceRequest | DeviceSubRequest,
        class_: DeviceClass | None,
        rules: DeviceRules,
    ) -> None:
        self.parent = parent
        """The request that this is an alternative of; the request itself otherwise."""
        self.name = name
        self.full_name = f"{parent}/{name}" if isinstance(of, DeviceSubRequest) else name
        self.class_ = class_
        self.mode = of.allocation_mode
        self.is_all = of.allocation_mode == ALL_DEVICES
        self.count = of.count
        self.admin_access = isinstance(of, ExactDeviceRequest) and bool(of.admin_access)
        self.tolerations = of.tolerations
        self.capacity = () if of.capacity is None else capacity_requests(of.capacity.requests)
        self.problem = _problem(claim, name, of, class_, rules)
        of_class = () if class_ is None else _expressions(class_.spec.selectors)
        self.selectors = selector_set(of_class, _expressions(of.selectors))


class PreparedClaim:
    """A claim. Every request has one entry in `requests`: its alternatives, or itself alone."""

    __slots__ = ("_is_sound", "claim", "has_alternatives", "requests")

    def __init__(self, claim: ResourceClaim, classes: ClassLister, features: DeviceFeatures) -> None:
        self.claim = claim
        devices = claim.spec.devices
        self.has_alternatives = tuple(bool(request.first_available) for request in devices.requests)
        self.requests: tuple[tuple[PreparedRequest, ...], ...] = tuple(
            _prepared(claim, request, classes, features) for request in devices.requests
        )
        self._is_sound = not any(request.problem for options in self.requests for request in options)

    def use_for(self, claim: ResourceClaim) -> bool:
        """From now on it is this claim, if it asks for the same. Problems name their claim."""
        if claim is not self.claim:
            if not self._is_sound or claim.spec != self.claim.spec:
                return False
            self.claim = claim
        return True


def _prepared(
    claim: ResourceClaim, request: DeviceRequest, classes: ClassLister, features: DeviceFeatures
) -> tuple[PreparedRequest, ...]:
    of: Sequence[ExactDeviceRequest | DeviceSubRequest]
    if request.first_available:
        of = request.first_available
    else:
        of = (ExactDeviceRequest() if request.exactly is None else request.exactly,)
    prepared = tuple(
        PreparedRequest(
            claim,
            request.name,
            one.name if isinstance(one, DeviceSubRequest) else request.name,
            one,
            classes(one.device_class_name) if one.device_class_name else None,
            features.rules,
        )
        for one in of
    )
    if problem := _disabled(claim, request, of, features):
        prepared[0].problem = problem
    return prepared


def _disabled(
    claim: ResourceClaim,
    request: DeviceRequest,
    of: Sequence[ExactDeviceRequest | DeviceSubRequest],
    features: DeviceFeatures,
) -> str:
    if request.first_available and not features.prioritized_list:
        return (
            f"claim {claim.key}, request {request.name}: has subrequests, "
            "but the DRAPrioritizedList feature is disabled"
        )
    if not features.consumable_capacity:
        for one in of:
            if one.capacity is not None:
                what = f"request {request.name}"
                if isinstance(one, DeviceSubRequest):
                    what = f"subrequest {one.name}"
                return (
                    f"claim {claim.key}, {what}: has capacity requests, "
                    "but the DRAConsumableCapacity feature is disabled"
                )
    return ""


def _problem(
    claim: ResourceClaim,
    name: str,
    of: ExactDeviceRequest | DeviceSubRequest,
    class_: DeviceClass | None,
    rules: DeviceRules,
) -> str:
    where = f"claim {claim.key}, request {name}"
    if of.derived_attributes and rules.ignores_compatibility_groups:
        return f"{where}: cannot handle request with derived attributes, the feature is disabled"
    for index, selector in enumerate(of.selectors):
        if selector.cel is None:
            return f"{where}, selector #{index}: CEL expression empty (unsupported selector type?)"
    if not of.device_class_name:
        return f"{where}: missing device class name (unsupported request type?)"
    if class_ is None:
        wanted = of.device_class_name
        return (
            f"{where}: could not retrieve device class {wanted}: "
            f'deviceclass.resource.k8s.io "{wanted}" not found'
        )
    if of.allocation_mode not in (EXACT_COUNT, ALL_DEVICES):
        return f"{where}: unsupported count mode {of.allocation_mode}"
    return ""


def _expressions(selectors: Sequence[DeviceSelector]) -> tuple[str, ...]:
    return tuple("" if one.cel is None else one.cel.expression for one in selectors)
