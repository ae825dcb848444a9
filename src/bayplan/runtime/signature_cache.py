"""What is cached for each pod signature, and for how many signatures.

Two pods have the same signature if scheduling cannot distinguish them (`pod_signature` in `state/pods.py`).
Cached plugins depend on fewer fields, so several signatures may share a `SignatureResults`. All of it is
columns over the nodes: at 5,000 nodes a signature costs more than half a megabyte. So the limit is a number
of rows, not of signatures, and the least recently used ones are dropped first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from weakref import WeakValueDictionary

from bayplan.api.pod import Pod
from bayplan.framework.state import SignatureMemory
from bayplan.runtime.calls import Caller
from bayplan.runtime.feasible import Feasible
from bayplan.runtime.plugin_results import PluginResults, ResultCache, Signature
from bayplan.runtime.profile import Profile
from bayplan.runtime.signature_results import Filters, Scorers, SignatureResults, UsageResults
from bayplan.state.cluster import Cluster
from bayplan.state.columns import RowMask
from bayplan.state.pods import PodInfo

MAX_ROWS: Final = 2_000_000
"""Signatures times nodes that are cached, at some 130 bytes each: 400 signatures for 5,000 nodes."""

MIN_SIGNATURES: Final = 64
"""Signatures that are cached however many nodes there are."""


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
        "_settled",
        "_settled_results",
        "feasible",
        "fragments",
        "last_used",
        "memory",
        "rejected",
        "results",
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
        self._settled = changes.freshness(
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
        self._settled_results: SignatureResults | None = None
        self.last_used = 0

    def is_settled(self, results: SignatureResults) -> bool:
        """Whether nothing but the pods on the nodes has changed since the last complete search."""
        return self._settled_results is results and self._settled.is_current

    def mark_settled(self, results: SignatureResults) -> None:
        """Every cached PreFilter has run, and all Node objects have been evaluated."""
        self._settled_results = results
        self._settled.mark_current()


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
