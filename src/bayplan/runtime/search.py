"""One pod's search for a node: its state, and its results."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias, TypeVar

import msgspec

from bayplan.api.pod import Pod
from bayplan.framework.outcome import Diagnosis, Eviction, NodeStatuses, PostFilterResult
from bayplan.framework.state import CycleState
from bayplan.framework.status import Status
from bayplan.runtime.feasible import Feasible
from bayplan.runtime.signature_results import CachedSignature, SignatureResults
from bayplan.state.columns import IdColumn
from bayplan.state.hypothesis import Changes
from bayplan.state.pods import PodInfo
from bayplan.state.view import IntColumn, NodeColumns

EXTENDER: Final = "Extender"
"""Added to the rejecting plugins if extenders removed nodes: any event may then requeue the pod."""


@dataclass(frozen=True, slots=True)
class FilterRequest:
    """Which of these nodes may the pod go to? Sent after all Filter plugins."""

    pod: Pod
    node_names: Sequence[str]


@dataclass(frozen=True, slots=True)
class FilterResponse:
    """The remaining nodes, in the order of the last answer, and the statuses of others.

    With `error` the attempt fails, and nothing else is set. A node that was dropped without a reason has no
    status: it counts among those that were not evaluated. A status may also name a node that was not in the
    request: it then replaces the plugins' status of that node, as upstream.
    """

    node_names: tuple[str, ...] = ()
    statuses: dict[str, Status] = field(default_factory=dict)
    removed: bool = False
    """Whether fewer nodes are left: then `EXTENDER` is added to the rejecting plugins."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class PrioritizeRequest:
    """How good are these nodes? Sent only with two or more of them."""

    pod: Pod
    node_names: Sequence[str]


@dataclass(frozen=True, slots=True)
class PrioritizeResponse:
    """The scores to add to each node's total, weights included.

    A node is in `scores` if any extender had an entry for it, even of 0: upstream breaks ties among such
    nodes at random.
    """

    scores: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PreemptRequest:
    """Which of these evictions are acceptable?"""

    pod: Pod
    candidates: Sequence[Eviction]


@dataclass(frozen=True, slots=True)
class PreemptResponse:
    """The remaining evictions, possibly with other victims. None left: no pod is evicted.

    With `error` preemption fails with that text, and no pod is evicted, either.
    """

    candidates: tuple[Eviction, ...] = ()
    error: str = ""


Request = FilterRequest | PrioritizeRequest | PreemptRequest
Response = FilterResponse | PrioritizeResponse | PreemptResponse

ResultT = TypeVar("ResultT")

Steps: TypeAlias = Generator[Request, Response, ResultT]
"""A part of a cycle that may call extenders."""


def run_through(steps: Steps[ResultT]) -> ResultT:
    """The result of steps without extenders."""
    try:
        request = next(steps)
    except StopIteration as end:
        result: ResultT = end.value
        return result
    raise RuntimeError(f"there are no extenders to answer {request!r}")


@dataclass(slots=True)
class SearchStart:
    """Where the next search begins in the node list. Shared by all profiles."""

    index: int = 0


RowFilter = Callable[[int, Changes], tuple[int, int]]
"""The plugin that rejects a row with these changes, or PASS, and the id of its reasons."""


class Search(msgspec.Struct):
    """One pod's search in one cycle: what later steps of the cycle need."""

    pod: Pod
    pod_info: PodInfo
    state: CycleState
    signature: CachedSignature
    results: SignatureResults
    explained: bool = False
    """Every node is evaluated, and the next search begins where this one did: for explanations."""
    is_settled: bool = False
    """Whether nothing but the pods on the nodes has changed since the last search for an identical pod."""
    skipped_filters: frozenset[str] = frozenset()
    """Uncached plugins whose Filter is skipped for this pod."""
    rows: IdColumn | None = None
    """The rows among which to search, for a member of a group, in the order of the node list; None: all."""
    pre_filter_nodes: frozenset[str] | None = None
    pre_filter_plugins: tuple[str, ...] = ()
    pre_filtered: frozenset[str] = frozenset()
    """Plugins whose PreFilter ran, for this pod or for an identical one before it."""
    filtered: Filtered | None = None
    """For explanations: the result of Filter; None if PreFilter or the nominated node ended the search."""
    skipped_scores: frozenset[str] | None = None
    """Uncached plugins whose Score is skipped for this pod; None if nothing was scored."""
    row_filters: dict[bool, RowFilter | None] = msgspec.field(default_factory=dict)
    """The filters on single hypothetical rows, once they are needed: all of them, or the cached ones."""


class Found(msgspec.Struct, frozen=True):
    """A node for the pod. `evaluated` nodes were evaluated, of which `feasible` fit."""

    search: Search
    row: int
    node_name: str
    feasible: int
    evaluated: int


@dataclass(frozen=True, slots=True)
class NotFound:
    """No node fits; `diagnosis` has the reasons."""

    search: Search
    diagnosis: Diagnosis


class Filtered(msgspec.Struct):
    """The result of Filter.

    `absent_nodes_status` is the status of the nodes that PreFilter excluded. The statuses of single nodes are
    computed only if they are needed: usually some node is feasible.
    """

    evaluated: IdColumn
    feasible: Feasible
    absent_nodes_status: Status
    node_statuses: NodeStatuses | None = None
    """Filled in by `Framework.node_statuses`."""


class Accepted(msgspec.Struct, frozen=True):
    """The feasible nodes that extenders accept, in the order of their answer."""

    view: NodeColumns
    response: FilterResponse

    @property
    def count(self) -> int:
        return len(self.view)

    def row_at(self, position: int) -> int:
        return int(self.view.rows[position])


class ExtenderSteps(Protocol):
    """The steps of a cycle that extenders take part in (`extender/steps.py`)."""

    needs_all_feasible: bool
    """Whether an extender filters or scores: the search then does not stop at the first feasible node."""

    def accepts(self, found: Found) -> Steps[bool]:
        """Whether extenders accept the pod's nominated node."""

    def filter(self, pod: Pod, feasible: NodeColumns) -> Steps[Accepted]:
        """The feasible nodes that extenders accept."""

    def best(self, pod: Pod, nodes: NodeColumns, totals: IntColumn) -> Steps[int]:
        """The row with the highest total of plugins and extenders."""

    def select_victims(self, pod: Pod, answer: PostFilterResult) -> Steps[PostFilterResult]:
        """The eviction that extenders accept, in place of the one that PostFilter chose."""
