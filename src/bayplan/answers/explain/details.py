"""Details that kube-scheduler's reasons leave out: which label, taint, pod, domain or port it is.

The reasons are fixed texts, because kube-scheduler counts them. `detail` finds the remedies
(`remedies.py`) for the nodes that one plugin rejects for one reason, and so what exactly is in the way and
how near the nearest node is. Each function here reads what its plugin reads, and is about one plugin;
`DETAILS`, at the end, says which. Volumes are in `volumes.py`, devices in `devices.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

import numpy as np

from bayplan.answers.explain.labels import can_match, label_remedies
from bayplan.answers.explain.rejections import Rejection, Subject
from bayplan.answers.explain.remedies import (
    MAX_NAMED,
    AddLabel,
    AddMatchingPod,
    AddResource,
    AllowPods,
    DeclareFeatures,
    Detail,
    FreePort,
    PodInTheWay,
    Remedy,
    RemoveFromDomain,
    SeparatePods,
    TaintToTolerate,
    TolerateTaints,
    named,
    resources_detail,
)
from bayplan.answers.explain.volumes import (
    binding_detail,
    limits_detail,
    restrictions_detail,
    zone_detail,
)
from bayplan.api.node import Namespace
from bayplan.api.node_selectors import CompiledTerm, compile_terms, required_node_affinity
from bayplan.api.pod import Pod, conflicts, host_ports, untolerated_taint
from bayplan.api.quantity import CPU, MAX_REQUEST, MILLI, NANO, resource_amount
from bayplan.api.requests import exact_requests
from bayplan.api.selectors import Requirement, Selector
from bayplan.framework.builtin_args import NodeAffinityArgs
from bayplan.framework.status import Code
from bayplan.plugins.inter_pod_affinity import AFFINITY, ANTI_AFFINITY
from bayplan.plugins.inter_pod_affinity.counts import CarrierCounts, FilterState, MatchCounts
from bayplan.plugins.node_affinity import REASON_ADDED, REASON_POD
from bayplan.plugins.node_declared_features import required_features
from bayplan.plugins.node_resources_fit import NEEDED, TOO_MANY_PODS, Needed
from bayplan.plugins.pod_topology_spread import MISSING_LABEL
from bayplan.plugins.pod_topology_spread.domains import Limit
from bayplan.runtime.framework import Framework
from bayplan.state.columns import IdColumn
from bayplan.state.terms import PodQuery, TermKind, parse_terms, pod_terms

Describe = Callable[[Subject], Detail]


# NodeResourcesFit


def fit_detail(subject: Subject) -> Detail:
    """The node with the smallest shortage."""
    if TOO_MANY_PODS.message in subject.status.reasons:
        full = _full(subject)
        # The nearest node as to the pods need not be the nearest as to other resources.
        subject = replace(subject, nodes=full.nodes, rows=_rows(subject, full.nodes))
        short = resources_detail([*_short_resources(subject)])
        text = "; ".join(filter(None, (full.text, short.text)))
        return Detail(text, (full, *short.remedies))
    return resources_detail([*_short_resources(subject)])


def _rows(subject: Subject, nodes: Sequence[str]) -> IdColumn:
    row_of = subject.cluster.nodes.row_of
    return np.array([row_of[name] for name in nodes], dtype=np.intp)


def _full(subject: Subject) -> AllowPods:
    nodes = subject.cluster.nodes
    allowed, count = nodes.allowed_pods.array.take(subject.rows), nodes.pod_count.array.take(subject.rows)
    nearest = int(np.argmin(count - allowed))
    node = (subject.nodes[nearest],)
    return AllowPods(node, int(count[nearest]), int(allowed[nearest]), subject.several)


def _short_resources(subject: Subject) -> Iterator[AddResource]:
    """What the nearest node lacks, by the rule of NodeResourcesFit."""
    needed: list[Needed] = subject.plugin_state(NEEDED) or []
    columns = [subject.cluster.nodes.resource(one.resource) for one in needed]
    allocatable = [one.allocatable.array.take(subject.rows) for one in columns]
    free = [
        size - one.requested.array.take(subject.rows) for one, size in zip(columns, allocatable, strict=True)
    ]
    if not needed:
        return
    distance = np.zeros(len(subject.rows))
    for one, size, left in zip(needed, allocatable, free, strict=True):
        # First that the empty node is large enough, then what other pods leave.
        counts = size > 0 if one.by_devices else np.ones(len(size), dtype=np.bool_)
        distance += counts * np.maximum(one.amount - size, 0) / one.amount * 1e6
        distance += counts * np.maximum(one.amount - left.astype(np.float64), 0) / one.amount
    nearest = int(np.argmin(distance))
    name, row = subject.nodes[nearest], int(subject.rows[nearest])
    node = subject.cluster.nodes.node[row]
    capacity = {} if node is None else node.status.capacity
    for one, size, left in zip(needed, allocatable, free, strict=True):
        there, available = int(size[nearest]), int(left[nearest])
        if one.amount <= available or (one.by_devices and there <= 0):
            continue
        releasing = _releasing(subject, row, one.resource)
        yield AddResource(
            (name,),
            one.resource,
            _requested(subject, one.resource, one.amount),
            there,
            available,
            resource_amount(one.resource, capacity.get(one.resource)),
            absent=not size.any(),
            several=subject.several,
            largest=there == int(size.max()),
            releasing=sum(releasing.values()),
            terminating=tuple(releasing),
        )


def _requested(subject: Subject, resource: str, amount: int) -> int:
    """The amount of a request; what exceeds a column is exact, too."""
    if amount < MAX_REQUEST:
        return amount
    nano = exact_requests(subject.pod).get(resource, 0)
    return max(amount, -(-nano // (MILLI if resource == CPU else NANO)))


def _releasing(subject: Subject, row: int, resource: str) -> dict[str, int]:
    """What each terminating pod of a node will free."""
    pods = [pod for pod in subject.cluster.pods_on(row) if pod.is_terminating]
    requests = subject.cluster.release.accounting.assigned_requests
    amounts = {pod.key: requests(pod).get(resource, 0) for pod in pods}
    return {key: amount for key, amount in amounts.items() if amount}


# TaintToleration, NodeDeclaredFeatures, NodePorts


def taints_detail(subject: Subject) -> Detail:
    """The untolerated taints: for each set of taints those that are not tolerated."""
    nodes, tolerations = subject.cluster.nodes, subject.pod.spec.tolerations
    found: dict[tuple[TaintToTolerate, ...], list[str]] = {}
    sets = nodes.taint_set.array.take(subject.rows).tolist()
    for name, taint_set in zip(subject.nodes, sets, strict=True):
        taints = tuple(
            TaintToTolerate(taint.key, taint.value, taint.effect)
            for taint in nodes.taint_lists.values[taint_set]
            if untolerated_taint((taint,), tolerations) is not None
        )
        found.setdefault(taints, []).append(name)
    remedies = [TolerateTaints(tuple(names), taints) for taints, names in found.items()]
    return Detail.of(remedies, most=MAX_NAMED)


def features_detail(subject: Subject) -> Detail:
    """The features that the nodes do not declare."""
    required = required_features(subject.pod)
    found: dict[tuple[str, ...], list[str]] = {}
    for node in subject.node_objects():
        missing = tuple(sorted(required.difference(node.status.declared_features)))
        found.setdefault(missing, []).append(node.name)
    return Detail.of(DeclareFeatures(tuple(names), missing) for missing, names in found.items())


def ports_detail(subject: Subject) -> Detail:
    """The ports, and the pods that use them."""
    wanted = host_ports(subject.pod)
    remedies = [
        FreePort((node,), port.port, port.protocol, subject.in_the_way(pod, node), subject.several)
        for pod, node in subject.pods()
        for port in wanted
        if conflicts((port,), host_ports(pod))
    ]
    return Detail.of(remedies, most=1 if subject.several else MAX_NAMED)


# NodeAffinity


def affinity_detail(subject: Subject) -> Detail:
    """The requirements that fail, with the number of nodes and what these have instead.

    Of alternative terms, those count that a node comes nearest to: each of them suffices.
    """
    remedies: list[Remedy] = []
    reasons = subject.status.reasons
    if REASON_ADDED in reasons:
        added = _added_terms(subject)
        remedies += label_remedies(subject, added, origin="the profile's addedAffinity")
    if REASON_POD in reasons:
        affinity = required_node_affinity(subject.pod)
        selector = () if affinity.selector is None else affinity.selector.requirements
        terms = affinity.terms
        if terms is not None and not any(can_match(term, selector) for term in terms):
            return Detail(_impossible(terms, selector))
        for one in selector:
            remedies += label_remedies(subject, (CompiledTerm((one,)),))
        if terms is not None:
            remedies += label_remedies(subject, terms, also=selector)
    found = Detail.of(remedies)
    texts = list(dict.fromkeys(remedy.text for remedy in remedies))
    left = len(texts) - MAX_NAMED
    return Detail("; ".join(texts[:MAX_NAMED]) + (f" and {left} more" if left > 0 else ""), found.remedies)


def _impossible(terms: Sequence[CompiledTerm], selector: Sequence[Requirement]) -> str:
    """Why no node can match."""
    problem = next((f": {term.error}" for term in terms if term.error), "")
    if not any(map(can_match, terms)):
        return f"no term can match{problem}"
    return f"no term can match together with nodeSelector {','.join(map(str, selector))}{problem}"


def _added_terms(subject: Subject) -> tuple[CompiledTerm, ...]:
    plugins = (one for one in subject.framework.profile.all_plugins() if one.name == subject.status.plugin)
    args = getattr(next(plugins, None), "args", None)
    added = args.added if isinstance(args, NodeAffinityArgs) else None
    required = None if added is None else added.node_affinity.required
    return () if required is None else compile_terms(required.node_selector_terms)


# PodTopologySpread


def spread_detail(subject: Subject) -> Detail:
    """The constraints that reject the nodes, each with its counts by domain."""
    limits: tuple[Limit, ...] = subject.plugin_state() or ()
    is_missing = MISSING_LABEL.message in subject.status.reasons
    remedies: list[Remedy] = []
    for limit in limits:
        key = limit.domains.constraint.topology_key
        ids = subject.cluster.nodes.label(key).column.array.take(subject.rows)
        if is_missing:
            remedies += _without_label(subject, key)
        skewed = (ids >= 0) & (limit.totals.take(ids) >= limit.first_violating_count)
        if skewed.any() and not is_missing:
            remedies.append(_skew(subject, limit, skewed.nonzero()[0].tolist()))
    return Detail.of(remedies)


def _without_label(subject: Subject, key: str) -> list[AddLabel]:
    ids = subject.cluster.nodes.label(key).column.array.take(subject.rows)
    nodes = tuple(name for name, one in zip(subject.nodes, ids.tolist(), strict=True) if one < 0)
    return [AddLabel(nodes, key, len(nodes), len(nodes) == len(subject.nodes))] if nodes else []


def _skew(subject: Subject, limit: Limit, places: Sequence[int]) -> RemoveFromDomain:
    constraint, cluster = limit.domains.constraint, subject.cluster
    label = cluster.nodes.label(constraint.topology_key)
    column = label.column.array
    here = set(column.take(subject.rows.take(places)).tolist())
    domains = {*limit.domains.known.tolist(), *here}
    # The domains of these nodes first: they are full.
    known = sorted(domains, key=lambda one: (one not in here, -int(limit.totals[one]), one))
    pods = []
    if limit.domains.count is not None:
        for row in cluster.order.tolist():
            if int(column[row]) not in here or not limit.domains.eligible[row]:
                continue
            name = cluster.nodes.name[row]
            pods += [
                (subject.in_the_way(pod, name), label.values.values[int(column[row])])
                for pod in cluster.pods_on(row)
                if not pod.is_terminating and limit.change.matches(pod.namespace, pod.labels)
            ]
    return RemoveFromDomain(
        tuple(subject.nodes[place] for place in places),
        constraint.topology_key,
        str(constraint.selector),
        tuple((label.values.values[one], int(limit.totals[one])) for one in known),
        limit.smallest,
        constraint.max_skew,
        constraint.min_domains,
        bool(limit.self_match),
        tuple(pods),
    )


# InterPodAffinity


def affinity_between_pods_detail(subject: Subject) -> Detail:
    """The pods that a term selects, or that carry a term which selects the incoming pod, by domain."""
    state = subject.plugin_state()
    if not isinstance(state, FilterState):
        return Detail()
    if AFFINITY.message in subject.status.reasons:
        return Detail.of(_too_far(subject, state))
    if ANTI_AFFINITY.message in subject.status.reasons:
        remedies = [_too_near(subject, near) for near in state.anti_affinity]
    else:
        remedies = [_kept_away(subject, term) for term in state.existing]
    return Detail.of(one for one in remedies if one is not None)


def _too_far(subject: Subject, state: FilterState) -> Iterator[Remedy]:
    """The labels that nodes lack, and where the pods are that the required terms select together."""
    cluster, labels = subject.cluster, []
    far = np.zeros(len(subject.rows), dtype=np.bool_)
    for near in state.affinity:
        labels += _without_label(subject, near.topology_key)
        ids = cluster.nodes.label(near.topology_key).column.array.take(subject.rows)
        far |= near.sums.sums.take(ids) <= 0
    nodes = tuple(name for name, one in zip(subject.nodes, far.tolist(), strict=True) if one)
    if nodes and not state.runs_anywhere:
        yield _matching_pod(subject, state, nodes)
    yield from labels


def _matching_pod(subject: Subject, state: FilterState, nodes: tuple[str, ...]) -> AddMatchingPod:
    cluster, query = subject.cluster, state.affinity[0].query
    idle = tuple(_idle_namespace_selectors(subject))
    domains = []
    for near in state.affinity:
        values, totals = cluster.nodes.label(near.topology_key).values.values, near.sums.sums
        found = np.flatnonzero(totals[:-1] > 0).tolist()
        domains.append((near.topology_key, tuple((values[one], int(totals[one])) for one in found)))
    uncounted: list[PodInTheWay] = []
    elsewhere: list[PodInTheWay] = []
    if not any(found for _, found in domains):
        for row in cluster.order.tolist():
            for pod in cluster.pods_on(row):
                if query.matches(pod.namespace, pod.labels):
                    uncounted.append(subject.in_the_way(pod, cluster.nodes.name[row]))
                elif all(part.selector.matches(pod.labels) for part in query.parts):
                    elsewhere.append(subject.in_the_way(pod, cluster.nodes.name[row]))
    return AddMatchingPod(
        nodes,
        _selector(state.affinity[0]),
        tuple(
            (None if part.namespaces is None else tuple(sorted(part.namespaces)), part.selector)
            for part in query.parts
        ),
        tuple(domains),
        tuple(uncounted),
        tuple(elsewhere),
        idle,
        _is_impossible(query, with_namespaces=not idle),
    )


def _is_impossible(query: PodQuery, *, with_namespaces: bool) -> bool:
    """Whether the parts contradict each other, in labels or in namespaces."""
    requirements = Selector(tuple(one for part in query.parts for one in part.selector.requirements))
    if not can_match(CompiledTerm(requirements.requirements)):
        return True
    named_ones = [part.namespaces for part in query.parts if part.namespaces is not None]
    return with_namespaces and bool(named_ones) and not frozenset.intersection(*named_ones)


def _idle_namespace_selectors(subject: Subject) -> Iterator[str]:
    """The namespace selectors of required terms that match no namespace, where no namespace is listed."""
    namespaces = subject.cluster.objects.of(Namespace)
    for _, term in parse_terms(pod_terms(subject.pod, TermKind.REQUIRED_AFFINITY), subject.pod.namespace):
        selector = term.namespace_selector
        if selector.is_nothing or selector.is_empty or term.namespaces:
            continue
        if not any(selector.matches(one.labels) for one in namespaces):
            yield str(selector)


def _too_near(subject: Subject, near: MatchCounts) -> SeparatePods | None:
    """The pods that a required anti-affinity term selects, in the domains of the nodes."""
    found = _in_domains(subject, near, lambda pod: near.query.matches(pod.namespace, pod.labels))
    nodes, pods = found
    return SeparatePods(nodes, True, _selector(near), near.topology_key, pods) if pods else None


def _kept_away(subject: Subject, term: CarrierCounts) -> SeparatePods | None:
    """The pods whose required anti-affinity selects the incoming pod, in the domains of the nodes."""
    nodes, pods = _in_domains(
        subject, term, lambda pod: pod.spec.affinity is not None and _carries(pod, term)
    )
    selector = str(term.carried.term.selector)
    return SeparatePods(nodes, False, selector, term.topology_key, pods) if pods else None


def _carries(pod: Pod, term: CarrierCounts) -> bool:
    parsed = parse_terms(pod_terms(pod, TermKind.REQUIRED_ANTI_AFFINITY), pod.namespace)
    return any(own == term.carried.term for _, own in parsed)


def _in_domains(
    subject: Subject, found: MatchCounts | CarrierCounts, is_meant: Callable[[Pod], bool]
) -> tuple[tuple[str, ...], tuple[tuple[PodInTheWay, str], ...]]:
    """The nodes whose domain has such pods, and these pods, each with its domain."""
    if found.sums is None:
        return (), ()
    cluster = subject.cluster
    label = cluster.nodes.label(found.topology_key)
    column, totals = label.column.array, found.sums.sums
    ids = column.take(subject.rows).tolist()
    here = {one for one in ids if one >= 0 and totals[one] > 0}
    pods = [
        (subject.in_the_way(pod, cluster.nodes.name[row]), label.values.values[int(column[row])])
        for row in cluster.order.tolist()
        if int(column[row]) in here
        for pod in cluster.pods_on(row)
        if is_meant(pod)
    ]
    return tuple(name for name, one in zip(subject.nodes, ids, strict=True) if one in here), tuple(pods)


def _selector(near: MatchCounts) -> str:
    return " and ".join(dict.fromkeys(str(part.selector) for part in near.query.parts)) or "any label"


DETAILS: Final[dict[str, Describe]] = {
    "InterPodAffinity": affinity_between_pods_detail,
    "NodeAffinity": affinity_detail,
    "NodeDeclaredFeatures": features_detail,
    "NodePorts": ports_detail,
    "NodeResourcesFit": fit_detail,
    "NodeVolumeLimits": limits_detail,
    "PodTopologySpread": spread_detail,
    "TaintToleration": taints_detail,
    "VolumeBinding": binding_detail,
    "VolumeRestrictions": restrictions_detail,
    "VolumeZone": zone_detail,
}
"""By plugin: the function that adds details to its reasons. Devices: `missing_devices`."""


def detail(framework: Framework, pod: Pod, rejection: Rejection) -> Detail:
    """Details that the reason leaves out; an empty one if there are none."""
    describe = DETAILS.get(rejection.status.plugin)
    if describe is None or rejection.status.code is Code.ERROR:
        return Detail()
    if not rejection.nominated:
        return describe(_subject(framework, pod, rejection, rejection.nodes))
    return _with_nominated(framework, pod, rejection, describe)


def _subject(framework: Framework, pod: Pod, rejection: Rejection, nodes: Sequence[str]) -> Subject:
    row_of = framework.cluster.nodes.row_of
    rows = np.array([row_of[name] for name in nodes], dtype=np.intp)
    return Subject(framework, pod, rejection.status, nodes, rows)


def _with_nominated(framework: Framework, pod: Pod, rejection: Rejection, describe: Describe) -> Detail:
    """The details of nodes whose status counts nominated pods: each node with its own.

    They are named if the node would fit without them, or if the details would be others.
    """
    texts: list[str] = []
    remedies: list[Remedy] = []
    several = len(rejection.nodes) > 1
    nodes = zip(rejection.nodes, rejection.nominated, rejection.fits_without_nominated, strict=True)
    for node, nominated, fits_without in islice(nodes, MAX_NAMED):
        subject = _subject(framework, pod, rejection, (node,))
        with subject.counting_nominated(nominated):
            found = describe(subject)
        remedies += found.remedies
        if not fits_without and found.text == describe(subject).text:
            texts.append(f"{node} {found.text}" if several else found.text)
            continue
        noun = "pod" if len(nominated) == 1 else "pods"
        counting = f"counting {noun} nominated to {node}: {named(nominated)}"
        where = f"{node} " if several and found.text else ""
        texts.append(f"{where}{found.text}, {counting}" if found.text else counting)
    left = len(rejection.nodes) - MAX_NAMED
    more = f" and {left:,} more nodes" if left > 0 else ""
    return Detail("; ".join(texts) + more, tuple(remedies))
