"""The results of one plugin for identical pods, row by row, brought up to date by what changed.

A plugin that declares its `Dependencies` runs once for all pods with equal values of those fields. Pods with
different signatures often share: fifty applications of five sizes have five columns of NodeResourcesFit, not
fifty. When a pod comes, only rows that changed since are computed again:

    node_log   → the Node object changed
    usage_log  → pods came or went (only for plugins that depend on usage)

A few changed rows are evaluated with plain numbers (`OneNode`), where the plugin allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bayplan.api.pod import Pod
from bayplan.framework.node_statuses import Reasons
from bayplan.framework.plugin_api import NodeNames
from bayplan.framework.state import CycleState
from bayplan.framework.status import Code, Status
from bayplan.runtime import calls
from bayplan.runtime.profile import Step
from bayplan.runtime.signature import PodSigner
from bayplan.runtime.timing import Caller
from bayplan.snapshot.cluster import Cluster
from bayplan.snapshot.interning import IdColumn
from bayplan.snapshot.one_node import OneNode
from bayplan.snapshot.table import cells
from bayplan.snapshot.view import NodeColumns

FEW_ROWS: Final = 12
"""Up to so many changed rows plain numbers beat arrays."""

Signature = tuple[bytes, ...]


class PluginColumn:
    """One number for each row, kept in step with the cluster."""

    __slots__ = (
        "_cluster",
        "_many",
        "_node_cursor",
        "_one",
        "_uniform",
        "_usage_cursor",
        "cell",
        "epoch",
        "reads_usage",
        "values",
    )

    def __init__(
        self,
        cluster: Cluster,
        many: Callable[[NodeColumns], NDArray[np.int64]],
        one: Callable[[OneNode], int] | None,
        usage: bool,
    ) -> None:
        self._cluster = cluster
        self._many = many
        self._one = one
        self.reads_usage = usage
        self._node_cursor = self._usage_cursor = -1
        self._uniform: bool | None = None
        self.epoch = 0
        """Grows when all rows were computed anew."""
        self.values: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.cell = cells(self.values)

    @property
    def is_uniform(self) -> bool:
        """Whether all rows have the same number."""
        if self._uniform is None:
            self._uniform = not len(self.values) or bool((self.values == self.values[0]).all())
        return self._uniform

    def start_over(self) -> None:
        """Makes the next `sync` compute all rows."""
        self._node_cursor = -1

    def sync(self) -> None:
        cluster = self._cluster
        node_log, usage_log = cluster.node_log, cluster.usage_log
        if self._node_cursor == node_log.end and len(self.values) == cluster.nodes.high:
            # The usual case: no node changed, and a pod or two came or went.
            if not self.reads_usage or self._usage_cursor == usage_log.end:
                return
            changed = usage_log.since(self._usage_cursor)
        else:
            changed = node_log.since(self._node_cursor)
            if self.reads_usage and changed is not None:
                usage = usage_log.since(self._usage_cursor)
                changed = None if usage is None else changed + usage
        if changed is None or len(self.values) != cluster.nodes.high:
            self._node_cursor = -1
            self.values = self._many(NodeColumns(cluster)).copy()
            self.cell = cells(self.values)
            self.epoch += 1
            self._uniform = None
        elif changed:
            self._renew(changed)
        self._node_cursor = node_log.end
        self._usage_cursor = usage_log.end

    def sync_row(self, node: OneNode, row: int) -> None:
        """The same where nothing has happened but that a pod came to this row, or left it."""
        end = self._cluster.usage_log.end
        if self._usage_cursor == end:
            return  # somebody else who reads this column came first
        if self._one is None:
            self._renew([row])
        else:
            self._uniform = None
            self.cell[row] = self._one(node)
        self._usage_cursor = end

    def _renew(self, changed: list[int]) -> None:
        self._uniform = None
        rows = changed if len(changed) == 1 else list(set(changed))
        if self._one is not None and len(rows) <= FEW_ROWS:
            for row in rows:
                self.cell[row] = self._one(OneNode(self._cluster, row))
        else:
            where = np.array(rows, dtype=np.intp)
            self.values[where] = self._many(NodeColumns(self._cluster, where))


class PluginResults:
    """One plugin's answers for all pods that it cannot tell apart. `pod` is any of them."""

    def __init__(self, plugin: Any, pod: Pod, cluster: Cluster, caller: Caller) -> None:
        self.plugin = plugin
        self._caller = caller
        self.name: str = plugin.name
        self.state = CycleState()
        self.reasons = Reasons(plugin.name)
        self.skips = False
        """Whether PreFilter left this plugin's Filter out."""
        self._pod = pod
        self._cluster = cluster
        self.generation = 0
        """Grows when objects that the plugin reads have changed: all its answers have to be made again."""
        self._answer: Status | NodeNames | None = None
        self._versions: tuple[int, ...] = ()
        self._images_version = -1
        self._scores: bool | None = None
        usage = plugin.depends_on.usage
        one = plugin.elementwise
        self.node_statuses = PluginColumn(cluster, self._judge, self._judge_one if one else None, usage)
        self.raw_scores = PluginColumn(cluster, self._score, self._score_one if one else None, usage)
        self._step = Step.alone(plugin)

    def pre_filter(self, nodes: NodeColumns) -> Status | NodeNames:
        """PreFilter's answer: the one from before, unless objects that it read have changed."""
        versions = self._cluster.objects.versions(self.plugin.depends_on.kinds)
        if self._answer is not None and self._versions == versions:
            return self._answer
        before, self._versions = self._answer, versions
        self._answer = None
        answer = self._caller.calls.pre_filter(self.plugin, self.state, self._pod, nodes)
        self._answer = answer
        self.skips = isinstance(answer, Status) and answer.code is Code.SKIP
        if before is None or not self.skips or before != answer or self._scores_now(nodes):
            self._start_over()
        return answer

    def follow_objects(self) -> None:
        """For a plugin without PreFilter: all is new once objects that it reads have changed."""
        versions = self._cluster.objects.versions(self.plugin.depends_on.kinds)
        if self._versions != versions:
            self._versions = versions
            self._start_over()

    def _start_over(self) -> None:
        self.generation += 1
        self.node_statuses.start_over()
        self.raw_scores.start_over()
        self._scores = None

    def _scores_now(self, nodes: NodeColumns) -> bool:
        """Whether there are scores, which may have changed with the objects even if Filter is left out."""
        if self._scores is False and hasattr(self.plugin, "pre_score"):
            ask = self._caller.calls.pre_score
            return ask(self.plugin, self.state, self._pod, nodes).is_success
        return bool(self._scores)

    def has_score(self, nodes: NodeColumns, pre_scores: bool) -> bool:
        """Whether the plugin scores these pods, which its PreScore says."""
        if self._scores is None:
            self._scores = not pre_scores or (
                self._caller.calls.pre_score(self.plugin, self.state, self._pod, nodes).is_success
            )
        return self._scores

    def verdict_column(self) -> PluginColumn:
        """The number of the reasons against each row; 0 where there are none."""
        self._follow_images()
        return self.node_statuses

    def score_column(self) -> PluginColumn:
        """The raw scores."""
        self._follow_images()
        return self.raw_scores

    def _follow_images(self) -> None:
        """Starts over where it matters which nodes have which images, and that has changed."""
        if self.plugin.depends_on.images and self._images_version != self._cluster.images_version:
            self._images_version = self._cluster.images_version
            self.node_statuses.start_over()
            self.raw_scores.start_over()
            if hasattr(self.plugin, "filter"):
                # Others keep what follows from its node_statuses.
                self.generation += 1

    def _judge(self, view: NodeColumns) -> NDArray[np.int64]:
        there, shown = self._shown(view)
        found = self._caller.calls.filter_rows(self._step, self.state, self._pod, shown, self.reasons)
        if found is None:
            return np.zeros(len(view), dtype=np.int64)
        return found.why() if there is None else found.among(there, len(view)).why()

    def _shown(self, view: NodeColumns) -> tuple[IdColumn | None, NodeColumns]:
        """What to show to the plugin: one that looks at nodes one by one must not meet a row without one."""
        if not self._step.one_node_at_a_time or view.exists.all():
            return None, view
        there = view.exists.nonzero()[0]
        return there, NodeColumns(self._cluster, view.rows.take(there))

    def _judge_one(self, one: OneNode) -> int:
        if self._caller.timer is None:
            # Straight to the function: this and the score below are the hottest calls of all.
            return calls.filter_one(self._step, self.state, self._pod, one, self.reasons)
        return self._caller.calls.filter_one(self._step, self.state, self._pod, one, self.reasons)

    def _score(self, view: NodeColumns) -> NDArray[np.int64]:
        there, shown = self._shown(view)
        scores = self._caller.calls.score_rows(self._step, self.state, self._pod, shown)
        if there is None:
            return scores
        all_scores = np.zeros(len(view), dtype=np.int64)
        all_scores[there] = scores
        return all_scores

    def _score_one(self, one: OneNode) -> int:
        if self._caller.timer is None:
            return calls.score_one(self._step, self.state, self._pod, one)
        return self._caller.calls.score_one(self._step, self.state, self._pod, one)


class ResultCache:
    """All that is kept for one profile, by plugin and by what the plugin reads of a pod."""

    def __init__(self, plugins: Iterable[Any], cluster: Cluster, caller: Caller) -> None:
        self._cluster = cluster
        self._caller = caller
        self._plugins = tuple(plugin for plugin in plugins if plugin.depends_on is not None)
        self._signature_of = tuple(PodSigner(plugin.depends_on.pod) for plugin in self._plugins)
        self._kept: dict[tuple[str, bytes], PluginResults] = {}
        self.per_pod = any(signature.per_pod for signature in self._signature_of)
        """Whether pods of one template may differ in what these plugins read."""

    def signature(self, pod: Pod) -> Signature:
        """Equal for pods that none of the plugins can tell apart."""
        return tuple(signature_of(pod) for signature_of in self._signature_of)

    def of(self, pod: Pod, signature: Signature) -> dict[str, PluginResults]:
        """What is kept for the pod, by plugin."""
        found = {}
        for plugin, mine in zip(self._plugins, signature, strict=True):
            key = (plugin.name, mine)
            if key not in self._kept:
                self._kept[key] = PluginResults(plugin, pod, self._cluster, self._caller)
            found[plugin.name] = self._kept[key]
        return found

    def forget_all_but(self, used: Iterable[PluginResults]) -> None:
        """Forgets the answers that nobody puts together any more."""
        left = set(map(id, used))
        self._kept = {key: kept for key, kept in self._kept.items() if id(kept) in left}

    def anew(self, pod: Pod) -> dict[str, PluginResults]:
        """The same with nothing kept."""
        return {
            plugin.name: PluginResults(plugin, pod, self._cluster, self._caller) for plugin in self._plugins
        }


def distinct(rows: Iterable[int]) -> IdColumn:
    return np.array(sorted(set(rows)), dtype=np.intp)
