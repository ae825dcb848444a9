"""Selectors, affinities, tolerations: the scheduling constraints of a pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bayplan.api.meta import LabelSelector, LabelSelectorRequirement, NodeSelector, NodeSelectorTerm
from bayplan.api.pod import (
    Affinity,
    NodeAffinity,
    PodAffinity,
    PodAffinityTerm,
    PreferredSchedulingTerm,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)


def make_toleration(key: str = "", value: str | None = None, effect: str = "") -> Toleration:
    """A toleration of taints with this key, and with a value only of this one; of all effects by default."""
    if value is None:
        return Toleration(key=key, operator="Exists", effect=effect)
    return Toleration(key=key, operator="Equal", value=value, effect=effect)


def make_expression(key: str, operator: str, *values: str) -> LabelSelectorRequirement:
    """One entry of matchExpressions or matchFields."""
    return LabelSelectorRequirement(key=key, operator=operator, values=values)


def make_selector(
    labels: Mapping[str, str] | None = None, *expressions: LabelSelectorRequirement
) -> LabelSelector:
    """A label selector; without arguments the one that matches everything."""
    return LabelSelector(match_labels=dict(labels or {}), match_expressions=expressions)


def make_node_term(
    *expressions: LabelSelectorRequirement, fields: Iterable[LabelSelectorRequirement] = ()
) -> NodeSelectorTerm:
    return NodeSelectorTerm(match_expressions=expressions, match_fields=tuple(fields))


def make_node_affinity(
    *required: NodeSelectorTerm, preferred: Iterable[tuple[int, NodeSelectorTerm]] = ()
) -> Affinity:
    """Node affinity for `make_pod(affinity=…)`: required alternatives, and preferences with their weight."""
    return Affinity(
        node_affinity=NodeAffinity(
            required=NodeSelector(node_selector_terms=required) if required else None,
            preferred=tuple(PreferredSchedulingTerm(weight=w, preference=term) for w, term in preferred),
        )
    )


def make_pod_term(
    topology_key: str,
    labels: Mapping[str, str] | LabelSelector | None = None,
    *,
    namespaces: Sequence[str] = (),
    namespace_selector: LabelSelector | None = None,
) -> PodAffinityTerm:
    """A term of pod affinity or anti-affinity; without labels its selector is absent and matches nothing."""
    return PodAffinityTerm(
        topology_key=topology_key,
        label_selector=to_selector(labels),
        namespaces=tuple(namespaces),
        namespace_selector=namespace_selector,
    )


def make_pod_affinity(
    *,
    required: Iterable[PodAffinityTerm] = (),
    preferred: Iterable[tuple[int, PodAffinityTerm]] = (),
    anti_required: Iterable[PodAffinityTerm] = (),
    anti_preferred: Iterable[tuple[int, PodAffinityTerm]] = (),
) -> Affinity:
    """Affinity to other pods, and against them, for `make_pod(affinity=…)`."""
    return Affinity(
        pod_affinity=_pod_affinity(required, preferred),
        pod_anti_affinity=_pod_affinity(anti_required, anti_preferred),
    )


def make_spread(
    topology_key: str,
    labels: Mapping[str, str] | LabelSelector | None = None,
    *,
    max_skew: int = 1,
    hard: bool = True,
    min_domains: int | None = None,
    node_affinity_policy: str | None = None,
    node_taints_policy: str | None = None,
    match_label_keys: Sequence[str] = (),
) -> TopologySpreadConstraint:
    """A spread constraint; `hard` is DoNotSchedule, otherwise ScheduleAnyway."""
    return TopologySpreadConstraint(
        topology_key=topology_key,
        label_selector=to_selector(labels),
        max_skew=max_skew,
        when_unsatisfiable="DoNotSchedule" if hard else "ScheduleAnyway",
        min_domains=min_domains,
        node_affinity_policy=node_affinity_policy,
        node_taints_policy=node_taints_policy,
        match_label_keys=tuple(match_label_keys),
    )


def to_selector(labels: Mapping[str, str] | LabelSelector | None) -> LabelSelector | None:
    """A selector that requires these labels; a selector, or None, is returned unchanged."""
    if labels is None or isinstance(labels, LabelSelector):
        return labels
    return LabelSelector(match_labels=dict(labels))


def _pod_affinity(
    required: Iterable[PodAffinityTerm], preferred: Iterable[tuple[int, PodAffinityTerm]]
) -> PodAffinity | None:
    weighted = tuple(WeightedPodAffinityTerm(weight=w, pod_affinity_term=term) for w, term in preferred)
    required = tuple(required)
    return PodAffinity(required=required, preferred=weighted) if required or weighted else None
