"""Rejected nodes grouped by reason, with details that the reason leaves out.

kube-scheduler's reasons are fixed texts ("Insufficient cpu", "node(s) had untolerated taint(s)"), because it
counts them. To fix the problem you also need to know how much is missing, and which taint it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bayplan.api.pod import Pod
from bayplan.api.requests import fit_requests
from bayplan.api.tolerations import untolerated_taint
from bayplan.explain.explanation import Explanation
from bayplan.framework.status import Code, Status
from bayplan.snapshot.cluster import Cluster
from bayplan.snapshot.interning import IdColumn
from bayplan.snapshot.nodes import CPU, EPHEMERAL_STORAGE, MEMORY

MAX_TAINTS: Final = 3


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


def detail(cluster: Cluster, pod: Pod, rejection: Rejection) -> str:
    """Details that the reason leaves out; "" if there are none."""
    describe = _DETAILS.get(rejection.status.plugin)
    if describe is None or rejection.status.code is Code.ERROR:
        return ""
    rows = np.array([cluster.nodes.row_of[name] for name in rejection.nodes], dtype=np.intp)
    return describe(cluster, pod, rejection, rows)


def _taints(cluster: Cluster, pod: Pod, rejection: Rejection, rows: IdColumn) -> str:
    """The untolerated taints, each once."""
    found: dict[str, None] = {}
    for taint_set in dict.fromkeys(cluster.nodes.taint_set.array.take(rows).tolist()):
        taint = untolerated_taint(cluster.nodes.taint_lists.values[taint_set], pod.spec.tolerations)
        if taint is not None:
            found[
                f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
            ] = None
    shown = list(found)[:MAX_TAINTS]
    more = len(found) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


@dataclass(frozen=True, slots=True)
class _Short:
    """One resource that is insufficient on some rows."""

    resource: str
    amount: int
    allocatable: IdColumn
    free: IdColumn


def _resources(cluster: Cluster, pod: Pod, rejection: Rejection, rows: IdColumn) -> str:
    """The node with the smallest shortage; or, if empty nodes are too small, the size of the largest node."""
    short = list(_short_resources(cluster, pod, rejection.status.reasons, rows))
    if rejection.status.code is Code.UNRESOLVABLE:
        too_large = (_too_large(one, rejection.nodes) for one in short)
        return next((text for text in too_large if text), "")
    if not short:
        return ""
    nearest = int(np.argmin(sum((one.amount - one.free) / one.amount for one in short)))
    lacks = [
        f"{_amount(one.resource, int(one.amount - one.free[nearest]))} {one.resource}"
        for one in short
        if one.amount > one.free[nearest]
    ]
    if not lacks:
        return ""
    lacking = f"lacks {' and '.join(lacks)}"
    return f"nearest: {rejection.nodes[nearest]} {lacking}" if len(rejection.nodes) > 1 else lacking


def _too_large(short: _Short, nodes: Sequence[str]) -> str:
    largest = int(short.allocatable.argmax())
    there = int(short.allocatable[largest])
    if short.amount <= there:
        return ""
    if not there:
        return f"no {short.resource} on {'this node' if len(nodes) == 1 else 'these nodes'}"
    requested = f"{_amount(short.resource, short.amount)} {short.resource}"
    return f"requests {requested}; the largest node, {nodes[largest]}, has {_amount(short.resource, there)}"


def _short_resources(cluster: Cluster, pod: Pod, reasons: Sequence[str], rows: IdColumn) -> Iterator[_Short]:
    for resource, amount in fit_requests(pod).items():
        if amount and any(reason.endswith(f" {resource}") for reason in reasons):
            columns = cluster.nodes.resource(resource)
            allocatable = columns.allocatable.array.take(rows)
            yield _Short(resource, amount, allocatable, allocatable - columns.requested.array.take(rows))


_DETAILS: Final[dict[str, Callable[[Cluster, Pod, Rejection, IdColumn], str]]] = {
    "NodeResourcesFit": _resources,
    "TaintToleration": _taints,
}
"""By plugin: the function that adds details to its reasons."""


def _amount(resource: str, amount: int) -> str:
    """In the usual notation: `200m`, `1.5`, `16Gi`."""
    if resource == CPU:
        return f"{amount}m" if amount % 1000 and amount < 1000 else f"{amount / 1000:g}"
    if resource in (MEMORY, EPHEMERAL_STORAGE) or resource.startswith("hugepages-"):
        for unit, size in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
            if amount >= size:
                return f"{amount / size:.1f}".removesuffix(".0") + unit
    return str(amount)
