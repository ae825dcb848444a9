"""The events of the queue, and the events of an update of a pod or a node.

An update is classified by what it changed, so that only the plugins that depend on it are called. Changes
that no plugin depends on give no event (nodes) or the general update (pods).
"""

from __future__ import annotations

from typing import Final

from bayplan.api.meta import ResourceList
from bayplan.api.node import Node
from bayplan.api.pod import Pod, PodSpec
from bayplan.api.quantity import parse_quantity
from bayplan.api.releases import Release
from bayplan.api.requests import resize_is_infeasible
from bayplan.framework.events import Action, ClusterEvent, Resource

ASSIGNED_POD_ADD: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)
ASSIGNED_POD_UPDATE: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE)
ASSIGNED_POD_DELETE: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
NODE_ADD: Final = ClusterEvent(Resource.NODE, Action.ADD)
NODE_DELETE: Final = ClusterEvent(Resource.NODE, Action.DELETE)

FORCE_ACTIVATE: Final = ClusterEvent(Resource.ANY, Action.ALL, "ForceActivate")
"""The pod was activated explicitly."""
UNSCHEDULABLE_TIMEOUT: Final = ClusterEvent(Resource.ANY, Action.ALL, "UnschedulableTimeout")
"""The pod has been unschedulable for so long that it is requeued in case an event was missed."""
QUEUES_CHANGED: Final = ClusterEvent(Resource.ANY, Action.ALL, "CapacityQueuesChanged")
"""What capacity queues allow, or reserve for pods, has changed."""

BACKOFF_COMPLETE: Final = "BackoffComplete"
POP_FROM_BACKOFF: Final = "PopFromBackoffQ"
SCHEDULE_ATTEMPT_FAILURE: Final = "ScheduleAttemptFailure"
"""Reasons for entering a sub-queue other than cluster events; they are only labels."""

_UPDATES: Final = {
    resource: {action: ClusterEvent(resource, action) for action in Action.__members__.values()}
    for resource in (
        Resource.ASSIGNED_POD,
        Resource.UNSCHEDULABLE_POD,
        Resource.UNSCHEDULED_POD,
        Resource.TARGET_POD,
        Resource.NODE,
    )
}


class PodEvents:
    """The events of pods, as a release names and distinguishes them."""

    def __init__(self, release: Release) -> None:
        self._has_scale_up = release.queue.has_scale_up
        self._accounting = release.accounting
        self._pending = _UPDATES[Resource(release.queue.pending_pod)]
        self._own = _UPDATES[Resource(release.queue.own_update)]
        self.add = self._pending[Action.ADD]
        """A pending pod was added."""
        self.update = self._pending[Action.UPDATE]
        self.delete = self._pending[Action.DELETE]

    def updates(self, old: Pod, new: Pod) -> tuple[ClusterEvent, ...]:
        """The events of a pod update, in the order in which they are evaluated."""
        events = _UPDATES[Resource.ASSIGNED_POD] if new.spec.node_name else self._own
        changes = []
        if old.labels != new.labels:
            changes.append(events[Action.UPDATE_POD_LABEL])
        if not _has_same_requests(old, new):
            before, now = self._accounting.assigned_requests(old), self._accounting.assigned_requests(new)
            if _exceeds(before, now):
                changes.append(events[Action.UPDATE_POD_SCALE_DOWN])
            if self._has_scale_up and _exceeds(now, before):
                changes.append(events[Action.UPDATE_POD_SCALE_UP])
        if old.spec.scheduling_gates and not new.spec.scheduling_gates:
            changes.append(events[Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED])
        if len(old.spec.tolerations) != len(new.spec.tolerations):
            # Tolerations can only be added.
            changes.append(events[Action.UPDATE_POD_TOLERATION])
        if old.status.resource_claim_statuses != new.status.resource_claim_statuses:
            changes.append(events[Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM])
        return tuple(changes) or (events[Action.UPDATE],)

    def handled_label(self, event: ClusterEvent) -> str:
        """The name of a pending pod's update in event_handling_duration_seconds."""
        return self._pending[event.action].label


def node_update_events(old: Node, new: Node) -> tuple[ClusterEvent, ...]:
    """The events of a node update, in the order in which they are evaluated. A heartbeat has none."""
    events = _UPDATES[Resource.NODE]
    changes = []
    if old.spec.unschedulable and not new.spec.unschedulable:
        changes.append(events[Action.UPDATE_NODE_TAINT])
    if not _same_amounts(old.status.allocatable, new.status.allocatable):
        changes.append(events[Action.UPDATE_NODE_ALLOCATABLE])
    if old.labels != new.labels:
        changes.append(events[Action.UPDATE_NODE_LABEL])
    if old.spec.taints != new.spec.taints:
        changes.append(events[Action.UPDATE_NODE_TAINT])
    if old.status.conditions != new.status.conditions and _conditions(old) != _conditions(new):
        changes.append(events[Action.UPDATE_NODE_CONDITION])
    if old.annotations != new.annotations:
        changes.append(events[Action.UPDATE_NODE_ANNOTATION])
    if old.status.declared_features != new.status.declared_features:
        changes.append(events[Action.UPDATE_NODE_DECLARED_FEATURE])
    return tuple(changes)


def _exceeds(amounts: dict[str, int], limits: dict[str, int]) -> bool:
    """Whether the amount of any resource exceeds its limit; a resource without a limit does."""
    return any(name not in limits or amount > limits[name] for name, amount in amounts.items())


def _has_same_requests(old: Pod, new: Pod) -> bool:
    """A quick check for the common case: nothing changed that requests depend on."""
    was, now = old.status, new.status
    return (
        (old.spec == new.spec or _has_same_spec_requests(old.spec, new.spec))
        and was.container_statuses == now.container_statuses
        and was.init_container_statuses == now.init_container_statuses
        and was.resources == now.resources
        and was.allocated_resources == now.allocated_resources
        and (was.conditions == now.conditions or resize_is_infeasible(old) == resize_is_infeasible(new))
    )


def _has_same_spec_requests(old: PodSpec, new: PodSpec) -> bool:
    return (
        old.containers == new.containers
        and old.init_containers == new.init_containers
        and old.overhead == new.overhead
        and old.resources == new.resources
    )


def _same_amounts(old: ResourceList, new: ResourceList) -> bool:
    """Whether both have the same resources with the same amounts, however these are written."""
    return old == new or (
        old.keys() == new.keys()
        and all(parse_quantity(quantity) == parse_quantity(new[name]) for name, quantity in old.items())
    )


def _conditions(node: Node) -> dict[str, str]:
    """The status of each condition, without the times, which heartbeats change every few minutes."""
    return {condition.type: condition.status for condition in node.status.conditions}
