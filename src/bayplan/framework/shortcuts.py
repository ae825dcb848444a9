"""Optional methods of built-in plugins that spare calls of PreEnqueue, Filter, Score and queueing hints.

Each must give the same answers as the method that it replaces (`testing/plugin_checks.py` compares them), and
each may change with the caches, so they are not part of the API. Plugins of others
declare `Dependencies` and, for formulas, `elementwise` instead. Built-in plugins import these from
`bayplan.plugin._internal`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import ClassVar, Protocol, runtime_checkable

from bayplan.api.pod import Pod
from bayplan.framework.state import CycleState
from bayplan.state.columns import RowMask
from bayplan.state.view import IntColumn, NodeColumns


@runtime_checkable
class WaitingKeysPlugin(Protocol):
    """Names the objects that a pod waits for, where every pod has its own.

    The queue calls it when a pod is rejected by this plugin, when such a pod changes, and after an event with
    one of its keys. Events that name keys (`ClusterEventWithHint.keys`) are evaluated only for pods with one
    of these keys; otherwise each of a thousand new objects would be compared with each of a thousand waiting
    pods.
    """

    def waiting_keys(self, pod: Pod) -> Collection[str]: ...


@runtime_checkable
class PreEnqueueField(Protocol):
    """A shortcut for plugins whose PreEnqueue rejects only pods with a value in one field of their spec: it
    is not called for other pods, which are most of them. A declaration, not an extension point."""

    pre_enqueue_field: ClassVar[str]


@runtime_checkable
class RejectedRowsPlugin(Protocol):
    """A shortcut for plugins without `Dependencies` whose Filter rejects almost the same rows for identical
    pods.

    Called after PreFilter, unless that returned SKIP. It returns the rows of the node table that Filter
    rejects: the same object for all pods of the signature (`state.signature`), brought up to date. While a
    node is found, Filter is then not called for every pod, but only for the reasons. The Filter of such a
    plugin must not return errors. None: there is no shortcut for this pod.
    """

    def rejected_rows(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> RowMask | None: ...


@runtime_checkable
class RowFilterPlugin(Protocol):
    """A shortcut for elementwise plugins with `Dependencies`: whether Filter rejects one row.

    Called after PreFilter, once for all pods that the plugin cannot distinguish. The function that it
    returns is called with the number of each row that changed, and must agree with `filter`. If it returns
    True, `filter` is called for the reasons. None: there is no shortcut for these pods.
    """

    def row_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Callable[[int], bool] | None: ...


@runtime_checkable
class RowScorePlugin(Protocol):
    """Like `RowFilterPlugin`, for Score: a function that returns the raw score of one row. Called after
    PreScore."""

    def row_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Callable[[int], int] | None: ...


@runtime_checkable
class DomainScorePlugin(Protocol):
    """A shortcut for normalized scores that depend on one label of the node only.

    There are far fewer zones than nodes. Called instead of Score and NormalizeScore, with the same arguments.
    It returns the label's key and a table for `nodes.by_domain`; entries for values that no row has do not
    matter. None: Score and NormalizeScore are called as usual.
    """

    def scores_by_domain(
        self, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> tuple[str, IntColumn] | None: ...


@runtime_checkable
class UniformScorePlugin(Protocol):
    """A shortcut for plugins whose scores differ for few pods only.

    Called before Score, with what PreFilter and PreScore wrote to `state`. True: all nodes have the same
    score for this pod, so that Score and NormalizeScore are not called. If PreFilter returned SKIP, that is
    assumed without a call.
    """

    def has_uniform_score(self, state: CycleState, pod: Pod) -> bool: ...
