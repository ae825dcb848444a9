"""Events that name keys are evaluated only for pods that wait for one of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, ClassVar

from bayplan.api.pod import Pod
from bayplan.framework.events import Action, ClusterEvent, ClusterEventWithHint, Resource, event_with_hint
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.points import Point
from bayplan.framework.status import Status, unschedulable
from bayplan.plugins.priority_sort import PrioritySort
from bayplan.runtime.profile import Profile
from bayplan.scheduling_queue.hints import QueueingHints
from bayplan.scheduling_queue.queue import SchedulingQueue
from bayplan.scheduling_queue.queued import QueuedPod
from bayplan.scheduling_queue.waiting import UnschedulablePods
from bayplan.state.cluster import Cluster
from bayplan.testing.builders import make_pod
from bayplan.testing.calling import make_plugin

from .queues import names

CLAIM_ADD = ClusterEvent(Resource.RESOURCE_CLAIM, Action.ADD)
PROFILE = "default-scheduler"


class Keyed(Plugin):
    """Pods wait for the object with their own name; `None` as the new object concerns all pods."""

    name: ClassVar = "Keyed"

    def pre_enqueue(self, pod: Pod) -> Status | None:
        return None

    def waiting_keys(self, pod: Pod) -> Collection[str]:
        return [pod.name]

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return [event_with_hint(Resource.RESOURCE_CLAIM, Action.ADD, None, self.keys)]

    def keys(self, old: Any, new: Any) -> Collection[str] | None:
        return None if new is None else [new]


def waiting(hints: QueueingHints, *names: str) -> UnschedulablePods:
    pods = UnschedulablePods(hints.keys_of)
    for number, name in enumerate(names):
        pod = make_pod(name)
        info = QueuedPod(pod, pod.key, 0.0, number)
        info.unschedulable_plugins = frozenset({"Keyed"})
        pods.put(info)
    return pods


def visited(hints: QueueingHints, pods: UnschedulablePods, new: str | None) -> list[str]:
    listeners = hints.listeners(CLAIM_ADD)
    assert listeners is not None
    return sorted(names(pods.rejected_by(listeners.index_keys(None, new))))


def test_only_pods_with_the_key_are_visited() -> None:
    hints = QueueingHints([Profile(PROFILE, {Point.PRE_ENQUEUE: [make_plugin(Keyed)]}, {})])
    pods = waiting(hints, "a", "b")
    assert visited(hints, pods, "a") == ["a"]
    assert visited(hints, pods, "x") == []
    assert visited(hints, pods, None) == ["a", "b"]


def test_a_pod_that_left_is_not_found_by_its_key() -> None:
    hints = QueueingHints([Profile(PROFILE, {Point.PRE_ENQUEUE: [make_plugin(Keyed)]}, {})])
    pods = waiting(hints, "a", "b")
    pods.remove(next(iter(pods)))
    assert visited(hints, pods, "a") == []
    assert visited(hints, pods, None) == ["b"]


def test_keys_that_changed_with_an_event_count_for_the_next() -> None:
    """An event can change what a pod waits for without being worth an attempt."""
    waits_for = ["its claim"]

    class Changing(Keyed):
        name: ClassVar = "Keyed"

        def pre_enqueue(self, pod: Pod) -> Status | None:
            return unschedulable("gated") if waits_for != ["nothing"] else None

        def waiting_keys(self, pod: Pod) -> Collection[str]:
            return waits_for

    queue = SchedulingQueue(
        [
            Profile(
                PROFILE,
                {Point.PRE_ENQUEUE: [make_plugin(Changing)], Point.QUEUE_SORT: [make_plugin(PrioritySort)]},
                {},
            )
        ],
        now=lambda: 0.0,
        columns=Cluster(),
        pod_lister=lambda pod: pod,
    )
    queue.add(make_pod("a"))
    waits_for[:] = ["devices"]
    queue.move_to_active_or_backoff(CLAIM_ADD, None, "its claim")
    assert not queue.has_ready
    waits_for[:] = ["nothing"]
    queue.move_to_active_or_backoff(CLAIM_ADD, None, "devices")
    assert queue.has_ready


def test_a_pod_that_is_not_in_the_index_is_not_indexed_again() -> None:
    hints = QueueingHints([Profile(PROFILE, {Point.PRE_ENQUEUE: [make_plugin(Keyed)]}, {})])
    pods = waiting(hints, "a")
    info = next(iter(pods))
    pods.unindex(info)
    pods.reindex(info)
    assert visited(hints, pods, "a") == []
