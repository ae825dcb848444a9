"""Replays recorded runs of kube-scheduler on a cluster in this process.

A run is a list of steps: objects are added, changed and deleted, and pods are scheduled one at a time. Each
step has the result of the recorded scheduler; our results are collected in the same form, for comparison.
Runs with extenders are replayed in real time over sockets, all others in virtual time. Runs with pod groups
have another form: `group_runs.py`.
`conformance/runs/README.md` describes the format. A run comes from a file, so `check_run` checks its form;
its objects and its configuration are checked where they are decoded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any, Final

import msgspec

from bayplan.answers.sources.files import VERSION
from bayplan.api.decode import decode_object
from bayplan.api.devices import ResourceClaim
from bayplan.api.kinds import KINDS
from bayplan.api.meta import Object, ObjectMeta
from bayplan.api.node import Namespace
from bayplan.api.pod import Pod
from bayplan.api.quantity import parse_quantity
from bayplan.api.releases import DEFAULT_RELEASE, Release, parse_release
from bayplan.config import KubeSchedulerConfiguration, parse_config
from bayplan.errors import APIError, DecodeError
from bayplan.scheduler.context import LoopSettings, wall_clock
from bayplan.scheduler.cycle import Decision
from bayplan.scheduler.loop import Scheduler
from bayplan.scheduler.observers import Observers
from bayplan.simulate import group_runs
from bayplan.simulate.checksum_extender import ChecksumExtenders
from bayplan.simulate.group_runs import Create, Delete, GroupRun, Step, Update, is_group_run
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.simulate.virtual_time import VirtualLoop, run_virtual

MAX_WAIT_SECONDS: Final = 30.0
"""A pod that is neither bound nor unschedulable after this time counts as lost."""

RECORDED_PORT: Final = "18765"

RECORDED: Final = (
    "node",
    "unschedulable",
    "reason",
    "nominated",
    "message",
    "victims",
    "filtered",
    "allocations",
)
"""What is recorded of a pod, and collected here."""


# The format


class Schedule(Step, tag="schedule", frozen=True):
    """A pod to schedule, and the result of the recorded scheduler."""

    pod: dict[str, Any]
    started: datetime | None = None
    node: str | None = None
    unschedulable: str | None = None
    reason: str | None = None
    nominated: str | None = None
    message: str | None = None
    victims: list[str] | None = None
    filtered: list[Any] | None = None
    allocations: dict[str, Any] | None = None


class Run(msgspec.Struct, frozen=True):
    name: str
    config: dict[str, Any] | str | None
    steps: list[Create | Update | Delete | Schedule]
    namespaces: dict[str, dict[str, str]] = {}
    extenders: dict[str, dict[str, int]] | None = None


def check_run(run: Any) -> dict[str, Any]:
    """The decoded run.

    Raises:
        DecodeError: it is not a recorded run.
    """
    try:
        msgspec.convert(run, GroupRun if isinstance(run, dict) and is_group_run(run) else Run)
    except msgspec.ValidationError as error:
        raise DecodeError(f"this is not a recorded run: {error}") from None
    assert isinstance(run, dict)
    return run


# Replaying


def replay(run: Mapping[str, Any], *, cache: bool = True, release: Release | None = None) -> dict[str, Any]:
    """Replays one run and returns the results by pod, or by settle step.

    `release` is the release to decide as; None: that of the run's `kubernetesVersion`, or the default.
    """
    release = release or release_of(run)
    if is_group_run(run):
        results = run_virtual(group_runs.play(msgspec.convert(run, GroupRun), cache, release))
        return {"name": run["name"], "results": results}
    if run.get("extenders"):
        return asyncio.run(_play(run, cache, release))
    return run_virtual(_play(run, cache, release))


def release_of(run: Mapping[str, Any]) -> Release:
    """The release that a run names, or the default."""
    return parse_release(run[VERSION]) if VERSION in run else DEFAULT_RELEASE


async def _play(run: Mapping[str, Any], cache: bool, release: Release) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    store = MemoryStore(clock=wall_clock(loop))
    async with AsyncExitStack() as stack:
        extenders = None
        if run.get("extenders"):
            extenders = await stack.enter_async_context(ChecksumExtenders(run["extenders"], _binder(store)))
        config = _config(run, extenders, release)
        player = Player(store, extenders)
        scheduler = Scheduler(
            MemoryCluster(store),
            config,
            settings=LoopSettings(cache=cache),
            observers=Observers(decided=player.decided),
        )
        running = asyncio.ensure_future(scheduler.run())
        try:
            for name, labels in run.get("namespaces", {}).items():
                store.create(Namespace(metadata=ObjectMeta(name=name, labels=dict(labels))))
            results = []
            for step in run["steps"]:
                found = await player.play(step)
                if running.done():
                    running.result()
                if found is not None:
                    results.append(found)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    return {"name": run["name"], "results": results}


def _binder(store: MemoryStore) -> Any:
    async def bind(namespace: str, name: str, uid: str, node: str) -> None:
        store.bind(name, namespace, node, uid=uid)

    return bind


def _config(
    run: Mapping[str, Any], extenders: ChecksumExtenders | None, release: Release
) -> KubeSchedulerConfiguration:
    text = msgspec.json.encode(run["config"]).decode()
    if extenders is not None:
        text = text.replace(f":{RECORDED_PORT}/", f":{extenders.port}/")
    return parse_config(text, f"{run['name']}: config", release=release)


class Player:
    """Executes the steps of a run, each after the one before has taken full effect."""

    def __init__(self, store: MemoryStore, extenders: ChecksumExtenders | None) -> None:
        self._store = store
        self._extenders = extenders
        self._nominations: list[tuple[str, str]] = []
        """Node and message of each decision that nominated one, since the step began."""

    def decided(self, decision: Decision) -> None:
        """Called with every decision: a nomination may be over before the pod is read."""
        if decision.nomination is not None and decision.nomination.node_name:
            self._nominations.append((decision.nomination.node_name, decision.message))

    async def play(self, step: Mapping[str, Any]) -> dict[str, Any] | None:
        match step["op"]:
            case "create":
                self._store.create(_decoded(step["object"]))
            case "update":
                self._update(_decoded(step["object"]))
            case "delete":
                kind = KINDS[step["kind"]].record
                self._store.delete(kind, step["name"], step.get("namespace", ""))
            case "schedule":
                return await self._schedule(step)
            case other:
                raise DecodeError(f"unknown step {other!r}")
        await self._wait_quiescent()
        return None

    def _update(self, item: Object) -> None:
        current = self._store.get(type(item), item.name, item.namespace)
        meta = msgspec.structs.replace(
            item.metadata, uid=current.uid, resource_version=current.metadata.resource_version
        )
        item = msgspec.structs.replace(item, metadata=meta)
        self._store.update(item)
        if isinstance(item, ResourceClaim):
            meta = msgspec.structs.replace(meta, resource_version="")
            self._store.update_claim_status(msgspec.structs.replace(item, metadata=meta))

    async def _schedule(self, step: Mapping[str, Any]) -> dict[str, Any]:
        before = {pod.uid: pod.key for pod in self._store.list(Pod)}
        if self._extenders is not None:
            self._extenders.filtered.clear()
        self._nominations.clear()
        pod = self._store.create(_decoded(step["pod"]))
        assert isinstance(pod, Pod)
        result: dict[str, Any] = {"pod": pod.key}
        pod = await self._outcome(pod)
        if self._nominations:
            result["nominated"], result["message"] = self._nominations[0]
        if self._extenders is not None:
            result["filtered"] = [list(call) for call in self._extenders.filtered]
        if pod.spec.node_name:
            result["node"] = pod.spec.node_name
            if step.get("started"):
                started = datetime.fromisoformat(step["started"])
                self._store.set_pod_running(pod.name, pod.namespace, started)
            if allocations := self._allocations(pod):
                result["allocations"] = allocations
        else:
            condition = next(c for c in pod.status.conditions if c.type == "PodScheduled")
            result["unschedulable"], result["reason"] = condition.message, condition.reason
            self._store.delete(Pod, pod.name, pod.namespace)
        await self._wait_quiescent()
        left = {other.uid for other in self._store.list(Pod)}
        victims = sorted(key for uid, key in before.items() if uid not in left)
        if victims:
            result["victims"] = victims
        return result

    def _allocations(self, pod: Pod) -> dict[str, Any]:
        """What each claim that the pod names was given."""
        found = {}
        for entry in pod.spec.resource_claims:
            if entry.resource_claim_name:
                claim = self._store.get(ResourceClaim, entry.resource_claim_name, pod.namespace)
                found[entry.name] = comparable_allocation(_as_json(claim.status.allocation))
        return found

    async def _outcome(self, pod: Pod) -> Pod:
        """Waits until the pod is bound or unschedulable for good."""
        waited, step = 0.0, 0.005
        while waited < MAX_WAIT_SECONDS:
            await self._wait_quiescent()
            pod = self._store.get(Pod, pod.name, pod.namespace)
            if pod.spec.node_name:
                return pod
            refused = next((c for c in pod.status.conditions if c.type == "PodScheduled"), None)
            if refused is not None and refused.status == "False" and not pod.status.nominated_node_name:
                return pod
            await asyncio.sleep(step)
            waited += step
        raise APIError(f"pod {pod.key} is neither bound nor found unschedulable")

    async def _wait_quiescent(self) -> None:
        """Waits until the scheduler has processed everything that happened."""
        loop = asyncio.get_running_loop()
        if isinstance(loop, VirtualLoop):
            await loop.quiescent()
            return
        for _ in range(20):
            await asyncio.sleep(0)


def comparable_allocation(allocation: Any) -> Any:
    """A claim's status.allocation without the ids and times that are never the same twice.

    Empty fields are left out, and quantities are compared by value.
    """
    if isinstance(allocation, list):
        return [comparable_allocation(one) for one in allocation]
    if not isinstance(allocation, dict):
        return allocation
    found = {}
    for name, value in allocation.items():
        if name == "consumedCapacity":
            value = {resource: str(parse_quantity(amount)) for resource, amount in (value or {}).items()}
        if name not in ("shareID", "allocationTimestamp") and value not in (None, "", [], {}, False):
            found[name] = comparable_allocation(value)
    return found


def _as_json(record: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(record))


def _decoded(raw: Mapping[str, Any]) -> Object:
    item = decode_object(raw)
    if item is None:
        raise DecodeError(f"unknown kind {raw.get('kind')!r}")
    return item
