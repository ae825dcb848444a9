"""Event handlers: changes of the cluster become changes of the cache and events for the queue.

Their order matters and is upstream's: the queue is notified after a pod is counted on a node, and before a
node is removed. While a cycle waits for an extender, events are deferred (`Deferrals`), so that the cycle
continues with the same columns. `watched.py` connects every watched kind with its handler.

eventhandlers.go: addAllEventHandlers
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Final

from msgspec.structs import replace

from bayplan.api.devices import DeviceTaintRule, ResourceClaim, ResourceSlice
from bayplan.api.meta import Object, version_number
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.release import device_features
from bayplan.client.informer import is_older_version
from bayplan.dra.state import TaintRules, has_equal_taints
from bayplan.framework.events import Action, ClusterEvent, Resource
from bayplan.scheduler.context import Context
from bayplan.scheduling_queue.object_events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    ASSIGNED_POD_UPDATE,
    NODE_ADD,
    NODE_DELETE,
    node_update_events,
)
from bayplan.state.cache import CacheError
from bayplan.state.groups import key_of

_ASSIGNED_ADDED: Final = ASSIGNED_POD_ADD.label
_ASSIGNED_UPDATED: Final = ASSIGNED_POD_UPDATE.label
_ASSIGNED_DELETED: Final = ASSIGNED_POD_DELETE.label

_log = logging.getLogger(__name__)


class PodHandler:
    """Handles events of pods: assigned pods go to the cache, pending ones of our profiles to the queue."""

    def __init__(
        self, context: Context, scheduler_names: Collection[str], changed: Callable[[], None]
    ) -> None:
        self._context = context
        self._scheduler_names = scheduler_names
        self._changed = changed
        self._stopwatch = context.stopwatch
        self._handled = context.metrics.event_handled
        self._measures = context.metrics.enabled
        self._events = context.queue.events
        self._groups = context.cluster.groups

    def added(self, pod: Pod) -> None:
        if pod.spec.node_name:
            self._assigned_added(pod)
        elif pod.spec.scheduler_name in self._scheduler_names:
            started = self._stopwatch()
            if self._groups is None:
                self._context.queue.add(pod)
            else:
                self._groups.pod_pending(pod)
                self._context.queue.add(pod)
                self._context.queue.move_to_active_or_backoff(self._events.add, None, pod)
            if self._measures:
                self._handled(self._events.add.label, self._stopwatch() - started)
        self._changed()

    def updated(self, old: Pod, new: Pod) -> None:
        if new.metadata.deletion_timestamp is not None:
            self._context.queue.nominations.pod_terminating(new)
        if old.spec.node_name:
            self._assigned_updated(old, new)
        elif new.spec.node_name:
            self._assigned_added(new)
            if old.spec.scheduler_name in self._scheduler_names:
                started = self._stopwatch()
                if self._groups is not None:
                    self._groups.pod_not_pending(old)
                self._context.queue.delete(old)
                if self._measures:
                    self._handled(self._events.delete.label, self._stopwatch() - started)
        elif new.spec.scheduler_name in self._scheduler_names:
            self._pending_updated(old, new)
        self._changed()

    def deleted(self, pod: Pod) -> None:
        self._context.queue.nominations.pod_terminating(pod)
        if pod.spec.node_name:
            self._assigned_deleted(pod)
        elif pod.spec.scheduler_name in self._scheduler_names:
            self._pending_deleted(pod)
        self._changed()

    def _assigned_deleted(self, pod: Pod) -> None:
        context, started = self._context, self._stopwatch()
        try:
            context.cache.remove(pod)
        except CacheError as error:
            _log.warning("%s", error)
        context.queue.move_to_active_or_backoff(ASSIGNED_POD_DELETE, pod, None)
        if self._measures:
            self._handled(_ASSIGNED_DELETED, self._stopwatch() - started)
        if pod.spec.scheduler_name in self._scheduler_names:
            context.queue.delete(pod)

    def _pending_deleted(self, pod: Pod) -> None:
        context, started = self._context, self._stopwatch()
        if self._groups is not None:
            self._groups.pod_not_pending(pod)
        context.queue.delete(pod)
        context.queue.pod_ended(pod)
        if context.cache.is_assumed(pod.uid):
            self._assumed_deleted(pod)
        elif pod.status.nominated_node_name:
            self._nomination_removed(pod)
        if self._measures:
            self._handled(self._events.delete.label, self._stopwatch() - started)

    def _assigned_added(self, pod: Pod) -> None:
        started = self._stopwatch()
        queue = self._context.queue
        has_waiting = queue.has_waiting_pods
        assumed = self._assumed_pod(pod.uid) if has_waiting else None
        try:
            self._context.cache.add(pod)
        except CacheError as error:
            _log.warning("%s", error)
        if has_waiting:
            queue.move_to_active_or_backoff(ASSIGNED_POD_ADD, None, pod)
        if assumed is not None:
            self._assumed_confirmed(assumed, pod)
        if self._measures:
            self._handled(_ASSIGNED_ADDED, self._stopwatch() - started)

    def _assumed_confirmed(self, assumed: Pod, pod: Pod) -> None:
        """The API server has shown the node of a pod that was assumed."""
        queue = self._context.queue
        if assumed.spec.node_name != pod.spec.node_name:
            # Another client has bound it to another node, so the resources on the assumed node are free.
            queue.move_to_active_or_backoff(ASSIGNED_POD_DELETE, assumed, None)
        # Updates made while it was assumed have caused no events. They may make other pods schedulable.
        for event in self._events.updates(assumed, pod):
            if event.action is not Action.UPDATE:
                queue.move_to_active_or_backoff(event, assumed, pod)

    def _assumed_pod(self, uid: str) -> Pod | None:
        """A pod with a binding in progress, with its node."""
        if not self._context.cache.is_assumed(uid):
            return None
        assigned = self._context.cluster.assigned_pod(uid)
        assert assigned is not None
        # Hints read the pod's node, which is not in the spec of an assumed pod.
        pod, node_name = assigned
        return replace(pod, spec=replace(pod.spec, node_name=node_name))

    def _assigned_updated(self, old: Pod, new: Pod) -> None:
        started = self._stopwatch()
        try:
            self._context.cache.update(new)
        except CacheError as error:
            _log.warning("%s", error)
        for event in self._events.updates(old, new):
            began = self._stopwatch()
            self._context.queue.move_to_active_or_backoff(event, old, new)
            if self._measures:
                self._handled(event.label, self._stopwatch() - began)
        if self._measures:
            self._handled(_ASSIGNED_UPDATED, self._stopwatch() - started)

    def _pending_updated(self, old: Pod, new: Pod) -> None:
        context, started = self._context, self._stopwatch()
        if self._groups is not None:
            self._groups.pod_pending(new)
        if context.cache.is_assumed(new.uid):
            if new.is_terminating and not old.is_terminating:
                self._assumed_deleted(new)
        else:
            context.queue.update(old, new)
            nominated = old.status.nominated_node_name
            if nominated and nominated != new.status.nominated_node_name:
                self._nomination_removed(old)
        if not context.metrics.enabled:
            return
        seconds = self._stopwatch() - started
        if self._measures:
            self._handled(self._events.update.label, seconds)
        for event in self._events.updates(old, new):
            if event.action is not Action.UPDATE and self._measures:
                self._handled(self._events.handled_label(event), seconds)

    def _assumed_deleted(self, pod: Pod) -> None:
        """A pod with a binding in progress is deleted: its resources are free again."""
        context, assumed = self._context, self._assumed_pod(pod.uid)
        if assumed is None:
            return
        if not context.waiting.reject(pod.uid):
            context.cache.forget(assumed, assumed.spec.node_name)
        context.queue.move_to_active_or_backoff(ASSIGNED_POD_DELETE, assumed, None)

    def _nomination_removed(self, pod: Pod) -> None:
        """The nomination of this pod ends: its resources are free for pods of lower priority."""
        self._context.queue.move_to_active_or_backoff(
            ASSIGNED_POD_DELETE, pod, None, precheck=lambda other: other.priority <= pod.priority
        )


class NodeHandler:
    """Handles events of nodes."""

    def __init__(self, context: Context, changed: Callable[[], None]) -> None:
        self._context = context
        self._changed = changed
        self._stopwatch = context.stopwatch
        self._handled = context.metrics.event_handled
        self._measures = context.metrics.enabled

    def added(self, node: Node) -> None:
        started = self._stopwatch()
        self._context.cache.set_node(node)
        self._context.queue.move_to_active_or_backoff(NODE_ADD, None, node)
        self._handled(NODE_ADD.label, self._stopwatch() - started)
        self._changed()

    def updated(self, old: Node, new: Node) -> None:
        started = self._stopwatch()
        self._context.cache.set_node(new)
        updating = self._stopwatch() - started
        for event in node_update_events(old, new):
            started = self._stopwatch()
            self._context.queue.move_to_active_or_backoff(event, old, new)
            self._handled(event.label, updating + self._stopwatch() - started)
        self._changed()

    def deleted(self, node: Node) -> None:
        started = self._stopwatch()
        self._context.queue.move_to_active_or_backoff(NODE_DELETE, node, None)
        try:
            self._context.cache.remove_node(node.name)
        except CacheError as error:
            _log.warning("%s", error)
        self._handled(NODE_DELETE.label, self._stopwatch() - started)
        self._changed()


class ObjectHandler:
    """Handles events of any other kind: stores the object for plugins, and notifies the queue.

    Args:
        resource: of its cluster events; empty if its changes make no pod schedulable.
    """

    def __init__(self, context: Context, resource: str, changed: Callable[[], None]) -> None:
        self._context = context
        self._changed = changed
        self._events = (
            {action: ClusterEvent(resource, action) for action in (Action.ADD, Action.UPDATE, Action.DELETE)}
            if resource
            else None
        )

    def added(self, item: Object) -> None:
        self._context.cluster.objects.put(item)
        self._notify_queue(Action.ADD, None, item)

    def updated(self, old: Object, new: Object) -> None:
        self._context.cluster.objects.put(new)
        self._notify_queue(Action.UPDATE, old, new)

    def deleted(self, item: Object) -> None:
        self._context.cluster.objects.remove(item)
        self._notify_queue(Action.DELETE, item, None)

    def _notify_queue(self, action: Action, old: Object | None, new: Object | None) -> None:
        if self._events is not None:
            context, event = self._context, self._events[action]
            started = context.stopwatch()
            context.queue.move_to_active_or_backoff(event, old, new)
            context.metrics.event_handled(event.label, context.stopwatch() - started)
            self._changed()


class ClaimHandler(ObjectHandler):
    """Handles events of ResourceClaims."""

    def __init__(self, context: Context, resource: str, changed: Callable[[], None]) -> None:
        super().__init__(context, resource, changed)
        self._claims = context.cluster.objects.of(ResourceClaim)
        self._replaced: dict[str, Collection[str]] = {}
        """By uid: versions without order that a write replaced, until the watch delivers another one."""

    def added(self, item: Object) -> None:
        self._put(item)

    def updated(self, old: Object, new: Object) -> None:
        self._put(new)

    def deleted(self, item: Object) -> None:
        known = self._known(item)
        if known is not None and known.uid == item.uid:
            self._replaced.pop(item.uid, None)
            super().deleted(known)

    def assume(self, claim: ResourceClaim, replaced: Collection[str] = ()) -> bool:
        """Stores the version that the API server returned for a write, which replaced these versions.

        False if the watch has not delivered the claim yet, or has deleted it: it may no longer exist.
        """
        known = self._known(claim)
        if known is None or known.metadata.uid != claim.metadata.uid:
            return False
        self._update(known, claim)
        if any(version_number(version) is None for version in replaced):
            self._replaced[claim.uid] = replaced
        return True

    def freed(self, claim: ResourceClaim) -> None:
        """Notifies the queue that the allocation of this claim, which was in flight, will not be written."""
        known = self._known(claim)
        without = replace(claim, status=replace(claim.status, allocation=None))
        self._notify_queue(Action.UPDATE, claim, without if known is None else known)

    def _put(self, item: Object) -> None:
        known = self._known(item)
        if known is None:
            super().added(item)
        elif known.metadata.uid != item.metadata.uid:
            super().deleted(known)
            super().added(item)
        elif not self._replaced or not self._is_replaced(item):
            self._update(known, item)

    def _is_replaced(self, item: Object) -> bool:
        """Whether the watch delivers a version that a write has replaced. After these come newer ones."""
        uid = item.metadata.uid
        if item.metadata.resource_version in self._replaced.get(uid, ()):
            return True
        self._replaced.pop(uid, None)
        return False

    def _update(self, known: Object, item: Object) -> None:
        """Stores the item if it is newer. Usually the watch delivers a version that is known already."""
        was, now = known.metadata.resource_version, item.metadata.resource_version
        if was != now and not is_older_version(now, was):
            super().updated(known, item)

    def _known(self, item: Object) -> ResourceClaim | None:
        meta = item.metadata
        return self._claims.get(meta.name, meta.namespace)


class TaintRuleHandler(ObjectHandler):
    """Handles events of DeviceTaintRules. No plugin registers these: the queue gets events of slices."""

    def __init__(self, context: Context, changed: Callable[[], None]) -> None:
        super().__init__(context, Resource.RESOURCE_SLICE, changed)
        self._rules = TaintRules(device_features(context.cluster.release))

    def added(self, item: Object) -> None:
        self._replace(None, item)

    def updated(self, old: Object, new: Object) -> None:
        self._replace(old, new)

    def deleted(self, item: Object) -> None:
        self._replace(item, None)

    def _replace(self, old: Object | None, new: Object | None) -> None:
        objects, rules = self._context.cluster.objects, self._rules
        replaced = [rule for rule in (old, new) if isinstance(rule, DeviceTaintRule)]
        slices = [item for item in objects.of(ResourceSlice) if rules.may_taint(replaced, item)]
        before = [rules.tainted(item) for item in slices]
        for rule in replaced:
            if rule is new:
                rules.put(rule)
                objects.put(rule)
            elif new is None:
                rules.remove(rule.name)
                objects.remove(rule)
        for item, was in zip(slices, before, strict=True):
            tainted = rules.tainted(item)
            if not has_equal_taints(was, tainted):
                self._notify_queue(Action.UPDATE, was, tainted)


class GroupHandler(ObjectHandler):
    """Handles events of PodGroups and CompositePodGroups: the members of a new one enter the queue, those of
    a deleted one leave it."""

    def added(self, item: Object) -> None:
        self._context.cluster.objects.put(item)
        if self._context.queue.groups is not None:
            self._context.queue.groups.group_added(key_of(item))
        self._notify_queue(Action.ADD, None, item)

    def updated(self, old: Object, new: Object) -> None:
        if old.metadata.uid != new.metadata.uid:
            # It may have another parent.
            self.deleted(old)
            self.added(new)
            return
        self._context.cluster.objects.put(new)
        if self._context.queue.groups is not None:
            self._context.queue.groups.group_updated(key_of(new))
        self._notify_queue(Action.UPDATE, old, new)

    def deleted(self, item: Object) -> None:
        groups = self._context.cluster.groups
        root = None if groups is None else groups.root(key_of(item))
        self._context.cluster.objects.remove(item)
        if self._context.queue.groups is not None and root is not None:
            self._context.queue.groups.group_deleted(root.key)
        self._notify_queue(Action.DELETE, item, None)
