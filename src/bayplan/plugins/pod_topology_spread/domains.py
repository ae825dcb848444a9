"""The number of matching pods in each domain, for one constraint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bayplan.plugin import BoolColumn, IntColumn, Pod, PodQuery, PodSelector
from bayplan.plugin._internal import DomainSums, PodCount
from bayplan.plugin.objects import SpreadConstraint

UNBOUNDED: Final = np.iinfo(np.int64).max


def count_query(pod: Pod, constraint: SpreadConstraint) -> PodQuery | None:
    """The pods that a constraint counts. The empty selector counts no assigned pods."""
    if constraint.selector.is_empty:
        return None
    return PodQuery((PodSelector(frozenset((pod.namespace,)), constraint.selector),), alive=True)


def hypothesis_query(pod: Pod, constraint: SpreadConstraint) -> PodQuery:
    """The pods that are counted if a hypothesis adds or removes them: also terminating ones, as upstream."""
    return PodQuery((PodSelector(frozenset((pod.namespace,)), constraint.selector),))


@dataclass(slots=True)
class Domains:
    """The domains of one constraint: the eligible nodes, and the number of matching pods in each domain."""

    constraint: SpreadConstraint
    eligible: BoolColumn
    count: PodCount | None
    """Matching pods on each node; None if the constraint counts none."""
    sums: DomainSums | None
    known: NDArray[np.intp]
    """Ids of the domains that have an eligible node."""

    def refresh(self) -> None:
        if self.sums is not None:
            self.sums.refresh()

    def totals(self, values: int) -> IntColumn:
        """Matching pods by domain id; the entry behind the last is for nodes without the label."""
        return np.zeros(values + 1, dtype=np.int64) if self.sums is None else self.sums.sums


@dataclass(frozen=True, slots=True)
class Scoring:
    """Properties of the feasible nodes that Score needs; valid while the same nodes are feasible."""

    ignored: BoolColumn | None
    """Nodes without some of the labels; they score 0."""
    absent: tuple[BoolColumn | None, ...]
    """For each constraint the nodes that lack its label; None if none does."""
    weights: tuple[float, ...]


@dataclass(slots=True)
class Limit:
    """One hard constraint: counts by domain, and the smallest of them. Cached; `refresh` updates the
    counts."""

    domains: Domains
    totals: IntColumn
    all_nodes_have_label: bool
    """Whether no node lacks the label."""
    self_match: int
    """1 if the pod matches its own selector, else 0."""
    change: PodQuery
    smallest: int = 0

    @property
    def first_violating_count(self) -> int:
        """The smallest count of a domain at which one more pod violates the constraint."""
        return self.domains.constraint.max_skew + self.smallest - self.self_match + 1

    def skewed_domains(self) -> BoolColumn:
        """For each domain whether one more pod violates the constraint."""
        skewed: BoolColumn = self.totals >= self.first_violating_count
        skewed[-1] = False
        return skewed

    def violating_domains(self) -> BoolColumn:
        """The same, with nodes without the label."""
        violating = self.skewed_domains()
        violating[-1] = not self.all_nodes_have_label
        return violating

    @property
    def smallest_of_others(self) -> int:
        """The smallest count without one domain that has the fewest pods."""
        known = self.domains.known
        if len(known) < self.domains.constraint.min_domains:
            return 0
        return int(np.partition(self.totals.take(known), 1)[1]) if len(known) > 1 else UNBOUNDED

    def refresh(self) -> None:
        """Updates the counts."""
        domains = self.domains
        if domains.sums is not None:
            domains.sums.refresh()
            self.totals = domains.sums.sums
        if len(domains.known) >= domains.constraint.min_domains:
            self.smallest = int(np.minimum.reduce(self.totals.take(domains.known)))


@dataclass(frozen=True, slots=True)
class Preference:
    """One soft constraint in this cycle."""

    constraint: SpreadConstraint
    absent: BoolColumn | None
    by_row: NDArray[np.float64] | None
    """The score of each row of the table, for spreading over hosts."""
    by_domain: NDArray[np.float64] | None
    """The score of each domain, for all other topology keys."""
