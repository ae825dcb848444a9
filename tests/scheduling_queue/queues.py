"""A queue with a manual clock and scripted plugins, and functions to work with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bayplan.api.pod import Pod
from bayplan.api.releases import V1_36, Release
from bayplan.framework.events import Action, ClusterEventWithHint, Hint, Resource, event_with_hint
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.points import Point
from bayplan.framework.status import Code, Status
from bayplan.plugins.priority_sort import PrioritySort
from bayplan.runtime.profile import Profile, points_of
from bayplan.scheduling_queue.queue import SchedulingQueue
from bayplan.scheduling_queue.queued import Entity, QueueCounts, QueuedGroup, QueuedPod, members_of
from bayplan.scheduling_queue.sub_queues import PodHeap
from bayplan.scheduling_queue.waiting import QueueSettings
from bayplan.state.groups import Group, GroupStates
from bayplan.testing.builders import make_pod
from bayplan.testing.calling import FakeHandle, make_plugin

PROFILE = "default-scheduler"

NODE_ADDED = (event_with_hint(Resource.NODE, Action.ADD),)
"""What the plugins of these tests wait for by default."""


class Clock:
    """Time that is advanced by hand."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class NoPins:
    """Pins nothing."""

    def pin(self, preemptor: Pod | Group, gate: str) -> None: ...

    def unpin(self, preemptor: Pod | Group) -> None: ...


def record(pod: Pod) -> QueuedPod:
    """The record of a pod in the queue."""
    return QueuedPod(pod, pod.key, 0.0, 0)


class Columns:
    """Keeps nominations as the snapshot would."""

    def __init__(self) -> None:
        self.nominated: dict[str, tuple[Pod, str]] = {}

    def nominate(self, pod: Pod, node_name: str) -> None:
        self.nominated[pod.uid] = pod, node_name

    def remove_nomination(self, uid: str) -> None:
        del self.nominated[uid]

    def nodes(self) -> dict[str, str]:
        """The node of each nominated pod, by name."""
        return {pod.name: node for pod, node in self.nominated.values()}


def make_filter(name: str, events: Sequence[ClusterEventWithHint] | None = NODE_ADDED) -> Plugin:
    """A plugin that may reject pods and requeues them on these events."""

    class Filter(Plugin):
        def events_to_register(self) -> Sequence[ClusterEventWithHint] | None:
            return events

        def filter(self, state: Any, pod: Pod, nodes: Any) -> Iterable[Any]:
            return ()

    Filter.name = name
    return make_plugin(Filter)


class Gate(Plugin):
    """A PreEnqueue plugin that rejects the given pods, by name."""

    def __init__(
        self,
        closed: Iterable[str] = (),
        code: Code = Code.UNRESOLVABLE,
        events: Sequence[ClusterEventWithHint] = NODE_ADDED,
    ) -> None:
        super().__init__(None, FakeHandle())
        self.closed = set(closed)
        self.calls: list[str] = []
        self._code = code
        self._events = events

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return self._events

    def pre_enqueue(self, pod: Pod) -> Status | None:
        self.calls.append(pod.name)
        return Status(self._code, ("closed",)) if pod.name in self.closed else None


class OtherGate(Gate):
    """A second one."""


def make_profile(*plugins: Plugin, name: str = PROFILE) -> Profile:
    """A profile with these plugins wherever they can take part, and pods in order of priority."""
    enabled = (make_plugin(PrioritySort), *plugins)
    return Profile(
        name,
        {point: [plugin for plugin in enabled if point in points_of(type(plugin))] for point in Point},
        {},
    )


class World:
    """A queue and all that it needs, with pods named by their names."""

    def __init__(
        self,
        *plugins: Plugin,
        settings: QueueSettings | None = None,
        extenders: bool = False,
        profiles: Sequence[Profile] | None = None,
        start: float = 0.0,
        release: Release = V1_36,
        groups: GroupStates | None = None,
        active: PodHeap | None = None,
    ) -> None:
        self.clock = Clock(start)
        self.columns = Columns()
        self.counts = QueueCounts()
        self.latest: dict[str, Pod] = {}
        self.flying: dict[str, QueuedPod] = {}
        self.queue = SchedulingQueue(
            [make_profile(*plugins)] if profiles is None else profiles,
            now=self.clock,
            columns=self.columns,
            pod_lister=lambda pod: self.latest.get(pod.key),
            extenders=extenders,
            settings=settings,
            observer=self.counts,
            release=release,
            groups=groups,
            active=active,
        )

    def add(self, name: str = "p", **fields: Any) -> Pod:
        pod = make_pod(name, **fields)
        self.latest[pod.key] = pod
        self.queue.add(pod)
        return pod

    def update(self, name: str = "p", **fields: Any) -> Pod:
        """Updates the pod with these fields."""
        new = make_pod(name, **fields)
        old = self.latest[new.key]
        self.latest[new.key] = new
        self.queue.update(old, new)
        return new

    def delete(self, name: str = "p") -> None:
        self.queue.delete(self.latest.pop(f"default/{name}"))

    def pop(self) -> str | None:
        """The name of the next pod."""
        info = single(self.queue.pop())
        if info is None:
            return None
        self.flying[info.pod.name] = info
        return info.pod.name

    def pop_all(self) -> list[str]:
        names = []
        while (name := self.pop()) is not None:
            names.append(name)
        return names

    def fail(self, name: str, *plugins: str, pending: Iterable[str] = ()) -> bool:
        """The pod's attempt ends: these plugins rejected it, or, without any, it failed with an error."""
        info = self.flying.pop(name)
        pod = self.latest.get(info.key, info.pod)
        return self.queue.add_unschedulable_if_not_present(info, pod, {*plugins, *pending}, pending)

    def reject(self, name: str = "p", *plugins: str, pending: Iterable[str] = (), **fields: Any) -> QueuedPod:
        """A new pod that has been tried and rejected."""
        self.add(name, **fields)
        assert self.pop() == name
        self.fail(name, *(plugins or ("Fit",)), pending=pending)
        return self.info(name)

    def info(self, name: str = "p") -> QueuedPod:
        info = self.queue.find(f"default/{name}")
        assert info is not None
        return info

    def where(self, name: str = "p") -> str:
        """The part that the pod is in."""
        info = self.queue.find(f"default/{name}")
        if info is None:
            return "in flight" if name in self.flying else "nowhere"
        assert info.sub_queue is not None
        return info.sub_queue.label

    def pass_time(self, seconds: float) -> None:
        """Time passes, and every timer on the way fires."""
        end = self.clock.now + seconds
        while (timer := self.queue.next_timer()) is not None and timer <= end:
            self.clock.now = timer
            self.queue.flush()
        self.clock.now = end


def hint_of(answers: Mapping[str, bool]) -> Hint:
    """A hint with a result by the name of the waiting pod."""
    return lambda pod, old, new: answers[pod.name]


def single(entity: Entity | None) -> QueuedPod | None:
    """An entity that is a pod and no group."""
    assert not isinstance(entity, QueuedGroup)
    return entity


def names(entities: Iterable[Entity]) -> list[str]:
    """The names of these pods."""
    return [member.pod.name for entity in entities for member in members_of(entity)]
