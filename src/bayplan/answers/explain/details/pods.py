"""Pods that are in the way: by their anti-affinity, by that of the incoming pod, or by a host port."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bayplan.answers.explain.details.subject import Subject, counted, named
from bayplan.api.host_ports import conflicts, host_ports
from bayplan.api.pod import Pod
from bayplan.plugins.inter_pod_affinity import AFFINITY, ANTI_AFFINITY
from bayplan.plugins.inter_pod_affinity.sums import CarrierCounts, FilterState, MatchCounts
from bayplan.state.cluster import Cluster
from bayplan.state.terms import TermKind, parse_terms, pod_terms


def ports_detail(subject: Subject) -> str:
    """The ports, and the pods that use them."""
    wanted = host_ports(subject.pod)
    several = len(subject.nodes) > 1
    texts = []
    for pod in subject.pods():
        used = host_ports(pod)
        where = f" on {pod.spec.node_name}" if several else ""
        texts += [
            f"{port.port}/{port.protocol} is used by {pod.key}{where}"
            for port in wanted
            if conflicts((port,), used)
        ]
    return named(texts, 1) if several else named(texts)


def affinity_between_pods_detail(subject: Subject) -> str:
    """The pods that a term selects, or that carry a term which selects the incoming pod, by domain."""
    state = subject.plugin_state()
    if not isinstance(state, FilterState):
        return ""
    if AFFINITY in subject.status.reasons:
        return "; ".join(_too_far(subject, near) for near in state.affinity)
    if ANTI_AFFINITY in subject.status.reasons:
        texts = [_too_near(subject, near) for near in state.anti_affinity]
    else:
        texts = [_kept_away(subject, term) for term in state.existing]
    return "; ".join(filter(None, texts))


def _too_far(subject: Subject, near: MatchCounts) -> str:
    """Where the pods are that a required term selects."""
    label = subject.cluster.nodes.label(near.topology_key)
    totals = near.sums.sums
    there = [
        f"{near.topology_key}={label.values.values[domain]} ({int(totals[domain]):,})"
        for domain in np.flatnonzero(totals[:-1] > 0).tolist()
    ]
    selector = _selector(near)
    if not there:
        return f"no assigned pod{_in_namespaces(near)} matches {selector}"
    absent = int(np.count_nonzero(label.column.array.take(subject.rows) < 0))
    without = f"; {counted(absent, 'node')} without the label" if absent else ""
    return f"pods matching {selector} are only in {named(there)}{without}"


def _too_near(subject: Subject, near: MatchCounts) -> str:
    """The pods that a required anti-affinity term selects, in the domains of the nodes."""
    domains = _domains(subject, near)
    if not domains:
        return ""
    pods = (
        f"{pod.key} in {near.topology_key}={value}"
        for pod, value in _in_domains(subject.cluster, near.topology_key, domains)
        if near.query.matches(pod.namespace, pod.labels)
    )
    return f"its anti-affinity to {_selector(near)}: {named(pods)}"


def _kept_away(subject: Subject, term: CarrierCounts) -> str:
    """The pods whose required anti-affinity selects the incoming pod, in the domains of the nodes."""
    domains = _domains(subject, term)
    if not domains:
        return ""
    pods = [
        f"{pod.key} in {term.topology_key}={value}"
        for pod, value in _in_domains(subject.cluster, term.topology_key, domains)
        if pod.spec.affinity is not None and _carries(pod, term)
    ]
    return f"anti-affinity to {term.carried.term.selector} of {named(pods)}" if pods else ""


def _carries(pod: Pod, term: CarrierCounts) -> bool:
    parsed = parse_terms(pod_terms(pod, TermKind.REQUIRED_ANTI_AFFINITY), pod.namespace)
    return any(own == term.carried.term for _, own in parsed)


def _domains(subject: Subject, found: MatchCounts | CarrierCounts) -> dict[int, str]:
    """The domains of the nodes in which there are such pods, by id."""
    if found.sums is None:
        return {}
    label = subject.cluster.nodes.label(found.topology_key)
    ids = np.unique(label.column.array.take(subject.rows))
    totals = found.sums.sums
    return {int(one): label.values.values[one] for one in ids.tolist() if one >= 0 and totals[one] > 0}


def _in_domains(cluster: Cluster, key: str, domains: dict[int, str]) -> Iterator[tuple[Pod, str]]:
    column = cluster.nodes.label(key).column.array
    for row in cluster.order.tolist():
        value = domains.get(int(column[row]))
        if value is not None:
            for pod in cluster.pods_on(row):
                yield pod, value


def _in_namespaces(near: MatchCounts) -> str:
    """The namespaces that a term selects; "" for all namespaces, or if its parts differ."""
    found = {part.namespaces for part in near.query.parts}
    names = found.pop() if len(found) == 1 else None
    return f" in namespace {named(sorted(names))}" if names else ""


def _selector(near: MatchCounts) -> str:
    return " and ".join(dict.fromkeys(str(part.selector) for part in near.query.parts)) or "any label"
