"""The results of the filters: the status of every node, why no node fits, and the result of PostFilter.

A chain of filters over many rows is two integers per row: `rejecting_plugin` is the index of the first plugin
that rejects the row (PASS if none does), `reason_id` the id of its reasons (`Reasons`). Texts are created
only when they are needed. `Diagnosis` and `FilterOutcome` are what PostFilter gets of a failed search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from types import GeneratorType
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from bayplan.api.pod import Pod
from bayplan.clock import Topic
from bayplan.framework.plugin_api import Reject
from bayplan.framework.state import SignatureMemory
from bayplan.framework.status import Code, Status, WrongResultError, wrong_result
from bayplan.state.cluster import Cluster
from bayplan.state.columns import IdColumn
from bayplan.state.hypothesis import Changes, Hypothesis

PASS: Final = 127
"""`rejecting_plugin` of a row that passes: larger than any index, so the smaller of two values wins."""

RejectingPlugins = NDArray[np.int8]
ReasonIds = NDArray[np.int64]


class Reasons:
    """The reasons of one plugin: every combination of reasons has an id; 0 is no reason."""

    __slots__ = ("_given", "_numbers", "_statuses", "has_errors", "plugin")

    def __init__(self, plugin: str) -> None:
        self.plugin = plugin
        self.has_errors = False
        self._given: list[tuple[tuple[Code, tuple[str, ...]], ...]] = [()]
        self._numbers: dict[tuple[tuple[Code, tuple[str, ...]], ...], int] = {(): 0}
        self._statuses: dict[int, Status] = {}

    def __len__(self) -> int:
        return len(self._given)

    def with_reason(self, before: int, reject: Reject) -> int:
        """The id of a combination with one more status at its end."""
        _check_status(reject.status)
        status = (reject.status.code, reject.status.reasons)
        given = self._given[before]
        if status in given:
            return before
        given = (*given, status)
        found = self._numbers.get(given)
        if found is None:
            found = self._numbers[given] = len(self._given)
            self._given.append(given)
            self.has_errors = self.has_errors or reject.status.code is Code.ERROR
        return found

    def status(self, reason_id: int) -> Status:
        """The status of a combination of reasons: an error wins, then unresolvable."""
        found = self._statuses.get(reason_id)
        if found is None:
            given = self._given[reason_id]
            codes = {code for code, _ in given}
            if Code.ERROR in codes:
                code = Code.ERROR
                given = tuple(status for status in given if status[0] is Code.ERROR)
            else:
                code = Code.UNRESOLVABLE if Code.UNRESOLVABLE in codes else Code.UNSCHEDULABLE
            texts = tuple(text for _, reasons in given for text in reasons)
            found = self._statuses[reason_id] = Status(code, texts, self.plugin)
        return found


class Rejections:
    """The rows that one plugin rejects and (computed only when needed) the reasons."""

    __slots__ = ("_parts", "_reason_id", "_reasons", "mask")

    def __init__(
        self, mask: NDArray[np.bool_], reasons: Reasons, parts: list[tuple[NDArray[np.bool_], Reject]]
    ) -> None:
        self.mask = mask
        self._reasons = reasons
        self._parts = parts
        self._reason_id: ReasonIds | None = None

    @classmethod
    def from_numbers(cls, reason_id: ReasonIds, reasons: Reasons) -> Rejections:
        """From the ids of the reasons of each row."""
        made = cls(reason_id != 0, reasons, [])
        made._reason_id = reason_id
        return made

    def reason_ids(self) -> ReasonIds:
        """The id of each row's reasons."""
        if self._reason_id is None:
            self._reason_id = np.zeros(len(self.mask), dtype=np.int64)
            for mask, reject in self._parts:
                self._add_reason(self._reason_id, mask, reject)
        return self._reason_id

    def _add_reason(self, reason_id: ReasonIds, mask: NDArray[np.bool_], reject: Reject) -> None:
        before = reason_id[mask]
        if not before.any():
            reason_id[mask] = self._reasons.with_reason(0, reject)
            return
        for number in np.unique(before).tolist():
            before[before == number] = -self._reasons.with_reason(number, reject)
        reason_id[mask] = -before

    def among(self, positions: NDArray[np.intp], rows: int) -> Rejections:
        """The rejections for all rows, if only those at `positions` were filtered."""
        reason_id = np.zeros(rows, dtype=np.int64)
        reason_id[positions] = self.reason_ids()
        return Rejections.from_numbers(reason_id, self._reasons)


_USUAL: Final = (GeneratorType, tuple, list)
_REJECTS: Final = (
    "yield Reject(mask, unschedulable(reason)) for rows that do not fit, or return a list of these"
)
_ARRAYS: Final = (np.ndarray, np.bool_)
_MASK: Final = "mask must be True, False or an array of bool"


def rejects(answer: object) -> Iterable[Reject]:
    """The result of Filter. Its items are checked where they are used."""
    if answer is None:
        return ()
    if type(answer) in _USUAL or (isinstance(answer, Iterator | set | frozenset)):
        return cast(Iterable[Reject], answer)
    raise wrong_result("filter", answer, _REJECTS)


_REJECTING: Final = (Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.ERROR)
_STATUS: Final = 'the status of a Reject must be unschedulable("reason"), unresolvable(…) or failure(…)'


def _check_status(status: object) -> None:
    if type(status) is not Status or status.code not in _REJECTING:
        raise wrong_result("filter", status, _STATUS)
    for reason in status.reasons:
        if type(reason) is not str:
            raise wrong_result("filter", reason, "the reason of a Reject must be a string")


def is_rejected(reject: Reject) -> bool:
    """Whether the only row that a plugin was called with is rejected."""
    try:
        mask = reject.mask
    except AttributeError:
        raise wrong_result("filter", reject, _REJECTS) from None
    if mask is False or mask is True:
        return mask
    if isinstance(mask, _ARRAYS) and mask.dtype == np.bool_:
        return bool(mask.any())
    raise wrong_result("filter", mask, _MASK)


def any_true(mask: NDArray[np.bool_]) -> bool:
    """`mask.any()` for a column of rows, which is slower and even slower if there is none."""
    return bool(len(mask)) and bool(mask[mask.argmax()])


def collect(rejects: Iterable[Reject], reasons: Reasons, rows: int) -> Rejections | None:
    """The rows that one plugin rejects; None if it rejects none."""
    parts: list[tuple[NDArray[np.bool_], Reject]] = []
    rejected: NDArray[np.bool_] | None = None
    for reject in rejects:
        try:
            mask = np.asarray(reject.mask)
        except AttributeError:
            raise wrong_result("filter", reject, _REJECTS) from None
        if mask.dtype != np.bool_:
            given = reject.mask if not mask.ndim else mask.dtype
            raise wrong_result("filter", given, f"{_MASK} ({reject.status.message})")
        if mask.shape != (rows,):
            if mask.ndim:
                text = (
                    f"filter returned a mask of shape {mask.shape} for {rows} rows ({reject.status.message})"
                )
                raise WrongResultError("filter", text)
            mask = np.full(rows, bool(mask))
        if any_true(mask):
            _check_status(reject.status)
            parts.append((mask, reject))
            rejected = mask if rejected is None else rejected | mask
            if reject.status.code is Code.ERROR:
                reasons.has_errors = True
    return None if rejected is None else Rejections(rejected, reasons, parts)


class NodeStatuses:
    """The results of the filters for some rows. `plain`: nominated pods reject none of them."""

    __slots__ = ("_layers", "_plain", "_reason_id", "_reasons", "_rejecting_plugin")

    def __init__(
        self,
        rejecting_plugin: RejectingPlugins,
        reason_id: ReasonIds,
        reasons: dict[int, Reasons],
        *,
        plain: bool = True,
    ) -> None:
        self._rejecting_plugin = rejecting_plugin
        self._reason_id = reason_id
        self._reasons = reasons
        self._layers: list[tuple[int, Rejections]] = []
        self._plain = plain

    def add(self, index: int, found: Rejections) -> None:
        """Adds the rejections of one more plugin; they apply to rows that no earlier plugin rejects."""
        self._layers.append((index, found))

    @property
    def rejecting_plugin(self) -> RejectingPlugins:
        self._resolve()
        return self._rejecting_plugin

    @property
    def reason_id(self) -> ReasonIds:
        self._resolve()
        return self._reason_id

    def _resolve(self) -> None:
        """Computes the first rejecting plugin of each row. A search that finds a node never needs it."""
        if not self._layers:
            return
        self._plain = False
        self._rejecting_plugin, self._reason_id = self._rejecting_plugin.copy(), self._reason_id.copy()
        for index, found in self._layers:
            first = found.mask & (self._rejecting_plugin > index)
            np.copyto(self._rejecting_plugin, index, where=first)
            np.copyto(self._reason_id, found.reason_ids(), where=first)
        self._layers.clear()

    def overrule(self, rows: NDArray[np.intp], other: NodeStatuses) -> None:
        """Replaces the results of the rows that `other`, which has results for these rows, rejects."""
        failing = (other.rejecting_plugin != PASS).nonzero()[0]
        if len(failing):
            self._plain = False
            self._rejecting_plugin, self._reason_id = self.rejecting_plugin.copy(), self.reason_id.copy()
            self._rejecting_plugin[rows.take(failing)] = other.rejecting_plugin.take(failing)
            self._reason_id[rows.take(failing)] = other.reason_id.take(failing)

    def detached(self) -> NodeStatuses:
        """A copy that does not change with the cluster."""
        return NodeStatuses(self.rejecting_plugin.copy(), self.reason_id.copy(), dict(self._reasons))

    @property
    def is_plain(self) -> bool:
        """Whether neither added plugins nor nominated pods reject a row."""
        return self._plain and not self._layers

    @property
    def passing(self) -> NDArray[np.bool_]:
        passing: NDArray[np.bool_] = self._rejecting_plugin == PASS
        for _, found in self._layers:
            passing &= ~found.mask
        return passing

    def status(self, position: int) -> Status | None:
        """The status of a rejected row; None if it was not rejected."""
        rejecting_plugin = int(self.rejecting_plugin[position])
        return (
            None
            if rejecting_plugin == PASS
            else self._reasons[rejecting_plugin].status(int(self.reason_id[position]))
        )

    def statuses(self) -> list[tuple[Status, NDArray[np.intp]]]:
        """Each distinct status with the positions that have it."""
        everywhere = np.ones(len(self._rejecting_plugin), dtype=np.bool_)
        return [(status, mask.nonzero()[0]) for status, mask in self.status_masks(everywhere)]

    def status_masks(self, among: NDArray[np.bool_]) -> list[tuple[Status, NDArray[np.bool_]]]:
        """Each distinct status with the mask of the positions that have it, among these."""
        rejecting_plugin, reason_id = self.rejecting_plugin, self.reason_id
        left = among & (rejecting_plugin != PASS)
        found: list[tuple[Status, NDArray[np.bool_]]] = []
        while left.any():
            # There are usually few distinct ones: extracting them one by one is faster than sorting.
            first = left.argmax()
            plugin, reason = rejecting_plugin[first], reason_id[first]
            same = left & (rejecting_plugin == plugin) & (reason_id == reason)
            found.append((self._reasons[int(plugin)].status(int(reason)), same))
            left &= ~same
        return found


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
    is_restricted: bool = False
    """Whether only some of the nodes counted, as for a member of a group: `node_count` is their number."""
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
                if len(self.evaluated) != self.node_count or self.is_restricted:
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
    filter_again: Callable[[], Callable[[Hypothesis], Status | None]] | None = None
    """Runs PreFilter again after pods were removed from the cluster or added; then evaluates hypotheses with
    one row. The other fields must not be used afterwards."""
