"""What the queue holds: entities, which are pods or groups, with the results of their earlier attempts.

One record belongs to a pod in all sub-queues and during its attempts. Only the queue changes it, except for
`nomination_write`. A group is one entity with the records of its waiting members (`groups.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, NamedTuple, Protocol

from bayplan.api.pod import Pod
from bayplan.framework.events import ClusterEvent
from bayplan.framework.plugin_api import SortKey
from bayplan.state.groups import Group

NO_PLUGINS: Final[frozenset[str]] = frozenset()
NEVER: Final = -inf


class SubQueue(Protocol):
    """A sub-queue. A pod's record refers to the one it is in, so a pod is never in two."""

    @property
    def label(self) -> str:
        """What metrics call it: active, backoff or unschedulable."""

    def remove(self, info: Any) -> None:
        """Removes an entity of this sub-queue."""


@dataclass(slots=True)
class NominationWrite:
    """The nomination last sent to the API server, until a version of the pod shows it."""

    node_name: str
    """"" clears it."""
    previous: str | None = None
    """The one sent before: a version of the pod that shows it is outdated."""
    is_acknowledged: bool = False
    """Whether the API server has written it."""


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A pending pod. `key` is its namespace/name, by which the queue finds it."""

    pod: Pod
    key: str
    timestamp: float
    """When it was added, or came back from its last attempt. Moving between sub-queues does not change it."""
    sequence: int
    """Orders records with the same timestamp: first come, first served."""
    attempts: int = field(default=0, init=False)
    unschedulable_count: int = field(default=0, init=False)
    """Attempts that ended in a rejection."""
    consecutive_errors_count: int = field(default=0, init=False)
    """Attempts that ended with an error since the last rejection."""
    is_cut_off: bool = field(default=False, init=False)
    """Whether a plugin used up the time that it may search in the last attempt."""
    backoff_expiration: float | None = field(default=None, init=False)
    """Cached; depends on the timestamp and the counts."""
    initial_attempt_timestamp: float | None = field(default=None, init=False)
    """When it first became active."""
    unschedulable_plugins: frozenset[str] = field(default=NO_PLUGINS, init=False)
    """The plugins that rejected it in its last attempt, or that gate it."""
    pending_plugins: frozenset[str] = field(default=NO_PLUGINS, init=False)
    """Those among them whose events requeue it without backoff."""
    gating_plugin: str = field(default="", init=False)
    """The PreEnqueue plugin that gates it."""
    was_flushed: bool = field(default=False, init=False)
    """It was last moved because of the unschedulable timeout, and not by an event."""
    flush_timestamp: float = field(default=NEVER, init=False)
    sort_key: SortKey = field(default=(), init=False)
    """Its sort key by the QueueSort plugin; depends on pod and timestamp."""
    nomination_write: NominationWrite | None = field(default=None, init=False)
    """The write of its status.nominatedNodeName in progress (`nominations.py`)."""
    sub_queue: SubQueue | None = field(default=None, init=False)
    """Its sub-queue; None while it is in flight, and after it has left the queue."""
    ticket: Any = field(default=0, init=False)
    """Identifies its current entry in a heap."""
    index_keys: tuple[tuple[str, ...], ...] = field(default=(), init=False)
    """Its keys in the index of unschedulable pods: profile, rejecting plugin, and perhaps an object key.
    Those of a member are part of its group's."""

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def profile(self) -> str:
        """Its spec.schedulerName."""
        return self.pod.spec.scheduler_name

    @property
    def rejectors(self) -> frozenset[str]:
        """All plugins whose events may requeue it. None: its last attempt ended with an error, or it was
        never rejected."""
        if not self.pending_plugins:
            return self.unschedulable_plugins
        return self.unschedulable_plugins | self.pending_plugins

    @property
    def waits_since(self) -> float:
        """Start of the time that counts for the maximum stay among the unschedulable pods."""
        return max(self.timestamp, self.flush_timestamp)


@dataclass(slots=True, eq=False)
class QueuedGroup:
    """A group with members that wait, as one entity; of a tree of groups the root. `key` is its kind and
    namespace/name.

    It has the fields of a single pod that sub-queues read. Only its members have plugins that rejected them,
    so a group that backs off is always among those whose attempts failed with an error: no idle scheduler
    tries it before its backoff has ended.
    """

    group: Group
    """As its PodGroup object was last seen."""
    key: str
    timestamp: float
    """That of the member that made it, or when it came back from its last attempt."""
    sequence: int
    members: list[QueuedPod]
    """In the order in which they are tried: `member_order`."""
    left_out: list[QueuedPod] = field(default_factory=list, init=False)
    """Members that are not tried with the others, because there is no room for them in a capacity queue."""
    attempts: int = field(default=0, init=False)
    unschedulable_count: int = field(default=0, init=False)
    consecutive_errors_count: int = field(default=0, init=False)
    is_cut_off: bool = field(default=False, init=False)
    backoff_expiration: float | None = field(default=None, init=False)
    initial_attempt_timestamp: float | None = field(default=None, init=False)
    gating_plugin: str = field(default="", init=False)
    """The PreEnqueue plugin that gates its last gated member, and so all of them."""
    was_flushed: bool = field(default=False, init=False)
    flush_timestamp: float = field(default=NEVER, init=False)
    sort_key: SortKey = field(default=(), init=False)
    sub_queue: SubQueue | None = field(default=None, init=False)
    ticket: Any = field(default=0, init=False)
    index_keys: tuple[tuple[str, ...], ...] = field(default=(), init=False)

    @property
    def uid(self) -> str:
        """That of the PodGroup object."""
        return self.group.uid

    @property
    def unschedulable_plugins(self) -> frozenset[str]:
        return NO_PLUGINS

    @property
    def pending_plugins(self) -> frozenset[str]:
        return NO_PLUGINS

    @property
    def waits_since(self) -> float:
        return max(self.timestamp, self.flush_timestamp)


Entity = QueuedPod | QueuedGroup


def entity_key(item: Pod | Group) -> str:
    """By which the queue finds a pod or a group."""
    return item.key if isinstance(item, Pod) else f"{item.key.kind}/{item.key}"


def members_of(entity: Entity) -> Sequence[QueuedPod]:
    """The members of a group, or the single pod."""
    return entity.members if isinstance(entity, QueuedGroup) else (entity,)


def member_order(info: QueuedPod) -> tuple[int, int, float, int, str]:
    """Sorts the members of a group: by priority, then those that were tried more often, then by arrival."""
    return -info.pod.priority, -info.attempts, info.timestamp, info.sequence, info.pod.metadata.name


class QueueObserver:
    """Called on the queue's events. The methods do nothing by default; override those you need."""

    clock: Callable[[], float] = staticmethod(float)
    """Seconds, for durations only: the queue's own clock may stand still while plugins run."""

    def incoming(self, entity: Entity, queue: str, event: str, *, as_decided: bool) -> None:
        """An entity entered a sub-queue (active, backoff, unschedulable) because of an event.

        With `as_decided`, its last attempt or a cluster event had decided on this sub-queue.
        """

    def unschedulable(self, plugin: str, profile: str, change: int) -> None:
        """The number of pods that count as rejected by a plugin changed by one.

        As upstream, a pod that is deleted while it is active or backs off is never subtracted.
        """

    def hint(self, plugin: str, event: str, outcome: str, seconds: float) -> None:
        """A plugin's hint was called for an event and returned Queue, QueueSkip or Error."""

    def pre_enqueue(self, profile: str, seconds: float) -> None:
        """The PreEnqueue plugins of a profile were called for a pod."""

    def samples_plugins(self) -> bool:
        """Whether to time each PreEnqueue plugin this time."""
        return False

    def pre_enqueue_plugin(self, plugin: str, status: str, seconds: float) -> None:
        """One of them returned this code. Called only if `samples_plugins` returned True."""


class QueueCounts(QueueObserver):
    """Counts what has to be counted as it happens."""

    def __init__(self) -> None:
        self.incoming_pods: dict[tuple[str, str], int] = {}
        """queue_incoming_pods_total by queue and event."""
        self.unschedulable_pods: dict[tuple[str, str], int] = {}
        """unschedulable_pods by plugin and profile."""

    def incoming(self, entity: Entity, queue: str, event: str, *, as_decided: bool) -> None:
        key = queue, event
        self.incoming_pods[key] = self.incoming_pods.get(key, 0) + len(members_of(entity))

    def unschedulable(self, plugin: str, profile: str, change: int) -> None:
        key = plugin, profile
        self.unschedulable_pods[key] = self.unschedulable_pods.get(key, 0) + change


class Recorded(NamedTuple):
    """An event while pods are in flight."""

    event: ClusterEvent
    old: Any
    new: Any
