"""A pod that waits, with what earlier attempts left behind.

One record goes with the pod through all parts of the queue and through its attempts. It is the queue that
changes it; everybody else reads, but for what attempts remember of what they wrote.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Final, Protocol

from bayplan.api.pod import Pod
from bayplan.framework.plugin_api import SortKey

NO_PLUGINS: Final[frozenset[str]] = frozenset()
NEVER: Final = -inf


class SubQueue(Protocol):
    """A place in the queue. Which one a pod is in stands in the pod's record, so it is never in two."""

    @property
    def label(self) -> str:
        """What metrics call it: active, backoff or unschedulable."""

    def remove(self, info: QueuedPod) -> None:
        """Takes out a pod that is here."""


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
    """A waiting pod. `key` is its namespace/name, by which the queue knows it."""

    pod: Pod
    key: str
    timestamp: float
    """When it came, or came back from its last attempt. Being moved within the queue does not change it."""
    sequence: int
    """Orders records with the same timestamp: first come, first served."""
    attempts: int = field(default=0, init=False)
    unschedulable_count: int = field(default=0, init=False)
    """Attempts that ended in a rejection."""
    consecutive_errors_count: int = field(default=0, init=False)
    """Attempts that broke since the last rejection."""
    backoff_expiration: float | None = field(default=None, init=False)
    """Kept once it is known; follows from the timestamp and the counts."""
    initial_attempt_timestamp: float | None = field(default=None, init=False)
    """When nothing held it back for the first time."""
    unschedulable_plugins: frozenset[str] = field(default=NO_PLUGINS, init=False)
    """Who rejected it in its last attempt, or keeps it out of the queue."""
    pending_plugins: frozenset[str] = field(default=NO_PLUGINS, init=False)
    """Those among them whose events bring it back without a backoff."""
    gating_plugin: str = field(default="", init=False)
    """The PreEnqueue plugin that keeps it out right now."""
    was_flushed: bool = field(default=False, init=False)
    """It was last moved because it had waited too long, and not by an event."""
    flush_timestamp: float = field(default=NEVER, init=False)
    sort_key: SortKey = field(default=(), init=False)
    """Its rank by the QueueSort plugin; follows from pod and timestamp."""
    nomination_write: NominationWrite | None = field(default=None, init=False)
    """The write of its status.nominatedNodeName under way (`nominations.py`)."""
    sub_queue: SubQueue | None = field(default=None, init=False)
    """Where it waits; None while it is being tried, and once it has left."""
    ticket: int = field(default=0, init=False)
    """Which of its entries in a heap counts."""
    filed_under: tuple[tuple[str, str], ...] = field(default=(), init=False)
    """Profile and rejecting plugins under which the unschedulable part finds it."""

    @property
    def profile(self) -> str:
        """The scheduler name that it asks for."""
        return self.pod.spec.scheduler_name

    @property
    def rejectors(self) -> frozenset[str]:
        """All plugins that may bring it back. None: its last attempt broke, or it was never rejected."""
        if not self.pending_plugins:
            return self.unschedulable_plugins
        return self.unschedulable_plugins | self.pending_plugins

    @property
    def waits_since(self) -> float:
        """From when the longest stay among the unschedulable pods is counted."""
        return max(self.timestamp, self.flush_timestamp)
