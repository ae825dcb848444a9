"""Plays a scenario on a real API server, and records what the scheduler there does.

The result is a recorded run as `bayplan replay` plays it: objects as the API server defaulted them, and with
each pod what became of it.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from bayplan.api.pod import Pod
from bayplan.errors import APIError
from bayplan.simulate.replay import comparable_allocation
from conformance.differential.drawing import Raw
from conformance.harness.admin import Admin, path_of

SETTLING_SECONDS: Final = 0.06
"""For a change to reach the scheduler: watches of different kinds do not keep their order."""
MAX_WAIT_SECONDS: Final = 30.0

_NOT_RECORDED: Final = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation")


async def record(admin: Admin, scenario: Mapping[str, Any]) -> Raw:
    """Runs all steps and returns the run with outcomes, without objects that the API server rejects."""
    steps: list[Raw] = []
    watched = WatchedPods(admin)
    watching = asyncio.ensure_future(watched.run())
    try:
        for step in scenario["steps"]:
            try:
                done = await _play(admin, watched, step)
            except APIError as error:
                if error.code not in (400, 403, 422):
                    raise
                continue
            if done is not None:
                steps.append(done)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    return {**scenario, "steps": steps}


class WatchedPods:
    """Watches pods: a nomination may end before the pod is read."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._changed = asyncio.Event()
        self.pods: dict[str, Pod] = {}
        self.nominations: dict[str, tuple[str, str]] = {}
        """By uid, the first node that the pod was nominated to, and its message."""

    async def run(self) -> None:
        _, version = await self._admin.cluster.list(Pod)
        async for batch in self._admin.cluster.watch(Pod, version):
            for event in batch:
                if event.object is not None:
                    self._take(event.object)
            self._changed.set()

    def _take(self, pod: Pod) -> None:
        self.pods[pod.uid] = pod
        message = _unschedulable_message(pod)
        if pod.status.nominated_node_name and message is not None:
            self.nominations.setdefault(pod.uid, (pod.status.nominated_node_name, message))

    async def outcome(self, uid: str) -> Pod:
        """Waits until a pod is bound, or unschedulable without a nomination."""
        async with asyncio.timeout(MAX_WAIT_SECONDS):
            while True:
                self._changed.clear()
                pod = self.pods.get(uid)
                if pod is not None:
                    hopeless = _unschedulable_message(pod) is not None and not pod.status.nominated_node_name
                    if pod.spec.node_name or hopeless:
                        return pod
                await self._changed.wait()


def _unschedulable_message(pod: Pod) -> str | None:
    """The message of its failed attempt."""
    return next(
        (
            one.message
            for one in pod.status.conditions
            if one.type == "PodScheduled" and one.status == "False"
        ),
        None,
    )


async def _play(admin: Admin, watched: WatchedPods, step: Raw) -> Raw | None:
    match step["op"]:
        case "create":
            step = {"op": "create", "object": _as_recorded(await admin.create(step["object"]))}
        case "update":
            step = {"op": "update", "object": _as_recorded(await _update(admin, step["object"]))}
        case "delete":
            await admin.delete(step["kind"], step["name"], step.get("namespace", ""))
        case "delete-some-pod":
            pods = sorted((await admin.list("Pod")), key=lambda pod: str(pod["metadata"]["name"]))
            if not pods:
                return None
            meta = pods[int(step["choice"] * len(pods))]["metadata"]
            await admin.delete("Pod", meta["name"], meta["namespace"])
            step = {"op": "delete", "kind": "Pod", "name": meta["name"], "namespace": meta["namespace"]}
        case "free-some-claim":
            freed = await _free_some_claim(admin, step["choice"])
            if freed is None:
                return None
            step = {"op": "update", "object": _as_recorded(freed)}
        case "schedule":
            return await _schedule(admin, watched, step["pod"])
    await asyncio.sleep(SETTLING_SECONDS)
    return step


async def _update(admin: Admin, item: Raw) -> Raw:
    meta = item["metadata"]
    current = await admin.get(item["kind"], meta["name"], meta.get("namespace", ""))
    version = {"resourceVersion": current["metadata"]["resourceVersion"]}
    stored = await admin.send("PUT", path_of(item), {**item, "metadata": {**meta, **version}})
    if "status" in item and stored.get("status") != item["status"]:
        stored["status"] = item["status"]
        stored = await admin.send("PUT", f"{path_of(item)}/status", stored)
    return stored


async def _schedule(admin: Admin, watched: WatchedPods, pod: Raw) -> Raw:
    before = {_key(other) for other in await admin.list("Pod")}
    created = await admin.create(pod)
    uid = created["metadata"]["uid"]
    step: Raw = {"op": "schedule", "pod": _as_recorded(created)}
    found = await watched.outcome(uid)
    if uid in watched.nominations:
        step["nominated"], step["message"] = watched.nominations[uid]
    if found.spec.node_name:
        step["node"] = found.spec.node_name
        step["started"] = await _start(admin, created)
        if allocations := await _allocations(admin, created):
            step["allocations"] = allocations
    else:
        condition = next(one for one in found.status.conditions if one.type == "PodScheduled")
        step["unschedulable"], step["reason"] = condition.message, condition.reason
        await admin.delete("Pod", found.name, found.namespace)
    await asyncio.sleep(SETTLING_SECONDS)
    victims = sorted(before - {_key(other) for other in await admin.list("Pod")})
    if victims:
        step["victims"] = victims
    return step


async def _free_some_claim(admin: Admin, choice: float) -> Raw | None:
    """Takes its devices from one of the claims whose pods are gone, as the claim controller would."""
    pods = {pod["metadata"]["uid"] for pod in await admin.list("Pod")}
    claims = [
        claim
        for claim in await admin.list("ResourceClaim")
        if claim.get("status", {}).get("allocation")
        and not any(one["uid"] in pods for one in claim["status"].get("reservedFor", ()))
    ]
    if not claims:
        return None
    meta = sorted(claims, key=_key)[int(choice * len(claims))]["metadata"]
    claim = await admin.get("ResourceClaim", meta["name"], meta["namespace"])
    claim["metadata"]["finalizers"] = []
    claim = await admin.send("PUT", path_of(claim), claim)
    claim["status"] = {}
    return await admin.send("PUT", f"{path_of(claim)}/status", claim)


async def _allocations(admin: Admin, pod: Raw) -> Raw:
    """What the claims of a pod were given, but for ids and times that are never the same twice."""
    found = {}
    for entry in pod["spec"].get("resourceClaims", ()):
        claim = await admin.get("ResourceClaim", entry["resourceClaimName"], pod["metadata"]["namespace"])
        found[entry["name"]] = comparable_allocation(claim.get("status", {}).get("allocation"))
    return found


async def _start(admin: Admin, pod: Raw) -> str:
    """Sets the pod's start time in place of a kubelet: the choice of victims depends on it."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    minutes = zlib.crc32(name.encode()) % 1000
    started = (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    current = await admin.get("Pod", name, namespace)
    current["status"] |= {"phase": "Running", "startTime": started}
    await admin.send("PUT", f"{path_of(current)}/status", current)
    return started


def _key(pod: Raw) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _as_recorded(item: Raw) -> Raw:
    meta = {name: value for name, value in item["metadata"].items() if name not in _NOT_RECORDED}
    recorded = {**item, "metadata": meta}
    if item["kind"] == "Pod":
        recorded.pop("status", None)
    return recorded
