"""A profile: the plugins of one scheduler name, in order, ready to be called.

A plugin takes part in an extension point by having its methods. They are looked up once, when the profile is
built, as the protocols describe them: `Step` is one plugin in the scheduling cycle, `PointStep` one plugin at
one of the other points.
"""

# mypy: disable-error-code="type-abstract"
# `_steps` is given protocols, which are never instantiated.

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeGuard, TypeVar
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
from numpy.typing import NDArray

from bayplan.api.pod import Pod
from bayplan.errors import PluginError
from bayplan.framework.group_api import (
    PlacementFeasiblePlugin,
    PlacementGeneratePlugin,
    PlacementScorePlugin,
    PodGroupPostFilterPlugin,
)
from bayplan.framework.plugin_api import (
    MAX_SCORE,
    AddRemovePodPlugin,
    BindPlugin,
    FilterPlugin,
    NodeNames,
    NodePlugin,
    NodesAffectedByPodsPlugin,
    NormalizePlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    Reject,
    ReservePlugin,
    ScorePlugin,
)
from bayplan.framework.points import Point
from bayplan.framework.shortcuts import (
    DomainScorePlugin,
    PreEnqueueField,
    RejectedRowsPlugin,
    RowFilterPlugin,
    RowScorePlugin,
    UniformScorePlugin,
)
from bayplan.framework.state import CycleState
from bayplan.framework.status import Status
from bayplan.runtime.failure_log import FailureLog
from bayplan.state.columns import RowMask
from bayplan.state.view import IntColumn, NodeColumns

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
_SEARCH: Final = (Point.PRE_FILTER, Point.FILTER, Point.PRE_SCORE, Point.SCORE)

_BUILT_IN: Final = "bayplan.plugins."


def points_of(plugin: type[Plugin]) -> frozenset[Point]:
    """The points that a plugin class implements."""
    return frozenset(point for point, method in METHODS.items() if callable(getattr(plugin, method, None)))


PreFilterMethod = Callable[[CycleState, Pod, NodeColumns], Status | NodeNames | None]
FilterMethod = Callable[[CycleState, Pod, NodeColumns], Iterable[Reject]]
PreScoreMethod = Callable[[CycleState, Pod, NodeColumns], Status | None]
ScoreMethod = Callable[[CycleState, Pod, NodeColumns], IntColumn]
NormalizeMethod = Callable[[CycleState, Pod, NodeColumns, IntColumn], IntColumn]
DomainScoresMethod = Callable[[CycleState, Pod, NodeColumns], tuple[str, IntColumn] | None]
UniformScoreMethod = Callable[[CycleState, Pod], bool]
RowFilterMethod = Callable[[CycleState, Pod, NodeColumns], Callable[[int], bool] | None]
RowScoreMethod = Callable[[CycleState, Pod, NodeColumns], Callable[[int], int] | None]
RejectedRowsMethod = Callable[[CycleState, Pod, NodeColumns], RowMask | None]
AffectedMethod = Callable[[CycleState, Pod, NodeColumns], NDArray[np.bool_]]


def _nothing_to_prepare(state: CycleState, pod: Pod, nodes: NodeColumns) -> None:
    """The PreFilter or PreScore of a plugin without one."""
    return


def _no_filter(state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterable[Reject]:
    """The Filter of a plugin without one, which has only a Score."""
    return ()


def _no_score(state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
    """The Score of a plugin without one, which has only a Filter."""
    return np.zeros(len(nodes), dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One plugin at PreFilter, Filter, PreScore or Score."""

    index: int
    """Its position among the steps of its point: the one with the lower index runs first."""
    plugin: Plugin
    name: str
    pre_filter: PreFilterMethod
    """The plugin's methods, looked up when the profile is built."""
    filter: FilterMethod
    pre_score: PreScoreMethod
    score: ScoreMethod
    row_filter: RowFilterMethod | None
    row_score: RowScoreMethod | None
    normalize: NormalizeMethod | None
    domain_scores: DomainScoresMethod | None
    uniform_score: UniformScoreMethod | None
    rejected_rows: RejectedRowsMethod | None
    affected: AffectedMethod | None
    adjusts: AddRemovePodPlugin | None
    cached: bool
    """Its results depend on pod and row only, so they are cached and brought up to date."""
    usage: bool
    """The results depend on the pods of the row, too."""
    one_node_at_a_time: bool
    elementwise: bool
    """It can be called for one row with plain numbers, hypothetical rows included."""
    built_in: bool
    weight: int = 0


PointT = TypeVar("PointT")

_implemented: Final[WeakKeyDictionary[type[Plugin], dict[type, bool]]] = WeakKeyDictionary()


def implements(plugin: Plugin, protocol: type[PointT]) -> TypeGuard[PointT]:
    """Whether the plugin has the methods of a protocol.

    The same as `isinstance`, which takes 100 times as long for a protocol: it is called once per class.
    """
    by_protocol = _implemented.setdefault(type(plugin), {})
    found = by_protocol.get(protocol)
    if found is None:
        found = by_protocol[protocol] = issubclass(type(plugin), protocol)
    # An instance may have methods of its own.
    return found or (not vars(plugin).keys().isdisjoint(vars(protocol)) and isinstance(plugin, protocol))


def make_step(index: int, plugin: Plugin, weight: int = 0) -> Step:
    """The plugin at this position of the points of the search."""
    return Step(
        index=index,
        plugin=plugin,
        name=plugin.name,
        pre_filter=plugin.pre_filter if implements(plugin, PreFilterPlugin) else _nothing_to_prepare,
        filter=plugin.filter if implements(plugin, FilterPlugin) else _no_filter,
        pre_score=plugin.pre_score if implements(plugin, PreScorePlugin) else _nothing_to_prepare,
        score=plugin.score if implements(plugin, ScorePlugin) else _no_score,
        row_filter=(
            plugin.row_filter if plugin.elementwise and implements(plugin, RowFilterPlugin) else None
        ),
        row_score=plugin.row_score if plugin.elementwise and implements(plugin, RowScorePlugin) else None,
        normalize=plugin.normalize if implements(plugin, NormalizePlugin) else None,
        domain_scores=plugin.scores_by_domain if implements(plugin, DomainScorePlugin) else None,
        uniform_score=plugin.has_uniform_score if implements(plugin, UniformScorePlugin) else None,
        rejected_rows=plugin.rejected_rows if implements(plugin, RejectedRowsPlugin) else None,
        affected=(plugin.nodes_affected_by_pods if implements(plugin, NodesAffectedByPodsPlugin) else None),
        adjusts=plugin if implements(plugin, AddRemovePodPlugin) else None,
        cached=plugin.depends_on is not None,
        usage=plugin.depends_on is not None and plugin.depends_on.usage,
        one_node_at_a_time=isinstance(plugin, NodePlugin),
        elementwise=plugin.elementwise and not implements(plugin, AddRemovePodPlugin),
        built_in=_is_built_in(plugin),
        weight=weight,
    )


class PointStep(msgspec.Struct, Generic[PointT], frozen=True, eq=False):
    """One plugin at one extension point outside the search for a node."""

    name: str
    plugin: PointT
    """The plugin, as the protocol of the point."""
    declared: Plugin
    """The same object, for what the plugin declares about itself."""
    built_in: bool
    """It is one of bayplan's own plugins."""
    pre_enqueue_field: str = ""
    """The field of the pod's spec without which PreEnqueue is not called (`PreEnqueueField`)."""


def _is_built_in(plugin: Plugin) -> bool:
    """Whether it is one of bayplan's own. An instance of a class derived from one of them is not."""
    return type(plugin).__module__.startswith(_BUILT_IN)


def _steps(plugins: Iterable[Plugin], point: Point, protocol: type[PointT]) -> tuple[PointStep[PointT], ...]:
    made: list[PointStep[PointT]] = []
    for declared in plugins:
        plugin = declared
        if not implements(plugin, protocol):
            methods = (name for name, value in vars(protocol).items() if callable(value) and name[0] != "_")
            missing = ", ".join(name for name in methods if not hasattr(plugin, name))
            raise PluginError(declared.name, f"{point} also requires the method {missing}")
        built_in = _is_built_in(declared)
        field = plugin.pre_enqueue_field if built_in and isinstance(plugin, PreEnqueueField) else ""
        made.append(PointStep(declared.name, plugin, declared, built_in, field))
    return tuple(made)


class Profile:
    """Plugins by point, in order, with their weights."""

    def __init__(
        self,
        scheduler_name: str,
        plugins: Mapping[Point, Sequence[Plugin]],
        weights: Mapping[str, int],
        percentage_of_nodes_to_score: int | None = None,
        failures: FailureLog | None = None,
        placement_weights: Mapping[str, int] | None = None,
    ) -> None:
        self.scheduler_name = scheduler_name
        self.percentage_of_nodes_to_score = percentage_of_nodes_to_score
        self.failures = FailureLog() if failures is None else failures
        """Where failures of these plugins are reported; all profiles of a scheduler have the same one."""
        self.plugins: dict[Point, tuple[Plugin, ...]] = {
            point: tuple(plugins.get(point, ())) for point in METHODS
        }
        at = self.plugins
        made = {id(plugin): make_step(0, plugin) for point in _SEARCH for plugin in at[point]}

        def steps(plugins: Sequence[Plugin]) -> tuple[Step, ...]:
            return tuple(replace(made[id(plugin)], index=i) for i, plugin in enumerate(plugins))

        self.pre_enqueues = _steps(at[Point.PRE_ENQUEUE], Point.PRE_ENQUEUE, PreEnqueuePlugin)
        self.queue_sorts = _steps(at[Point.QUEUE_SORT], Point.QUEUE_SORT, QueueSortPlugin)
        self.pre_filters = steps(at[Point.PRE_FILTER])
        self.filters = steps(at[Point.FILTER])
        self.post_filters = _steps(at[Point.POST_FILTER], Point.POST_FILTER, PostFilterPlugin)
        self.pre_scores = steps(at[Point.PRE_SCORE])
        self.scores = tuple(
            replace(step, weight=weights.get(step.name) or 1) for step in steps(at[Point.SCORE])
        )
        self.max_total = 1 + sum(MAX_SCORE * step.weight for step in self.scores)
        """No node's total is higher."""
        self.pod_group_post_filters = _steps(
            plugins.get(Point.POD_GROUP_POST_FILTER, ()),
            Point.POD_GROUP_POST_FILTER,
            PodGroupPostFilterPlugin,
        )
        self.placement_generators = _steps(
            plugins.get(Point.PLACEMENT_GENERATE, ()), Point.PLACEMENT_GENERATE, PlacementGeneratePlugin
        )
        self.placement_scores = _steps(
            plugins.get(Point.PLACEMENT_SCORE, ()), Point.PLACEMENT_SCORE, PlacementScorePlugin
        )
        by_name = placement_weights or {}
        self.placement_weights = tuple(by_name.get(step.name) or 1 for step in self.placement_scores)
        self.placement_feasible = tuple(
            plugin for plugin in self.all_plugins() if implements(plugin, PlacementFeasiblePlugin)
        )
        """The plugins that decide whether enough members of a group are placed."""
        self.reserves = _steps(at[Point.RESERVE], Point.RESERVE, ReservePlugin)
        self.permits = _steps(at[Point.PERMIT], Point.PERMIT, PermitPlugin)
        self.pre_binds = _steps(at[Point.PRE_BIND], Point.PRE_BIND, PreBindPlugin)
        self.binds = _steps(at[Point.BIND], Point.BIND, BindPlugin)
        self.post_binds = _steps(at[Point.POST_BIND], Point.POST_BIND, PostBindPlugin)
        self.covered_by_skip = frozenset(
            plugin.name for plugin in self.all_plugins() if plugin.skip_covers_binding
        )
        """Plugins without work from Reserve on, if their PreFilter returned SKIP."""

    def all_plugins(self) -> tuple[Plugin, ...]:
        """Every plugin once."""
        found: dict[int, Plugin] = {}
        for plugins in self.plugins.values():
            for plugin in plugins:
                found.setdefault(id(plugin), plugin)
        return tuple(found.values())
