"""One pod's search for a node: its state, and its results."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Protocol

import msgspec

from bayplan.api.pod import Pod
from bayplan.framework.node_statuses import NodeStatuses
from bayplan.framework.outcome import Diagnosis, PostFilterResult
from bayplan.framework.plugin_api import NodeNames
from bayplan.framework.state import CycleState
from bayplan.framework.status import Status
from bayplan.runtime.extender_requests import Steps
from bayplan.runtime.feasible import Feasible
from bayplan.runtime.nominated_pods import RowFilter
from bayplan.runtime.signature_cache import CachedSignature
from bayplan.runtime.signature_results import SignatureResults
from bayplan.state.interning import IdColumn
from bayplan.state.pod_info import PodInfo
from bayplan.state.view import NodeColumns


@dataclass(slots=True)
class SearchStart:
    """Where the next search begins in the node list. Shared by all profiles."""

    index: int = 0


class Search(msgspec.Struct):
    """One pod's search in one cycle: what later steps of the cycle need."""

    pod: Pod
    pod_info: PodInfo
    state: CycleState
    signature: CachedSignature
    results: SignatureResults
    skipped_filters: Set[str] = frozenset()
    """Uncached plugins whose Filter is skipped for this pod."""
    pre_filter_answers: dict[str, Status | NodeNames] = msgspec.field(default_factory=dict)
    """What uncached plugins have returned before it turned out that the search cannot be repeated."""
    pre_filter_nodes: frozenset[str] | None = None
    pre_filter_plugins: list[str] = msgspec.field(default_factory=list)
    pre_filtered: frozenset[str] = frozenset()
    """Plugins whose PreFilter ran, for this pod or for an identical one before it."""
    skipped_scores: Set[str] | None = None
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


class Filtered(msgspec.Struct, frozen=True):
    """The result of filtering.

    `absent_nodes_status` is the status of the nodes that `pre_filter_plugins` excluded.
    """

    evaluated: IdColumn
    feasible: Feasible
    node_statuses: NodeStatuses
    absent_nodes_status: Status
    pre_filter_plugins: tuple[str, ...] = ()

    @property
    def view(self) -> NodeColumns:
        """The feasible rows, in the order in which they were found."""
        return self.feasible.view


class ExtenderSteps(Protocol):
    """The steps of a cycle that extenders take part in (`extender/steps.py`)."""

    needs_all_feasible: bool
    """Whether an extender filters or scores: the search then does not stop at the first feasible node."""

    def accepts(self, found: Found) -> Steps[bool]:
        """Whether extenders accept the pod's nominated node."""

    def choose(self, search: Search, filtered: Filtered) -> Steps[Found | NotFound]:
        """The best of the nodes that filters and extenders accept."""

    def select_victims(self, pod: Pod, answer: PostFilterResult) -> Steps[PostFilterResult]:
        """The eviction that extenders accept, in place of the one that PostFilter chose."""
