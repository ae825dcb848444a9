"""Queueing hints: which events requeue a pod.

Every plugin that can reject a pod registers the events that may make it schedulable (`events_to_register`).
The plugins that registered an event, and their hints, are looked up once per kind of event. Only the hints of
the plugins that rejected a pod are evaluated for it.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from bayplan.api.pod import Pod
from bayplan.api.releases import DEFAULT_RELEASE, QueueRules
from bayplan.errors import InputError
from bayplan.framework.events import (
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    EventKeys,
    Hint,
    Resource,
    event_with_hint,
)
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.points import Point
from bayplan.framework.shortcuts import WaitingKeysPlugin
from bayplan.framework.status import describe, plugin_exceptions, traceback_of, wrong_result
from bayplan.runtime.failure_log import FailureLog
from bayplan.runtime.profile import Profile, points_of
from bayplan.scheduling_queue.queued import Entity, QueuedGroup, QueuedPod, QueueObserver, Recorded

_log = logging.getLogger(__name__)

Rejector = tuple[str, str]
"""A profile and the name of one of its plugins."""

IndexKey = tuple[str, ...]
"""A rejector, or a rejector and the key of an object that its pods wait for."""

EXTENDER: Final = "Extender"
"""Represents all extenders among the plugins that rejected a pod."""

CONTRIBUTING_POINTS: Final = frozenset(
    {Point.PRE_ENQUEUE, Point.PRE_FILTER, Point.FILTER, Point.RESERVE, Point.PERMIT}
)
"""The points at which a pod can be rejected. A plugin counts if it has their methods, even where it is
disabled."""

ALL_EVENTS: Final = tuple(
    event_with_hint(resource, Action.ALL)
    for resource in (
        Resource.POD,
        Resource.NODE,
        Resource.PERSISTENT_VOLUME,
        Resource.PERSISTENT_VOLUME_CLAIM,
        Resource.CSI_NODE,
        Resource.CSI_DRIVER,
        Resource.CSI_STORAGE_CAPACITY,
        Resource.STORAGE_CLASS,
        Resource.RESOURCE_CLAIM,
        Resource.DEVICE_CLASS,
    )
)
"""The default for plugins that register nothing, and the registration of extenders."""

_NODE_TAINTS: Final = event_with_hint(Resource.NODE, Action.UPDATE_NODE_TAINT)


class Strategy(Enum):
    """How an event requeues a pod."""

    SKIP = "skip"
    """It stays unschedulable."""
    AFTER_BACKOFF = "after backoff"
    IMMEDIATELY = "immediately"


_BOOLEANS: Final = (bool, np.bool_)

_SKIP, _AFTER_BACKOFF, _IMMEDIATELY = Strategy.SKIP, Strategy.AFTER_BACKOFF, Strategy.IMMEDIATELY


@dataclass(frozen=True, slots=True)
class Listeners:
    """The registrations for an event."""

    event: ClusterEvent
    is_wildcard: bool
    hints: Mapping[str, Mapping[str, tuple[Hint | None, ...]]]
    """By profile and plugin. None: registered without a hint, so the event always requeues."""
    rejectors: tuple[Rejector, ...]
    plugins: frozenset[str]
    """The plugins of all profiles."""
    keys: Mapping[Rejector, tuple[EventKeys, ...]]
    """The functions of rejectors that narrow the event down to some of their pods."""
    failures: Mapping[str, FailureLog]
    """By profile."""

    def index_keys(self, old: Any, new: Any) -> Iterable[IndexKey]:
        """The index keys of the pods that the event may make schedulable."""
        if not self.keys:
            return self.rejectors
        found: list[IndexKey] = []
        for rejector in self.rejectors:
            narrowed = [self._event_keys(rejector, keys, old, new) for keys in self.keys.get(rejector, ())]
            if not narrowed or None in narrowed:
                found.append(rejector)
            else:
                found += [(*rejector, key) for keys in narrowed for key in keys or ()]
        return found

    def _event_keys(self, rejector: Rejector, keys: EventKeys, old: Any, new: Any) -> Collection[str] | None:
        """The keys of an event; None, for all pods, if the function fails."""
        try:
            return keys(old, new)
        except plugin_exceptions() as error:
            text = f'running the event keys of plugin "{rejector[1]}": {describe(error)}'
            self.failures[rejector[0]].log(_log, text, traceback_of(error))
            return None


class QueueingHints:
    """The registrations of all profiles."""

    def __init__(
        self,
        profiles: Iterable[Profile],
        *,
        extenders: bool = False,
        observer: QueueObserver | None = None,
        rules: QueueRules = DEFAULT_RELEASE.queue,
    ) -> None:
        self._observer = observer
        self._shares_own_updates = rules.shares_own_updates
        self._listeners: dict[ClusterEvent, Listeners | None] = {}
        self._registered: dict[str, dict[str, tuple[ClusterEventWithHint, ...]]] = {}
        self._keyed: dict[Rejector, WaitingKeysPlugin] = {}
        self._failures: dict[str, FailureLog] = {}
        for profile in profiles:
            self._failures[profile.scheduler_name] = profile.failures
            for plugin in profile.all_plugins():
                if isinstance(plugin, WaitingKeysPlugin):
                    self._keyed[profile.scheduler_name, plugin.name] = plugin
            found = {
                plugin.name: registrations(plugin, rules)
                for plugin in profile.all_plugins()
                if points_of(type(plugin)) & CONTRIBUTING_POINTS
            }
            if extenders:
                found[EXTENDER] = ALL_EVENTS
            self._registered[profile.scheduler_name] = found

    def keys_of(self, rejector: Rejector, pod: Pod) -> Iterable[str]:
        """The event keys that a pod waits for which this plugin rejected."""
        plugin = self._keyed.get(rejector)
        if plugin is None:
            return ()
        try:
            return tuple(plugin.waiting_keys(pod))
        except plugin_exceptions() as error:
            # The pod is tried again when it has waited for the maximum time.
            text = f'running waiting_keys of plugin "{rejector[1]}" for pod {pod.key}'
            self._failures[rejector[0]].log(_log, f"{text}: {describe(error, plugin)}", traceback_of(error))
            return ()

    def registered(self, profile: str, plugin: str) -> tuple[ClusterEvent, ...]:
        """The events that may requeue a pod which this plugin rejected."""
        return tuple(each.event for each in self._registered.get(profile, {}).get(plugin, ()))

    def listeners(self, event: ClusterEvent) -> Listeners | None:
        """The registrations for this event, or None."""
        try:
            return self._listeners[event]
        except KeyError:
            found = self._listeners[event] = self._find_listeners(event)
            return found

    def _find_listeners(self, event: ClusterEvent) -> Listeners | None:
        hints: dict[str, dict[str, tuple[Hint | None, ...]]] = {}
        keys: dict[Rejector, tuple[EventKeys, ...]] = {}
        for profile, plugins in self._registered.items():
            for plugin, registered_events in plugins.items():
                matching = [each for each in registered_events if each.event.matches(event)]
                if matching:
                    hints.setdefault(profile, {})[plugin] = tuple(each.hint for each in matching)
                    narrowed = tuple(each.keys for each in matching if each.keys is not None)
                    if len(narrowed) == len(matching) and (profile, plugin) in self._keyed:
                        keys[profile, plugin] = narrowed
        if not hints and not event.is_wildcard:
            return None
        rejectors = tuple((profile, plugin) for profile in hints for plugin in hints[profile])
        plugins_of_all = frozenset(plugin for _, plugin in rejectors)
        return Listeners(event, event.is_wildcard, hints, rejectors, plugins_of_all, keys, self._failures)

    def worth_requeuing(self, info: Entity, event: ClusterEvent, old: Any, new: Any) -> Strategy:
        """Whether and when an event requeues the entity: for a group the best answer of its members.

        A wildcard event concerns all pods or, if `new` is a pod, only that one.
        """
        if isinstance(info, QueuedGroup):
            best = _SKIP
            for member in info.members:
                answer = self.worth_requeuing(member, event, old, new)
                if answer is _IMMEDIATELY:
                    return answer
                if answer is _AFTER_BACKOFF:
                    best = answer
                    if not member.pending_plugins:
                        break
            return best
        rejectors = info.rejectors
        if not rejectors:
            return _AFTER_BACKOFF
        listeners = self.listeners(event)
        if listeners is None:
            return _SKIP
        if listeners.is_wildcard:
            return _AFTER_BACKOFF if new is None or new.uid == info.pod.uid else _SKIP
        strategy = _SKIP
        for plugin, hints in listeners.hints.get(info.profile, {}).items():
            if plugin not in rejectors:
                continue
            for hint in hints:
                if not self._helps(plugin, hint, info, listeners.event, old, new):
                    continue
                if plugin in info.pending_plugins:
                    return _IMMEDIATELY
                strategy = _AFTER_BACKOFF
                if not info.pending_plugins:
                    return strategy
        return strategy

    def strategy_after(self, info: QueuedPod, missed: Iterable[Recorded]) -> Strategy:
        """Whether and when the events since the pod was popped requeue it."""
        strategy = _SKIP
        for event, old, new in missed:
            if event.resource == Resource.TARGET_POD and self._shares_own_updates:
                new = _as_own_update(info.pod, new)
            answer = self.worth_requeuing(info, event, old, new)
            if answer is _IMMEDIATELY:
                return answer
            if answer is _AFTER_BACKOFF:
                strategy = answer
                if not info.pending_plugins:
                    break
        return strategy

    def _helps(
        self, plugin: str, hint: Hint | None, info: QueuedPod, event: ClusterEvent, old: Any, new: Any
    ) -> bool:
        observer = self._observer
        started = 0.0 if observer is None else observer.clock()
        try:
            answer: object = True if hint is None else hint(info.pod, old, new)
            if not isinstance(answer, _BOOLEANS):
                raise wrong_result("the queueing hint", answer, "return True or False")
            helps = bool(answer)
            outcome = "Queue" if helps else "QueueSkip"
        except InputError as error:
            # A malformed selector of this pod or of the one that changed is not an error of the plugin.
            _log.warning("hint of plugin %s on %s for pod %s: %s", plugin, event.label, info.key, error)
            helps, outcome = True, "Error"
        except plugin_exceptions() as error:
            # An unnecessary attempt is better than a pod that waits forever.
            text = f'running the queueing hint of plugin "{plugin}" on {event.label} for pod {info.key}'
            self._failures[info.profile].log(_log, f"{text}: {describe(error)}", traceback_of(error))
            helps, outcome = True, "Error"
        if observer is not None:
            observer.hint(plugin, event.label, outcome, observer.clock() - started)
        return helps


def registrations(plugin: Plugin, rules: QueueRules) -> tuple[ClusterEventWithHint, ...]:
    """The registrations of a plugin, its own or the default, as the release has them.

    Before v1.37, updates of the waiting pod itself had no resource of their own, so hints were also called
    for updates of other pods; and plugins that register new nodes also got taint updates.
    """
    registered_events = plugin.events_to_register()
    found = ALL_EVENTS if registered_events is None else tuple(registered_events)
    if rules.own_update != Resource.TARGET_POD:
        found = tuple(_for_all_pods(each) for each in found)
    return _with_node_taints(found) if rules.node_add_implies_taints else found


def _for_all_pods(registered: ClusterEventWithHint) -> ClusterEventWithHint:
    if registered.event.resource != Resource.TARGET_POD:
        return registered
    event = dataclasses.replace(registered.event, resource=Resource.POD)
    return dataclasses.replace(registered, event=event)


def _as_own_update(pod: Pod, new: Pod) -> Pod:
    """An own update of some pod in flight as an update of this pod (`QueueRules.shares_own_updates`)."""
    if new.uid == pod.uid:
        return new
    return replace(new, metadata=replace(new.metadata, uid=pod.uid))


def _with_node_taints(registered_events: Sequence[ClusterEventWithHint]) -> tuple[ClusterEventWithHint, ...]:
    """A plugin that registers new nodes also gets taint updates, because new nodes are often tainted at
    first."""
    actions = Action(0)
    for each in registered_events:
        if each.event.resource == Resource.NODE:
            actions |= each.event.action
    if actions & Action.ADD and not actions & Action.UPDATE_NODE_TAINT:
        return (*registered_events, _NODE_TAINTS)
    return tuple(registered_events)
