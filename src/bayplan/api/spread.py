"""Topology spread constraints, prepared: selectors compiled, defaults filled in, matchLabelKeys merged.

https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from bayplan.api.pod import TopologySpreadConstraint
from bayplan.api.selectors import Operator, Requirement, Selector, compile_selector

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
DO_NOT_SCHEDULE: Final = "DoNotSchedule"
SCHEDULE_ANYWAY: Final = "ScheduleAnyway"

SYSTEM_DEFAULTS: Final = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable=SCHEDULE_ANYWAY),
    TopologySpreadConstraint(max_skew=5, topology_key=ZONE, when_unsatisfiable=SCHEDULE_ANYWAY),
)
"""The default constraints for pods without any, unless the configuration sets others."""


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """One constraint, ready to be counted."""

    max_skew: int
    topology_key: str
    selector: Selector
    min_domains: int
    honors_node_affinity: bool
    honors_taints: bool

    @property
    def by_host(self) -> bool:
        return self.topology_key == HOSTNAME


def own_constraints(
    constraints: Iterable[TopologySpreadConstraint], action: str, labels: Mapping[str, str]
) -> tuple[SpreadConstraint, ...]:
    """The pod's own constraints with this action. Raises SelectorError for a malformed selector."""
    return tuple(
        _prepared(constraint, _own_selector(constraint, labels))
        for constraint in constraints
        if constraint.when_unsatisfiable == action
    )


def default_constraints(
    constraints: Iterable[TopologySpreadConstraint], action: str, selector: Selector
) -> tuple[SpreadConstraint, ...]:
    """The default constraints with this action, for a pod whose owners select it by `selector`."""
    return tuple(
        _prepared(constraint, selector)
        for constraint in constraints
        if constraint.when_unsatisfiable == action
    )


def _own_selector(constraint: TopologySpreadConstraint, labels: Mapping[str, str]) -> Selector:
    selector = compile_selector(constraint.label_selector)
    return selector.and_(
        *(
            Requirement(key, Operator.IN, frozenset((labels[key],)))
            for key in constraint.match_label_keys
            if key in labels
        )
    )


def _prepared(constraint: TopologySpreadConstraint, selector: Selector) -> SpreadConstraint:
    return SpreadConstraint(
        max_skew=constraint.max_skew,
        topology_key=constraint.topology_key,
        selector=selector,
        min_domains=1 if constraint.min_domains is None else constraint.min_domains,
        honors_node_affinity=(constraint.node_affinity_policy or "Honor") == "Honor",
        honors_taints=(constraint.node_taints_policy or "Ignore") == "Honor",
    )
