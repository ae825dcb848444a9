"""Queueing hints of InterPodAffinity: pods and nodes whose changes may make a pod schedulable.

Terms are used as written: hints do not look up namespaces.
"""

from __future__ import annotations

from bayplan.plugin import Node, Pod
from bayplan.plugin.objects import AffinityTerm, TermKind, parse_terms, pod_terms
from bayplan.plugins.inter_pod_affinity.own_terms import selects


def pod_may_help(pod: Pod, old: Pod | None, new: Pod | None, *, any_term: bool) -> bool:
    """`any_term`: one anti-affinity term is enough (v1.37), or all have to select the pod (v1.36)."""
    selects_anti = _any_selects if any_term else _all_select
    itself = new is not None and new.uid == pod.uid
    if old is not None and new is not None:
        if itself:
            return True
        if not _has_node(new):
            return False
        affinity = _terms(pod, TermKind.REQUIRED_AFFINITY)
        anti = _terms(pod, TermKind.REQUIRED_ANTI_AFFINITY)
        starts = not _all_select(affinity, old) and _all_select(affinity, new)
        stops = selects_anti(anti, old) and not selects_anti(anti, new)
        return starts or stops
    if new is not None:
        return _has_node(new) and _all_select(_terms(pod, TermKind.REQUIRED_AFFINITY), new)
    assert old is not None
    return _has_node(old) and (
        selects_anti(_terms(pod, TermKind.REQUIRED_ANTI_AFFINITY), old)
        or selects_anti(_terms(old, TermKind.REQUIRED_ANTI_AFFINITY), pod)
    )


def node_may_help(pod: Pod, old: Node | None, new: Node | None) -> bool:
    assert new is not None
    affinity = _terms(pod, TermKind.REQUIRED_AFFINITY)
    anti = _terms(pod, TermKind.REQUIRED_ANTI_AFFINITY)
    if old is None:
        return any(term.topology_key in new.labels for term in affinity) or bool(anti)
    appeared = any(
        term.topology_key in new.labels and new.labels[term.topology_key] != old.labels.get(term.topology_key)
        for term in affinity
    )
    vanished = any(
        term.topology_key in old.labels and old.labels[term.topology_key] != new.labels.get(term.topology_key)
        for term in anti
    )
    return appeared or vanished


def _has_node(pod: Pod) -> bool:
    return bool(pod.spec.node_name or pod.status.nominated_node_name)


def _terms(pod: Pod, kind: TermKind) -> list[AffinityTerm]:
    return [term for _, term in parse_terms(pod_terms(pod, kind), pod.namespace)]


def _any_selects(terms: list[AffinityTerm], pod: Pod) -> bool:
    return any(selects(term, pod) for term in terms)


def _all_select(terms: list[AffinityTerm], pod: Pod) -> bool:
    """Whether every term selects the pod. Without terms, False."""
    return bool(terms) and all(selects(term, pod) for term in terms)
