"""Pod signatures: the fields of a pod that cached results depend on, and the results that pods share by them.

A plugin that wants its results cached names the fields it depends on (`Dependencies.pod`), or functions of
the pod (`Dependencies.functions`); their values are the plugin's fragment of the signature. Pods with equal
fragments share that plugin's `PluginResults`.

`SignatureCache` has what is cached for each signature. Two pods have the same signature if scheduling cannot
distinguish them (`state.pods.pod_signature`). Cached plugins depend on fewer fields, so several signatures
may share a `SignatureResults`. All of it is columns over the nodes: at 5,000 nodes a signature costs more
than half a megabyte. So the limit is a number of rows, not of signatures, and the least recently used ones
are dropped first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import msgspec

from bayplan.api.pod import Pod, pod_images
from bayplan.framework.plugin_api import Plugin, PodFunction
from bayplan.framework.state import SignatureMemory
from bayplan.framework.status import plugin_exceptions
from bayplan.runtime import calls
from bayplan.runtime.calls import Caller
from bayplan.runtime.plugin_results import Filters, PluginResults, Scorers, UsageResults
from bayplan.runtime.profile import Profile
from bayplan.runtime.signature_results import SignatureResults
from bayplan.state.cluster import Cluster
from bayplan.state.columns import RowMask
from bayplan.state.pods import PodInfo, encoded, relevant_volumes

if TYPE_CHECKING:
    from bayplan.runtime.feasible import Feasible

Signature = tuple[bytes, ...]

MAX_ROWS: Final = 2_000_000
"""Signatures times nodes that are cached, at some 130 bytes each: 400 signatures for 5,000 nodes."""

MIN_SIGNATURES: Final = 64
"""Signatures that are cached however many nodes there are."""

_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")


def _resources(pod: Pod) -> Any:
    spec, status = pod.spec, pod.status
    return (
        [(c.name, c.resources) for c in spec.containers],
        [(c.name, c.resources, c.restart_policy) for c in spec.init_containers],
        spec.overhead,
        spec.resources,
        [(c.name, c.resources, c.allocated_resources) for c in status.container_statuses],
        [(c.name, c.resources, c.allocated_resources) for c in status.init_container_statuses],
        status.resources,
        status.allocated_resources,
        [(c.type, c.status, c.reason) for c in status.conditions if c.type == "PodResizePending"],
    )


def _claims(pod: Pod) -> Any:
    if not pod.spec.resource_claims:
        return None
    return pod.spec.resource_claims, pod.status.resource_claim_statuses, pod.name, pod.uid


def _volumes(pod: Pod) -> Any:
    volumes = relevant_volumes(pod)
    if not volumes:
        return None
    itself = (pod.name, pod.uid) if any(volume.ephemeral is not None for volume in volumes) else None
    return pod.namespace, volumes, itself


POD_FIELDS: Final[dict[str, Callable[[Pod], Any]]] = {
    "namespace": lambda pod: pod.namespace,
    "labels": lambda pod: pod.labels,
    "annotations": lambda pod: pod.annotations,
    "name": lambda pod: (pod.namespace, pod.name, pod.uid),
    "priority": lambda pod: pod.priority,
    "node_name": lambda pod: pod.spec.node_name,
    "node_selector": lambda pod: pod.spec.node_selector,
    "node_affinity": lambda pod: pod.spec.affinity and pod.spec.affinity.node_affinity,
    "tolerations": lambda pod: pod.spec.tolerations,
    "resources": _resources,
    "ports": lambda pod: [
        (c.ports, c.restart_policy) for c in (*pod.spec.init_containers, *pod.spec.containers) if c.ports
    ],
    "images": lambda pod: (pod_images(pod), len(pod.spec.containers) + len(pod.spec.init_containers)),
    "volumes": _volumes,
    "resource_claims": _claims,
    "host": lambda pod: (pod.spec.host_network, pod.spec.host_users),
    "restart_rules": lambda pod: [
        c.restart_policy_rules
        for c in (*pod.spec.init_containers, *pod.spec.containers)
        if c.restart_policy_rules
    ],
    "owner": lambda pod: pod.metadata.controller(),
}
"""The fields that a plugin can declare, and how their values are read from the pod."""

NOT_IN_TEMPLATE: Final = frozenset({"annotations", "name", "node_name", "resource_claims"})
"""Fields by which pods of one template (`state.pods.pod_signature`) can differ."""


class PodSigner:
    """Computes one plugin's fragments of signatures."""

    __slots__ = ("_fields", "_functions", "per_pod")

    def __init__(self, fields: Iterable[str], functions: Sequence[PodFunction] = ()) -> None:
        names = sorted(set(fields))
        unknown = [name for name in names if name not in POD_FIELDS]
        if unknown:
            raise ValueError(f"unknown pod fields {unknown}; known are {sorted(POD_FIELDS)}")
        self._fields = [POD_FIELDS[name] for name in names]
        self._functions = tuple(functions)
        self.per_pod = bool(functions) or bool(NOT_IN_TEMPLATE.intersection(names) - {"node_name"})
        """Whether pods of one template may have different signatures."""

    def __call__(self, pod: Pod) -> bytes:
        values = [field(pod) for field in self._fields]
        if not self._functions:
            return encoded(_encoder, values)
        own = [function(pod) for function in self._functions]
        try:
            return encoded(_encoder, (values, own))
        except TypeError:
            raise TypeError(self._wrong_value(own)) from None

    def _wrong_value(self, values: Sequence[object]) -> str:
        """The message for a value that cannot be encoded."""
        for function, value in zip(self._functions, values, strict=True):
            try:
                _encoder.encode(value)
            except OverflowError:
                continue
            except TypeError:
                name = getattr(function, "__name__", repr(function))
                return (
                    f"the function {name} in depends_on returned {type(value).__name__}, which cannot be "
                    "compared; return numbers, strings, tuples, dataclasses or msgspec structs"
                )
        return "a function in depends_on returned a value that cannot be compared"


class ResultCache:
    """The results of all cached plugins of one profile, by plugin and signature fragment."""

    def __init__(self, plugins: Iterable[Plugin], cluster: Cluster, caller: Caller) -> None:
        self._cluster = cluster
        self._caller = caller
        self._plugins = tuple(
            (plugin, plugin.depends_on) for plugin in plugins if plugin.depends_on is not None
        )
        self._signers = tuple(
            PodSigner(depends_on.pod, depends_on.functions) for _, depends_on in self._plugins
        )
        self._per_pod = tuple(index for index, signer in enumerate(self._signers) if signer.per_pod)
        self._results: dict[tuple[str, bytes], PluginResults] = {}
        self.per_pod = bool(self._per_pod)
        """Whether pods with one signature may differ in what these plugins depend on."""

    def signature(self, pod: Pod, like: Signature | None = None) -> Signature:
        """The fragments of all plugins: equal for pods that none of them can distinguish.

        `like` are those of a pod of the same template: only fragments that may differ are then computed.
        """
        if like is None:
            return tuple(self._fragment(index, pod) for index in range(len(self._signers)))
        fragments = list(like)
        for index in self._per_pod:
            fragments[index] = self._fragment(index, pod)
        return tuple(fragments)

    def _fragment(self, index: int, pod: Pod) -> bytes:
        try:
            return self._signers[index](pod)
        except plugin_exceptions() as error:
            raise calls.dependency_error(self._plugins[index][0], error) from error

    def of(self, pod: Pod, signature: Signature) -> dict[str, PluginResults]:
        """The results for the pod, by plugin."""
        found = {}
        for (plugin, depends_on), fragment in zip(self._plugins, signature, strict=True):
            key = (plugin.name, fragment)
            if key not in self._results:
                self._results[key] = PluginResults(plugin, depends_on, pod, self._cluster, self._caller)
            found[plugin.name] = self._results[key]
        return found

    def drop_all_but(self, used: Iterable[PluginResults]) -> None:
        """Drops the results that no signature needs any more."""
        left = set(map(id, used))
        self._results = {key: results for key, results in self._results.items() if id(results) in left}

    def uncached(self, pod: Pod) -> dict[str, PluginResults]:
        """Results for the pod that are not cached."""
        return {
            plugin.name: PluginResults(plugin, depends_on, pod, self._cluster, self._caller)
            for plugin, depends_on in self._plugins
        }


class SkippedPlugins:
    """The plugins that returned SKIP_FOR_SIGNATURE: they do not run again before objects or terms change."""

    __slots__ = ("_freshness", "filters", "scores")

    def __init__(self, cluster: Cluster) -> None:
        changes = cluster.changes
        self._freshness = changes.freshness((changes.objects, changes.terms))
        self.filters: frozenset[str] = frozenset()
        self.scores: frozenset[str] = frozenset()

    def update(self) -> None:
        if not self._freshness.is_current:
            self.filters = self.scores = frozenset()
            self._freshness.mark_current()


class CachedSignature:
    """What is cached for pods of one signature, besides the results of cached plugins."""

    __slots__ = (
        "feasible",
        "fragments",
        "last_used",
        "memory",
        "rejected",
        "results",
        "settled",
        "settled_results",
        "skipped",
    )

    def __init__(self, cluster: Cluster, shared: SignatureMemory | None = None) -> None:
        self.results: SignatureResults | None = None
        """None if pods of the signature may differ in what cached plugins depend on."""
        self.fragments: Signature | None = None
        """The fragments of the last pod, if pods may differ in them."""
        self.memory = SignatureMemory(shared)
        """What uncached plugins remember."""
        self.skipped = SkippedPlugins(cluster)
        self.feasible: Feasible | None = None
        """The rows that pass, if uncached plugins reject some."""
        self.rejected: RowMask | None = None
        """The rows that uncached plugins and nominated pods rejected in the last search, if they had to be
        filtered."""
        changes = cluster.changes
        self.settled = changes.freshness(
            (
                changes.nodes,
                changes.nominations,
                changes.size,
                changes.order,
                changes.topology,
                changes.images,
                changes.terms,
                changes.objects,
            )
        )
        """Current while nothing but the pods on the nodes has changed since the last complete search, with
        `settled_results`: every cached PreFilter has run in it, and all Node objects were evaluated."""
        self.settled_results: SignatureResults | None = None
        self.last_used = 0


class SignatureCache:
    """The signatures of one profile."""

    def __init__(self, profile: Profile, cluster: Cluster, caller: Caller) -> None:
        self._profile = profile
        self._cluster = cluster
        self._caller = caller
        self._plugins = ResultCache(profile.all_plugins(), cluster, caller)
        self._signatures: dict[bytes, CachedSignature] = {}
        self._memory = SignatureMemory()
        """What uncached plugins remember for pods of all signatures."""
        self._results: dict[Signature, SignatureResults] = {}
        self._usage: WeakValueDictionary[tuple[Filters, Scorers], UsageResults] = WeakValueDictionary()
        self._uses = 0
        self._rows_computed = 0

    @property
    def rows_computed(self) -> int:
        """How many rows were brought up to date, over all attempts."""
        return self._rows_computed + sum(results.rows_computed for results in self._results.values())

    def of(self, pod: Pod, info: PodInfo) -> tuple[CachedSignature, SignatureResults]:
        """What is cached for the pod."""
        self._uses += 1
        found = self._signatures.get(info.key)
        if found is None:
            if len(self._signatures) >= self._max():
                self._drop_signatures()
            found = self._signatures[info.key] = CachedSignature(self._cluster, self._memory)
        if pod.spec.node_name:
            results = self._results_for(pod, self._plugins.signature(pod))
        elif self._plugins.per_pod:
            # Pods of one signature may differ in what these plugins depend on.
            signature = self._plugins.signature(pod, found.fragments)
            found.fragments = signature
            results = self._results_for(pod, signature)
        elif found.results is None:
            results = found.results = self._results_for(pod, self._plugins.signature(pod))
        else:
            results = found.results
        found.last_used = results.last_used = self._uses
        return found, results

    def uncached(self, pod: Pod) -> tuple[CachedSignature, SignatureResults]:
        """New, empty values for the pod, which are not cached."""
        plugins = self._plugins.uncached(pod)
        return CachedSignature(self._cluster), self._make(plugins)

    def _results_for(self, pod: Pod, signature: Signature) -> SignatureResults:
        found = self._results.get(signature)
        if found is None:
            if len(self._results) >= self._max():
                self._drop_results()
            plugins = self._plugins.of(pod, signature)
            found = self._results[signature] = self._make(plugins)
        return found

    def _make(self, plugins: Mapping[str, PluginResults]) -> SignatureResults:
        return SignatureResults(self._profile, self._cluster, plugins, self._caller, self._share)

    def _share(self, filters: Filters, scorers: Scorers) -> UsageResults:
        """The combined results of these plugins: the same for all signatures that have them."""
        found = self._usage.get((filters, scorers))
        if found is None:
            found = self._usage[filters, scorers] = UsageResults(self._cluster, filters, scorers)
        return found

    def _max(self) -> int:
        return max(MIN_SIGNATURES, MAX_ROWS // max(self._cluster.nodes.high, 1))

    def _drop_signatures(self) -> None:
        oldest = sorted(self._signatures, key=lambda key: self._signatures[key].last_used)
        for key in oldest[: (len(oldest) + 1) // 2]:
            del self._signatures[key]

    def _drop_results(self) -> None:
        oldest = sorted(self._results, key=lambda signature: self._results[signature].last_used)
        for signature in oldest[: (len(oldest) + 1) // 2]:
            self._rows_computed += self._results.pop(signature).rows_computed
        left = set(self._results.values())
        self._signatures = {
            key: signature for key, signature in self._signatures.items() if signature.results in left
        }
        self._plugins.drop_all_but(plugin for results in left for plugin in results.plugin_results())
