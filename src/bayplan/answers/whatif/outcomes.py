"""What became of pods in a what-if run, as typed values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from bayplan.answers.sources.warnings import Warning
from bayplan.runtime.failure_log import PluginFailure

T = TypeVar("T")


class Outcome(StrEnum):
    """How the scheduling of a pod ended."""

    SCHEDULED = "Scheduled"
    """It is bound to a node."""
    UNSCHEDULABLE = "Unschedulable"
    """No node fits, and nothing that happened later changed that."""
    WAITING = "Waiting"
    """A node was found, but a Permit plugin did not allow the binding; it holds no node afterwards."""
    GATED = "Gated"
    """It does not enter the queue: a scheduling gate, or a PreEnqueue plugin."""
    FAILED = "Failed"
    """A plugin failed, or could not evaluate the pod."""
    SKIPPED = "Skipped"
    """It belongs to another scheduler, or is being deleted."""
    NOT_RECREATED = "NotRecreated"
    """It lost its node and has no controller that would create it again."""


@dataclass(frozen=True, slots=True)
class Placement:
    """One pod."""

    pod: str
    """namespace/name."""
    outcome: Outcome
    node: str = ""
    """Where it is bound now."""
    was_on: str = ""
    """The node that it lost before, if it had one."""
    reason: str = ""
    """Why it is not scheduled: the message of its PodScheduled condition."""
    evicted: tuple[str, ...] = ()
    """The pods that were preempted for it."""
    waited_seconds: float = 0.0
    """Virtual time until it was bound: backoff, other pods of its group, the grace periods of victims."""

    @property
    def fits(self) -> bool:
        return self.outcome is Outcome.SCHEDULED

    def as_json(self) -> dict[str, object]:
        fields: dict[str, object] = {
            "pod": self.pod,
            "outcome": self.outcome.value,
            "node": self.node,
            "wasOn": self.was_on,
            "reason": self.reason,
            "evicted": list(self.evicted),
            "waitedSeconds": self.waited_seconds,
        }
        return {name: value for name, value in fields.items() if value}


@dataclass(frozen=True, slots=True)
class Placements:
    """All pods of a run, in the order in which they were given, and what the result rests on."""

    pods: tuple[Placement, ...]
    warnings: tuple[Warning, ...] = ()
    evicted: tuple[str, ...] = field(default=())
    """Pods that were preempted, in order; those that are created again are in `pods`, too."""
    failures: tuple[PluginFailure, ...] = ()
    """What plugins did wrong: if there is something, the result is not reliable."""

    def __iter__(self) -> Iterator[Placement]:
        return iter(self.pods)

    def __len__(self) -> int:
        return len(self.pods)

    def __getitem__(self, pod: str) -> Placement:
        """The placement of a pod by `namespace/name`, or by its name in the default namespace."""
        key = pod if "/" in pod else f"default/{pod}"
        for placement in self.pods:
            if placement.pod == key:
                return placement
        raise KeyError(pod)

    @property
    def fits(self) -> bool:
        """Whether every pod is scheduled."""
        return all(placement.fits for placement in self.pods)

    @property
    def scheduled(self) -> tuple[Placement, ...]:
        return tuple(placement for placement in self.pods if placement.fits)

    @property
    def not_scheduled(self) -> tuple[Placement, ...]:
        return tuple(placement for placement in self.pods if not placement.fits)

    @property
    def nodes(self) -> dict[str, str]:
        """The node of every pod that is scheduled."""
        return {placement.pod: placement.node for placement in self.pods if placement.fits}

    def reasons(self) -> Counter[str]:
        """Why pods are not scheduled, with the number of pods."""
        return Counter(placement.reason for placement in self.not_scheduled)

    def as_json(self) -> dict[str, object]:
        return {
            "fits": self.fits,
            "pods": [placement.as_json() for placement in self.pods],
            "evicted": list(self.evicted),
            "failures": [failure.message for failure in self.failures],
            "warnings": [warning.as_json() for warning in self.warnings],
        }

    def _repr_html_(self) -> str:
        from bayplan.answers.whatif.html import placements_html

        return placements_html(self)


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether one pod can be scheduled; true where it can."""

    placement: Placement
    warnings: tuple[Warning, ...] = ()
    failures: tuple[PluginFailure, ...] = ()
    """What plugins did wrong: if there is something, the answer is not reliable."""

    def __bool__(self) -> bool:
        return self.placement.fits

    @property
    def node(self) -> str:
        return self.placement.node

    @property
    def reason(self) -> str:
        return self.placement.reason

    def _repr_html_(self) -> str:
        from bayplan.answers.whatif.html import placements_html

        return placements_html(Placements((self.placement,), self.warnings, failures=self.failures))


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many more pods fit."""

    count: int
    """How many were placed, of all pods of the mix together."""
    is_limit: bool
    """Whether the next one does not fit; otherwise the search ended at its maximum, or a plugin failed."""
    by_node: dict[str, int]
    """How many on each node that got some."""
    reason: str = ""
    """Why the next one does not fit, as kube-scheduler reports it."""
    stopped_by: str = ""
    """The pod of the mix that is next."""
    warnings: tuple[Warning, ...] = ()
    failures: tuple[PluginFailure, ...] = ()
    """What plugins did wrong: if there is something, the count is not reliable."""

    def __int__(self) -> int:
        return self.count

    def as_json(self) -> dict[str, object]:
        return {
            "count": self.count,
            "isLimit": self.is_limit,
            "stoppedBy": self.stopped_by,
            "reason": self.reason,
            "byNode": self.by_node,
            "failures": [failure.message for failure in self.failures],
            "warnings": [warning.as_json() for warning in self.warnings],
        }

    def _repr_html_(self) -> str:
        from bayplan.answers.whatif.html import capacity_html

        return capacity_html(self)


def unique(items: Iterable[T]) -> tuple[T, ...]:
    """Each item once, in the order in which they were first given."""
    return tuple(dict.fromkeys(items))
