"""A profile: the plugins of one scheduler name, in order, ready to be called.

A plugin's extension points are the methods it has. `Step` is one plugin at one point, with what the runtime
needs to know about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bayplan.api.pod import Pod
from bayplan.framework.plugin_api import (
    MAX_SCORE,
    AddRemovePodPlugin,
    DomainScorePlugin,
    FilterPlugin,
    NodePlugin,
    NodesAffectedByPodsPlugin,
    NormalizePlugin,
    Plugin,
    Reject,
    ScorePlugin,
)
from bayplan.framework.points import Point
from bayplan.framework.state import CycleState
from bayplan.snapshot.view import IntColumn, NodeColumns

METHODS: Final[dict[Point, str]] = {
    Point.PRE_ENQUEUE: "pre_enqueue",
    Point.QUEUE_SORT: "sort_key",
    Point.PRE_FILTER: "pre_filter",
    Point.FILTER: "filter",
    Point.POST_FILTER: "post_filter",
    Point.PRE_SCORE: "pre_score",
    Point.SCORE: "score",
    Point.RESERVE: "reserve",
    Point.PERMIT: "permit",
    Point.PRE_BIND: "pre_bind",
    Point.BIND: "bind",
    Point.POST_BIND: "post_bind",
}
"""The method that makes a plugin take part in a point."""


def points_of(plugin: type[Plugin]) -> frozenset[Point]:
    """The points that a plugin class implements."""
    return frozenset(point for point, method in METHODS.items() if callable(getattr(plugin, method, None)))


FilterMethod = Callable[[CycleState, Pod, NodeColumns], Iterable[Reject]]
ScoreMethod = Callable[[CycleState, Pod, NodeColumns], IntColumn]
NormalizeMethod = Callable[[CycleState, Pod, NodeColumns, IntColumn], IntColumn]
DomainScoresMethod = Callable[[CycleState, Pod, NodeColumns], tuple[str, IntColumn] | None]
AffectedMethod = Callable[[CycleState, Pod, NodeColumns], NDArray[np.bool_]]


def _no_filter(state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterable[Reject]:
    """The Filter of a plugin without one, which has only a Score."""
    return ()


def _no_score(state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
    """The Score of a plugin without one, which has only a Filter."""
    return np.zeros(len(nodes), dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One plugin at Filter or Score (with the PreFilter or PreScore that belongs to it)."""

    index: int
    """Its place among the steps of its point: the lower one speaks first."""
    plugin: Plugin
    name: str
    filter: FilterMethod
    """The plugin's methods, found with `isinstance` when the profile is built."""
    score: ScoreMethod
    normalize: NormalizeMethod | None
    domain_scores: DomainScoresMethod | None
    affected: AffectedMethod | None
    adjusts: AddRemovePodPlugin | None
    cached: bool
    """Its results follow from pod and row, so they are kept and brought up to date."""
    usage: bool
    """They follow from what runs on the row, too."""
    one_node_at_a_time: bool
    elementwise: bool
    """It can be asked about one row in plain numbers, whatever is supposed of it."""
    weight: int = 0

    @property
    def normalizes(self) -> bool:
        return self.normalize is not None

    @classmethod
    def alone(cls, plugin: Plugin) -> Step:
        """The plugin by itself, where its place does not matter."""
        return _step(0, plugin)


def _step(index: int, plugin: Plugin, weight: int = 0) -> Step:
    return Step(
        index=index,
        plugin=plugin,
        name=plugin.name,
        filter=plugin.filter if isinstance(plugin, FilterPlugin) else _no_filter,
        score=plugin.score if isinstance(plugin, ScorePlugin) else _no_score,
        normalize=plugin.normalize if isinstance(plugin, NormalizePlugin) else None,
        domain_scores=plugin.scores_by_domain if isinstance(plugin, DomainScorePlugin) else None,
        affected=(plugin.nodes_affected_by_pods if isinstance(plugin, NodesAffectedByPodsPlugin) else None),
        adjusts=plugin if isinstance(plugin, AddRemovePodPlugin) else None,
        cached=plugin.depends_on is not None,
        usage=plugin.depends_on is not None and plugin.depends_on.usage,
        one_node_at_a_time=isinstance(plugin, NodePlugin),
        elementwise=plugin.elementwise and not isinstance(plugin, AddRemovePodPlugin),
        weight=weight,
    )


class Profile:
    """Plugins by point, in order, with their weights."""

    def __init__(
        self,
        scheduler_name: str,
        plugins: Mapping[Point, Sequence[Plugin]],
        weights: Mapping[str, int],
        percentage_of_nodes_to_score: int | None = None,
    ) -> None:
        self.scheduler_name = scheduler_name
        self.percentage_of_nodes_to_score = percentage_of_nodes_to_score
        self.plugins: dict[Point, tuple[Any, ...]] = {
            point: tuple(plugins.get(point, ())) for point in METHODS
        }
        self.filters = tuple(_step(i, plugin) for i, plugin in enumerate(self.plugins[Point.FILTER]))
        self.scores = tuple(
            _step(i, plugin, weights.get(plugin.name) or 1)
            for i, plugin in enumerate(self.plugins[Point.SCORE])
        )
        self.max_total = 1 + sum(MAX_SCORE * step.weight for step in self.scores)
        """No node's total is higher."""
        self.pre_filters = self.plugins[Point.PRE_FILTER]
        self.pre_scores = self.plugins[Point.PRE_SCORE]

    def all_plugins(self) -> tuple[Plugin, ...]:
        """Every plugin once."""
        found: dict[int, Plugin] = {}
        for plugins in self.plugins.values():
            for plugin in plugins:
                found.setdefault(id(plugin), plugin)
        return tuple(found.values())
