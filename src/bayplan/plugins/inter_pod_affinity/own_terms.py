"""The (anti-)affinity terms of the incoming pod, as queries for the pods they select."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from bayplan.plugin import Cluster, Namespace, Pod, PodQuery, PodSelector, SelectorError
from bayplan.plugin.objects import NOTHING, AffinityTerm, TermKind, parse_terms, pod_terms

PREFIXES: Final = {
    TermKind.REQUIRED_AFFINITY: "requiredAffinityTerms",
    TermKind.REQUIRED_ANTI_AFFINITY: "requiredAntiAffinityTerms",
    TermKind.PREFERRED_AFFINITY: "preferredAffinityTerms",
    TermKind.PREFERRED_ANTI_AFFINITY: "preferredAntiAffinityTerms",
}

PREFERENCES: Final = ((TermKind.PREFERRED_AFFINITY, 1), (TermKind.PREFERRED_ANTI_AFFINITY, -1))
"""Kinds of terms that attract pods (1) or repel them (-1)."""


@dataclass(frozen=True, slots=True)
class OwnTerms:
    """The incoming pod's terms, as queries for the pods they select, each with its topology key."""

    affinity: tuple[tuple[str, PodQuery], ...] = ()
    """Required affinity: pods that all terms select, for each key."""
    anti_affinity: tuple[tuple[str, PodQuery], ...] = ()
    """Required anti-affinity: pods that each term selects."""
    preferred: tuple[tuple[int, str, PodQuery], ...] = ()
    """Preferences, with their weight; a negative one repels."""
    satisfies_itself: bool = True
    """Whether all required affinity terms select the pod itself."""
    problem: str = ""
    """Set if a term cannot be parsed."""

    @property
    def has_required_terms(self) -> bool:
        return bool(self.affinity or self.anti_affinity)


NO_TERMS: Final = OwnTerms()


class CachedOwnTerms:
    """The terms for pods of one signature; namespace selectors depend on the Namespace objects."""

    __slots__ = ("_freshness", "_terms")

    def __init__(self, cluster: Cluster) -> None:
        changes = cluster.changes
        self._freshness = changes.freshness((changes.kind(Namespace),))
        self._terms = NO_TERMS

    def update(self, pod: Pod, cluster: Cluster) -> OwnTerms:
        if not self._freshness.is_current:
            self._terms = own_terms(pod, cluster)
            self._freshness.mark_current()
        return self._terms


def own_terms(pod: Pod, cluster: Cluster) -> OwnTerms:
    terms: dict[TermKind, tuple[tuple[int, AffinityTerm], ...]] = {}
    problems = []
    for kind in TermKind:
        try:
            parsed = parse_terms(pod_terms(pod, kind), pod.namespace)
            terms[kind] = tuple((weight, _resolved(term, cluster)) for weight, term in parsed)
        except SelectorError as error:
            terms[kind] = ()
            problems.append(f"{PREFIXES[kind]}: {error}")
    affinity = [term for _, term in terms[TermKind.REQUIRED_AFFINITY]]
    everyone = _all_of(affinity)
    return OwnTerms(
        affinity=tuple((key, everyone) for key in dict.fromkeys(term.topology_key for term in affinity)),
        anti_affinity=tuple(
            (term.topology_key, _all_of([term])) for _, term in terms[TermKind.REQUIRED_ANTI_AFFINITY]
        ),
        preferred=tuple(
            (sign * weight, term.topology_key, _all_of([term]))
            for kind, sign in PREFERENCES
            for weight, term in terms[kind]
        ),
        satisfies_itself=all(selects(term, pod) for term in affinity),
        problem=problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]" if problems else "",
    )


def _resolved(term: AffinityTerm, cluster: Cluster) -> AffinityTerm:
    """Namespaces found by a selector are added by name.

    v1.36 then evaluates the selector again, without labels: one that matches an empty set of labels selects
    every namespace. From v1.37 on only the names are used.
    """
    selector = term.namespace_selector
    if selector.is_nothing or selector.is_empty:
        return term
    names = {ns.name for ns in cluster.objects.of(Namespace) if selector.matches(ns.labels)}
    left = NOTHING if cluster.release.namespace_selectors_by_name else selector
    return AffinityTerm(term.topology_key, term.namespaces | names, left, term.selector)


def _pod_selector(term: AffinityTerm) -> PodSelector:
    everywhere = term.namespace_selector.matches({})
    return PodSelector(None if everywhere else term.namespaces, term.selector)


def _all_of(terms: Iterable[AffinityTerm]) -> PodQuery:
    """Pods that all of these terms select."""
    return PodQuery(tuple(_pod_selector(term) for term in terms))


def selects(term: AffinityTerm, pod: Pod) -> bool:
    return _pod_selector(term).matches(pod.namespace, pod.labels)
