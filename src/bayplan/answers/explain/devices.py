"""Which requests for devices fail, on which nodes, and why.

DynamicResources only says `cannot allocate all claims`, so `missing_devices` evaluates every request alone on
each of its nodes. Nodes where the same request fails for the same kind of reason are one group. Extended
resources that devices serve are requests, too: those of the claim that the scheduler would create.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from bayplan.answers.explain.explanation import Explanation
from bayplan.answers.explain.remedies import Remedy
from bayplan.api.devices import DeviceClass, ResourceClaim
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.dra.allocator import CANNOT_ALLOCATE, INVALID_POOLS, Allocator, NoFit
from bayplan.dra.explanation import RequestExplanation, explain, why_not
from bayplan.errors import AllocationError
from bayplan.framework.status import Status
from bayplan.plugins.dynamic_resources import DynamicResources, device_amounts
from bayplan.plugins.dynamic_resources.claims import resolve_claims
from bayplan.plugins.dynamic_resources.extended import claim_on, extended_demand
from bayplan.state.cluster import Cluster
from bayplan.state.derived import derived
from bayplan.state.devices import ClusterDevices

_REASONS: Final = frozenset({CANNOT_ALLOCATE.reason, INVALID_POOLS.reason})
TOGETHER: Final = "enough devices for this request alone, but not for all requests together"
UNDECIDED: Final = "enough devices for this request alone, but no combination for all requests was found"


@dataclass(frozen=True, slots=True)
class DevicesInTheWay:
    """Devices of a node that a request cannot use, for one reason."""

    check: str
    text: str
    devices: int

    def __str__(self) -> str:
        return f"{self.devices} {'device' if self.devices == 1 else 'devices'} {self.text}"


@dataclass(frozen=True, slots=True)
class ProvideDevices(Remedy):
    """A node has too few devices for a request of a claim."""

    claim: str
    request: str
    needed: int
    """0: all devices that the request selects."""
    free: int
    """Devices that the request could use if it were the only one."""
    failures: tuple[DevicesInTheWay, ...]
    problem: str = ""
    """A problem of the request or the pools."""
    constraint: str = ""
    """The constraint that this request alone cannot meet."""
    together: str = ""
    """Why requests that can be met one by one cannot be met together."""

    @property
    def missing(self) -> int:
        """How many more devices suffice, all with equal attributes, if constraints or other requests fail."""
        return self.needed if self.constraint or self.together else self.needed - self.free

    @property
    def text(self) -> str:
        if self.problem or self.constraint or self.together:
            return self.problem or self.constraint or self.together
        wanted = f"{self.free} of {self.needed}" if self.needed else str(self.free)
        others = "other " if self.free else ""
        reasons = "; ".join(map(str, self.failures)) or f"the node has no {others}devices"
        return f"{wanted} devices available: {reasons}"


@dataclass(frozen=True, slots=True)
class MissingDevices:
    """A request that fails on several nodes for one kind of reason."""

    claim: str
    request: str
    nodes: tuple[str, ...]
    reason: str
    """If it is not the same everywhere: that of the first node, which it names."""
    remedies: tuple[ProvideDevices, ...] = ()
    """One for each node."""


def missing_devices(
    cluster: Cluster, pod: Pod, explanation: Explanation, names: Collection[str] | None = None
) -> list[MissingDevices]:
    """The requests that nodes rejected by DynamicResources cannot meet, those of most nodes first.

    `names` are the nodes to evaluate; None: all.
    """
    nodes = [
        name
        for name, status in explanation.node_status.items()
        if _is_about_devices(status) and (names is None or name in names)
    ]
    claims = resolve_claims(cluster, pod) if nodes else ()
    if isinstance(claims, Status):
        return []
    unallocated = [claim for claim in claims if claim.status.allocation is None]
    demand = extended_demand(cluster, pod, device_amounts(pod)) if nodes else None
    devices, classes = derived(cluster, ClusterDevices), cluster.objects.of(DeviceClass)
    groups: dict[tuple[str, str, str, int], dict[str, ProvideDevices]] = {}
    """By claim, request, kind of reason and number of devices: the remedy on each node."""
    for name in nodes:
        node = cluster.nodes.node[cluster.nodes.row_of[name]]
        if node is None:
            continue
        extended = None if demand is None else claim_on(cluster, pod, demand, node)
        wanted = unallocated if extended is None else [*unallocated, extended]
        failing = why_not(explain(devices.inventory, devices.allocated, classes.get, node, wanted))
        together = "" if any(one.fails_alone for one in failing) else _together(cluster, node, wanted)
        for one in failing:
            miss = one.nearest_miss
            kind = one.problem or one.constraint or together or (miss.failure if miss is not None else "")
            remedy = _remedy(one, name, together)
            groups.setdefault((one.claim, one.request, kind, one.free), {})[name] = remedy
    missing = [
        MissingDevices(claim, request, tuple(found), _common_reason(found), tuple(found.values()))
        for (claim, request, *_), found in groups.items()
    ]
    missing.sort(key=lambda one: -len(one.nodes))
    return missing


def _is_about_devices(status: Status) -> bool:
    return status.plugin == DynamicResources.name and not _REASONS.isdisjoint(status.reasons)


def _common_reason(remedies: Mapping[str, ProvideDevices]) -> str:
    node, remedy = next(iter(remedies.items()))
    return remedy.text if len({one.text for one in remedies.values()}) == 1 else f"on {node}: {remedy.text}"


def _remedy(one: RequestExplanation, node: str, together: str) -> ProvideDevices:
    failures = tuple(DevicesInTheWay(str(miss.failure), miss.detail, miss.devices) for miss in one.failures)
    return ProvideDevices(
        (node,),
        one.claim,
        one.request,
        one.needed,
        one.free,
        failures,
        one.problem,
        one.constraint,
        together,
    )


def _together(cluster: Cluster, node: Node, claims: Sequence[ResourceClaim]) -> str:
    """Why requests that can be met one by one cannot be met together."""
    constraints = [
        (claim, one.match_attribute or one.distinct_attribute or "", one.match_attribute is not None)
        for claim in claims
        for one in claim.spec.devices.constraints
    ]
    if not constraints:
        return TOGETHER
    free_of_constraints = [
        replace(
            claim,
            spec=replace(claim.spec, devices=replace(claim.spec.devices, constraints=())),
        )
        for claim in claims
    ]
    devices = derived(cluster, ClusterDevices)
    allocator = Allocator(devices.inventory, devices.allocated, cluster.objects.of(DeviceClass).get)
    try:
        found = allocator.allocate(node, free_of_constraints)
    except AllocationError:
        return UNDECIDED
    if isinstance(found, NoFit):
        return TOGETHER
    texts = [
        f"{'matchAttribute' if is_match else 'distinctAttribute'} {attribute} of claim {claim.key}"
        for claim, attribute, is_match in constraints
    ]
    return f"enough devices for each request, but no combination meets {' and '.join(texts)}"
