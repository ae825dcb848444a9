"""One pod's search for a node: what it carries along, and how it can end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from bayplan.api.pod import Pod
from bayplan.framework.node_statuses import Verdicts
from bayplan.framework.outcome import Diagnosis, PostFilterResult
from bayplan.framework.state import CycleState
from bayplan.framework.status import Status
from bayplan.runtime.extender_requests import Steps
from bayplan.runtime.feasible import Feasible
from bayplan.runtime.signature_results import Standing
from bayplan.snapshot.facts import PodFacts
from bayplan.snapshot.interning import IdColumn
from bayplan.snapshot.view import NodeColumns


@dataclass(slots=True)
class SearchStart:
    """Where the next search begins in the node list. Shared by all profiles."""

    index: int = 0


@dataclass(slots=True)
class Idle:
    """Plugins that have nothing to do for pods of a shape, as long as the cluster's rules stay the same."""

    rules_version: int
    filters: set[str] = field(default_factory=set)
    scores: set[str] = field(default_factory=set)


class Search(msgspec.Struct):
    """One pod's search in one cycle: what later steps of the cycle need to know of it."""

    pod: Pod
    facts: PodFacts
    state: CycleState
    standing: Standing
    skipped: set[str] = msgspec.field(default_factory=set)
    """Plugins without Filter for this pod, besides those that the Standing skips."""
    node_set: frozenset[str] | None = None
    node_set_by: list[str] = msgspec.field(default_factory=list)
    pre_filtered: frozenset[str] = frozenset()
    """Plugins whose PreFilter was run (or had been, for a pod like this one)."""
    silent: set[str] | None = None
    """Plugins without Score for this pod, besides kept ones; None where nothing was scored."""

    def idle(self, rules_version: int) -> Idle:
        """What is remembered for the pod's shape."""
        known: Idle | None = self.state.kept.get(Idle)
        if known is None or known.rules_version != rules_version:
            known = self.state.kept[Idle] = Idle(rules_version)
        return known


class Found(msgspec.Struct, frozen=True):
    """A node for the pod. `evaluated` nodes were looked at, of which `feasible` fit."""

    search: Search
    row: int
    node_name: str
    feasible: int
    evaluated: int


@dataclass(frozen=True, slots=True)
class NotFound:
    """No node fits; `diagnosis` says why."""

    search: Search
    diagnosis: Diagnosis


class Filtered(msgspec.Struct, frozen=True):
    """What filtering left.

    `absent` is what holds for nodes that were not looked at, because the plugins in `narrowed_by` said so.
    """

    looked_at: IdColumn
    feasible: Feasible
    verdicts: Verdicts
    absent: Status
    narrowed_by: tuple[str, ...] = ()

    @property
    def view(self) -> NodeColumns:
        """The rows that fit, in the order in which they were found."""
        return self.feasible.view


class ExtenderSteps(Protocol):
    """The steps of a cycle that extenders take part in (`extender/steps.py`)."""

    needs_all_feasible: bool
    """Whether an extender filters or scores: the search then does not stop at the first feasible node."""

    def accepts(self, found: Found) -> Steps[bool]:
        """Whether extenders let the pod have its nominated node."""

    def choose(self, search: Search, filtered: Filtered) -> Steps[Found | NotFound]:
        """The best of the nodes that filters and extenders leave."""

    def select_victims(self, pod: Pod, answer: PostFilterResult) -> Steps[PostFilterResult]:
        """The eviction that extenders leave, in place of the one that PostFilter chose."""
