"""What came of looking at all nodes: what PostFilter is given, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bayplan.api.pod import Pod
from bayplan.framework.node_statuses import NodeStatuses
from bayplan.framework.state import SignatureMemory
from bayplan.framework.status import Code, Status
from bayplan.snapshot.changes import Topic
from bayplan.snapshot.cluster import Cluster
from bayplan.snapshot.interning import IdColumn
from bayplan.snapshot.what_if import Hypothesis

NO_STATUS: Final = Status(Code.UNRESOLVABLE)
"""What holds for nodes that nobody looked at, unless something better is known."""


@dataclass(slots=True)
class Diagnosis:
    """Why no node fits.

    `node_statuses` covers all rows of the table, `evaluated` lists the evaluated rows, in order; all
    other nodes have the status `absent_nodes_status`.
    """

    cluster: Cluster
    node_count: int
    evaluated: IdColumn
    node_statuses: NodeStatuses | None
    absent_nodes_status: Status = NO_STATUS
    pre_filter_message: str = ""
    rejecting_plugins: set[str] = field(default_factory=set)
    pending_plugins: set[str] = field(default_factory=set)
    extender_statuses: dict[int, Status] = field(default_factory=dict)
    _statuses: list[tuple[Status, IdColumn]] | None = None

    def status(self, row: int) -> Status:
        """The status of a node: its own, or that of all nodes nobody looked at."""
        return self.explicit_status(row) or self.absent_nodes_status

    def overrule(self, statuses: dict[int, Status]) -> None:
        """What extenders say of rows comes before what plugins said."""
        self.extender_statuses = dict(statuses)
        if statuses:
            self.evaluated = self.evaluated[~np.isin(self.evaluated, list(statuses))]
            self._statuses = None

    def explicit_status(self, row: int) -> Status | None:
        if row in self.extender_statuses:
            return self.extender_statuses[row]
        if self.node_statuses is None or not (self.evaluated == row).any():
            return None
        return self.node_statuses.status(row)

    def statuses(self) -> list[tuple[Status, IdColumn]]:
        """Each distinct explicit status with the rows that have it."""
        if self.node_statuses is None:
            return []
        if self._statuses is not None:
            return self._statuses
        found = self.node_statuses.statuses(self.evaluated)
        found.extend(
            (status, np.array([row], dtype=np.intp)) for row, status in self.extender_statuses.items()
        )
        self._statuses = found
        return found

    def rows_with(self, code: Code) -> IdColumn:
        """The rows whose effective status has this code, in the order of the node list."""
        order, statuses = self.cluster.order, self.statuses()
        if len(statuses) == 1 and statuses[0][0].code is code and len(statuses[0][1]) == len(order):
            return order
        wanted = np.zeros(self.cluster.nodes.high, dtype=np.bool_)
        if self.absent_nodes_status.code is code:
            wanted[order] = True
        for status, rows in statuses:
            wanted[rows] = status.code is code
        return order[wanted.take(order)]


def histogram(entries: Iterable[tuple[str, int]]) -> str:
    """`3 Insufficient cpu, 5 Too many pods`: sorted as strings, as upstream does."""
    counts: dict[str, int] = {}
    for reason, times in entries:
        counts[reason] = counts.get(reason, 0) + times
    return ", ".join(sorted(f"{times} {reason}" for reason, times in counts.items()))


def fit_error(
    node_count: int,
    statuses: Iterable[tuple[Status, int]],
    absent_nodes_status: Status = NO_STATUS,
    pre_filter_message: str = "",
    post_filter_message: str = "",
) -> str:
    """The message of a pod that fits nowhere. `statuses` are explicit ones and how many nodes have each."""
    text = f"0/{node_count} nodes are available:"
    if pre_filter_message:
        text += f" {pre_filter_message}."
    else:
        entries: list[tuple[str, int]] = []
        explicit = 0
        for status, times in statuses:
            explicit += times
            entries.extend((reason, times) for reason in status.reasons)
        if explicit < node_count:
            entries.extend((reason, node_count - explicit) for reason in absent_nodes_status.reasons)
        counted = histogram(entries)
        if counted:
            text += f" {counted}."
    if post_filter_message:
        text += f" {post_filter_message}"
    return text


@dataclass(frozen=True, slots=True)
class Nomination:
    """What becomes of status.nominatedNodeName. An empty name clears it."""

    node_name: str


@dataclass(frozen=True, slots=True)
class Eviction:
    """What a preemption wants done: these pods evicted from this node, most important first."""

    node_name: str
    victims: tuple[Pod, ...]
    pdb_violations: int = 0


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """`nomination` None leaves the pod's nomination as it is. `eviction` is carried out by the scheduler.

    `alternatives` gives every eviction that would help, for extenders that have a say in it; `earlier` is
    what plugins asked before this one had to say.
    """

    status: Status
    nomination: Nomination | None = None
    eviction: Eviction | None = None
    alternatives: Callable[[], Sequence[Eviction]] | None = None
    earlier: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LocalFilters:
    """What follows from a row alone, for a pod of which filters judge that look at the whole cluster."""

    filter_hypothesis: Callable[[Hypothesis], NodeStatuses]
    """What the others say."""
    locally_decided: Callable[[], NDArray[np.bool_]]
    """The rows on which it is for the others to say: those let the pod in, whoever is taken away there."""


@dataclass(slots=True)
class FilterOutcome:
    """PostFilter's view of the failed search."""

    cluster: Cluster
    diagnosis: Diagnosis
    filter_hypothesis: Callable[[Hypothesis], NodeStatuses]
    """What the filters, nominated pods included, say about rows with other pods on them."""
    memory: SignatureMemory
    """For what may be reused for identical pods."""
    topics: Sequence[Topic]
    """The topics that the filters depend on besides rows: what is reused has to depend on them, too."""
    pre_filtered: Set[str]
    """The plugins whose PreFilter was run in this cycle."""
    is_local: bool
    """Whether the node_statuses on a row follow from that row alone, for this pod."""
    local_filters: LocalFilters | None = None
    """Where they do not: what does. None: nothing is to be reused."""
