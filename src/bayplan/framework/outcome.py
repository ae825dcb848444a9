"""The result of a failed search: the input of PostFilter, and its result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bayplan.api.pod import Pod
from bayplan.clock import Topic
from bayplan.framework.node_statuses import NodeStatuses
from bayplan.framework.state import SignatureMemory
from bayplan.framework.status import Code, Status
from bayplan.state.cluster import Cluster
from bayplan.state.interning import IdColumn
from bayplan.state.what_if import Changes, Hypothesis

NO_STATUS: Final = Status(Code.UNRESOLVABLE)
"""The status of nodes that were not evaluated, unless a better one is known."""


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
    _masks: list[tuple[Status, NDArray[np.bool_], int]] | None = None

    def status(self, row: int) -> Status:
        """The status of a node: its own, or that of all nodes that were not evaluated."""
        return self.explicit_status(row) or self.absent_nodes_status

    def overrule(self, statuses: dict[int, Status]) -> None:
        """The statuses of extenders take precedence over those of plugins."""
        self.extender_statuses = dict(statuses)
        if statuses:
            self.evaluated = self.evaluated[~np.isin(self.evaluated, list(statuses))]
            self._masks = None

    def explicit_status(self, row: int) -> Status | None:
        if row in self.extender_statuses:
            return self.extender_statuses[row]
        if self.node_statuses is None or not np.count_nonzero(self.evaluated == row):
            return None
        return self.node_statuses.status(row)

    def statuses(self) -> list[tuple[Status, IdColumn]]:
        """Each distinct explicit status with the rows that have it."""
        found = [(status, mask.nonzero()[0]) for status, mask, _ in self._status_masks()]
        found.extend(
            (status, np.array([row], dtype=np.intp)) for row, status in self.extender_statuses.items()
        )
        return found

    def counts(self) -> list[tuple[Status, int]]:
        """Each distinct explicit status with the number of rows that have it."""
        found = [(status, count) for status, _, count in self._status_masks()]
        found.extend((status, 1) for status in self.extender_statuses.values())
        return found

    def _status_masks(self) -> list[tuple[Status, NDArray[np.bool_], int]]:
        """Each status of evaluated rows, with the rows and their number. Those of extenders are not among
        them."""
        if self._masks is None:
            self._masks = []
            if self.node_statuses is not None:
                among = self.cluster.nodes.exists.read
                if len(self.evaluated) != self.node_count:
                    among = np.zeros(len(among), dtype=np.bool_)
                    among[self.evaluated] = True
                self._masks = [
                    (status, mask, int(np.count_nonzero(mask)))
                    for status, mask in self.node_statuses.status_masks(among)
                ]
        return self._masks

    def rows_with(self, code: Code) -> IdColumn:
        """The rows whose effective status has this code, in the order of the node list."""
        order, masks = self.cluster.order, self._status_masks()
        if len(masks) == 1 and masks[0][0].code is code and masks[0][2] == len(order):
            return order
        wanted = np.full(self.cluster.nodes.high, self.absent_nodes_status.code is code, dtype=np.bool_)
        for status, mask, _ in masks:
            wanted[mask] = status.code is code
        for row, status in self.extender_statuses.items():
            wanted[row] = status.code is code
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
    """The message of a pod that fits on no node. `statuses` are explicit ones with the number of nodes for
    each."""
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
    """The new status.nominatedNodeName. An empty name clears it."""

    node_name: str


@dataclass(frozen=True, slots=True)
class Eviction:
    """An eviction that a preemption requires: these pods from this node, most important first."""

    node_name: str
    victims: tuple[Pod, ...]
    pdb_violations: int = 0


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """The result of PostFilter. The scheduler executes `eviction`. None as `nomination` leaves it unchanged.

    `alternatives` has every eviction that would help, for extenders that take part in the choice; `earlier`
    has the reasons of the plugins called before this one. `traceback` is set by the scheduler if the plugin
    raised an exception.
    """

    status: Status
    nomination: Nomination | None = None
    eviction: Eviction | None = None
    alternatives: Callable[[], Sequence[Eviction]] | None = None
    earlier: tuple[str, ...] = ()
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class LocalFilters:
    """The filters that depend on the row alone, for a pod that also has filters over the whole cluster."""

    filter_hypothesis: Callable[[Hypothesis], NodeStatuses]
    """The results of the local filters."""
    locally_decided: Callable[[], NDArray[np.bool_]]
    """The rows that pass the other filters, whichever pods are removed from them."""


FilterRow = Callable[[int, Changes], Status | None]
"""Why one row with these changes is rejected, nominated pods included; None if it is not."""


@dataclass(slots=True)
class FilterOutcome:
    """The failed search, as PostFilter sees it."""

    cluster: Cluster
    diagnosis: Diagnosis
    filter_hypothesis: Callable[[Hypothesis], NodeStatuses]
    """The results of the filters, nominated pods included, for rows with hypothetical pods."""
    memory: SignatureMemory
    """For values that are reused for identical pods."""
    topics: Sequence[Topic]
    """The topics that the filters depend on besides rows; values that are reused have to depend on them,
    too."""
    pre_filtered: Set[str]
    """The plugins whose PreFilter ran in this cycle."""
    is_local: bool
    """Whether the results on a row depend on that row alone, for this pod."""
    local_filters: LocalFilters | None = None
    """If not all are local: those that are. None: no results can be reused."""
    filter_row: FilterRow | None = None
    """`filter_hypothesis` for one row; None if a plugin needs arrays."""
