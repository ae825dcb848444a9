"""Replays recorded runs with pod groups: the fate of groups and single pods in a changing cluster.

Unlike the runs of `replay.py`, nothing is recorded of single attempts. Objects are created, changed and
deleted, then the scheduler is left alone until nothing more happens (`settle`), and what it has done until
then is collected. Virtual time passes backoffs in an instant. `conformance/runs/groups/README.md` describes
the format.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from bayplan.api.cluster_api import Event
from bayplan.api.decode import decode_object
from bayplan.api.devices import ResourceClaim
from bayplan.api.groups import GangSchedulingPolicy, PodGroup
from bayplan.api.kinds import KINDS
from bayplan.api.meta import Condition, Object, ObjectMeta
from bayplan.api.node import Namespace
from bayplan.api.pod import Pod
from bayplan.api.releases import Release
from bayplan.config import KubeSchedulerConfiguration, parse_config
from bayplan.errors import DecodeError
from bayplan.scheduler.context import LoopSettings, wall_clock
from bayplan.scheduler.cycle import Decision
from bayplan.scheduler.loop import Scheduler
from bayplan.scheduler.observers import Observers
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.simulate.virtual_time import VirtualLoop
from bayplan.state.groups import key_of

COLLECTED: Final = ("bound", "evicted", "waiting", "groups", "claims")
"""What is recorded at each `settle`, and collected here besides events; claims only if there are any."""

MAX_SETTLE_SECONDS: Final = 3600.0
"""A scheduler that has not settled after this time is not going to."""

_QUIET_SECONDS: Final = {"min-count-raised": 5.0}
"""How long nothing was written before the recorded scheduler counted as settled, by the kind of the run."""
_USUAL_QUIET_SECONDS: Final = 0.5
_SPARE_SECONDS: Final = 3.0


GENERATED: Final = "differential"
"""The kind of runs in which kube-scheduler was left alone until its queue had nothing more to try."""
QUEUED: Final = ("active", "backoff")
"""Where groups are that will be tried without another event."""

_UID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


# The format


class Step(msgspec.Struct, tag_field="op", frozen=True):
    """One line of a recorded run, with groups or without (`replay.py`)."""


class Start(Step, tag="start", frozen=True):
    """The scheduler starts, with whatever exists by then."""


class Restart(Step, tag="restart", frozen=True):
    """The scheduler ends, and a new one starts on the same cluster."""


class Create(Step, tag="create", frozen=True):
    object: dict[str, Any]


class Update(Step, tag="update", frozen=True):
    """The object is replaced, with its status."""

    object: dict[str, Any]


class Delete(Step, tag="delete", frozen=True):
    """The object is deleted; in a run with groups it is gone at once."""

    kind: str
    name: str
    namespace: str = ""

    def __post_init__(self) -> None:
        if KINDS.get(self.kind) is None:
            raise ValueError(f"{self.kind!r} is not a kind that scheduling reads")


class Ungate(Step, tag="ungate", frozen=True):
    """The scheduling gates of a pod are removed."""

    name: str
    namespace: str = ""


class MinCount(Step, tag="minCount", frozen=True, rename="camel"):
    """minCount of a gang is set."""

    name: str
    min_count: int
    namespace: str = ""


class Started(Step, tag="started", frozen=True, rename="camel"):
    """A bound pod runs from this time on."""

    name: str
    start_time: datetime
    namespace: str = ""


class Settle(Step, tag="settle", frozen=True):
    """The scheduler is left alone, and this is what the recorded one had done then."""

    bound: dict[str, str] = {}
    evicted: list[str] = []
    waiting: dict[str, dict[str, str]] = {}
    groups: dict[str, dict[str, str]] = {}
    claims: dict[str, dict[str, list[str]]] = {}
    events: list[Any] | None = None


class GroupRun(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    config: dict[str, Any] | str | None
    steps: list[Start | Restart | Create | Update | Delete | Ungate | MinCount | Started | Settle]
    feature_gates: dict[str, bool] = {}
    kind: str = ""


def is_group_run(run: Mapping[str, Any]) -> bool:
    """Whether a recorded run is of this form."""
    steps = run.get("steps")
    return isinstance(steps, list) and any(
        isinstance(step, dict) and step.get("op") == "settle" for step in steps
    )


def with_run_gates(run: GroupRun, release: Release) -> Release:
    """The release with the feature gates of the run."""
    unknown = sorted(run.feature_gates.keys() - release.features.keys())
    if unknown:
        raise DecodeError(f"unrecognized feature gate: {unknown[0]}", field="featureGates")
    turned_on = {name for name, is_on in run.feature_gates.items() if is_on}
    return release.with_gates(frozenset((release.gates - run.feature_gates.keys()) | turned_on))


# Replaying


async def play(run: GroupRun, cache: bool, release: Release) -> list[dict[str, Any]]:
    """The results of all `settle` steps. Runs on a `VirtualLoop`."""
    config = parse_config(
        msgspec.json.encode(run.config).decode(),
        f"{run.name}: config",
        release=with_run_gates(run, release),
    )
    quiet_seconds = _QUIET_SECONDS.get(run.kind, _USUAL_QUIET_SECONDS)
    player = _Player(config, cache, quiet_seconds, waits_for_queue=run.kind == GENERATED)
    results = []
    try:
        for step in run.steps:
            found = await player.play(step)
            if found is not None:
                results.append(found)
    finally:
        await player.stop()
    return results


class _Player:
    """Executes steps, each after the scheduler has seen the one before."""

    def __init__(
        self, config: KubeSchedulerConfiguration, cache: bool, quiet_seconds: float, *, waits_for_queue: bool
    ) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self._loop = loop
        self._store = MemoryStore(clock=wall_clock(loop))
        self._store.create(Namespace(metadata=ObjectMeta(name="default")))
        self._config, self._cache, self._quiet_seconds = config, cache, quiet_seconds
        self._waits_for_queue = waits_for_queue
        self._running: asyncio.Future[None] | None = None
        self._scheduler: Scheduler | None = None
        self._known: dict[str, Pod] = {}
        """The pods of the last settle and those created since, by uid; without those deleted by steps."""
        self._time = 0
        """Counts changes and attempts."""
        self._changed = 0
        """When the last step was executed, or a pod was placed."""
        self._attempted: dict[tuple[str, str], int] = {}
        """When each group, or pod, was tried last."""
        self._events: set[str] = set()
        """The names of the events of earlier settles."""
        self._keys: dict[str, str] = {}
        """The keys of all pods and groups so far, by uid."""
        self._admitted: set[str] = set()
        """The uids of groups that have been scheduled once."""

    async def play(self, step: Step) -> dict[str, Any] | None:
        store = self._store
        if not isinstance(step, Settle):
            self._time += 1
            self._changed = self._time
        match step:
            case Start():
                self._start()
            case Restart():
                await self.stop()
                self._start()
            case Create(object=raw):
                stored = store.create(_decoded(raw))
                self._keys[stored.uid] = stored.key
                if isinstance(stored, Pod):
                    self._known[stored.uid] = stored
            case Update(object=raw):
                store.update(_decoded(raw))
            case Delete():
                record = KINDS[step.kind].record
                uid = store.get(record, step.name, step.namespace).uid
                store.delete(record, step.name, step.namespace)
                self._known.pop(uid, None)
            case Ungate():
                pod = store.get(Pod, step.name, step.namespace)
                # The recorded pods never had the condition that the store gives to gated pods.
                status = replace(pod.status, conditions=())
                store.update(replace(pod, spec=replace(pod.spec, scheduling_gates=()), status=status))
            case MinCount():
                group = store.get(PodGroup, step.name, step.namespace)
                gang = GangSchedulingPolicy(min_count=step.min_count)
                policy = replace(group.spec.scheduling_policy, gang=gang)
                store.update(replace(group, spec=replace(group.spec, scheduling_policy=policy)))
            case Started():
                store.set_pod_running(step.name, step.namespace, step.start_time)
            case Settle():
                await self._settle()
                return self._collected()
        await self._loop.quiescent()
        return None

    def _start(self) -> None:
        cluster = MemoryCluster(self._store)
        self._scheduler = Scheduler(
            cluster,
            self._config,
            settings=LoopSettings(cache=self._cache),
            observers=Observers(decided=self._decided),
        )
        self._running = asyncio.ensure_future(self._scheduler.run())

    async def stop(self) -> None:
        """Ends the scheduler, as if its process had ended."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None

    def _decided(self, decision: Decision) -> None:
        self._time += 1
        self._attempted[_entity(decision.pod)] = self._time

    async def _settle(self) -> None:
        """Waits until all that may be tried has been tried after the last change, and nothing is written.

        Not longer, because backoffs grow with every attempt: a later step finds groups in backoff as the
        recorded one did. What is not tried within the longest backoff never is.
        """
        size = max(1, sum(not pod.spec.node_name for pod in self._store.list(Pod)))
        longest = self._config.pod_max_backoff_seconds * math.sqrt(size) + _SPARE_SECONDS
        start = since = self._loop.time()
        while True:
            before, placed = self._version(), self._placed()
            await asyncio.sleep(self._quiet_seconds)
            await self._loop.quiescent()
            if self._running is not None and self._running.done():
                self._running.result()
            if self._placed() != placed:
                self._time += 1
                self._changed = self._time
            now = self._loop.time()
            if self._version() != before:
                since = now
            elif now - since > longest or not self._is_pending():
                return
            if now - start > MAX_SETTLE_SECONDS:
                raise DecodeError("the scheduler does not settle")

    def _placed(self) -> set[tuple[str, str]]:
        return {(pod.uid, pod.spec.node_name) for pod in self._store.list(Pod)}

    def _is_pending(self) -> bool:
        """Whether a group may still be tried that has not been since the last change, or a pod waits for its
        victims. A group that lacks members may not; in generated runs it may if it is queued."""
        waiting: dict[tuple[str, str], list[Pod]] = {}
        members: Counter[tuple[str, str]] = Counter()
        for pod in self._store.list(Pod):
            if not pod.spec.node_name and pod.status.nominated_node_name:
                return True
            if pod.spec.scheduling_group is not None:
                members[_entity(pod)] += 1
                if not pod.spec.node_name:
                    waiting.setdefault(_entity(pod), []).append(pod)
        for group in self._store.list(PodGroup):
            key = (group.namespace, group.name)
            pods = waiting.get(key, ())
            is_ready = members[key] >= _min_count(group) and not any(
                pod.spec.scheduling_gates for pod in pods
            )
            may_be_tried = is_ready or (self._waits_for_queue and self._is_queued(group))
            if pods and may_be_tried and self._attempted.get(key, 0) < self._changed:
                return True
        return False

    def _is_queued(self, group: PodGroup) -> bool:
        queue = None if self._scheduler is None else self._scheduler.context.queue.groups
        entity = None if queue is None else queue.entities.get(key_of(group))
        return entity is not None and entity.sub_queue is not None and entity.sub_queue.label in QUEUED

    def _version(self) -> tuple[str, ...]:
        """Changes with every write but those of events."""
        return tuple(self._store.last_version(kind) for kind in (Pod, PodGroup, ResourceClaim))

    def _collected(self) -> dict[str, Any]:
        store = self._store
        pods = {pod.uid: pod for pod in store.list(Pod)}
        bound = {
            pod.key: pod.spec.node_name
            for uid, pod in pods.items()
            if pod.spec.node_name and not (uid in self._known and self._known[uid].spec.node_name)
        }
        evicted = sorted(pod.key for uid, pod in self._known.items() if uid not in pods)
        waiting = {pod.key: _waiting(pod) for pod in pods.values() if not pod.spec.node_name}
        self._known = pods
        groups = {group.key: self._group(group) for group in store.list(PodGroup)}
        claims = {claim.key: _claim(claim) for claim in store.list(ResourceClaim)}
        found = {"bound": bound, "evicted": evicted, "waiting": waiting, "groups": groups}
        return found | ({"claims": claims} if claims else {}) | {"events": self._new_events()}

    def _new_events(self) -> list[list[str]]:
        """The distinct events since the last settle, uids replaced by keys."""
        found = set()
        for event in self._store.list(Event):
            about, note = event.regarding, event.note
            if event.name in self._events or about is None:
                continue
            self._events.add(event.name)
            for uid in _UID.findall(note):
                note = note.replace(uid, self._keys.get(uid, uid))
            found.add((about.kind, f"{about.namespace}/{about.name}", event.reason, note))
        return [list(event) for event in sorted(found)]

    def _group(self, group: PodGroup) -> dict[str, str]:
        """Its condition. A group that was scheduled once counts as scheduled."""
        for condition in group.status.conditions:
            if condition.type == "PodGroupInitiallyScheduled":
                if condition.status == "True":
                    self._admitted.add(group.uid)
                if group.uid in self._admitted:
                    return {"type": condition.type, "status": "True", "reason": "Scheduled", "message": ""}
                fields = ("type", "status", "reason", "message")
                return {name: getattr(condition, name) for name in fields}
        return {}


def _decoded(raw: dict[str, Any]) -> Object:
    item = decode_object(raw)
    if item is None:
        raise DecodeError(f"unknown kind {raw.get('kind')!r}")
    return item


def _entity(pod: Pod) -> tuple[str, str]:
    """What is tried as one: the pod, or its group."""
    named = pod.spec.scheduling_group
    return pod.namespace, pod.name if named is None else named.pod_group_name or ""


def _min_count(group: PodGroup) -> int:
    gang = group.spec.scheduling_policy.gang
    return 1 if gang is None else gang.min_count


def _waiting(pod: Pod) -> dict[str, str]:
    """What a waiting pod shows."""
    found: dict[str, str] = {}
    condition: Condition | None = next((c for c in pod.status.conditions if c.type == "PodScheduled"), None)
    if condition is not None and condition.reason != "SchedulingGated":
        found = {"reason": condition.reason, "message": condition.message}
    if pod.status.nominated_node_name:
        found["nominated"] = pod.status.nominated_node_name
    return found


def _claim(claim: ResourceClaim) -> dict[str, list[str]]:
    """The devices of a claim, and for whom it is reserved."""
    allocation, consumers = claim.status.allocation, claim.status.reserved_for
    results = () if allocation is None else allocation.devices.results
    return {
        "devices": [f"{one.pool}/{one.device}" for one in results],
        "reservedFor": sorted(f"{one.resource}/{one.name}" for one in consumers),
    }


def first_group_difference(
    run: Mapping[str, Any], results: list[dict[str, Any]], *, events: bool = False
) -> str | None:
    """The first settle step whose result differs from the recorded one, and the first object in it.

    `events`: compares the events, too, where they were recorded.
    """
    recorded = [step for step in run["steps"] if step["op"] == "settle"]
    for number, (want, have) in enumerate(zip(recorded, results, strict=True)):
        if events and want.get("events") is not None:
            difference = _event_difference(want["events"], have["events"])
            if difference:
                return f"settle {number}: {difference}"
        for field in COLLECTED:
            expected, found = want.get(field), have.get(field)
            if field == "evicted":
                expected = sorted(expected or ())
            if expected == found:
                continue
            if isinstance(expected, dict) and isinstance(found, dict):
                name = next(n for n in sorted({*expected, *found}) if expected.get(n) != found.get(n))
                return (
                    f"settle {number}: {field} {name} is {found.get(name)!r}, "
                    f"recorded is {expected.get(name)!r}"
                )
            return f"settle {number}: {field} is {found!r}, recorded is {expected!r}"
    return None


def _event_difference(expected: list[list[str]], found: list[list[str]]) -> str:
    missing = [event for event in expected if event not in found]
    if missing:
        return f"event {missing[0]!r} is missing"
    added = [event for event in found if event not in expected]
    return f"event {added[0]!r} is not recorded" if added else ""
