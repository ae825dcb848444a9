"""The order of jobs in a queue, and when a job has its minimum.

Volcano calls the plugins in the order of the tiers; the first that finds a difference decides, then the time
of creation, then the name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bayplan.queues.volcano.conf import Conf


class OrderedJob(Protocol):
    """A job as far as its place in the order needs it."""

    @property
    def name(self) -> str: ...
    @property
    def created(self) -> float: ...
    @property
    def priority(self) -> int: ...
    @property
    def is_ready(self) -> bool:
        """Whether it has its minimum."""

    @property
    def share(self) -> float:
        """Its dominant share of the cluster."""


def job_order(conf: Conf) -> tuple[str, ...]:
    """The plugins that compare jobs, in the order in which they are called."""
    return tuple(
        option.name
        for tier in conf.tiers
        for option in tier
        if option.name in ("priority", "gang", "drf") and option.enabled("enableJobOrder")
    )


def standing(job: OrderedJob, order: Sequence[str]) -> tuple[float, ...]:
    """The values that the plugins compare for a job; the lowest is first."""
    found = []
    for name in order:
        if name == "priority":
            found.append(-float(job.priority))
        elif name == "gang":
            found.append(float(job.is_ready))
        else:
            found.append(job.share)
    return tuple(found)


def job_key(job: OrderedJob, order: Sequence[str]) -> tuple[object, ...]:
    """The place of a job among those of its queue; the lowest is first."""
    return (*standing(job, order), job.created, job.name)


def is_starving(ready: int, waiting: int, tasks: int, minimum: int, *, by: str) -> bool:
    """Whether a job needs more: to have its minimum (gang), or for its other tasks (priority)."""
    return ready + waiting < (minimum if by == "gang" else tasks)
