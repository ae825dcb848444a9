"""How a plugin is written: the extension points, one small protocol each, and the two base classes.

A plugin is a class with a `name` that implements the methods of the points it wants to take part in; there
is nothing to register. Methods are called in the order in which they stand here. All but PreBind and Bind are
plain functions without I/O: what they may read is handed in, what they find out goes into the return value.

`Plugin` is for rules over whole columns, `NodePlugin` for rules that look at one node at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.framework.events import ClusterEventWithHint
from bayplan.framework.state import CycleState
from bayplan.framework.status import Code, Status
from bayplan.snapshot.node_info import NodeInfo
from bayplan.snapshot.view import BoolColumn, IntColumn, NodeColumns

if TYPE_CHECKING:
    from bayplan.framework.handle import Handle
    from bayplan.framework.outcome import FilterOutcome, PostFilterResult

MAX_SCORE = 100
"""Scores after normalising are between 0 and this."""


@dataclass(frozen=True, slots=True, eq=False)
class Reject:
    """Rows that do not fit, and why. Several for one row add up their reasons; unresolvable wins.

    `mask` has one entry for each row the plugin was given. `error` means that something broke on these rows.
    """

    mask: BoolColumn | bool
    reason: str
    unresolvable: bool = False
    error: bool = False

    @property
    def code(self) -> Code:
        if self.error:
            return Code.ERROR
        return Code.UNRESOLVABLE if self.unresolvable else Code.UNSCHEDULABLE


@dataclass(frozen=True, slots=True)
class NodeNames:
    """PreFilter's answer where only these nodes can fit."""

    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What a plugin's node_statuses and raw scores follow from, so that they can be kept.

    A plugin that declares this promises: its PreFilter, Filter, PreScore and Score depend on these fields of
    the pod, on the row itself and on objects of these kinds, and on nothing else. Its results are then
    computed again only for rows that changed. (NormalizeScore may look at all scores.) A plugin that
    declares nothing is asked in every cycle.
    """

    pod: frozenset[str]
    """Names from `framework.signature.POD_FIELDS`."""
    usage: bool = False
    """Whether what runs on the node matters, or only the Node object."""
    kinds: tuple[type[Object], ...] = ()
    """Kinds of other objects that matter. A change of one makes all results of the plugin new."""
    images: bool = False
    """Whether it matters which nodes have which images."""

    @classmethod
    def of(
        cls, *pod: str, usage: bool = False, kinds: tuple[type[Object], ...] = (), images: bool = False
    ) -> Dependencies:
        return cls(frozenset(pod), usage, kinds, images)


class Plugin:
    """Base of all plugins. `__init__` stores the arguments and does no work."""

    name: ClassVar[str] = ""
    """Shown in messages and used in the configuration; the class's name where it is empty."""
    args_type: ClassVar[type[msgspec.Struct] | None] = None
    """Its arguments in the configuration file, decoded into this type."""
    depends_on: ClassVar[Dependencies | None] = None
    kinds: ClassVar[tuple[type[Object], ...]] = ()
    """Kinds that it looks up in `cluster.objects`, besides those that every scheduler watches."""
    elementwise: ClassVar[bool] = False
    """Filter and Score only compare, compute and call `nodes.where` and its kin (`snapshot/one_node.py`)."""

    pre_binds_in_parallel: ClassVar[bool] = False
    """PreBind may run side by side with that of plugins next to it that say the same."""
    preempts: ClassVar[bool] = False
    """PostFilter looks for pods to evict: each call counts as an attempt to preempt."""

    def __init__(self, args: Any = None, handle: Handle | None = None) -> None:
        self.args = args
        self.handle = handle

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = cls.__name__

    def events_to_register(self) -> Sequence[ClusterEventWithHint] | None:
        """What may help a pod that this plugin rejected. None: anything may."""
        return None


@runtime_checkable
class PreEnqueuePlugin(Protocol):
    """Called before a pod may wait for its turn. Any answer but None or success keeps it out of the queue."""

    def pre_enqueue(self, pod: Pod) -> Status | None: ...


@runtime_checkable
class QueueSortPlugin(Protocol):
    """Orders the queue: the pod with the smallest key is tried first. Exactly one plugin does this."""

    def sort_key(self, pod: Pod, timestamp: float) -> Any: ...


@runtime_checkable
class PreFilterPlugin(Protocol):
    """Called once for each attempt, before the nodes are looked at.

    Answers: None (go on), SKIP (leave this plugin's Filter out for this pod), `NodeNames` (only these can
    fit), `unresolvable(...)` (no node fits, stop), `unschedulable(...)` (no node fits, evicting may help).
    `nodes` are all rows.
    """

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | NodeNames | None: ...


@runtime_checkable
class AddRemovePodPlugin(Protocol):
    """For plugins whose PreFilter sums up the cluster in ways that `nodes.matching_change` does not cover.

    In a what-if question these adjust (a clone of) the state for pods added to or removed from the one node
    that is asked about. The answer None means success; any other status is an error.
    """

    def add_pod(self, state: CycleState, pod: Pod, added: Pod, node: NodeInfo) -> Status | None: ...
    def remove_pod(self, state: CycleState, pod: Pod, removed: Pod, node: NodeInfo) -> Status | None: ...


@runtime_checkable
class FilterPlugin(Protocol):
    """Which of these rows the pod cannot go to.

    Called for every attempt, after PreFilter and unless that answered SKIP; with declared `Dependencies` only
    for rows that changed. The rows may be all, a few, or hypothetical ones; it reads them, the pod and what
    PreFilter wrote to the state. A row that is rejected is not scored; if no row passes, PostFilter runs.
    """

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterable[Reject]: ...


@runtime_checkable
class NodesAffectedByPodsPlugin(Protocol):
    """A shortcut for preemption, for plugins that look at the whole cluster: where pods matter to Filter.

    Called at most once for each attempt that ends in PostFilter.

    On all other rows Filter says the same whichever of the pods there are taken away. A plugin without this
    is asked about every row again.
    """

    def nodes_affected_by_pods(
        self, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> NDArray[np.bool_]: ...


@runtime_checkable
class PostFilterPlugin(Protocol):
    """Called when no node fits. May make room (preemption) and nominate a node."""

    def post_filter(self, state: CycleState, pod: Pod, outcome: FilterOutcome) -> PostFilterResult: ...


@runtime_checkable
class PreScorePlugin(Protocol):
    """Called once with the rows that fit. SKIP leaves this plugin's Score out."""

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None: ...


@runtime_checkable
class ScorePlugin(Protocol):
    """A whole number for each row; the higher the better. Without `normalize`, between 0 and 100.

    Called for the feasible rows of every attempt with more than one, unless PreScore answered SKIP; with
    declared `Dependencies` for rows that changed, feasible or not. The weighted sum over all plugins decides.
    """

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn: ...


@runtime_checkable
class NormalizePlugin(Protocol):
    """Brings the scores of the rows that fit into the range 0 to 100.

    Of a plugin whose results are kept, scores that are all equal stay equal, so that it need not be asked.
    """

    def normalize(self, state: CycleState, pod: Pod, nodes: NodeColumns, scores: IntColumn) -> IntColumn: ...


@runtime_checkable
class DomainScorePlugin(Protocol):
    """A shortcut for scores that follow from one label: what `score` and `normalize` come to, by its values.

    There are far fewer zones than nodes. The answer is the label's key and a table as `nodes.by_domain` takes
    it, or None where the ordinary way has to be gone. Entries that no row has do not matter.
    """

    def scores_by_domain(
        self, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> tuple[str, IntColumn] | None: ...


@runtime_checkable
class ReservePlugin(Protocol):
    """Called when a node was chosen. `unreserve` must undo it, even where `reserve` failed."""

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status | None: ...
    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Wait:
    """Permit's answer where the pod has to wait, at most this long."""

    seconds: float
    reason: str = ""


@runtime_checkable
class PermitPlugin(Protocol):
    """The last word before binding: None (go), a rejection, or `Wait`."""

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status | Wait | None: ...


@runtime_checkable
class PreBindPlugin(Protocol):
    """Work that has to be done before the pod is bound, e.g. binding its volumes.

    `pre_bind_pre_flight` says beforehand whether there is any (SKIP: there is none).
    """

    def pre_bind_pre_flight(self, state: CycleState, pod: Pod, node_name: str) -> Status | None: ...
    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status | None: ...


@runtime_checkable
class BindPlugin(Protocol):
    """Binds the pod, or says SKIP to leave it to the next one."""

    async def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status | None: ...


@runtime_checkable
class PostBindPlugin(Protocol):
    """Told after the pod was bound."""

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None: ...


@dataclass(frozen=True, slots=True)
class NodeRejection:
    """What `reject` makes: one node does not fit."""

    reason: str
    unresolvable: bool = False


def reject(reason: str, *, unresolvable: bool = False) -> NodeRejection:
    """This node does not fit. `unresolvable`: evicting pods from it would not help."""
    return NodeRejection(reason, unresolvable)


class NodePlugin(Plugin):
    """A plugin that looks at one node at a time.

    Implement `filter_node(pod, node)` (return `reject(...)` or None) and/or `score_node(pod, node)` (a whole
    number, 0 to 100). Only nodes that all plugins before it accepted are shown to it.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if hasattr(cls, "filter_node") and "filter" not in cls.__dict__:
            cls.filter = _filter_each  # type: ignore[attr-defined]  # the point exists only if it is wanted
        if hasattr(cls, "score_node") and "score" not in cls.__dict__:
            cls.score = _score_each  # type: ignore[attr-defined]  # the point exists only if it is wanted


def _filter_each(self: Any, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
    found: dict[NodeRejection, list[int]] = {}
    for position in range(len(nodes)):
        answer = self.filter_node(pod, nodes.node_info(position))
        if answer is not None:
            found.setdefault(answer, []).append(position)
    for answer, positions in found.items():
        mask = np.zeros(len(nodes), dtype=np.bool_)
        mask[positions] = True
        yield Reject(mask, answer.reason, answer.unresolvable)


def _score_each(self: Any, state: CycleState, pod: Pod, nodes: NodeColumns) -> NDArray[np.int64]:
    return np.array(
        [self.score_node(pod, nodes.node_info(position)) for position in range(len(nodes))], dtype=np.int64
    )


def whole_share(parts: IntColumn, whole: int) -> IntColumn:
    """`parts // whole` for numbers that are not negative, at a third of the cost.

    Exact as long as the parts are below 2**53: a quotient that is not whole is then too far from the next
    whole number for rounding to reach it.
    """
    share: IntColumn = (parts / whole).astype(np.int64)
    return share


def normalize_default(scores: IntColumn, *, reverse: bool = False) -> IntColumn:
    """Scales so that the highest score becomes 100 (or, reversed, 0). All zero: all 0, or all 100."""
    highest = int(scores.max()) if len(scores) else 0
    if highest == 0:
        return np.full(len(scores), MAX_SCORE if reverse else 0, dtype=np.int64)
    scaled = whole_share(scores * MAX_SCORE, highest)
    return MAX_SCORE - scaled if reverse else scaled
