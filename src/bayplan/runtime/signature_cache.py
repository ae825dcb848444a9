"""What is cached for each pod signature, and for how many signatures.

Two pods have the same signature if scheduling cannot tell them apart (`snapshot.pod_info.pod_signature`).
Cached plugins depend on fewer fields, so several signatures may share a `SignatureResults`. All of it is
columns over the nodes: at 5,000 nodes a signature costs more than half a megabyte. So the limit is a number
of rows, not of signatures, and the least recently used ones are dropped first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from bayplan.api.pod import Pod
from bayplan.runtime.plugin_results import ResultCache, Signature
from bayplan.runtime.profile import Profile
from bayplan.runtime.signature_results import SignatureResults
from bayplan.runtime.timing import Caller
from bayplan.snapshot.cluster import Cluster
from bayplan.snapshot.pod_info import PodInfo

MAX_ROWS: Final = 2_000_000
"""SignatureCache times nodes that are kept, at some 130 bytes each: 400 shapes for 5,000 nodes."""

MIN_SIGNATURES: Final = 64
"""SignatureCache that are kept however many nodes there are."""


@dataclass(slots=True, eq=False)
class Shape:
    """What is kept for pods of one shape."""

    results: SignatureResults | None = None
    kept: dict[Any, Any] = field(default_factory=dict)
    """What plugins keep that are asked in every cycle."""
    used: int = 0


class SignatureCache:
    """The shapes of pods that one profile has met."""

    def __init__(self, profile: Profile, cluster: Cluster, caller: Caller) -> None:
        self._profile = profile
        self._cluster = cluster
        self._caller = caller
        self._plugins = ResultCache(profile.all_plugins(), cluster, caller)
        self._shapes: dict[bytes, Shape] = {}
        self._results_of: dict[Signature, SignatureResults] = {}
        self._clock = 0
        self._rows_computed = 0

    @property
    def rows_computed(self) -> int:
        """How many rows were brought up to date, over all attempts."""
        return self._rows_computed + sum(results.rows_computed for results in self._results_of.values())

    def of(self, pod: Pod, info: PodInfo) -> tuple[SignatureResults, dict[Any, Any]]:
        """What is kept for the pod."""
        self._clock += 1
        shape = self._shapes.get(info.key)
        if shape is None:
            if len(self._shapes) >= self._most():
                self._forget_shapes()
            shape = self._shapes[info.key] = Shape()
        shape.used = self._clock
        if self._plugins.per_pod or pod.spec.node_name:
            # In what these plugins read, pods of one shape may differ.
            results = self._results(pod)
        elif shape.results is None:
            results = shape.results = self._results(pod)
        else:
            results = shape.results
        results.used = self._clock
        return results, shape.kept

    def anew(self, pod: Pod) -> SignatureResults:
        """A results that shares nothing."""
        return SignatureResults(self._profile, self._cluster, self._plugins.anew(pod), self._caller)

    def _results(self, pod: Pod) -> SignatureResults:
        signature = self._plugins.signature(pod)
        found = self._results_of.get(signature)
        if found is None:
            if len(self._results_of) >= self._most():
                self._forget_results()
            kept = self._plugins.of(pod, signature)
            found = SignatureResults(self._profile, self._cluster, kept, self._caller)
            self._results_of[signature] = found
        return found

    def _most(self) -> int:
        return max(MIN_SIGNATURES, MAX_ROWS // max(self._cluster.nodes.high, 1))

    def _forget_shapes(self) -> None:
        oldest = sorted(self._shapes, key=lambda key: self._shapes[key].used)
        for key in oldest[: (len(oldest) + 1) // 2]:
            del self._shapes[key]

    def _forget_results(self) -> None:
        oldest = sorted(self._results_of, key=lambda signature: self._results_of[signature].used)
        for signature in oldest[: (len(oldest) + 1) // 2]:
            self._rows_computed += self._results_of.pop(signature).rows_computed
        left = set(self._results_of.values())
        self._shapes = {key: shape for key, shape in self._shapes.items() if shape.results in left}
        self._plugins.forget_all_but(kept for results in left for kept in results.kept_plugins())
