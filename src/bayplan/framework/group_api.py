"""The extension points of pod groups, as `plugin_api.py` has those of single pods.

A group is scheduled by placing its members one after the other in the columns, which is reverted afterwards
(`scheduler/group_cycle.py`). The points here judge the group as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias, TypeVar, runtime_checkable

from bayplan.api.pod import Pod
from bayplan.framework.outcome import Diagnosis, Eviction, Nomination
from bayplan.framework.state import CycleState
from bayplan.framework.status import Code, Status
from bayplan.state.cluster import Cluster
from bayplan.state.columns import IdColumn
from bayplan.state.groups import Group

ResultT = TypeVar("ResultT")

GroupSteps: TypeAlias = Generator[Any, Any, ResultT]
"""A part of a group's cycle that may call extenders: it yields their requests."""


@runtime_checkable
class PlacementFeasiblePlugin(Protocol):
    """Decides whether the members placed so far are enough. Only built-in plugins take part.

    Called before the first member and after each, with the number of members on nodes, earlier ones included,
    and the number that is still to be tried; for a composite group with numbers of groups, of which those
    count that were placed in this attempt. None or success: they are enough. WAIT: not yet. A rejection:
    there can never be enough, so no further member is tried.
    """

    def placement_feasible(self, group: Group, scheduled: int, remaining: int) -> Status | None: ...


@dataclass(frozen=True, slots=True)
class Placed:
    """A member that found a node."""

    pod: Pod
    row: int
    fits: Callable[[], bool]
    """Whether it still passes all filters there, nominated pods included, in the columns as they are now."""
    put: Callable[[], None]
    """Counts it on its node, and reserves what it needs."""
    take: Callable[[], None]
    """Reverts `put`."""


@dataclass(frozen=True, slots=True)
class GroupPlacement:
    """The result of placing the members once."""

    status: Status
    placed: Sequence[Placed] = ()


@dataclass(frozen=True, slots=True)
class MemberOutcome:
    """What became of a member that was tried."""

    pod: Pod
    state: CycleState | None
    diagnosis: Diagnosis | None
    """None if it found a node."""


@dataclass(slots=True)
class GroupOutcome:
    """A group that could not be scheduled, as PodGroupPostFilter sees it."""

    cluster: Cluster
    group: Group
    pods: Sequence[Pod]
    """The members that were to be scheduled, in order."""
    pre_filtered: frozenset[str]
    """The plugins whose PreFilter ran for any member."""
    place_again: Callable[[], GroupSteps[GroupPlacement]]
    """Places the members once more, in the columns as they are now. All is reverted afterwards."""
    fails_without: Callable[[Sequence[int]], Status | None]
    """Why the members could not be placed even if the pods in these slots were gone; None if they could, or
    if only `place_again` can tell."""
    is_local: bool
    """Whether the filters of every member depend on the row alone."""
    members: Sequence[MemberOutcome] = ()
    """Those that were tried, in order."""
    preemption_code: Code | None = None
    """The result of the plugin that preempts, once it was called."""


@dataclass(frozen=True, slots=True)
class GroupPostFilterResult:
    """The result of PodGroupPostFilter. The scheduler executes `eviction`.

    `nominations` are by uid of the member; those that are not among them stay as they are.
    """

    status: Status
    nominations: Mapping[str, Nomination] = field(default_factory=dict)
    eviction: Eviction | None = None


@runtime_checkable
class PodGroupPostFilterPlugin(Protocol):
    """Called when a group could not be scheduled, once per attempt; may nominate nodes for its members.

    Plugins are called in order until one answers success or unresolvable; the reasons of those that answer
    unschedulable are collected. Anything else is an error of the attempt.
    """

    def pod_group_post_filter(self, outcome: GroupOutcome) -> GroupSteps[GroupPostFilterResult]: ...


@dataclass(frozen=True, slots=True)
class NodePlacement:
    """Some of the nodes, on which the whole group may be placed. `rows` is None for all nodes."""

    name: str = ""
    rows: IdColumn | None = None


@runtime_checkable
class PlacementGeneratePlugin(Protocol):
    """Returns the sets of nodes among which the group may be placed, or why there are none.

    `within` is the placement of its parent, all nodes for a group without one. `scheduled` are its members
    that count on a node.
    """

    def generate_placements(
        self, group: Group, scheduled: Sequence[Pod], within: NodePlacement
    ) -> Sequence[NodePlacement] | Status: ...


@runtime_checkable
class PlacementScorePlugin(Protocol):
    """Ranks the sets of nodes that fit the group: an integer for each, before weights.

    `placed` has, for each of them, the members that found a node there.
    """

    def score_placements(
        self,
        group: Group,
        scheduled: Sequence[Pod],
        placements: Sequence[NodePlacement],
        placed: Sequence[Sequence[Pod]],
    ) -> Sequence[int]: ...


GROUP_POINTS: Final = (
    PlacementGeneratePlugin,
    PlacementFeasiblePlugin,
    PlacementScorePlugin,
    PodGroupPostFilterPlugin,
)
"""The extension points of groups, which only built-in plugins have."""
