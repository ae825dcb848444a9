"""The allocator: claims and a node in, allocations out.

`search.py` finds the devices. Here is what surrounds it: results that are used again for claims of equal
specs, and the allocation as it is written to the claim.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from bayplan.api.devices import (
    FROM_CLAIM,
    FROM_CLASS,
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from bayplan.api.meta import LabelSelectorRequirement, NodeSelector, NodeSelectorTerm, ResourceList
from bayplan.api.node import Node
from bayplan.api.node_selectors import NAME_FIELD
from bayplan.api.release import DeviceFeatures
from bayplan.dra.allocated import AllocatedState
from bayplan.dra.budget import SearchBudget, StepClock
from bayplan.dra.candidates import Chosen
from bayplan.dra.content import Consumption
from bayplan.dra.pools import CounterKey, NodePools, PoolKey
from bayplan.dra.requests import ClassLister, PreparedClaim, PreparedRequest
from bayplan.dra.search import Search
from bayplan.dra.state import Inventory
from bayplan.errors import AllocationError

_MAX_RESULTS: Final = 16384
"""Results that are kept, at about a kilobyte each."""


@dataclass(frozen=True, slots=True)
class NoFit:
    """The claims cannot be allocated on the node; `reason` is the text of the rejection."""

    reason: str


CANNOT_ALLOCATE: Final = NoFit("cannot allocate all claims")
INVALID_POOLS: Final = NoFit("invalid resource pools were encountered")


Allocations = tuple[AllocationResult, ...] | NoFit


class AllocationCache:
    """What a search leaves for the next one, for claims of the same specs, as long as no DeviceClass changes.

    Pods come and go, and with them the same devices of a node are taken and free again. Where the result
    depends on nothing but which devices are taken, it is found by that. Claims from one template are prepared
    once.
    """

    __slots__ = ("_prepared", "_results")

    def __init__(self) -> None:
        self._prepared: list[PreparedClaim] = []
        self._results: dict[tuple[NodePools, bytes], Allocations] = {}

    def prepared(
        self, claims: Sequence[ResourceClaim], classes: ClassLister, features: DeviceFeatures
    ) -> list[PreparedClaim]:
        """The claims, prepared; what was prepared for others of the same specs is used again."""
        known = self._prepared
        if len(known) != len(claims) or not all(map(PreparedClaim.use_for, known, claims)):
            known = self._prepared = [PreparedClaim(claim, classes, features) for claim in claims]
        return known

    def get(self, pools: NodePools, taken: bytes) -> Allocations | None:
        """The result on a node with these pools and these devices taken, if it is known."""
        return self._results.get((pools, taken))

    def put(self, pools: NodePools, taken: bytes, found: Allocations) -> None:
        if len(self._results) >= _MAX_RESULTS:
            self._results.clear()
        self._results[pools, taken] = found


class Allocator:
    """Finds devices for claims, on one node after the other, for one scheduling attempt.

    Its arguments must not change while it is used. Without a budget searches have no limit.
    """

    def __init__(
        self,
        inventory: Inventory,
        allocated: AllocatedState,
        classes: ClassLister,
        *,
        budget: SearchBudget | None = None,
        make_share_id: Callable[[], str] | None = None,
    ) -> None:
        self._inventory = inventory
        self._allocated = allocated
        self._classes = classes
        self._budget = SearchBudget(StepClock()) if budget is None else budget
        self._make_share_id = make_share_id or new_share_id
        self._cache = AllocationCache()
        self._available: dict[PoolKey, Mapping[CounterKey, int]] = {}

    def allocate(
        self, node: Node, claims: Sequence[ResourceClaim], cache: AllocationCache | None = None
    ) -> Allocations:
        """Allocations of the claims on the node, in their order.

        Args:
            cache: of earlier searches for claims of the same specs.

        Raises:
            AllocationLimitError: the search exceeds its budget.
            AllocationError: a claim cannot be allocated as it is; ends the scheduling attempt.
        """
        pools = self._inventory.pools(node)
        taken = None if cache is None else pools.taken(self._allocated)
        if cache is None or taken is None:
            return self._search(node, pools, claims, cache or self._cache)
        found = cache.get(pools, taken)
        if found is None:
            found = self._search(node, pools, claims, cache)
            cache.put(pools, taken, found)
        return found

    def _search(
        self, node: Node, pools: NodePools, claims: Sequence[ResourceClaim], cache: AllocationCache
    ) -> Allocations:
        features = self._inventory.features
        prepared = cache.prepared(claims, self._classes, features)
        search = Search(
            pools,
            prepared,
            self._allocated,
            self._available,
            features,
            self._budget,
        )
        if not search.run():
            return INVALID_POOLS if pools.has_invalid else CANNOT_ALLOCATE
        return tuple(
            allocation_result(claim, chosen, selected, node.name, features, self._make_share_id)
            for claim, chosen, selected in zip(prepared, search.chosen, search.selected, strict=True)
        )


def new_share_id() -> str:
    """Unique among all schedulers and restarts, so it is not drawn from a seeded generator."""
    return str(uuid.uuid4())


# The allocation as it is written to the claim


def allocation_result(
    claim: PreparedClaim,
    chosen: Sequence[Chosen],
    selected: Sequence[int],
    node_name: str,
    features: DeviceFeatures,
    new_share_id: Callable[[], str],
) -> AllocationResult:
    """The allocation of a claim; `selected` is the index of the alternative that each request got.

    Raises:
        AllocationError: the node selector of a device has several terms.
    """
    requests = [options[index] for options, index in zip(claim.requests, selected, strict=True)]
    try:
        node_selector = _node_selector(chosen, node_name)
    except AllocationError as error:
        raise AllocationError(f"create NodeSelector for claim {claim.claim.name}: {error}") from error
    once = features.rules.config_entries_once
    config = (*_class_config(requests), *_claim_config(claim, requests, once=once))
    if once:
        config = tuple(_for_all(entry, requests) for entry in config)
    return AllocationResult(
        devices=DeviceAllocationResult(
            results=tuple(_device_result(one, features, new_share_id) for one in chosen), config=config
        ),
        node_selector=node_selector,
    )


def _device_result(
    one: Chosen, features: DeviceFeatures, new_share_id: Callable[[], str]
) -> DeviceRequestAllocationResult:
    driver, pool, name = one.device.key
    device = one.device.device
    conditions = features.binding_conditions
    return DeviceRequestAllocationResult(
        request=one.request.full_name,
        driver=driver,
        pool=pool,
        device=name,
        admin_access=True if one.request.admin_access else None,
        tolerations=one.request.tolerations,
        binding_conditions=device.binding_conditions if conditions else (),
        binding_failure_conditions=device.binding_failure_conditions if conditions else (),
        share_id=new_share_id() if one.is_shared else None,
        consumed_capacity=_texts(one.consumption) if one.is_shared and one.consumption else None,
    )


def _texts(consumption: Consumption) -> ResourceList:
    return {name: amount.text for name, amount in consumption.items()}


def _class_config(requests: Sequence[PreparedRequest]) -> list[DeviceAllocationConfiguration]:
    """The configuration of each class once, for all requests with that class."""
    by_class: dict[str, list[PreparedRequest]] = {}
    for request in requests:
        if request.class_ is not None:
            by_class.setdefault(request.class_.name, []).append(request)
    return [
        DeviceAllocationConfiguration(
            source=FROM_CLASS, requests=tuple(one.full_name for one in users), opaque=config.opaque
        )
        for users in by_class.values()
        for config in (() if users[0].class_ is None else users[0].class_.spec.config)
    ]


def _claim_config(
    claim: PreparedClaim, requests: Sequence[PreparedRequest], *, once: bool
) -> list[DeviceAllocationConfiguration]:
    """The claim's own configuration; v1.36 lists an entry once for every request that it names."""
    found: list[DeviceAllocationConfiguration] = []
    for config in claim.claim.spec.devices.config:
        entry = DeviceAllocationConfiguration(
            source=FROM_CLAIM, requests=config.requests, opaque=config.opaque
        )
        if not config.requests:
            found.append(entry)
            continue
        named = [entry for request in requests if _is_named(request, config.requests)]
        found += named[:1] if once else named
    return found


def _for_all(
    entry: DeviceAllocationConfiguration, requests: Sequence[PreparedRequest]
) -> DeviceAllocationConfiguration:
    """The entry, without the names of requests where these are all requests of the claim."""
    if entry.requests and all(_is_named(request, entry.requests) for request in requests):
        return replace(entry, requests=())
    return entry


def _is_named(request: PreparedRequest, names: Sequence[str]) -> bool:
    return request.parent in names or request.full_name in names


def _node_selector(chosen: Sequence[Chosen], node_name: str) -> NodeSelector | None:
    """The nodes that can use all devices; None for every node."""
    # allocator_incubating.go: createNodeSelector
    fields: list[LabelSelectorRequirement] = []
    expressions: list[LabelSelectorRequirement] = []
    for one in chosen:
        device, spec = one.device.device, one.device.slice.spec
        per_device = spec.per_device_node_selection
        if (device.node_name if per_device else spec.node_name) or device.binds_to_node:
            return _only(node_name)
        selector = device.node_selector if per_device else spec.node_selector
        if selector is None or not selector.node_selector_terms:
            continue
        if len(selector.node_selector_terms) > 1:
            count = len(selector.node_selector_terms)
            raise AllocationError(f"unsupported ResourceSlice.NodeSelector with {count} terms")
        term = selector.node_selector_terms[0]
        _add_new(fields, term.match_fields)
        _add_new(expressions, term.match_expressions)
    if not fields and not expressions:
        return None
    term = NodeSelectorTerm(match_expressions=tuple(expressions), match_fields=tuple(fields))
    return NodeSelector(node_selector_terms=(term,))


def _only(node_name: str) -> NodeSelector:
    by_name = LabelSelectorRequirement(key=NAME_FIELD, operator="In", values=(node_name,))
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(by_name,)),))


def _add_new(to: list[LabelSelectorRequirement], more: Sequence[LabelSelectorRequirement]) -> None:
    for one in more:
        if not any(
            one.key == known.key and one.operator == known.operator and set(one.values) == set(known.values)
            for known in to
        ):
            to.append(one)
