"""Whatever happens, the queue loses no pod, has none twice, and pops in order.

A random life: pods come, change, fail, are activated and deleted, gates close and open, events happen, time
passes. Two queues live it side by side. One is flushed twice a second; the other only when it requested that,
and is notified of one of the gates how long it holds a pod. That must make no difference.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bayplan.api.pod import Pod
from bayplan.api.releases import V1_36
from bayplan.framework.events import Action, ClusterEvent, Resource, event_with_hint
from bayplan.scheduling_queue.hints import Strategy
from bayplan.scheduling_queue.object_events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    NODE_DELETE,
    UNSCHEDULABLE_TIMEOUT,
    PodEvents,
)
from bayplan.scheduling_queue.queued import QueuedPod
from bayplan.scheduling_queue.sub_queues import PendingPods
from bayplan.scheduling_queue.waiting import QueueSettings
from bayplan.testing.builders import make_pod
from tests.effort import examples

from .queues import PROFILE, Gate, OtherGate, World, make_filter, single

NAMES = "abcdefgh"
REJECTORS = ("Fit", "Picky", "Own", "Stubborn", "Gate")
EVENTS = (NODE_ADD, NODE_DELETE, ASSIGNED_POD_ADD, ASSIGNED_POD_DELETE, UNSCHEDULABLE_TIMEOUT)
STEP = 0.5

names = st.sampled_from(NAMES)
rejector_sets = st.sets(st.sampled_from(REJECTORS), max_size=3)


def is_itself(pod: Pod, old: Any, new: Any) -> bool:
    return bool(new.uid == pod.uid)


def vowels_only(pod: Pod, old: Any, new: Any) -> bool:
    return pod.name in "ae"


class Life:
    """One of the two queues, with its own gates so that both are called equally."""

    def __init__(self, pop_from_backoff: bool) -> None:
        self.gates = Gate(), OtherGate(events=[event_with_hint(Resource.POD, Action.DELETE)])
        self.world = World(
            *self.gates,
            make_filter("Fit"),
            make_filter("Picky", [event_with_hint(Resource.POD, Action.ADD | Action.DELETE, vowels_only)]),
            make_filter("Own", [event_with_hint(Resource.POD, Action.UPDATE, is_itself)]),
            make_filter("Stubborn", []),
            settings=QueueSettings(pop_from_backoff=pop_from_backoff),
        )


def state(info: QueuedPod) -> tuple[Any, ...]:
    """All of a record that a difference could show in."""
    assert info.sub_queue is not None
    return (
        info.sub_queue.label,
        info.pod,
        info.timestamp,
        info.attempts,
        info.unschedulable_count,
        info.consecutive_errors_count,
        info.unschedulable_plugins,
        info.pending_plugins,
        info.gating_plugin,
        info.was_flushed,
        info.flush_timestamp,
    )


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.born = 0
        self.pods: dict[str, Pod] = {}
        """Pods that exist, by name."""
        self.flying: dict[str, str] = {}
        """Pods that are being tried, deleted ones included: their names by uid."""
        self.log: list[str] = []
        """Upstream's list of pods in flight (by uid) and events (by label), kept literally."""
        self.leaked: Counter[str] = Counter()
        """Rejections that are never counted off because the pod was deleted while it was ready."""

    @initialize(pop_from_backoff=st.booleans())
    def start(self, pop_from_backoff: bool) -> None:
        self.early = pop_from_backoff
        self.lives = Life(pop_from_backoff), Life(pop_from_backoff)
        self.worlds = [life.world for life in self.lives]

    @property
    def waiting(self) -> dict[str, QueuedPod]:
        """The records of one queue by name."""
        queue = self.worlds[0].queue
        found = {name: queue.find(f"default/{name}") for name in self.pods}
        return {name: info for name, info in found.items() if info is not None}

    def record(self, *labels: str) -> None:
        if self.flying:
            self.log.extend(labels)

    def land(self, uid: str) -> str:
        """The attempt is over; returns the pod's name."""
        name = self.flying.pop(uid)
        self.log.remove(uid)
        while self.log and self.log[0] not in self.flying:
            del self.log[0]
        return name

    def is_parked(self, info: QueuedPod) -> bool:
        return info.sub_queue is not None and info.sub_queue.label == "unschedulable"

    def is_flying(self, name: str) -> bool:
        return self.pods[name].uid in self.flying

    @rule(name=names, priority=st.integers(0, 2))
    def add(self, name: str, priority: int) -> None:
        if name in self.pods:
            return
        self.born += 1
        self.pods[name] = pod = make_pod(name, priority=priority, uid=f"{name}{self.born}")
        for world in self.worlds:
            world.latest[pod.key] = pod
            world.queue.add(pod)

    @rule(name=names, priority=st.integers(0, 2), label=st.sampled_from(["", "x", "y"]))
    def update(self, name: str, priority: int, label: str) -> None:
        if name not in self.pods:
            return
        old = self.pods[name]
        new = make_pod(name, priority=priority, labels={"l": label} if label else {}, uid=old.uid)
        self.pods[name] = new
        if new.uid in self.flying:
            self.record(*(event.label for event in PodEvents(V1_36).updates(old, new)))
        for world in self.worlds:
            world.latest[new.key] = new
            world.queue.update(old, new)

    @rule(name=names)
    def delete(self, name: str) -> None:
        if name not in self.pods:
            return
        info = self.waiting.get(name)
        if info is not None and not self.is_parked(info):
            self.leaked.update(info.rejectors)
        pod = self.pods.pop(name)
        for world in self.worlds:
            del world.latest[pod.key]
            world.queue.delete(pod)

    @rule(name=names, second=st.booleans())
    def turn_gate(self, name: str, second: bool) -> None:
        if second and name in self.pods:
            queue, pod = self.worlds[1].queue, self.pods[name]
            if name in self.lives[1].gates[1].closed:
                queue.unpin(pod)
            else:
                queue.pin(pod, "OtherGate")
        for life in self.lives:
            life.gates[second].closed ^= {name}

    @rule()
    def pop(self) -> None:
        expected = self.next_in_line()
        popped = [single(world.queue.pop()) for world in self.worlds]
        assert [info and info.pod for info in popped] == [expected and expected.pod] * 2
        if expected is None:
            return
        assert popped[0] is expected
        self.flying[expected.pod.uid] = expected.pod.name
        self.log.append(expected.pod.uid)
        for world, info in zip(self.worlds, popped, strict=True):
            assert info is not None
            world.flying[info.pod.uid] = info

    def next_in_line(self) -> QueuedPod | None:
        """The next pod, by a scan of all records."""
        waiting = self.waiting.values()
        active = [info for info in waiting if info.sub_queue is not None and info.sub_queue.label == "active"]
        if active:
            return min(active, key=lambda info: (-info.pod.priority, info.timestamp, info.sequence))
        backing_off = [
            info
            for info in waiting
            if info.sub_queue is not None and info.sub_queue.label == "backoff" and info.rejectors
        ]
        if not self.early or not backing_off:
            return None
        return min(
            backing_off,
            key=lambda info: (info.backoff_expiration, -info.pod.priority, info.timestamp, info.sequence),
        )

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), rejectors=rejector_sets, is_pending=st.booleans())
    def fail(self, data: st.DataObject, rejectors: set[str], is_pending: bool) -> None:
        uid = data.draw(st.sampled_from(sorted(self.flying)))
        name = self.land(uid)
        pending = set(sorted(rejectors)[:1]) if is_pending else set()
        pod = self.pods.get(name)
        for world in self.worlds:
            info = world.flying.pop(uid)
            if pod is None or pod.uid != uid:
                world.queue.done(uid)
            else:
                assert world.queue.add_unschedulable_if_not_present(info, pod, rejectors, pending)

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def bind(self, data: st.DataObject) -> None:
        """The attempt succeeds: the pod has a node now and leaves the queue."""
        uid = data.draw(st.sampled_from(sorted(self.flying)))
        name = self.land(uid)
        bound = self.pods[name].uid == uid if name in self.pods else False
        pod = self.pods.pop(name) if bound else None
        for world in self.worlds:
            del world.flying[uid]
            world.queue.done(uid)
            if pod is not None:
                world.latest.pop(pod.key)
                world.queue.delete(pod)

    @rule(event=st.sampled_from(EVENTS), limit=st.sampled_from([None, 0, 1]))
    def happen(self, event: ClusterEvent, limit: int | None) -> None:
        """Visiting only pods that an event may concern has the same result as evaluating every pod."""
        expected = {name for name, info in self.waiting.items() if self.is_moved(info, event, limit)}
        before = {name: self.entries(name) for name in self.waiting}
        for world in self.worlds:
            allowed = None if limit is None else lambda pod: pod.priority <= limit
            world.queue.move_to_active_or_backoff(event, None, None, allowed)
        if self.worlds[0].queue.hints.listeners(event) is not None:
            self.record(event.label)
        gates = self.lives[0].gates
        for name, info in self.waiting.items():
            assert info.sub_queue is not None
            held = any(name in gate.closed for gate in gates)
            if name in expected and not held:
                assert info.sub_queue.label in ("active", "backoff")
            elif name not in expected:
                assert self.entries(name) == before[name]

    def entries(self, name: str) -> tuple[Any, ...]:
        return state(self.waiting[name])

    def is_moved(self, info: QueuedPod, event: ClusterEvent, limit: int | None) -> bool:
        hints = self.worlds[0].queue.hints
        if not self.is_parked(info):
            return False
        if limit is not None and info.pod.priority > limit:
            return False
        if info.gating_plugin and not event.is_wildcard:
            gate_events = hints.registered(PROFILE, info.gating_plugin)
            if not any(registered.matches(event) for registered in gate_events):
                return False
        return hints.worth_requeuing(info, event, None, None) is not Strategy.SKIP

    @rule(chosen=st.sets(names, max_size=3))
    def activate(self, chosen: set[str]) -> None:
        pods = [self.pods[name] for name in sorted(chosen) if name in self.pods]
        self.record(*("ForceActivate" for pod in pods if pod.uid in self.flying))
        for world in self.worlds:
            world.queue.activate(pods)

    @rule(steps=st.one_of(st.integers(1, 6), st.integers(7, 30), st.integers(100, 700)))
    def pass_time(self, steps: int) -> None:
        often, on_request = self.worlds
        known = often.queue.in_flight_counts().get("UnschedulableTimeout", 0)
        for _ in range(steps):
            often.clock.now += STEP
            often.queue.flush()
        on_request.pass_time(steps * STEP)
        assert often.clock.now == on_request.clock.now
        flushes = often.queue.in_flight_counts().get("UnschedulableTimeout", 0) - known
        self.record(*["UnschedulableTimeout"] * flushes)

    @invariant()
    def no_pod_is_lost_or_in_two_places(self) -> None:
        for name in self.pods:
            assert (name in self.waiting) != self.is_flying(name)
        for world in self.worlds:
            keys = sorted(pod.key for pod in world.queue.pending_pods())
            assert keys == sorted(f"default/{name}" for name in self.waiting)

    @invariant()
    def both_queues_are_equal(self) -> None:
        one, other = ({name: state(world.info(name)) for name in self.waiting} for world in self.worlds)
        assert one == other

    @invariant()
    def gauges_match_what_is_there(self) -> None:
        for world in self.worlds:
            labels = Counter(
                info.sub_queue.label for info in self.waiting.values() if info.sub_queue is not None
            )
            gated = sum(self.is_parked(info) and bool(info.gating_plugin) for info in self.waiting.values())
            counts = world.queue.counts()
            assert (counts.active, counts.backoff) == (labels["active"], labels["backoff"])
            assert (counts.unschedulable, counts.gated) == (labels["unschedulable"] - gated, gated)
            assert world.queue.has_ready == (self.next_in_line() is not None)
            rejections = Counter(self.leaked)
            for info in self.waiting.values():
                rejections.update(info.rejectors)
            counted = {
                plugin: count for (plugin, _), count in world.counts.unschedulable_pods.items() if count
            }
            assert counted == {plugin: count for plugin, count in rejections.items() if count}

    @invariant()
    def gated_pods_wait_and_pods_that_wait_have_a_rejector(self) -> None:
        for info in self.waiting.values():
            assert info.sub_queue is not None
            if self.is_parked(info):
                assert info.rejectors
            elif self.early or info.sub_queue.label == "active":
                # Without the feature pods back off before they come to the gates.
                assert not info.gating_plugin

    @invariant()
    def events_are_kept_only_for_pods_in_flight(self) -> None:
        expected = Counter("PodPopped" if entry in self.flying else entry for entry in self.log)
        for world in self.worlds:
            assert world.queue.in_flight_counts() == expected

    def teardown(self) -> None:
        """Once all gates are open, every pod is tried within six minutes."""
        if not hasattr(self, "lives"):
            return
        for life in self.lives:
            world = life.world
            for gate in life.gates:
                gate.closed.clear()
            for pod in self.pods.values():
                world.queue.unpin(pod)
            for uid in self.flying:
                world.queue.done(uid)
            flown = {self.flying[uid] for uid in self.flying}
            world.pass_time(360)
            world.pass_time(60)
            tried = set()
            while (info := single(world.queue.pop())) is not None:
                tried.add(info.pod.name)
            assert tried | flown >= set(self.pods)
            assert world.queue.counts() == PendingPods(active=0, backoff=0, unschedulable=0, gated=0)


QueueMachine.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)
TestQueue = QueueMachine.TestCase
