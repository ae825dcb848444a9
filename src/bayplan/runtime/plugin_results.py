"""The results of one plugin for pods that it cannot distinguish, row by row.

A plugin that declares its `Dependencies` runs once for all pods with equal values of those fields. Pods with
different signatures often share: fifty applications of five sizes have five columns of NodeResourcesFit, not
fifty.

`PluginResults` runs PreFilter again when an object it depends on changed; `changed` is the topic of its
answer. A `PluginColumn` (reasons of Filter, or raw scores) depends on that topic and on the rows: of `nodes`,
and of `usage` for plugins that depend on usage. Elementwise plugins compute a few rows with plain numbers: by
their shortcut for single rows, or else with `OneNode`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from bayplan.api.pod import Pod, pod_images
from bayplan.clock import Freshness, Topic
from bayplan.framework.outcome import Reasons
from bayplan.framework.plugin_api import Dependencies, NodeNames, Plugin, PodFunction, PreScorePlugin
from bayplan.framework.points import Point
from bayplan.framework.state import CycleState
from bayplan.framework.status import Code, Status
from bayplan.runtime import calls
from bayplan.runtime.calls import Caller
from bayplan.runtime.profile import Step
from bayplan.state.cluster import Cluster
from bayplan.state.columns import IdColumn, cells
from bayplan.state.pods import encoded, relevant_volumes
from bayplan.state.view import NodeColumns, OneNode

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
"""Fields by which pods of one template (`snapshot.pod_info.pod_signature`) can differ."""


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


FEW_ROWS: Final = 12
"""Up to this many rows plain numbers are faster than arrays."""
FEW_ROWS_BY_SHORTCUT: Final = 40
"""The same for plugins with a shortcut for single rows."""

Signature = tuple[bytes, ...]


class PluginColumn:
    """One number for each row, brought up to date when it is read.

    Args:
        compute: computes rows with arrays.
        compute_one: computes one row with plain numbers, if the plugin is elementwise.
        make_shortcut: the plugin's function for single rows, if it has one (`RowFilterPlugin`,
            `RowScorePlugin`). If it returns True, `compute_one` is called.
        point: Filter or Score.
    """

    __slots__ = (
        "_compute",
        "_compute_one",
        "_freshness",
        "_make_shortcut",
        "_point",
        "_results",
        "_shortcut",
        "_uniform",
        "cell",
        "usage",
        "values",
    )

    def __init__(
        self,
        results: PluginResults,
        freshness: Freshness,
        compute: Callable[[NodeColumns], NDArray[np.int64]],
        compute_one: Callable[[OneNode], int],
        make_shortcut: Callable[[NodeColumns], Callable[[int], int] | None],
        point: Point,
    ) -> None:
        self._results = results
        self._freshness = freshness
        self._compute = compute
        self._compute_one = compute_one
        self._make_shortcut = make_shortcut
        self._point = point
        self._shortcut: Callable[[int], int] | None = None
        self.usage = results.depends_on.usage
        """Whether it depends on the pods of the row, or only on the Node object."""
        self._uniform: bool | None = None
        self.values: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.cell = cells(self.values)

    @property
    def is_uniform(self) -> bool:
        """Whether all rows have the same number."""
        if self._uniform is None:
            self._uniform = not len(self.values) or bool((self.values == self.values[0]).all())
        return self._uniform

    def update(self) -> None:
        """Computes the rows that are stale."""
        rows = self._freshness.stale_rows()
        if rows is None:
            view = NodeColumns(self._results.cluster)
            self.values = self._compute(view).copy()
            self.cell = cells(self.values)
            self._uniform = None
            self._shortcut = self._make_shortcut(view)
        elif rows:
            self._compute_rows(rows if len(rows) == 1 else set(rows))
        self._freshness.mark_current()

    def _compute_rows(self, rows: Collection[int]) -> None:
        self._uniform = None
        shortcut, results, cell = self._shortcut, self._results, self.cell
        if shortcut is None or len(rows) > FEW_ROWS_BY_SHORTCUT:
            self._compute_without_shortcut(rows)
            return
        if results.caller.calls is not calls.PLAIN:
            shortcut = results.caller.calls.shortcut(results.step, self._point, shortcut)
        for row in rows:
            try:
                found = shortcut(row)
                if found is not True:
                    cell[row] = found
                    continue
            except Exception as error:
                raise calls.plugin_error(results.step, self._point, error) from error
            cell[row] = self._compute_one(OneNode(results.cluster, row))

    def _compute_without_shortcut(self, rows: Collection[int]) -> None:
        cluster = self._results.cluster
        if len(rows) <= FEW_ROWS and self._results.is_elementwise:
            for row in rows:
                self.cell[row] = self._compute_one(OneNode(cluster, row))
        else:
            where = np.fromiter(rows, dtype=np.intp, count=len(rows))
            self.values[where] = self._compute(NodeColumns(cluster, where))


class PluginResults:
    """One plugin's results for all pods that it cannot distinguish. `pod` is any of them."""

    def __init__(
        self, plugin: Plugin, depends_on: Dependencies, pod: Pod, cluster: Cluster, caller: Caller
    ) -> None:
        self.depends_on = depends_on
        self.caller = caller
        self.plugin = plugin
        self.name: str = plugin.name
        self.state = CycleState()
        self.reasons = Reasons(plugin.name)
        self.skips_filter = False
        """Whether PreFilter returned SKIP."""
        self._pod = pod
        self.cluster = cluster
        changes = cluster.changes
        self.changed = Topic(changes.clock)
        """PreFilter's answer, or objects that Filter and Score depend on, have changed."""
        self._answer: Status | NodeNames | None = None
        self._freshness = changes.freshness(changes.kinds(depends_on.kinds))
        for kind in depends_on.node_kinds:
            cluster.objects.of(kind).belongs_to_nodes(cluster.nodes.row_of)
        self._has_score: bool | None = None
        topics = (changes.size, self.changed, *((changes.images,) if depends_on.images else ()))
        logs = (changes.nodes, changes.usage) if depends_on.usage else (changes.nodes,)

        self.is_elementwise = plugin.elementwise
        self.step = step = Step.alone(plugin)
        self.filter_column = PluginColumn(
            self,
            changes.freshness(topics, logs),
            self._filter,
            self._filter_one,
            lambda view: calls.row_shortcut(step, Point.FILTER, self.state, pod, view),
            Point.FILTER,
        )
        """The id of the reasons for which each row is rejected; 0 if it is not."""
        self.score_column = PluginColumn(
            self,
            changes.freshness(topics, logs),
            self._score,
            self._score_one,
            lambda view: calls.row_shortcut(step, Point.SCORE, self.state, pod, view),
            Point.SCORE,
        )
        """The raw scores."""

    def pre_filter(self, nodes: NodeColumns) -> Status | NodeNames:
        """PreFilter's answer: the last one, unless objects that it depends on have changed."""
        if self._answer is not None and self._freshness.is_current:
            return self._answer
        before = self._answer
        self._answer = None
        answer = self.caller.calls.pre_filter(self.step, self.state, self._pod, nodes)
        self.skips_filter = isinstance(answer, Status) and answer.code is Code.SKIP
        if before is None or not self.skips_filter or before != answer or self._may_score(nodes):
            self._mark_changed()
        self._answer = answer
        self._freshness.mark_current()
        return answer

    def check_objects(self) -> None:
        """For a plugin without PreFilter: everything is stale once objects it depends on have changed."""
        if not self._freshness.is_current:
            self._mark_changed()
            self._freshness.mark_current()

    def _mark_changed(self) -> None:
        self.changed.change()
        self._has_score = None

    def _may_score(self, nodes: NodeColumns) -> bool:
        """Whether there are scores, which may have changed with the objects even if Filter is skipped."""
        if self._has_score is False and isinstance(self.step.plugin, PreScorePlugin):
            pre_score = self.caller.calls.pre_score
            return pre_score(self.step, self.state, self._pod, nodes).is_success
        return bool(self._has_score)

    def has_score(self, nodes: NodeColumns, pre_scores: bool) -> bool:
        """Whether the plugin scores these pods: its PreScore decides."""
        if self._has_score is None:
            self._has_score = not pre_scores or (
                self.caller.calls.pre_score(self.step, self.state, self._pod, nodes).is_success
            )
        return self._has_score

    def _filter(self, view: NodeColumns) -> NDArray[np.int64]:
        existing, shown = self._shown(view)
        found = self.caller.calls.filter_rows(self.step, self.state, self._pod, shown, self.reasons)
        if found is None:
            return np.zeros(len(view), dtype=np.int64)
        return found.reason_ids() if existing is None else found.among(existing, len(view)).reason_ids()

    def _shown(self, view: NodeColumns) -> tuple[IdColumn | None, NodeColumns]:
        """The rows that a plugin is called with. Rows without a node are not passed to a `NodePlugin`."""
        if not self.step.one_node_at_a_time or view.exists.all():
            return None, view
        existing = view.exists.nonzero()[0]
        return existing, NodeColumns(self.cluster, view.rows.take(existing))

    def _filter_one(self, one: OneNode) -> int:
        return self.caller.calls.filter_one(self.step, self.state, self._pod, one, self.reasons)

    def _score(self, view: NodeColumns) -> NDArray[np.int64]:
        existing, shown = self._shown(view)
        scores = self.caller.calls.score_rows(self.step, self.state, self._pod, shown)
        if existing is None:
            return scores
        all_scores = np.zeros(len(view), dtype=np.int64)
        all_scores[existing] = scores
        return all_scores

    def _score_one(self, one: OneNode) -> int:
        return self.caller.calls.score_one(self.step, self.state, self._pod, one)


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
        except Exception as error:
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
