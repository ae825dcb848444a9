"""Plays a scenario with pod groups on a real API server, and records what the kube-scheduler there does.

The result is a run as `runs/groups/README.md` describes it. Whether the scheduler has nothing more to do is
read from its log: in which of its queues a group is, and when it was tried last.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Final

from bayplan.errors import APIError, ConflictError
from conformance.harness.admin import Admin, Raw, path_of
from conformance.harness.control_plane import NOT_ADMITTED, ControlPlane
from conformance.harness.objects import condition
from conformance.harness.process import Process
from conformance.harness.programs import obtain
from conformance.harness.schedulers import configuration, start_kube_scheduler, wait_until_synced

RELEASE: Final = "1.37"
GATES: Final = (
    "CompositePodGroup",
    "DRAWorkloadResourceClaims",
    "GenericWorkload",
    "PodGroupPreemptionPolicy",
    "TopologyAwareWorkloadScheduling",
)
"""Those of the API server; a run names those of its scheduler."""
KINDS: Final = (
    "Pod",
    "PodGroup",
    "CompositePodGroup",
    "PodDisruptionBudget",
    "ResourceClaim",
    "ResourceSlice",
    "DeviceClass",
    "Node",
)
"""What scenarios create, in the order in which it is deleted."""
EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/default/events"
SEEN_SECONDS: Final = 0.03
"""For a change to reach the scheduler: watches of different kinds do not keep their order."""
QUIET_SECONDS: Final = 0.4
SPARE_SECONDS: Final = 3.0
"""For groups that are never tried again, besides their backoff."""
MAX_SETTLE_SECONDS: Final = 60.0
LOGGED: Final = (
    "scheduling_queue=5",
    "active_queue=5",
    "backoff_queue=5",
    "schedule_one_podgroup=3",
    "server=3",
    "process=3",
)
ONE_THREAD: Final = {"GOMAXPROCS": "1"}


@contextmanager
def control_plane(directory: Path) -> Iterator[ControlPlane]:
    gates = ",".join(f"{gate}=true" for gate in GATES)
    apis = "scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true"
    options = [f"--feature-gates={gates}", f"--runtime-config={apis}"]
    without = (*NOT_ADMITTED, "PodGroupProtection")
    with ControlPlane(obtain(RELEASE), directory, options=options, not_admitted=without) as plane:
        yield plane


def record(plane: ControlPlane, run: Raw, player: type[Recorder] | None = None) -> Raw:
    """The run with what kube-scheduler did until each `settle`, and objects as the server stored them.

    A step that the API server rejects is left out.
    """
    return asyncio.run(_record(plane, run, player or Recorder))


async def _record(plane: ControlPlane, run: Raw, player: type[Recorder]) -> Raw:
    async with Admin(plane.access()) as admin:
        await admin.clear(*KINDS)
        await admin.send("DELETE", EVENTS)
        recorder = player(plane, admin, run)
        steps: list[Raw] = []
        try:
            for step in run["steps"]:
                steps += await recorder.play(step)
        finally:
            recorder.stop()
            await admin.clear(*KINDS)
        return {**run, "steps": steps}


class Recorder:
    """Executes the steps of a run, and collects what the scheduler has done."""

    def __init__(self, plane: ControlPlane, admin: Admin, run: Raw) -> None:
        self._plane = plane
        self.admin = admin
        self._run = run
        self._scheduler: Process | None = None
        self._queues = _Queues()
        self._known: dict[str, Raw] = {}
        """The pods of the last settle and those created since, by uid; without those deleted by steps."""
        self._scheduled: set[str] = set()
        """The uids of groups that were scheduled once."""
        self._changed = 0.0
        """When the last step was executed, or a pod was placed."""
        self._events: set[str] = set()
        """The names of the events of earlier settles."""
        self._names: dict[str, str] = {}
        """The names of all pods and groups so far, by uid."""

    def stop(self) -> None:
        if self._scheduler is not None:
            self._scheduler.stop()
            self._scheduler = None

    async def play(self, step: Raw) -> list[Raw]:
        """The steps as they were executed: more than one, or none, for a step that chooses by the state."""
        try:
            done = await self._play(step)
        except APIError as error:
            if error.code not in (400, 403, 404, 422):
                raise
            return []
        if step["op"] != "settle":
            self._changed = time.time()
            # Start times do not depend on each other.
            await asyncio.sleep(0.0 if step["op"] == "started" else SEEN_SECONDS)
        return [done]

    async def _play(self, step: Raw) -> Raw:
        match step["op"]:
            case "start" | "restart":
                self.stop()
                self._scheduler = self._start()
            case "settle":
                return {"op": "settle", **await self._settle()}
            case "create":
                created = await self.admin.create(step["object"])
                if created["kind"] in ("Pod", "PodGroup"):
                    self._names[created["metadata"]["uid"]] = _key(created)
                if created["kind"] == "Pod":
                    self._known[created["metadata"]["uid"]] = created
                return {"op": "create", "object": _as_given(created)}
            case "update":
                return {"op": "update", "object": _as_given(await self._update(step["object"]))}
            case "delete":
                item = await self.admin.get(step["kind"], step["name"], step.get("namespace", ""))
                self._known.pop(item["metadata"]["uid"], None)
                if step["kind"] == "PodGroup":
                    self._queues.scheduled.discard(_key(item))
                await self.admin.delete(step["kind"], step["name"], step.get("namespace", ""))
            case _:
                await self._change(step)
        return step

    async def _update(self, item: Raw) -> Raw:
        """Replaces an object with its status."""
        meta = item["metadata"]
        current = await self.admin.get(item["kind"], meta["name"], meta.get("namespace", ""))
        version = {"resourceVersion": current["metadata"]["resourceVersion"]}
        stored = await self.admin.send("PUT", path_of(item), {**item, "metadata": {**meta, **version}})
        if "status" in item and stored.get("status") != item["status"]:
            stored["status"] = item["status"]
            stored = await self.admin.send("PUT", f"{path_of(item)}/status", stored)
        return stored

    async def _change(self, step: Raw) -> None:
        """Changes what the step names of one pod or group. Its status may be written at the same time."""
        while True:
            with suppress(ConflictError):
                return await self._change_once(step)

    async def _change_once(self, step: Raw) -> None:
        kind = "PodGroup" if step["op"] == "minCount" else "Pod"
        item = await self.admin.get(kind, step["name"], step["namespace"])
        path = path_of(item)
        match step["op"]:
            case "ungate":
                item["spec"].pop("schedulingGates", None)
            case "minCount":
                item["spec"]["schedulingPolicy"]["gang"]["minCount"] = step["minCount"]
            case "started":
                item["status"] |= {"phase": "Running", "startTime": step["startTime"]}
                path = f"{path}/status"
            case _:
                raise ValueError(f"unknown step {step['op']!r}")
        await self.admin.send("PUT", path, item)

    def _start(self) -> Process:
        gates = ",".join(f"{gate}=true" for gate in self._run["featureGates"])
        more = {key: value for key, value in self._run["config"].items() if key.startswith(("p", "P"))}
        flags = [f"--feature-gates={gates}", f"--vmodule={','.join(LOGGED)}"]
        config = configuration(self._plane, **more)
        scheduler = start_kube_scheduler(self._plane, config, flags=flags, environment=ONE_THREAD)
        wait_until_synced(scheduler)
        self._queues = _Queues(scheduler.log)
        return scheduler

    # Settling

    async def _settle(self) -> Raw:
        start = since = time.time()
        version, placed = "", frozenset[tuple[str, str]]()
        while True:
            pods, groups = await self.admin.list("Pod"), await self.admin.list("PodGroup")
            claims = await self.admin.list("ResourceClaim")
            now = time.time()
            self._queues.read()
            found = _version([*pods, *groups, *claims])
            if found != version:
                version, since = found, now
            # What an attempt writes may not have been there when these objects were listed.
            since = max(since, self._queues.latest)
            where = frozenset((item["metadata"]["uid"], item["spec"].get("nodeName", "")) for item in pods)
            if where != placed:
                placed, self._changed = where, now if placed else self._changed
            waiting = [item for item in pods if not item["spec"].get("nodeName")]
            longest = math.sqrt(max(1, len(waiting))) + SPARE_SECONDS
            trees = await self.admin.list("CompositePodGroup") if waiting else []
            is_pending = self._queues.is_pending(_entities(waiting, groups, trees), self._changed)
            is_pending |= any(item.get("status", {}).get("nominatedNodeName") for item in waiting)
            if now - since > (longest if is_pending else QUIET_SECONDS):
                break
            if now - start > MAX_SETTLE_SECONDS:
                raise TimeoutError("kube-scheduler does not settle")
            await asyncio.sleep(0.1)
        return await self._collected(pods, groups, claims)

    async def _collected(self, pods: list[Raw], groups: list[Raw], claims: list[Raw]) -> Raw:
        by_uid = {item["metadata"]["uid"]: item for item in pods}
        before = {uid for uid, item in self._known.items() if item["spec"].get("nodeName")}
        gone = [_key(item) for uid, item in self._known.items() if uid not in by_uid]
        self._known = by_uid
        result = {
            "bound": {
                _key(item): item["spec"]["nodeName"]
                for uid, item in by_uid.items()
                if item["spec"].get("nodeName") and uid not in before
            },
            "evicted": sorted(gone),
            "waiting": {_key(item): _waiting(item) for item in pods if not item["spec"].get("nodeName")},
            "groups": {_key(item): self._condition(item) for item in groups},
            "events": await self._new_events(),
        }
        return result | ({"claims": {_key(item): _claim(item) for item in claims}} if claims else {})

    def _condition(self, item: Raw) -> Raw:
        found = condition(item, "PodGroupInitiallyScheduled")
        if found is None:
            return {}
        uid = item["metadata"]["uid"]
        if found["status"] == "True" or _key(item) in self._queues.scheduled:
            self._scheduled.add(uid)
        if uid in self._scheduled:
            return {"type": found["type"], "status": "True", "reason": "Scheduled", "message": ""}
        return {name: found[name] for name in ("type", "status", "reason", "message")}

    async def _new_events(self) -> list[list[str]]:
        """The distinct events since the last settle, uids replaced by names."""
        found = set()
        for event in (await self.admin.send("GET", EVENTS))["items"]:
            name = event["metadata"]["name"]
            if name in self._events:
                continue
            self._events.add(name)
            about, note = event["regarding"], event["note"]
            for uid, key in self._names.items():
                note = note.replace(uid, key)
            found.add((about["kind"], f"{about['namespace']}/{about['name']}", event["reason"], note))
        return sorted(map(list, found))


class _Queues:
    """In which queue each pod or group is, and when it was tried last, as the log of the scheduler says."""

    def __init__(self, log: Path | None = None) -> None:
        self._log = log
        self._offset = 0
        self._queue: dict[str, str] = {}
        self._tried: dict[str, float] = {}
        self.latest = 0.0
        """When the last attempt failed."""
        self.scheduled: set[str] = set()
        """The groups that have been scheduled: a later attempt may overwrite their condition at once."""

    def read(self) -> None:
        """Reads what was logged since the last time."""
        if self._log is None:
            return
        with self._log.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        end = text.rfind(b"\n") + 1
        self._offset += end
        for line in text[:end].decode(errors="replace").splitlines():
            self._take(line)

    def _take(self, line: str) -> None:
        found = _LINE.match(line)
        if found is None:
            return
        key = re.search(r' (?:entity|podGroup|pod)="([^"]+)"', line)
        queue = re.search(r' queue="([^"]+)"', line)
        if key is None:
            return
        name = key[1]
        if "Successfully scheduled a pod group" in line:
            self.scheduled.add(name)
        if "moved to an internal scheduling queue" in line and queue is not None:
            self._queue[name] = queue[1]
            if "ScheduleAttemptFailure" in line:
                self.latest = self._tried[name] = _seconds(found[1])

    def is_pending(self, entities: Iterable[str], changed: float) -> bool:
        """Whether one of them may be tried, and has not been since a time."""
        return any(
            self._queue.get(entity) in ("Active", "Backoff") and self._tried.get(entity, 0.0) < changed
            for entity in entities
        )


_LINE: Final = re.compile(r"[IWE](\d{4} \d\d:\d\d:\d\d\.\d{6}) ")


def _seconds(stamp: str) -> float:
    """The local time of a line of the log."""
    return datetime.strptime(f"{time.localtime().tm_year}{stamp}", "%Y%m%d %H:%M:%S.%f").timestamp()


def _version(items: Iterable[Raw]) -> str:
    """Changes with every write."""
    return " ".join(
        sorted(f"{item['metadata']['uid']} {item['metadata']['resourceVersion']}" for item in items)
    )


def _entities(waiting: Iterable[Raw], groups: Iterable[Raw], trees: Iterable[Raw]) -> set[str]:
    """The keys of what is tried for these pods: the pods, or their groups or composite groups."""
    parents = {
        (kind, _key(item)): f"{item['metadata']['namespace']}/{parent}"
        for kind, items in (("PodGroup", groups), ("CompositePodGroup", trees))
        for item in items
        if (parent := item["spec"].get("parentCompositePodGroupName"))
    }
    found = set()
    for item in waiting:
        named, key = item["spec"].get("schedulingGroup"), _key(item)
        if named is not None:
            key = f"{item['metadata']['namespace']}/{named['podGroupName']}"
            key = parents.get(("PodGroup", key), key)
            while ("CompositePodGroup", key) in parents:
                key = parents["CompositePodGroup", key]
        found.add(key)
    return found


def _as_given(item: Raw) -> Raw:
    meta = {key: value for key, value in item["metadata"].items() if key in ("name", "namespace", "labels")}
    return {**item, "metadata": meta}


def _key(item: Raw) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"


def _waiting(item: Raw) -> Raw:
    """What a waiting pod shows; nothing as long as the scheduler has not written anything."""
    found, result = condition(item, "PodScheduled"), Raw()
    if found is not None and found["reason"] != "SchedulingGated":
        result = {"reason": found["reason"], "message": found["message"]}
    nominated = item.get("status", {}).get("nominatedNodeName")
    return result | ({"nominated": nominated} if nominated else {})


def _claim(item: Raw) -> Raw:
    """The devices of a claim, and for whom it is reserved."""
    status = item.get("status") or {}
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or []
    return {
        "devices": [f"{one['pool']}/{one['device']}" for one in results],
        "reservedFor": sorted(f"{one['resource']}/{one['name']}" for one in status.get("reservedFor") or []),
    }
