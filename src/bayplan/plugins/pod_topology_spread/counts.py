"""How many matching pods each domain holds, for the constraints of a signature; cached from pod to pod."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bayplan.plugin import BoolColumn, Cluster, IntColumn, Pod, PodQuery, PodSelector
from bayplan.plugin.counts import DomainSums, PodCount
from bayplan.plugin.spread import OWNER_KINDS, SpreadConstraint

UNBOUNDED: Final = np.iinfo(np.int64).max


def counted(pod: Pod, constraint: SpreadConstraint) -> PodQuery | None:
    """The pods that a constraint counts. The empty selector counts none of those already there."""
    if constraint.selector.is_empty:
        return None
    return PodQuery((PodSelector(frozenset((pod.namespace,)), constraint.selector),), alive=True)


def moved(pod: Pod, constraint: SpreadConstraint) -> PodQuery:
    """The pods whose coming and going a hypothesis counts: also those being deleted, as upstream does."""
    return PodQuery((PodSelector(frozenset((pod.namespace,)), constraint.selector),))


@dataclass(slots=True)
class Domains:
    """The domains of one constraint: which nodes count, and how many matching pods each domain holds."""

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


class Counts:
    """The counts for pods of one signature: for their own constraints, or for the defaults."""

    __slots__ = ("_freshness", "domains", "limits")

    def __init__(self, domains: tuple[Domains, ...], cluster: Cluster, by_default: bool) -> None:
        self.domains = domains
        self.limits: tuple[Limit, ...] | None = None
        changes = cluster.changes
        # Default constraints count the pods that the owners of the pod select.
        owners = changes.kinds(OWNER_KINDS) if by_default else ()
        on_nodes = (changes.topology, changes.queries) if domains else ()
        self._freshness = changes.freshness((*owners, *on_nodes))
        self._freshness.mark_current()

    def is_current(self, cluster: Cluster) -> bool:
        """Whether nothing has changed but pods that came and went, which the sums follow."""
        if not self._freshness.is_current:
            return False
        for domains in self.domains:
            if domains.count is not None:
                cluster.counts.touch(domains.count)
        return True


@dataclass(frozen=True, slots=True)
class Scoring:
    """What scoring needs to know about the nodes that fit; it holds as long as the same ones do."""

    ignored: BoolColumn | None
    """Nodes without some of the labels; they score 0."""
    absent: tuple[BoolColumn | None, ...]
    """For each constraint the nodes that lack its label; None if none does."""
    weights: tuple[float, ...]


@dataclass(slots=True)
class Limit:
    """One hard constraint: counts by domain, and the smallest of them. Kept; the counts follow the pods."""

    domains: Domains
    totals: IntColumn
    on_every_node: bool
    """Whether no node lacks the label."""
    itself: int
    """1 where the pod matches its own selector."""
    change: PodQuery
    smallest: int = 0

    @property
    def too_many(self) -> int:
        """The smallest count in a domain that makes a further pod break the constraint."""
        return self.domains.constraint.max_skew + self.smallest - self.itself + 1

    @property
    def smallest_of_others(self) -> int:
        """The smallest count once an emptiest domain is left out."""
        known = self.domains.known
        if len(known) < self.domains.constraint.min_domains:
            return 0
        return int(np.partition(self.totals.take(known), 1)[1]) if len(known) > 1 else UNBOUNDED

    def refresh(self) -> None:
        """Follows the pods that came and went."""
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
    """What each row of the table is worth, for spreading over hosts."""
    by_domain: NDArray[np.float64] | None
    """What each domain is worth, for everything else."""
