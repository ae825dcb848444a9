"""Details that kube-scheduler's reasons leave out: which label, taint, pod, domain, port or volume it is.

The reasons are fixed texts, because kube-scheduler counts them. `detail` says, for the nodes that one plugin
rejects for one reason, what exactly is in the way and how near the nearest node is. Each function here is
about one plugin; `DETAILS`, at the end, says which. Devices are in `rejections.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bayplan.answers.explain.rejections import MAX_NAMED, Describe, Rejection, Subject, counted, named
from bayplan.api.node import Node
from bayplan.api.node_selectors import CompiledTerm, compile_terms, field_matches, required_node_affinity
from bayplan.api.pod import Pod, conflicts, host_ports, untolerated_taint
from bayplan.api.requests import fit_requests
from bayplan.api.selectors import Requirement
from bayplan.api.storage import (
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from bayplan.framework.status import Code
from bayplan.plugins.inter_pod_affinity import AFFINITY, ANTI_AFFINITY
from bayplan.plugins.inter_pod_affinity.counts import CarrierCounts, FilterState, MatchCounts
from bayplan.plugins.node_affinity import REASON_POD
from bayplan.plugins.node_declared_features import required_features
from bayplan.plugins.node_volume_limits import PodVolumes
from bayplan.plugins.pod_topology_spread import MISSING_LABEL
from bayplan.plugins.pod_topology_spread.counts import Limit
from bayplan.plugins.volume_binding import (
    REASON_AFFINITY,
    REASON_LOST_VOLUME,
    REASON_NO_ROOM,
    REASON_NO_VOLUME,
)
from bayplan.plugins.volume_binding.claims import UNBOUND_IMMEDIATE
from bayplan.plugins.volume_restrictions import REASON_CLAIM
from bayplan.plugins.volume_zone import locations_of
from bayplan.runtime.framework import Framework
from bayplan.state.cluster import Cluster
from bayplan.state.columns import IdColumn
from bayplan.state.derived import derived
from bayplan.state.disks import disks_clash, disks_of
from bayplan.state.nodes import CPU, EPHEMERAL_STORAGE, MEMORY
from bayplan.state.terms import TermKind, parse_terms, pod_terms
from bayplan.state.volumes import CSINodes, VolumeUses


@dataclass(frozen=True, slots=True)
class _Short:
    """One resource that is insufficient on some rows."""

    resource: str
    amount: int
    allocatable: IdColumn
    free: IdColumn


def resources_detail(subject: Subject) -> str:
    """The node with the smallest shortage; or, if empty nodes are too small, the size of the largest."""
    short = list(_short_resources(subject))
    if subject.status.code is Code.UNRESOLVABLE:
        too_large = (_too_large(one, subject.nodes) for one in short)
        return next((text for text in too_large if text), "")
    if not short:
        return ""
    nearest = int(np.argmin(sum((one.amount - one.free) / one.amount for one in short)))
    lacks = [
        f"{amount_text(one.resource, int(one.amount - one.free[nearest]))} {one.resource}"
        for one in short
        if one.amount > one.free[nearest]
    ]
    if not lacks:
        return ""
    lacking = f"lacks {' and '.join(lacks)}"
    return f"nearest: {subject.nodes[nearest]} {lacking}" if len(subject.nodes) > 1 else lacking


def _too_large(short: _Short, nodes: Sequence[str]) -> str:
    largest = int(short.allocatable.argmax())
    there = int(short.allocatable[largest])
    if short.amount <= there:
        return ""
    if not there:
        return f"no {short.resource} on {'this node' if len(nodes) == 1 else 'these nodes'}"
    requested, has = amount_text(short.resource, short.amount), amount_text(short.resource, there)
    node = nodes[largest] if len(nodes) == 1 else f"the largest of these nodes, {nodes[largest]},"
    return f"requests {requested} {short.resource}; {node} has {has}"


def _short_resources(subject: Subject) -> Iterator[_Short]:
    rows = subject.rows
    for resource, amount in fit_requests(subject.pod).items():
        if amount and any(reason.endswith(f" {resource}") for reason in subject.status.reasons):
            columns = subject.cluster.nodes.resource(resource)
            allocatable = columns.allocatable.array.take(rows)
            yield _Short(resource, amount, allocatable, allocatable - columns.requested.array.take(rows))


def amount_text(resource: str, amount: int) -> str:
    """In the usual notation: `200m`, `1.5`, `16Gi`."""
    if resource == CPU:
        return f"{amount}m" if amount % 1000 and amount < 1000 else f"{amount / 1000:g}"
    if resource in (MEMORY, EPHEMERAL_STORAGE) or resource.startswith("hugepages-"):
        for unit, size in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
            if amount >= size:
                return f"{amount / size:.1f}".removesuffix(".0") + unit
    return str(amount)


def taints_detail(subject: Subject) -> str:
    """The untolerated taints, each once."""
    nodes, tolerations = subject.cluster.nodes, subject.pod.spec.tolerations
    texts = []
    for taint_set in dict.fromkeys(nodes.taint_set.array.take(subject.rows).tolist()):
        taint = untolerated_taint(nodes.taint_lists.values[taint_set], tolerations)
        if taint is not None:
            value = f"={taint.value}" if taint.value else ""
            texts.append(f"{taint.key}{value}:{taint.effect}")
    return named(texts)


def affinity_detail(subject: Subject) -> str:
    """The requirements that fail, with the number of nodes and what these have instead.

    Of alternative terms, the one counts that a node fulfils best.
    """
    if REASON_POD not in subject.status.reasons:
        return ""
    affinity = required_node_affinity(subject.pod)
    selector = () if affinity.selector is None else affinity.selector.requirements
    failing: Counter[str] = Counter()
    instead: dict[str, Counter[str]] = {}
    for node in subject.node_objects():
        missed = [one for one in selector if not one.matches(node.labels)]
        if affinity.terms is not None:
            terms: list[list[Requirement]] = [list(_missed(term, node)) for term in affinity.terms]
            nearest: list[Requirement] = min(terms, key=len, default=[])
            missed.extend(nearest)
        for requirement in dict.fromkeys(missed):
            text = str(requirement)
            failing[text] += 1
            there = node.labels.get(requirement.key, "no such label")
            if requirement.key == "metadata.name":
                there = node.name
            instead.setdefault(text, Counter())[there] += 1
    if not failing:
        return "no term can match" if affinity.terms == () else ""
    texts = []
    for text, count in failing.most_common():
        values = instead[text].most_common(MAX_NAMED)
        more = ", …" if len(instead[text]) > MAX_NAMED else ""
        there = ", ".join(f"{value} ({number:,})" if len(values) > 1 else value for value, number in values)
        of = "" if count == len(subject.nodes) else f" on {count:,}"
        texts.append(f"requires {text}{of}, has {there}{more}")
    left = len(texts) - MAX_NAMED
    return "; ".join(texts[:MAX_NAMED]) + (f" and {left} more" if left > 0 else "")


def _missed(term: CompiledTerm, node: Node) -> Iterator[Requirement]:
    yield from (one for one in term.expressions if not one.matches(node.labels))
    yield from (one for one in term.fields if not field_matches(one, node.name))


def features_detail(subject: Subject) -> str:
    """The features that the nodes do not declare."""
    required = required_features(subject.pod)
    missing: set[str] = set()
    for node in subject.node_objects():
        missing |= required.difference(node.status.declared_features)
    return f"lacks {named(sorted(missing))}" if missing else ""


MAX_DOMAINS: Final = 6


def spread_detail(subject: Subject) -> str:
    """The constraints that reject the nodes, each with its counts by domain."""
    limits: tuple[Limit, ...] | None = subject.plugin_state()
    if not limits:
        return ""
    is_missing = MISSING_LABEL.message in subject.status.reasons
    texts = []
    for limit in limits:
        key = limit.domains.constraint.topology_key
        ids = subject.cluster.nodes.label(key).column.array.take(subject.rows)
        if is_missing and (ids < 0).any():
            texts.append(f"no label {key}")
        elif not is_missing and (limit.totals.take(ids[ids >= 0]) >= limit.first_violating_count).any():
            texts.append(_skew(subject, limit))
    return "; ".join(texts)


def _skew(subject: Subject, limit: Limit) -> str:
    """`zone: eu-a 3, eu-b 1; 1 at least, so 2 at most with maxSkew 1`."""
    constraint = limit.domains.constraint
    label = subject.cluster.nodes.label(constraint.topology_key)
    known = sorted(limit.domains.known.tolist(), key=lambda one: (-int(limit.totals[one]), one))
    here = set(np.unique(label.column.array.take(subject.rows)).tolist())
    # The domains of these nodes first: they are full.
    known.sort(key=lambda one: one not in here)
    shown = [f"{label.values.values[one]} {int(limit.totals[one]):,}" for one in known[:MAX_DOMAINS]]
    left = len(known) - len(shown)
    more = f" and {left:,} more domains" if left > 0 else ""
    allowed = constraint.max_skew + limit.smallest
    few = ""
    if len(known) < constraint.min_domains:
        few = f" (fewer than minDomains {constraint.min_domains}, so the minimum counts as 0)"
    return (
        f"{constraint.topology_key}: {', '.join(shown)}{more}; minimum {limit.smallest:,}{few} + maxSkew "
        f"{constraint.max_skew} allows {allowed:,}"
    )


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
    if AFFINITY.message in subject.status.reasons:
        return "; ".join(_too_far(subject, near) for near in state.affinity)
    if ANTI_AFFINITY.message in subject.status.reasons:
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


def volume_binding_detail(subject: Subject) -> str:
    reasons = subject.status.reasons
    if UNBOUND_IMMEDIATE in reasons:
        return named(_unbound(subject))
    texts: list[str] = []
    for claim in _claims(subject):
        volume = _volume(subject, claim)
        if claim.spec.volume_name:
            if REASON_LOST_VOLUME in reasons and volume is None:
                texts.append(f"claim {claim.key} is bound to {claim.spec.volume_name}, which does not exist")
            elif REASON_AFFINITY in reasons and volume is not None:
                texts += _where(claim, volume)
        elif REASON_NO_VOLUME in reasons or REASON_NO_ROOM in reasons:
            size = claim.spec.resources.requests.get("storage", "any size")
            modes = ", ".join(claim.spec.access_modes)
            texts.append(f"claim {claim.key}: class {claim.class_name or 'none'}, {size}, {modes}")
    return named(texts)


def _unbound(subject: Subject) -> Iterator[str]:
    """The claims that the volume controller has to bind before the pod is scheduled."""
    classes = subject.cluster.objects.of(StorageClass)
    for claim in _claims(subject):
        found = classes.get(claim.class_name)
        waits = found is not None and found.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
        if not claim.is_fully_bound and (claim.spec.volume_name or not waits):
            absent = ", which does not exist" if claim.class_name and found is None else ""
            yield f"claim {claim.key}: class {claim.class_name or 'none'}{absent}"


def _where(claim: PersistentVolumeClaim, volume: PersistentVolume) -> Iterator[str]:
    """Where a volume can be used."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return
    terms = [
        " and ".join(map(str, (*term.expressions, *term.fields)))
        for term in compile_terms(affinity.required.node_selector_terms)
    ]
    yield f"volume {volume.name} of claim {claim.key} requires {' or '.join(terms)}"


def volume_zone_detail(subject: Subject) -> str:
    texts = []
    for claim in _claims(subject):
        volume = _volume(subject, claim)
        for place in () if volume is None else locations_of(volume):
            zones = ", ".join(sorted(place.values))
            texts.append(f"volume {claim.spec.volume_name} of claim {claim.key} is in {place.label}={zones}")
    return named(texts)


def restrictions_detail(subject: Subject) -> str:
    """The pods that use the disk, or the claim with ReadWriteOncePod."""
    cluster, pod = subject.cluster, subject.pod
    if REASON_CLAIM not in subject.status.reasons:
        disks = disks_of(pod)
        others = (other for other in subject.pods() if disks_clash(disks, disks_of(other)))
        return named(f"in use by {other.key}" for other in others)
    own = set(_claim_names(pod))
    users = (
        f"claim {pod.namespace}/{name} is in use by {other.key} on {cluster.nodes.name[row]}"
        for row in cluster.order.tolist()
        for other in cluster.pods_on(row)
        if other.namespace == pod.namespace
        for name in own.intersection(_claim_names(other))
    )
    return named(users)


def volume_limits_detail(subject: Subject) -> str:
    """Limit and use of each driver on the node with the most room."""
    wants = subject.plugin_state()
    if not isinstance(wants, PodVolumes) or not isinstance(wants.with_csi_node, frozenset):
        return ""
    nodes, uses = derived(subject.cluster, CSINodes), derived(subject.cluster, VolumeUses)
    texts = []
    for driver in dict.fromkeys(sorted(volume.driver for volume in wants.with_csi_node)):
        count = uses.count(driver)
        rooms = []
        for row, name in zip(subject.rows.tolist(), subject.nodes, strict=True):
            limit = nodes.limits_of(row).get(driver)
            if limit is not None:
                used = 0 if count is None else int(count.array[row])
                rooms.append((limit - used, name, used, limit))
        if rooms:
            _, name, used, limit = max(rooms)
            texts.append(f"{driver}: {used} of {limit} volumes on {name}")
    return named(texts)


def _claims(subject: Subject) -> Iterator[PersistentVolumeClaim]:
    claims = subject.cluster.objects.of(PersistentVolumeClaim)
    for name in _claim_names(subject.pod):
        claim = claims.get(name, subject.pod.namespace)
        if claim is not None:
            yield claim


def _claim_names(pod: Pod) -> Iterator[str]:
    for volume in pod.spec.volumes:
        name = pod.claim_name(volume)
        if name:
            yield name


def _volume(subject: Subject, claim: PersistentVolumeClaim) -> PersistentVolume | None:
    return subject.cluster.objects.of(PersistentVolume).get(claim.spec.volume_name)


DETAILS: Final[dict[str, Describe]] = {
    "InterPodAffinity": affinity_between_pods_detail,
    "NodeAffinity": affinity_detail,
    "NodeDeclaredFeatures": features_detail,
    "NodePorts": ports_detail,
    "NodeResourcesFit": resources_detail,
    "NodeVolumeLimits": volume_limits_detail,
    "PodTopologySpread": spread_detail,
    "TaintToleration": taints_detail,
    "VolumeBinding": volume_binding_detail,
    "VolumeRestrictions": restrictions_detail,
    "VolumeZone": volume_zone_detail,
}
"""By plugin: the function that adds details to its reasons. Devices: `missing_devices`."""


def detail(framework: Framework, pod: Pod, rejection: Rejection) -> str:
    """Details that the reason leaves out; "" if there are none."""
    describe = DETAILS.get(rejection.status.plugin)
    if describe is None or rejection.status.code is Code.ERROR:
        return ""
    row_of = framework.cluster.nodes.row_of
    rows = np.array([row_of[name] for name in rejection.nodes], dtype=np.intp)
    return describe(Subject(framework, pod, rejection.status, rejection.nodes, rows))
