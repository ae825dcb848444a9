"""Slices and the pools that they form, as one node sees them.

A pool is published in slices, perhaps while the driver replaces one generation with the next. Only complete,
valid pools provide devices; the others are kept for requests for all devices, and for messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from bayplan.api.devices import Device, DeviceTaint, ResourceSlice
from bayplan.api.meta import LabelSelectorRequirement, NodeSelector
from bayplan.api.node import Node
from bayplan.api.node_selectors import CompiledTerm, compile_terms_strict, terms_match
from bayplan.api.pod import NO_EXECUTE, NO_SCHEDULE
from bayplan.api.quantity import parse_quantity
from bayplan.api.releases import DeviceRules
from bayplan.clock import Freshness
from bayplan.dra.content import DeviceContent, device_content
from bayplan.errors import AllocationError, SelectorError

if TYPE_CHECKING:
    from bayplan.dra.allocated import AllocatedState


class NodeSelection:
    """A node by name, all nodes, or those that a selector matches; none of these matches nothing."""

    __slots__ = ("_terms", "all_nodes", "node_name", "selector")

    def __init__(self, node_name: str, all_nodes: bool, selector: NodeSelector | None) -> None:
        self.node_name = node_name
        self.all_nodes = all_nodes
        self.selector = selector
        self._terms: tuple[CompiledTerm, ...] | str | None = None

    @property
    def is_set(self) -> bool:
        return bool(self.node_name) or self.all_nodes or self.selector is not None

    def matches(self, node: Node) -> bool:
        """Whether the node is selected.

        Raises:
            AllocationError: the selector cannot be parsed.
        """
        if self.node_name:
            return node.name == self.node_name
        if self.all_nodes:
            return True
        if self.selector is None:
            return False
        if self._terms is None:
            self._terms = _compiled(self.selector)
        if isinstance(self._terms, str):
            raise AllocationError(self._terms)
        return terms_match(self._terms, node.labels, node.name)


def _compiled(selector: NodeSelector) -> tuple[CompiledTerm, ...] | str:
    try:
        return compile_terms_strict(selector.node_selector_terms)
    except SelectorError as error:
        return f"failed to parse node selector {go_string(selector)}: {error}"


def go_string(selector: NodeSelector) -> str:
    """A node selector as Kubernetes writes it in messages."""
    terms = "".join(
        f"NodeSelectorTerm{{MatchExpressions:{_requirements(term.match_expressions)},"
        f"MatchFields:{_requirements(term.match_fields)},}},"
        for term in selector.node_selector_terms
    )
    return f"&NodeSelector{{NodeSelectorTerms:[]NodeSelectorTerm{{{terms}}},}}"


def _requirements(requirements: Iterable[LabelSelectorRequirement]) -> str:
    written = "".join(
        f"NodeSelectorRequirement{{Key:{one.key},Operator:{one.operator},Values:[{' '.join(one.values)}],}},"
        for one in requirements
    )
    return f"[]NodeSelectorRequirement{{{written}}}"


DeviceKey = tuple[str, str, str]
"""Driver, pool and name of a device."""
PoolKey = tuple[str, str]
"""Driver and name of a pool."""
CounterKey = tuple[str, str]
"""Counter set and counter."""

_BLOCKING: Final = frozenset({NO_SCHEDULE, NO_EXECUTE})


class SliceDevice:
    """A device in a slice, with everything that does not depend on the request."""

    __slots__ = (
        "allow_multiple", "blocking_taints", "content", "counters", "device", "has_counters", "key",
        "pool_key", "selection", "slice",
    )  # fmt: skip

    def __init__(self, of: ResourceSlice, device: Device) -> None:
        spec = of.spec
        self.slice = of
        self.device = device
        self.pool_key: PoolKey = (spec.driver, spec.pool.name)
        self.key: DeviceKey = (spec.driver, spec.pool.name, device.name)
        self.content: DeviceContent = device_content(spec.driver, device)
        self.allow_multiple = device.allow_multiple_allocations
        self.has_counters = bool(device.consumes_counters)
        self.counters: tuple[tuple[CounterKey, int], ...] = tuple(
            ((consumed.counter_set, name), parse_quantity(counter.value))
            for consumed in device.consumes_counters
            for name, counter in consumed.counters.items()
        )
        self.blocking_taints: tuple[DeviceTaint, ...] = tuple(
            taint for taint in device.taints if taint.effect in _BLOCKING
        )
        self.selection: NodeSelection | None = None
        """Its own node fields, if the slice has perDeviceNodeSelection."""
        if spec.per_device_node_selection:
            self.selection = NodeSelection(device.node_name, device.all_nodes, device.node_selector)


class Slice:
    """A ResourceSlice, prepared."""

    __slots__ = (
        "devices", "generation", "has_counters", "is_ignored", "is_seen_everywhere", "name", "of",
        "pool_key", "selection",
    )  # fmt: skip

    def __init__(self, of: ResourceSlice, rules: DeviceRules) -> None:
        spec = of.spec
        self.of = of
        self.name = of.name
        self.pool_key: PoolKey = (spec.driver, spec.pool.name)
        self.generation = spec.pool.generation
        self.has_counters = bool(spec.shared_counters)
        self.devices = tuple(SliceDevice(of, device) for device in spec.devices)
        self.selection = NodeSelection(spec.node_name, spec.all_nodes, spec.node_selector)
        self.is_seen_everywhere = self.has_counters and not rules.counter_slices_by_node
        """Whether every node sees it, whatever its node fields say."""
        self.is_ignored = rules.ignores_compatibility_groups and any(
            consumed.compatibility_groups for device in spec.devices for consumed in device.consumes_counters
        )
        """Whether its devices cannot be allocated, so that its pool is incomplete."""

    @property
    def is_local(self) -> bool:
        """Whether it can only be used from the node that it names."""
        return bool(self.of.spec.node_name) and not self.is_seen_everywhere


class Pool:
    """A pool as a node sees it."""

    __slots__ = (
        "_available",
        "_freshness",
        "consumers",
        "counters",
        "devices",
        "is_incomplete",
        "key",
        "problem",
    )

    def __init__(
        self,
        key: PoolKey,
        devices: tuple[SliceDevice, ...] = (),
        *,
        is_incomplete: bool = False,
        problem: str = "",
        counters: Mapping[CounterKey, int] | None = None,
        consumers: tuple[SliceDevice, ...] = (),
    ) -> None:
        self.key = key
        self.devices = devices
        """The devices of the slices that matter for the node, in the order in which they are tried."""
        self.is_incomplete = is_incomplete
        self.problem = problem
        """Why the pool is invalid; empty where it is valid."""
        self.counters: Mapping[CounterKey, int] = {} if counters is None else counters
        self.consumers = consumers
        """The devices of the whole pool that consume counters."""
        self._available: dict[CounterKey, int] = {}
        self._freshness: Freshness | None = None

    @property
    def is_usable(self) -> bool:
        return not self.is_incomplete and not self.problem

    @property
    def status(self) -> tuple[PoolKey, bool, str]:
        """The state of the pool for nodes without devices in it."""
        return self.key, self.is_incomplete, self.problem

    @property
    def has_binding_conditions(self) -> bool:
        return any(one.device.binding_conditions for one in self.devices)

    def available_counters(self, allocated: AllocatedState) -> Mapping[CounterKey, int]:
        """The remaining counters; negative if more was allocated than there is."""
        if self._freshness is None:
            changed = allocated.pool(self.key)
            self._freshness = Freshness(changed.clock, (changed,))
        if not self._freshness.is_current:
            with self._freshness:
                left = dict(self.counters)
                for one in self.consumers:
                    if allocated.is_in_use(one.key):
                        for counter, amount in one.counters:
                            if counter in left:
                                left[counter] -= amount
                self._available = left
        return self._available


def assemble(
    key: PoolKey, slices: Sequence[Slice], everywhere: Iterable[Slice], *, counters: bool
) -> Pool | None:
    """The pool from the slices that matter for a node; None if a newer generation replaces them.

    `everywhere` are all slices of the pool. `counters` is whether shared counters are known at all.
    """
    # pools_incubating.go: GatherPools
    generation = max(one.generation for one in slices)
    # By name: kube-scheduler takes the count from any of them, should they differ.
    slices = sorted((one for one in slices if one.generation == generation), key=_by_name)
    expected = slices[0].of.spec.pool.resource_slice_count
    others: list[Slice] = []
    if len(slices) != expected:
        same: list[Slice] = []
        for one in everywhere:
            if one.generation > generation:
                return None
            if one.generation == generation and not one.is_ignored:
                same.append(one)
        if len(same) != expected:
            return Pool(key, is_incomplete=True)
        names = {one.name for one in slices}
        others = [one for one in same if one.name not in names]
    return _valid_pool(key, slices, others, counters)


def _valid_pool(key: PoolKey, slices: list[Slice], others: list[Slice], counters: bool) -> Pool:
    offering = [one for one in slices if not (counters and one.has_counters)]
    devices = tuple(device for one in offering for device in one.devices)
    names: set[str] = set()
    for device in devices:
        if device.device.name in names:
            return Pool(key, problem=f"duplicate device name {device.device.name}")
        names.add(device.device.name)
    if not counters:
        return Pool(key, devices)
    sets: dict[str, dict[str, int]] = {}
    for one in (*slices, *others):
        for counter_set in one.of.spec.shared_counters:
            if counter_set.name in sets:
                return Pool(key, problem=f"duplicate counter set name {counter_set.name}")
            sets[counter_set.name] = {
                name: parse_quantity(counter.value) for name, counter in counter_set.counters.items()
            }
    elsewhere = tuple(device for one in others if not one.has_counters for device in one.devices)
    for device in (*(device for one in slices for device in one.devices), *elsewhere):
        if problem := _consumption_problem(device.device, sets):
            return Pool(key, problem=problem)
    return Pool(
        key,
        devices,
        counters={(name, counter): left for name, found in sets.items() for counter, left in found.items()},
        consumers=tuple(device for device in (*devices, *elsewhere) if device.counters),
    )


def _consumption_problem(device: Device, sets: Mapping[str, Mapping[str, int]]) -> str:
    for consumed in device.consumes_counters:
        counters = sets.get(consumed.counter_set)
        if counters is None:
            return f"counter set {consumed.counter_set} not found"
        for name in consumed.counters:
            if name not in counters:
                return f"counter {name} not found in counter set {consumed.counter_set}"
    return ""


def _by_name(one: Slice) -> str:
    return one.name


class NodePools:
    """The pools that a node sees, in the order in which their devices are tried."""

    __slots__ = ("_keys", "_local", "by_key", "devices", "has_invalid", "labels", "node", "pools")

    def __init__(self, node: Node, pools: Iterable[Pool]) -> None:
        self.node = node
        self.labels = node.labels
        first: list[Pool] = []
        last: list[Pool] = []
        for pool in sorted(pools, key=_by_key):
            (last if pool.is_usable and pool.has_binding_conditions else first).append(pool)
        self.pools = (*first, *last)
        self.by_key = {pool.key: pool for pool in self.pools}
        self.devices = tuple(device for pool in self.pools if pool.is_usable for device in pool.devices)
        self.has_invalid = any(pool.problem for pool in self.pools)
        self._local: dict[DeviceKey, bool] = {}
        self._keys: tuple[DeviceKey, ...] | None = None
        """Of its devices, if none can be shared and none consumes counters."""
        if not any(device.allow_multiple or device.has_counters for device in self.devices):
            self._keys = tuple(device.key for device in self.devices)

    def taken(self, allocated: AllocatedState) -> bytes | None:
        """Which of the devices are taken; None where a search depends on more than that."""
        return None if self._keys is None else allocated.taken_among(self._keys)

    def is_on_node(self, device: SliceDevice) -> bool:
        """Whether the node can use a device that has node fields of its own.

        Raises:
            AllocationError: its node selector cannot be parsed.
        """
        if device.selection is None:
            return True
        found = self._local.get(device.key)
        if found is None:
            found = self._local[device.key] = device.selection.matches(self.node)
        return found


def _by_key(pool: Pool) -> PoolKey:
    return pool.key
