"""Rejected nodes in groups: by plugin and reason, and for devices by the request that fails.

`details.py` says what the reasons leave out; a `Subject` is what it gets to look at.

DynamicResources only says `cannot allocate all claims`, so `missing_devices` evaluates every request alone on
each of its nodes. Nodes where the same request fails for the same kind of reason are one group. Extended
resources that devices serve are requests, too: those of the claim that the scheduler would create.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bayplan.answers.explain.explanation import Explanation
from bayplan.api.devices import DeviceClass
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.dra.allocator import CANNOT_ALLOCATE, INVALID_POOLS
from bayplan.dra.explanation import RequestExplanation, explain, why_not
from bayplan.framework.plugin_api import NodeNames
from bayplan.framework.status import Code, Status
from bayplan.plugins.dynamic_resources import DynamicResources
from bayplan.plugins.dynamic_resources.claims import resolve_claims
from bayplan.plugins.dynamic_resources.extended import claim_on, device_amounts, extended_demand
from bayplan.runtime import calls
from bayplan.runtime.framework import Framework
from bayplan.state.cluster import Cluster
from bayplan.state.columns import IdColumn
from bayplan.state.derived import derived
from bayplan.state.devices import ClusterDevices
from bayplan.state.view import NodeColumns

MAX_NAMED: Final = 3
"""Taints, labels, pods or volumes that are named; the others are counted."""

_REASONS: Final = frozenset({CANNOT_ALLOCATE.reason, INVALID_POOLS.reason})


@dataclass(frozen=True, slots=True)
class Rejection:
    """The nodes that one plugin rejects for the same reasons."""

    status: Status
    nodes: tuple[str, ...]


def rejections(explanation: Explanation) -> list[Rejection]:
    """All rejected nodes in groups, the largest group first."""
    found: dict[Status, list[str]] = {}
    for node, status in explanation.node_status.items():
        found.setdefault(status, []).append(node)
    groups = [Rejection(status, tuple(nodes)) for status, nodes in found.items()]
    return sorted(groups, key=lambda group: -len(group.nodes))


@dataclass(frozen=True, slots=True)
class Subject:
    """Nodes that one plugin rejects for the same reasons."""

    framework: Framework
    pod: Pod
    status: Status
    nodes: Sequence[str]
    rows: IdColumn

    @property
    def cluster(self) -> Cluster:
        return self.framework.cluster

    def node_objects(self) -> Iterator[Node]:
        for row in self.rows.tolist():
            node = self.cluster.nodes.node[row]
            if node is not None:
                yield node

    def pods(self) -> Iterator[Pod]:
        """The pods on these nodes."""
        for row in self.rows.tolist():
            yield from self.cluster.pods_on(row)

    def plugin_state(self) -> Any:
        """What the plugin's PreFilter has found out about the pod; None if it had nothing to do."""
        name = self.status.plugin
        step = next((one for one in self.framework.profile.filters if one.name == name), None)
        if step is None:
            return None
        search = self.framework.begin_uncached(self.pod)
        state = search.results.state_of(step) if step.cached else search.state
        answer = calls.pre_filter(step, state, self.pod, NodeColumns(self.cluster))
        if not isinstance(answer, NodeNames) and answer.code is not Code.SUCCESS:
            return None
        return state.get(name)


Describe = Callable[[Subject], str]


def named(texts: Iterable[str], most: int = MAX_NAMED) -> str:
    """The first of these texts, each once, and the number of the others."""
    found = list(dict.fromkeys(texts))
    left = len(found) - most
    return ", ".join(found[:most]) + (f" and {left:,} more" if left > 0 else "")


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class MissingDevices:
    """A request that fails on several nodes for one kind of reason."""

    claim: str
    request: str
    nodes: tuple[str, ...]
    reason: str
    """If it is not the same everywhere: that of the first node, which it names."""


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
    claims = resolve_claims(cluster.objects, pod) if nodes else ()
    if isinstance(claims, Status):
        return []
    unallocated = [claim for claim in claims if claim.status.allocation is None]
    demand = extended_demand(cluster, pod, device_amounts(pod)) if nodes else None
    devices, classes = derived(cluster, ClusterDevices), cluster.objects.of(DeviceClass)
    groups: dict[tuple[str, str, str, int], dict[str, str]] = {}
    """By claim, request, kind of reason and number of devices: the reason on each node."""
    for name in nodes:
        node = cluster.nodes.node[cluster.nodes.row_of[name]]
        if node is None:
            continue
        extended = None if demand is None else claim_on(cluster, pod, demand, node)
        wanted = unallocated if extended is None else [*unallocated, extended]
        found = explain(devices.inventory, devices.allocated, classes.get, node, wanted)
        for one in why_not(found):
            miss = one.nearest_miss
            kind = one.problem or (miss.failure if miss is not None else "")
            groups.setdefault((one.claim, one.request, kind, one.free), {})[name] = _reason(one)
    missing = [
        MissingDevices(claim, request, tuple(reasons), _common_reason(reasons))
        for (claim, request, *_), reasons in groups.items()
    ]
    missing.sort(key=lambda one: -len(one.nodes))
    return missing


def _is_about_devices(status: Status) -> bool:
    return status.plugin == DynamicResources.name and not _REASONS.isdisjoint(status.reasons)


def _common_reason(reasons: Mapping[str, str]) -> str:
    node, reason = next(iter(reasons.items()))
    return reason if len(set(reasons.values())) == 1 else f"on {node}: {reason}"


def _reason(one: RequestExplanation) -> str:
    if one.problem:
        return one.problem
    if not one.fails_alone:
        return "enough devices for this request alone, but not for all requests together"
    wanted = f"{one.free} of {one.needed}" if one.needed else str(one.free)
    return f"{wanted} devices available: {'; '.join(one.reasons)}"
