"""What is kept for each shape of pod, and for how many shapes.

Two pods have the same shape if scheduling cannot tell them apart (`snapshot.facts.template_key`). Plugins
whose answers are kept look at less, so several shapes may share a `Standing`. All of it is columns over the
nodes: at 5,000 nodes a shape costs more than half a megabyte. So there is room for a number of rows, not of
shapes, and the shapes that were not asked about for longest go first. Nothing is lost with them but time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from bayplan.api.pod import Pod
from bayplan.runtime.plugin_results import KeptPlugins, Signature
from bayplan.runtime.profile import Profile
from bayplan.runtime.signature_results import Standing
from bayplan.runtime.timing import Caller
from bayplan.snapshot.cluster import Cluster
from bayplan.snapshot.facts import PodFacts

MOST_ROWS: Final = 2_000_000
"""Shapes times nodes that are kept, at some 130 bytes each: 400 shapes for 5,000 nodes."""

FEWEST_SHAPES: Final = 64
"""Shapes that are kept however many nodes there are."""


@dataclass(slots=True, eq=False)
class Shape:
    """What is kept for pods of one shape."""

    standing: Standing | None = None
    kept: dict[Any, Any] = field(default_factory=dict)
    """What plugins keep that are asked in every cycle."""
    used: int = 0


class Shapes:
    """The shapes of pods that one profile has met."""

    def __init__(self, profile: Profile, cluster: Cluster, caller: Caller) -> None:
        self._profile = profile
        self._cluster = cluster
        self._caller = caller
        self._plugins = KeptPlugins(profile.all_plugins(), cluster, caller)
        self._shapes: dict[bytes, Shape] = {}
        self._standings: dict[Signature, Standing] = {}
        self._clock = 0
        self._rows_computed = 0

    @property
    def rows_computed(self) -> int:
        """How many rows were brought up to date, over all attempts."""
        return self._rows_computed + sum(standing.rows_computed for standing in self._standings.values())

    def of(self, pod: Pod, facts: PodFacts) -> tuple[Standing, dict[Any, Any]]:
        """What is kept for the pod."""
        self._clock += 1
        shape = self._shapes.get(facts.key)
        if shape is None:
            if len(self._shapes) >= self._most():
                self._forget_shapes()
            shape = self._shapes[facts.key] = Shape()
        shape.used = self._clock
        if self._plugins.per_pod or pod.spec.node_name:
            # In what these plugins read, pods of one shape may differ.
            standing = self._standing(pod)
        elif shape.standing is None:
            standing = shape.standing = self._standing(pod)
        else:
            standing = shape.standing
        standing.used = self._clock
        return standing, shape.kept

    def anew(self, pod: Pod) -> Standing:
        """A standing that shares nothing."""
        return Standing(self._profile, self._cluster, self._plugins.anew(pod), self._caller)

    def _standing(self, pod: Pod) -> Standing:
        signature = self._plugins.signature(pod)
        found = self._standings.get(signature)
        if found is None:
            if len(self._standings) >= self._most():
                self._forget_standings()
            kept = self._plugins.of(pod, signature)
            found = Standing(self._profile, self._cluster, kept, self._caller)
            self._standings[signature] = found
        return found

    def _most(self) -> int:
        return max(FEWEST_SHAPES, MOST_ROWS // max(self._cluster.nodes.high, 1))

    def _forget_shapes(self) -> None:
        oldest = sorted(self._shapes, key=lambda key: self._shapes[key].used)
        for key in oldest[: (len(oldest) + 1) // 2]:
            del self._shapes[key]

    def _forget_standings(self) -> None:
        oldest = sorted(self._standings, key=lambda signature: self._standings[signature].used)
        for signature in oldest[: (len(oldest) + 1) // 2]:
            self._rows_computed += self._standings.pop(signature).rows_computed
        left = set(self._standings.values())
        self._shapes = {key: shape for key, shape in self._shapes.items() if shape.standing in left}
        self._plugins.forget_all_but(kept for standing in left for kept in standing.kept_plugins())
