"""The extension points, one protocol each, and the two base classes of plugins.

A plugin is a class with a `name` that implements the methods of its extension points; there is nothing to
register. Methods are called in the order of this file. All but PreBind and Bind are plain functions without
I/O: what they may read is passed in, and their results are return values.

`Plugin` is for rules over whole columns, `NodePlugin` for rules that evaluate one node at a time.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from bayplan.api.cluster_api import ClusterAPI
from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.api.releases import Release
from bayplan.dra.budget import SearchClock
from bayplan.framework.events import ClusterEventWithHint
from bayplan.framework.state import CycleState
from bayplan.framework.status import Status, wrong_result
from bayplan.state.cluster import Cluster
from bayplan.state.view import BoolColumn, IntColumn, NodeColumns, NodeInfo

if TYPE_CHECKING:
    from bayplan.framework.outcome import FilterOutcome, PostFilterResult

PodFunction = Callable[[Pod], object]
"""A function of the pod that a plugin's results depend on."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What a plugin's results and raw scores depend on, so that they can be cached.

    A plugin that declares this guarantees that its PreFilter, Filter, PreScore and Score depend on these
    fields and functions of the pod, on the row itself and on objects of these kinds, and on nothing else. Its
    results are then computed again only for rows that changed. (NormalizeScore may read all scores.) A plugin
    that declares nothing is called in every cycle.
    """

    pod: frozenset[str]
    """Names from `runtime.signature.POD_FIELDS`."""
    usage: bool = False
    """Whether the results depend on the pods of the node, or only on the Node object."""
    kinds: tuple[type[Object], ...] = ()
    """Kinds of other objects that matter. A change of one invalidates all results of the plugin."""
    images: bool = False
    """Whether the results depend on which nodes have which images."""
    functions: tuple[PodFunction, ...] = ()
    """Functions of the pod: pods with equal values (and equal `pod` fields) share results."""
    node_kinds: tuple[type[Object], ...] = ()
    """Kinds whose objects have the name of a node. Filter and Score depend only on that of the row, so a
    change of one invalidates the results for one row."""

    @classmethod
    def of(
        cls,
        *pod: str | PodFunction,
        usage: bool = False,
        kinds: tuple[type[Object], ...] = (),
        images: bool = False,
        node_kinds: tuple[type[Object], ...] = (),
    ) -> Dependencies:
        """`pod` are names of fields, or functions of the pod, such as a parsed annotation.

        A function returns what msgspec can encode: None, numbers, strings, tuples, named tuples, dicts, sets,
        dataclasses and structs made of these. It is called for every attempt, so it should be fast.
        """
        names = frozenset(field for field in pod if isinstance(field, str))
        functions = tuple(field for field in pod if not isinstance(field, str))
        return cls(names, usage, kinds, images, functions, node_kinds)


class WaitingPodView(Protocol):
    """A pod that waits at Permit until plugins allow its binding."""

    pod: Pod
    node_name: str

    @property
    def pending_plugins(self) -> list[str]:
        """The plugins that have not allowed it yet."""

    @property
    def is_rejected(self) -> bool:
        """Whether it was rejected, preempted or timed out, even if its binding cycle has not ended yet."""

    def allow(self, plugin: str) -> None:
        """This plugin allows the pod."""

    def reject(self, plugin: str, message: str) -> bool:
        """Rejects the pod. False if its result was already decided."""


class Handle(Protocol):
    """Passed to a plugin when it is created."""

    @property
    def cluster(self) -> Cluster:
        """The cluster as of this cycle. Read-only for plugins."""

    @property
    def release(self) -> Release:
        """The release of Kubernetes that this scheduler decides as, with its feature gates."""

    @property
    def log(self) -> logging.Logger: ...

    @property
    def random(self) -> random.Random:
        """The seeded generator: the only source of randomness, so that runs can be repeated."""

    def now(self) -> float:
        """Seconds since the epoch, by the scheduler's clock."""

    @property
    def search_clock(self) -> SearchClock:
        """Limits long searches: by time in a live scheduler, by steps where results must not depend on the
        machine."""

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str] | None = None) -> None:
        """Writes the binding of the pod to this node to the API server. Raises if that fails.

        The annotations are added to the pod in the same write.
        """

    def is_preempting(self, uid: str) -> bool:
        """Whether victims of this pod are being evicted."""

    @property
    def api(self) -> ClusterAPI:
        """The API server, for plugins that write: in PreBind and Bind, never in a scheduling cycle."""

    def waiting_pods(self) -> Iterator[WaitingPodView]:
        """All pods that wait at Permit."""

    def waiting_pod(self, uid: str) -> WaitingPodView | None: ...

    def activate(self, pods: Iterable[Pod]) -> None:
        """Activates these pods, whatever they wait for."""

    def pods_with_label(self, namespace: str, key: str, value: str) -> Collection[Pod]:
        """All pods with this label, pending ones too, in the latest version known.

        The cost is proportional to the result: pods are indexed by the label keys that were queried before. A
        core that only decides has no pending pods, and returns nothing.
        """

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Calls back after this time, by the scheduler's clock and never during a cycle."""


MAX_SCORE = 100
"""Normalized scores are between 0 and this."""


class Reject(msgspec.Struct, frozen=True, eq=False):
    """Rows that do not fit, and why: `unschedulable(...)`, `unresolvable(...)` or `failure(...)`.

    `mask` has one entry for each row the plugin was given. Several for one row add up their reasons; an error
    wins, then unresolvable.
    """

    mask: BoolColumn | bool
    status: Status


@dataclass(frozen=True, slots=True)
class NodeNames:
    """The result of PreFilter if only these nodes can fit."""

    names: frozenset[str]


class Plugin:
    """Base of all plugins. `__init__` stores the arguments and does no work."""

    name: ClassVar[str] = ""
    """Shown in messages and used in the configuration; by default the name of the class."""
    args_type: ClassVar[type[msgspec.Struct] | None] = None
    """The type that its arguments in the configuration file are decoded into."""
    kinds: ClassVar[tuple[type[Object], ...]] = ()
    """Kinds that it reads from `cluster.objects`, besides those that every scheduler watches."""
    pre_binds_in_parallel: ClassVar[bool] = False
    """PreBind may run in parallel with that of neighbouring plugins that also declare this."""
    preempts: ClassVar[bool] = False
    """PostFilter looks for pods to evict: each call counts as a preemption attempt."""
    skip_covers_binding: ClassVar[bool] = False
    """If PreFilter returns SKIP for a pod, nothing has to be reserved or prepared for it: Reserve, Unreserve
    and PreBind are not called."""

    depends_on: Dependencies | None = None
    """What its results depend on; None: they are not cached. `__init__` may set it, by the arguments."""
    elementwise: bool = False
    """Filter and Score only compare, compute and call `nodes.where` and the like (`state/view.py`)."""

    def __init__(self, args: Any, handle: Handle) -> None:
        self.args: Any = self.args_type() if args is None and self.args_type is not None else args
        self.handle = handle
        self.release: Release = handle.release
        """The release of Kubernetes that the scheduler decides as."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = cls.__name__

    def events_to_register(self) -> Sequence[ClusterEventWithHint] | None:
        """The events that may make a pod schedulable which this plugin rejected. None: any event."""
        return None


class SortKey(Protocol):
    """Anything that can be ordered: a number, a string, or a tuple of such."""

    def __lt__(self, other: Any, /) -> bool: ...


@runtime_checkable
class PreEnqueuePlugin(Protocol):
    """Decides whether a pod may enter the active queue.

    The queue calls it each time a pod is about to move to the active or the backoff queue: when it is new,
    and when an event may have made it schedulable. It may read the pod and what the handle offers. None or
    success: the next plugin is called, and after the last one the pod moves. Any other status: the pod is
    gated until an event that the plugin registered for. An exception is logged and gates the pod, too.
    """

    def pre_enqueue(self, pod: Pod) -> Status | None: ...


@runtime_checkable
class QueueSortPlugin(Protocol):
    """Orders the active queue: the pod with the smallest key is scheduled first.

    Every profile enables exactly one, and all profiles the same one. The queue calls it once each time a pod
    enters the queue; `timestamp` is that time in seconds. It may read the pod. Among equal keys the pod that
    entered first comes first. A pod whose key cannot be computed or compared is scheduled after all others.
    """

    def sort_key(self, pod: Pod, timestamp: float) -> SortKey: ...


@runtime_checkable
class PreFilterPlugin(Protocol):
    """Prepares Filter, or makes it unnecessary.

    The scheduling cycle calls it once per attempt, before any Filter; with declared `Dependencies` only once
    for identical pods, until an object of the declared kinds changes. It may read the pod and all rows
    (`nodes`), and writes what Filter needs to `state`.

    - None or success: the search continues.
    - SKIP: this plugin's Filter is not called for this pod. SKIP_FOR_SIGNATURE: nor for identical pods, until
      objects other than ResourceClaims, or (anti-)affinity terms, change.
    - `NodeNames`: only these nodes are filtered; the sets of several plugins are intersected.
    - `unresolvable(...)`: no node fits and the search ends; preemption is not tried.
    - `unschedulable(...)`: no node fits; the other plugins are still called, and PostFilter may preempt.
    - any other status, or an exception: the attempt fails with an error.
    """

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | NodeNames | None: ...


@runtime_checkable
class AddRemovePodPlugin(Protocol):
    """Adjusts the state that PreFilter wrote to pods that are hypothetically added or removed.

    Only for plugins whose PreFilter sums up the cluster in ways that `nodes.matching_change` does not cover.
    Called before Filter for each hypothetical pod: by preemption for its victims, and for nominated pods. The
    state is a clone, and `node` is the one node that the hypothesis is about. None or success: continue. Any
    other status is an error.
    """

    def add_pod(self, state: CycleState, pod: Pod, added: Pod, node: NodeInfo) -> Status | None: ...
    def remove_pod(self, state: CycleState, pod: Pod, removed: Pod, node: NodeInfo) -> Status | None: ...


@runtime_checkable
class FilterPlugin(Protocol):
    """Rejects the rows that the pod cannot run on.

    The scheduling cycle calls it for every attempt, after PreFilter unless that returned SKIP; with declared
    `Dependencies` only for rows that changed. Preemption and nominated pods call it with hypothetical rows.
    It may read the given rows (all, some or one), the pod and what PreFilter wrote to the state. A rejected
    row is not scored. If no row is left, PostFilter is called. An exception fails the attempt.
    """

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterable[Reject]: ...


@runtime_checkable
class NodesAffectedByPodsPlugin(Protocol):
    """Returns the rows on which the result of Filter depends on pods, for preemption.

    For plugins that read the whole cluster. Called at most once per attempt that reaches PostFilter, with the
    state of that attempt. Where the mask is False, Filter must return the same whichever pods of that row are
    removed, and is not called again. Without this method Filter is called again for every row.
    """

    def nodes_affected_by_pods(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> BoolColumn: ...


@runtime_checkable
class PostFilterPlugin(Protocol):
    """Called when no node is feasible, once per attempt; may nominate a node, for example by preemption.

    It may read the state of the attempt and `outcome`, which can evaluate hypotheses. Plugins are
    called in order until one of them ends the sequence:

    - success: its nomination and its victims are used; the pod is tried again when the victims are gone.
    - unschedulable: the next plugin is called; the reasons of all are added to the message.
    - unresolvable, or an error: no further plugin is called.
    """

    def post_filter(self, state: CycleState, pod: Pod, outcome: FilterOutcome) -> PostFilterResult: ...


@runtime_checkable
class PreScorePlugin(Protocol):
    """Prepares Score, or makes it unnecessary.

    The scheduling cycle calls it once per attempt with more than one feasible row; with declared
    `Dependencies` only once for identical pods. `nodes` are the feasible rows, or all rows if the results are
    cached. None or success: Score is called. SKIP: this plugin does not score the pod; SKIP_FOR_SIGNATURE:
    nor identical pods, until objects other than ResourceClaims, or (anti-)affinity terms, change. Any other
    status, or an exception: the attempt fails with an error.
    """

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None: ...


@runtime_checkable
class ScorePlugin(Protocol):
    """Ranks rows by an integer each; the higher, the better. Without `normalize`, between 0 and 100.

    The scheduling cycle calls it for the feasible rows of every attempt with more than one, unless PreScore
    returned SKIP; with declared `Dependencies` for rows that changed, feasible or not. It may read what
    Filter may, and what PreScore wrote to the state. The node with the highest weighted sum over all plugins
    is chosen. A score out of range, or an exception, fails the attempt.
    """

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn: ...


@runtime_checkable
class NormalizePlugin(Protocol):
    """Maps the scores of the feasible rows to the range 0 to 100.

    Called after Score, once per attempt. It may read all scores and rows. A plugin with declared
    `Dependencies` must map equal scores to equal scores: it is not called if all raw scores are equal.
    """

    def normalize(self, state: CycleState, pod: Pod, nodes: NodeColumns, scores: IntColumn) -> IntColumn: ...


@runtime_checkable
class ReservePlugin(Protocol):
    """Reserves resources on the chosen node, and releases them if the pod is not bound after all.

    Called once per attempt that found a node, right after the scheduling cycle. None or success: the next
    plugin is called. A rejection: the pod returns to the queue as unschedulable. Any other status, or an
    exception: the attempt fails with an error. Whenever an attempt ends without a binding, `unreserve` is
    called for all plugins in reverse order, even for those whose `reserve` failed or was not called; it must
    be idempotent, and its exceptions are only logged.
    """

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status | None: ...
    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Wait:
    """The result of Permit if the pod has to wait, for at most this time."""

    seconds: float
    reason: str = ""


@runtime_checkable
class PermitPlugin(Protocol):
    """Approves, delays or rejects a binding.

    Called once per attempt, after Reserve. None or success: approved. `Wait`: the binding waits until
    `handle.waiting_pod(uid)` is allowed or rejected, and is rejected when the time is over. A rejection: the
    pod returns to the queue as unschedulable. Any other status, or an exception: the attempt fails with an
    error.
    """

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status | Wait | None: ...


@runtime_checkable
class PreBindPlugin(Protocol):
    """Does the work that a binding requires, for example binding the pod's volumes.

    `pre_bind_pre_flight` is called once per attempt, before the binding cycle, and must not wait: SKIP if
    there is no work for this pod, None or success if there is. `pre_bind` is called once in the binding
    cycle, only if there is work. It may do I/O; it is cancelled if the pod is preempted meanwhile. Any status
    but success, or an exception: the pod is not bound, and returns to the queue.
    """

    def pre_bind_pre_flight(self, state: CycleState, pod: Pod, node_name: str) -> Status | None: ...
    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status | None: ...


@runtime_checkable
class BindPlugin(Protocol):
    """Binds the pod to the node.

    Called once in the binding cycle, after PreBind; it may do I/O. SKIP: the next Bind plugin is called. None
    or success: the pod is bound, and no further plugin is called. Any other status, or an exception: the pod
    returns to the queue.
    """

    async def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status | None: ...


@runtime_checkable
class PostBindPlugin(Protocol):
    """Called once after the pod was bound, for example to clean up. Exceptions are only logged."""

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None: ...


class _FilterNode(Protocol):
    def filter_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status | None: ...


class _ScoreNode(Protocol):
    def score_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> int: ...


class NodePlugin(Plugin):
    """A plugin that evaluates one node at a time.

    Implement `filter_node(state, pod, node)`, which returns `unschedulable(...)`, `unresolvable(...)` or
    None, and/or `score_node(state, pod, node)`, which returns an integer from 0 to 100. They are called only
    for nodes that all plugins before it accepted.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if hasattr(cls, "filter_node") and "filter" not in cls.__dict__:
            cls.filter = _filter_each  # type: ignore[attr-defined]  # the point exists only if it is wanted
        if hasattr(cls, "score_node") and "score" not in cls.__dict__:
            cls.score = _score_each  # type: ignore[attr-defined]  # the point exists only if it is wanted


def _filter_each(self: _FilterNode, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
    found: dict[Status, list[int]] = {}
    filter_node = self.filter_node
    for position, node in enumerate(nodes.node_infos()):
        answer = filter_node(state, pod, node)
        if answer is not None:
            if type(answer) is not Status:
                raise wrong_result("filter_node", answer, 'return unschedulable("reason") or None')
            if not answer.is_success:
                found.setdefault(answer, []).append(position)
    for status, positions in found.items():
        mask = np.zeros(len(nodes), dtype=np.bool_)
        mask[positions] = True
        yield Reject(mask, status)


def _score_each(self: _ScoreNode, state: CycleState, pod: Pod, nodes: NodeColumns) -> NDArray[np.int64]:
    score_node = self.score_node
    scores: list[object] = [score_node(state, pod, node) for node in nodes.node_infos()]
    for score in scores:
        if type(score) is not int and not isinstance(score, int | np.integer):
            raise wrong_result("score_node", score, "return an integer from 0 to 100")
    return np.array(scores, dtype=np.int64)


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
