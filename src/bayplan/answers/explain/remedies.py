"""What would make a plugin accept a node, as typed values, and the sentences that are made from them.

Reasons are fixed texts. A `Remedy` has the facts that such a text leaves out, and the sentence is made from
these facts alone: nothing is said that a program could not read, and apply. A test does so: it generates
clusters, applies the remedies for a node, and the plugin has to accept the node or give its next reason
(tests/answers/explain/test_remedies.py).

`details.py` finds the remedies of a rejection, `volumes.py` those for volumes, `devices.py` for devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final

from bayplan.api.pod import Pod
from bayplan.api.selectors import Requirement, Selector
from bayplan.state.nodes import CPU, EPHEMERAL_STORAGE, MEMORY

MAX_NAMED: Final = 3
"""Taints, labels, pods or volumes that are named; the others are counted."""
MAX_DOMAINS: Final = 6
NO_LABEL: Final = "no such label"


def named(texts: Iterable[str], most: int = MAX_NAMED) -> str:
    """The first of these texts, each once, and the number of the others."""
    found = list(dict.fromkeys(texts))
    left = len(found) - most
    return ", ".join(found[:most]) + (f" and {left:,} more" if left > 0 else "")


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def amount_text(resource: str, amount: int) -> str:
    """In the usual notation: `200m`, `1.5`, `16Gi`."""
    if amount < 0:
        return f"-{amount_text(resource, -amount)}"
    if resource == CPU:
        whole, milli = divmod(amount, 1000)
        return f"{amount}m" if milli and not whole else f"{whole}.{milli:03}".rstrip("0").removesuffix(".")
    if resource in (MEMORY, EPHEMERAL_STORAGE) or resource.startswith("hugepages-"):
        return bytes_text(amount)
    return str(amount)


def bytes_text(amount: int) -> str:
    for unit, size in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if amount >= size:
            return f"{amount / size:.1f}".removesuffix(".0") + unit
    return str(amount)


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change that, with all others for the same node, makes the plugin accept that node."""

    nodes: tuple[str, ...]

    @property
    def text(self) -> str:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Detail:
    """What a reason leaves out: a sentence, and the remedies that it is made from."""

    text: str = ""
    remedies: tuple[Remedy, ...] = ()

    @staticmethod
    def of(remedies: Iterable[Remedy], separator: str = "; ", most: int | None = None) -> Detail:
        found = tuple(remedies)
        texts = list(dict.fromkeys(remedy.text for remedy in found))
        text = separator.join(texts) if most is None else named(texts, most)
        return Detail(text, found)


def remedy_report(remedy: Remedy) -> dict[str, Any]:
    """A remedy as plain values for JSON."""
    return {"kind": type(remedy).__name__, **_plain_fields(remedy)}


def _plain_fields(value: Any) -> dict[str, Any]:
    return {_camel_case(one.name): _plain(getattr(value, one.name)) for one in fields(value)}


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _plain(value: Any) -> Any:
    if isinstance(value, Selector):
        return str(value)
    if isinstance(value, (Requirement, Remedy)) or is_dataclass(value):
        return _plain_fields(value)
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(one) for one in value]
    if isinstance(value, frozenset):
        return sorted(value)
    return value


# Pods that are in the way


@dataclass(frozen=True, slots=True)
class PodInTheWay:
    """A pod that has to go, or that a constraint counts."""

    pod: str
    """`namespace/name`."""
    node: str
    state: str = ""
    """`nominated`, `terminating` or `not started`; empty for the others."""

    def __str__(self) -> str:
        return f"{self.pod} ({self.state})" if self.state else self.pod


def pod_state(pod: Pod, *, nominated: bool = False) -> str:
    """What distinguishes a pod from one that runs; empty if nothing does."""
    if nominated:
        return "nominated"
    if pod.is_terminating:
        return "terminating"
    return "not started" if pod.status.start_time is None and pod.status.phase == "Pending" else ""


@dataclass(frozen=True, slots=True)
class FreePort(Remedy):
    """A host port is in use."""

    port: int
    protocol: str
    pod: PodInTheWay
    several: bool = False
    """Whether more nodes are rejected for the same reason."""

    @property
    def text(self) -> str:
        where = f" on {self.pod.node}" if self.several else ""
        return f"{self.port}/{self.protocol} is used by {self.pod}{where}"


@dataclass(frozen=True, slots=True)
class FreeDisk(Remedy):
    """A disk is in use on the node."""

    pod: PodInTheWay

    @property
    def text(self) -> str:
        return f"in use by {self.pod}"


@dataclass(frozen=True, slots=True)
class FreeClaim(Remedy):
    """A claim with ReadWriteOncePod is in use, on any node."""

    claim: str
    pod: PodInTheWay

    @property
    def text(self) -> str:
        return f"claim {self.claim} is in use by {self.pod} on {self.pod.node}"


@dataclass(frozen=True, slots=True)
class SeparatePods(Remedy):
    """Pods in the nodes' domains that required anti-affinity keeps apart from the pod."""

    own: bool
    """Whether the term is the pod's; otherwise, that of the other pods."""
    selector: str
    topology_key: str
    pods: tuple[tuple[PodInTheWay, str], ...]
    """Each with its domain."""

    @property
    def text(self) -> str:
        pods = named(f"{pod} in {self.topology_key}={domain}" for pod, domain in self.pods)
        if self.own:
            return f"its anti-affinity to {self.selector}: {pods}"
        return f"anti-affinity to {self.selector} of {pods}"


# Resources, taints, features


@dataclass(frozen=True, slots=True)
class AddResource(Remedy):
    """A node has too little of a resource."""

    resource: str
    requested: int
    """In the unit of the resource's column (cpu: thousandths)."""
    allocatable: int
    free: int
    """Negative if more is requested than allocatable. Nominated pods are counted."""
    capacity: int = 0
    """What the node has, allocatable or not."""
    absent: bool = False
    """Whether no node that is rejected for this reason has any of it."""
    several: bool = False
    largest: bool = False
    """Whether none of these nodes has more."""
    releasing: int = 0
    """What terminating pods will free."""
    terminating: tuple[str, ...] = ()

    @property
    def missing(self) -> int:
        return self.requested - self.free

    @property
    def text(self) -> str:
        node, name = self.nodes[0], self.resource
        if self.requested > self.allocatable:
            if self.allocatable > 0:
                place = "largest" if self.largest else "nearest"
                here = f"the {place} of these nodes, {node}," if self.several else node
                requested, has = (amount_text(name, one) for one in (self.requested, self.allocatable))
                return f"requests {requested} {name}; {here} has {has}"
            if self.capacity > 0:
                has = amount_text(name, self.capacity)
                return f"{node} has a capacity of {has} {name}, but none is allocatable"
            where = "these nodes" if self.several and self.absent else node if self.several else "this node"
            return f"no {name} on {where}"
        return f"lacks {amount_text(name, self.missing)} {name}{self._released()}"

    def _released(self) -> str:
        if not self.releasing:
            return ""
        pods, is_one = named(self.terminating), len(self.terminating) == 1
        when = f"pod {pods} ends" if is_one else f"pods {pods} end"
        return f" ({amount_text(self.resource, self.releasing)} will be free when terminating {when})"


def resources_detail(remedies: Sequence[AddResource]) -> Detail:
    """The shortages of one node as one sentence."""
    if not remedies:
        return Detail()
    lacks = [one.text.removeprefix("lacks ") for one in remedies if one.requested <= one.allocatable]
    texts = [one.text for one in remedies if one.requested > one.allocatable]
    if lacks:
        first = remedies[0]
        lacking = f"lacks {' and '.join(lacks)}"
        texts.append(f"nearest: {first.nodes[0]} {lacking}" if first.several else lacking)
    return Detail("; ".join(texts), tuple(remedies))


@dataclass(frozen=True, slots=True)
class AllowPods(Remedy):
    """A node has as many pods as it may have."""

    pods: int
    allowed: int
    several: bool = False

    @property
    def text(self) -> str:
        nearest = f"nearest: {self.nodes[0]} " if self.several else ""
        return f"{nearest}has {counted(self.pods, 'pod')} and allows {self.allowed:,}"


@dataclass(frozen=True, slots=True)
class TaintToTolerate:
    """A taint that no toleration of the pod matches."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}{f'={self.value}' if self.value else ''}:{self.effect}"


@dataclass(frozen=True, slots=True)
class TolerateTaints(Remedy):
    """The taints of the nodes that the pod does not tolerate: all of them keep it away."""

    taints: tuple[TaintToTolerate, ...]

    @property
    def text(self) -> str:
        return " and ".join(map(str, self.taints))


@dataclass(frozen=True, slots=True)
class DeclareFeatures(Remedy):
    """Features that the pod uses and the kubelet does not declare."""

    features: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"lacks {named(self.features)}"


# Labels of nodes

LabelChanges = tuple[tuple[str, str | None], ...]
"""New values of labels; None removes one."""


@dataclass(frozen=True, slots=True)
class MatchLabels(Remedy):
    """Requirements on the node's labels, or on its name, that the nodes do not meet."""

    alternatives: tuple[tuple[Requirement, ...], ...]
    """Each suffices: for each of the nearest terms the requirements that fail."""
    changes: tuple[LabelChanges, ...]
    """For each alternative labels that meet it."""
    terms: int
    """The number of terms of which these are the nearest."""
    instead: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
    """What the nodes have: for each label its values, with the number of nodes, the most frequent first."""
    origin: str = ""
    """Whose requirement it is; empty for the pod."""
    all_nodes: bool = True
    """Whether all nodes of the rejection miss it."""

    @property
    def text(self) -> str:
        shown = [" and ".join(map(str, one)) for one in self.alternatives[:MAX_NAMED]]
        left = len(self.alternatives) - len(shown)
        more = f" or {left} more" if left > 0 else ""
        nearest = ""
        if self.terms > len(self.alternatives):
            nearest = f" (nearest of {self.terms} terms)"
        on = "" if self.all_nodes else f" on {len(self.nodes):,}"
        text = f"requires {' or '.join(shown)}{more}{nearest}{on}, has {self._instead()}"
        return f"{self.origin} {text}" if self.origin else text

    def _instead(self) -> str:
        if len(self.instead) == 1:
            return _values(self.instead[0][1])
        return " and ".join(f"{key}: {_values(values)}" for key, values in self.instead[:MAX_NAMED])


def _values(values: Sequence[tuple[str, int]]) -> str:
    shown = values[:MAX_NAMED]
    text = ", ".join(f"{value} ({count:,})" if len(shown) > 1 else value for value, count in shown)
    return text + (", …" if len(values) > MAX_NAMED else "")


@dataclass(frozen=True, slots=True)
class AddLabel(Remedy):
    """Nodes without the label of a topology key."""

    key: str
    count: int
    """Nodes of the rejection without it."""
    all_nodes: bool = True

    @property
    def text(self) -> str:
        return f"no label {self.key}" + ("" if self.all_nodes else f" on {counted(self.count, 'node')}")


# Other pods


@dataclass(frozen=True, slots=True)
class AddMatchingPod(Remedy):
    """Required affinity: no pod in a node's domain is selected by all terms."""

    selector: str
    parts: tuple[tuple[tuple[str, ...] | None, Selector], ...]
    """Each term: the namespaces (None: all) and the selector."""
    domains: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
    """For each topology key: the domains with such pods, and their number."""
    uncounted: tuple[PodInTheWay, ...] = ()
    """Such pods on nodes that lack the topology keys; they do not count."""
    elsewhere: tuple[PodInTheWay, ...] = ()
    """Pods with matching labels in other namespaces."""
    namespace_selectors: tuple[str, ...] = ()
    """Of terms that no namespace matches."""
    impossible: bool = False
    """Whether no pod can be selected by all terms: they contradict each other."""

    @property
    def text(self) -> str:
        if any(found for _, found in self.domains):
            return "; ".join(self._only_in(key, found) for key, found in self.domains)
        if self.uncounted:
            keys = " and ".join(key for key, _ in self.domains)
            pods = named(f"{pod} on {pod.node}" for pod in self.uncounted)
            return f"pods matching {self.selector} are only on nodes without the label {keys}: {pods}"
        if self.impossible:
            return f"no pod can match all required terms: {self._terms()}"
        if self.namespace_selectors:
            return f"no namespace matches the namespaceSelector {named(self.namespace_selectors)}"
        text = f"no assigned pod{self._in_namespaces()} matches {self.selector}"
        return f"{text}; elsewhere: {named(map(str, self.elsewhere))}" if self.elsewhere else text

    def _terms(self) -> str:
        return " and ".join(
            f"{selector}{'' if names is None else f' in namespace {named(names)}'}"
            for names, selector in self.parts
        )

    def _only_in(self, key: str, found: Sequence[tuple[str, int]]) -> str:
        where = named(f"{key}={domain} ({count:,})" for domain, count in found)
        return f"pods matching {self.selector} are only in {where}" if where else f"none are in any {key}"

    def _in_namespaces(self) -> str:
        found = {names for names, _ in self.parts}
        names = found.pop() if len(found) == 1 else None
        return f" in namespace {named(names)}" if names else ""


@dataclass(frozen=True, slots=True)
class RemoveFromDomain(Remedy):
    """A spread constraint: the domains of the nodes have too many of the counted pods."""

    topology_key: str
    selector: str
    counts: tuple[tuple[str, int], ...]
    """The domains with their pods, those of the nodes first."""
    minimum: int
    max_skew: int
    min_domains: int
    is_counted: bool
    """Whether the pod itself matches the selector."""
    pods: tuple[tuple[PodInTheWay, str], ...]
    """The counted pods in the domains of the nodes, each with its domain."""

    @property
    def allowed(self) -> int:
        """How many a domain may have with the pod."""
        return self.minimum + self.max_skew

    def excess(self, domain: str) -> int:
        """How many pods have to leave a domain, so that the pod can be there."""
        return dict(self.counts)[domain] + self.is_counted - self.allowed

    @property
    def text(self) -> str:
        shown = ", ".join(f"{domain} {count:,}" for domain, count in self.counts[:MAX_DOMAINS])
        left = len(self.counts) - MAX_DOMAINS
        more = f" and {left:,} more domains" if left > 0 else ""
        few = ""
        if len(self.counts) < self.min_domains:
            few = f" (fewer than minDomains {self.min_domains}, so the minimum counts as 0)"
        uncounted = "" if self.is_counted else "; the pod itself does not count"
        return (
            f"{self.topology_key}: {shown}{more}; minimum {self.minimum:,}{few} + maxSkew {self.max_skew} "
            f"allows {self.allowed:,}{uncounted}"
        )
