"""What became of pods in a what-if run, as typed values that a notebook shows as HTML tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from html import escape
from typing import TYPE_CHECKING, Final, TypeVar

from bayplan.answers.sources.warnings import Warning
from bayplan.runtime.failure_log import PluginFailure

if TYPE_CHECKING:
    from bayplan.answers.whatif.cluster import Cluster

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
    """It is not tried: a scheduling gate, a PreEnqueue plugin, or no room in its capacity queue."""
    FAILED = "Failed"
    """A plugin failed, or could not evaluate the pod."""
    SKIPPED = "Skipped"
    """It belongs to another scheduler or to a pod group that was left out, or is being deleted."""
    NOT_RECREATED = "NotRecreated"
    """It lost its node and has no controller that would create it again."""
    NOT_CREATED = "NotCreated"
    """Its StatefulSet does not create it, because a pod with a lower ordinal does not run."""
    REJECTED = "Rejected"
    """The API server does not create it: a quota, or a LimitRange."""


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


NEW: Final = "new"
CHANGED: Final = "changed"
UNCHANGED: Final = "unchanged"


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of one object of a manifest."""

    kind: str
    key: str
    change: str
    """`new`, `changed` or `unchanged`."""
    created: int = 0
    """Pods that were created for it; a rollout creates more."""
    deleted: int = 0
    note: str = ""

    def __str__(self) -> str:
        counts = [
            f"{number:,} pod{'' if number == 1 else 's'} {what}"
            for number, what in ((self.created, "created"), (self.deleted, "deleted"))
            if number
        ]
        details = ", ".join(filter(None, (*counts, self.note)))
        return f"{self.kind} {self.key} {self.change}{f': {details}' if details else ''}"

    def as_json(self) -> dict[str, object]:
        fields = {"created": self.created, "deleted": self.deleted, "note": self.note}
        shown = {name: content for name, content in fields.items() if content}
        return {"kind": self.kind, "object": self.key, "change": self.change, **shown}


@dataclass(frozen=True, slots=True)
class RolloutResult:
    """How a rollout ended, and its worst moment."""

    workload: str
    """`Deployment shop/web`."""
    wanted: int
    updated: int
    """Pods of the new template that are available at the end."""
    is_complete: bool
    available: int
    """At the worst moment: pods of any template."""
    pending: int
    """At the worst moment."""
    reason: str = ""
    """Why pods are pending, at the end if the rollout stalls, otherwise at the worst moment."""
    pods: tuple[str, ...] = ()
    """Those of the new template, with or without a node."""

    def __str__(self) -> str:
        pending = f", {self.pending} pending" if self.pending else ""
        worst = f"(worst moment: {self.available} of {self.wanted} available{pending})"
        if self.is_complete:
            return f"{self.workload}: the rollout completes {worst}"
        why = f": {self.reason}" if self.reason else ""
        return f"{self.workload}: the rollout stalls at {self.updated} of {self.wanted}{why} {worst}"

    def as_json(self) -> dict[str, object]:
        return {
            "workload": self.workload,
            "complete": self.is_complete,
            "wanted": self.wanted,
            "updated": self.updated,
            "worstMoment": {"available": self.available, "pending": self.pending},
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class Placements:
    """All pods of a run, in the order in which they were given, and what the result rests on."""

    pods: tuple[Placement, ...]
    warnings: tuple[Warning, ...] = ()
    evicted: tuple[str, ...] = field(default=())
    """Pods that were preempted, in order; those that are created again are in `pods`, too."""
    failures: tuple[PluginFailure, ...] = ()
    """What plugins did wrong: if there is something, the result is not reliable."""
    rollouts: tuple[RolloutResult, ...] = ()
    """Of workloads whose pod template was changed (`Cluster.apply`)."""

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
            "rollouts": [rollout.as_json() for rollout in self.rollouts],
            "failures": [failure.message for failure in self.failures],
            "warnings": [warning.as_json() for warning in self.warnings],
        }

    def _repr_html_(self) -> str:
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
    gang_size: int = 0
    """The members of each gang, if gangs were counted; 0: pods were."""

    def __int__(self) -> int:
        return self.count

    def as_json(self) -> dict[str, object]:
        return {
            "count": self.count,
            **({"gangSize": self.gang_size} if self.gang_size else {}),
            "isLimit": self.is_limit,
            "stoppedBy": self.stopped_by,
            "reason": self.reason,
            "byNode": self.by_node,
            "failures": [failure.message for failure in self.failures],
            "warnings": [warning.as_json() for warning in self.warnings],
        }

    def _repr_html_(self) -> str:
        return capacity_html(self)


def unique(items: Iterable[T]) -> tuple[T, ...]:
    """Each item once, in the order in which they were first given."""
    return tuple(dict.fromkeys(items))


# HTML tables, for notebooks

MAX_ROWS: Final = 100


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; only the first rows are shown, with the number of the others."""
    body: list[str] = []
    left = 0
    for row in rows:
        if len(body) == MAX_ROWS:
            left += 1
            continue
        body.append("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>")
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    more = f"<p>… and {left:,} more</p>" if left else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>{more}"


def _warnings(warnings: Sequence[Warning]) -> str:
    if not warnings:
        return ""
    items = "".join(
        f"<li>{escape(f'{one.pod}: {one.message}' if one.pod else one.message)}</li>" for one in warnings
    )
    return f"<p>This result may differ from the cluster's scheduler:</p><ul>{items}</ul>"


def _failures(failures: Sequence[PluginFailure]) -> str:
    if not failures:
        return ""
    items = "".join(f"<li>{escape(one.message)}</li>" for one in failures)
    return f"<p>This result is not reliable, because plugins failed:</p><ul>{items}</ul>"


def placements_html(placements: Placements) -> str:
    rows = (
        (one.pod, one.outcome, one.was_on, one.node, one.reason or ", ".join(one.evicted))
        for one in placements
    )
    columns = ("pod", "outcome", "was on", "node", "reason or evicted pods")
    return _failures(placements.failures) + table(columns, rows) + _warnings(placements.warnings)


def capacity_html(capacity: Capacity) -> str:
    more = "" if capacity.is_limit else " or more"
    text = f"<p>{capacity.count:,}{more} fit. {escape(capacity.reason)}</p>"
    rows = Counter(capacity.by_node).most_common()
    return _failures(capacity.failures) + text + table(("node", "pods"), rows) + _warnings(capacity.warnings)


def cluster_html(cluster: Cluster) -> str:
    rows = []
    for name in cluster.nodes:
        node = cluster.node(name)
        allocatable = node.status.allocatable
        rows.append(
            (name, len(cluster.pods_of(name)), allocatable.get("cpu", ""), allocatable.get("memory", ""))
        )
    return f"<p>{escape(repr(cluster))}</p>" + table(("node", "pods", "cpu", "memory"), rows)
