"""Resources: how much is missing on the nearest node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bayplan.answers.explain.details.subject import Subject
from bayplan.api.requests import fit_requests
from bayplan.framework.status import Code
from bayplan.state.interning import IdColumn
from bayplan.state.nodes import CPU, EPHEMERAL_STORAGE, MEMORY


@dataclass(frozen=True, slots=True)
class _Short:
    """One resource that is insufficient on some rows."""

    resource: str
    amount: int
    allocatable: IdColumn
    free: IdColumn


def resources_detail(subject: Subject) -> str:
    """The node with the smallest shortage; or, if empty nodes are too small, the size of the largest."""
    short = list(_short_resources(subject))
    if subject.status.code is Code.UNRESOLVABLE:
        too_large = (_too_large(one, subject.nodes) for one in short)
        return next((text for text in too_large if text), "")
    if not short:
        return ""
    nearest = int(np.argmin(sum((one.amount - one.free) / one.amount for one in short)))
    lacks = [
        f"{amount_text(one.resource, int(one.amount - one.free[nearest]))} {one.resource}"
        for one in short
        if one.amount > one.free[nearest]
    ]
    if not lacks:
        return ""
    lacking = f"lacks {' and '.join(lacks)}"
    return f"nearest: {subject.nodes[nearest]} {lacking}" if len(subject.nodes) > 1 else lacking


def _too_large(short: _Short, nodes: Sequence[str]) -> str:
    largest = int(short.allocatable.argmax())
    there = int(short.allocatable[largest])
    if short.amount <= there:
        return ""
    if not there:
        return f"no {short.resource} on {'this node' if len(nodes) == 1 else 'these nodes'}"
    requested, has = amount_text(short.resource, short.amount), amount_text(short.resource, there)
    node = nodes[largest] if len(nodes) == 1 else f"the largest of these nodes, {nodes[largest]},"
    return f"requests {requested} {short.resource}; {node} has {has}"


def _short_resources(subject: Subject) -> Iterator[_Short]:
    rows = subject.rows
    for resource, amount in fit_requests(subject.pod).items():
        if amount and any(reason.endswith(f" {resource}") for reason in subject.status.reasons):
            columns = subject.cluster.nodes.resource(resource)
            allocatable = columns.allocatable.array.take(rows)
            yield _Short(resource, amount, allocatable, allocatable - columns.requested.array.take(rows))


def amount_text(resource: str, amount: int) -> str:
    """In the usual notation: `200m`, `1.5`, `16Gi`."""
    if resource == CPU:
        return f"{amount}m" if amount % 1000 and amount < 1000 else f"{amount / 1000:g}"
    if resource in (MEMORY, EPHEMERAL_STORAGE) or resource.startswith("hugepages-"):
        for unit, size in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
            if amount >= size:
                return f"{amount / size:.1f}".removesuffix(".0") + unit
    return str(amount)
