"""Dominant resource fairness: shares of jobs, and of queues in a hierarchy with weights.

The share of a job is the largest part of the cluster that it has of any resource. With a hierarchy, queues
are compared level by level: those that want more before saturated ones, then by share and weight.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from bayplan.queues.volcano import resources as r
from bayplan.queues.volcano.resources import Resources

SHARE_DELTA = 1e-6
"""Shares that differ by less are equal."""


def job_share(allocated: Resources, capacity: Resources) -> float:
    """The dominant share of a job."""
    return r.largest_ratio(allocated, capacity)


@dataclass(slots=True)
class Level:
    """A node of the hierarchy: the queues below a path, or a job in a queue."""

    weight: float = 1.0
    allocated: Resources = field(default_factory=dict)
    share: float = 0.0
    saturated: bool = False
    children: dict[str, Level] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobUse:
    """What a job has, and what it asks for as a whole."""

    name: str
    path: str
    """Annotation volcano.sh/hierarchy of its queue."""
    weights: str
    allocated: Resources
    request: Resources


def hierarchical_shares(jobs: Iterable[JobUse], capacity: Resources) -> Level:
    """The tree of shares. A parent has what its children have, scaled to the smallest share among them."""
    # drf.go: UpdateHierarchicalShare
    jobs = list(jobs)
    used = r.total(job.allocated for job in jobs)
    left = {kind for kind in r.names(capacity) if used.get(kind, 0.0) < capacity[kind]}
    root = Level()
    for job in jobs:
        node, weights = root, job.weights.split("/")
        for number, name in enumerate(job.path.split("/")[1:], 1):
            if name not in node.children:
                node.children[name] = Level(weight=_weight(weights, number))
            node = node.children[name]
        leaf = Level(allocated=job.allocated, share=job_share(job.allocated, capacity))
        leaf.saturated = _is_saturated(job, left)
        node.children[f"job {job.name}"] = leaf
    _combine(root, capacity)
    return root


def _weight(weights: list[str], level: int) -> float:
    try:
        return max(1.0, float(weights[level]))
    except (IndexError, ValueError):
        return 1.0


def _is_saturated(job: JobUse, left: set[str]) -> bool:
    """Whether the job has all it asks for of some resource, or asks for one of which nothing is left."""
    return any(
        asked and (job.allocated[kind] >= asked or kind not in left)
        for kind in r.names(job.allocated)
        if (asked := job.request.get(kind, 0.0)) is not None
    )


def _combine(node: Level, capacity: Resources) -> None:
    below = list(node.children.values())
    for child in below:
        if child.children:
            _combine(child, capacity)
    smallest = min((child.share for child in below if child.share and not child.saturated), default=1.0)
    smallest = min(1.0, smallest)
    parts = (
        child.allocated if child.saturated else r.times(child.allocated, smallest / child.share)
        for child in below
        if child.share
    )
    node.allocated = r.total(parts)
    node.share = r.largest_ratio(node.allocated, capacity)
    node.saturated = all(child.saturated for child in below)


def compare(root: Level, left: str, right: str) -> float:
    """Which of two paths is first: below 0 the left one."""
    # drf.go: compareQueues
    one = other = root
    paths = list(zip(left.split("/"), right.split("/"), strict=False))
    for number in range(len(paths)):
        if one.saturated != other.saturated:
            return 1.0 if one.saturated else -1.0
        difference = one.share / one.weight - other.share / other.weight
        if difference:
            return difference
        if number + 1 < len(paths):
            one, other = one.children[paths[number + 1][0]], other.children[paths[number + 1][1]]
    return 0.0
