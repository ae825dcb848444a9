"""One scheduler drains one backlog.

Time is measured from the moment at which the scheduler has synced to the last binding in a watch. CPU and
memory are those of the scheduler's process, as counted by the kernel. The measuring client has a small
effect, the same for both: it counts the lines of one more watch.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from bayplan.client.requests import Requests
from conformance.harness.admin import Admin
from conformance.harness.control_plane import ControlPlane
from conformance.harness.process import Process, free_ports
from conformance.harness.schedulers import HANDLERS_SYNCED, SCHEDULERS, configuration, serving_flags
from conformance.racing.course import Course

QPS: Final = 5000
"""qps and burst of both: with the default of 50 per second only this limit would be measured."""
STUCK_SECONDS: Final = 120.0
"""A heat without progress for this time is aborted."""
WAITING: Final = "/api/v1/pods?" + urlencode({"fieldSelector": "spec.nodeName="})
_LEFT: Final = b'{"type":"DELETED"'
"""The event of a watch for pods without a node when a pod is bound."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one scheduler."""

    course: Course
    scheduler: str
    all_nodes: bool
    """Whether it is configured to score all nodes."""
    bound: int
    seconds: float
    """From the start of scheduling to the last binding."""
    cpu_seconds: float
    """Of the scheduler, in that time."""
    start_seconds: float
    """From the start of the process until it knew the cluster."""
    start_cpu_seconds: float
    memory_bytes: int
    """Peak resident memory."""
    server_cpu_seconds: float
    """Of kube-apiserver and etcd, while the backlog was drained."""
    events: int
    """That it has written, by the time it was stopped."""
    load: float
    """Load average when the heat began: on a machine that others use, times mean little."""

    def as_json(self) -> dict[str, Any]:
        pods = max(self.bound, 1)
        return {
            "workload": self.course.workload,
            "nodes": self.course.nodes,
            "init_pods": self.course.init_pods,
            "pods": self.course.pods,
            "scheduler": self.scheduler,
            "all_nodes_scored": self.all_nodes,
            "bound": self.bound,
            "pods_per_s": round(self.bound / self.seconds, 1) if self.bound else None,
            "cpu_us_per_pod": round(self.cpu_seconds / pods * 1e6) if self.bound else None,
            "server_cpu_us_per_pod": round(self.server_cpu_seconds / pods * 1e6) if self.bound else None,
            "start_s": round(self.start_seconds, 2),
            "start_cpu_s": round(self.start_cpu_seconds, 2),
            "memory_mb": round(self.memory_bytes / 1e6),
            "events": self.events,
            "load": self.load,
        }


def run(plane: ControlPlane, course: Course, scheduler: str, *, all_nodes: bool, flags: list[str]) -> Result:
    """Runs one heat on a control plane that has the course."""
    return asyncio.run(_run(plane, course, scheduler, all_nodes, flags))


async def _run(
    plane: ControlPlane, course: Course, scheduler: str, all_nodes: bool, flags: list[str]
) -> Result:
    load = os.getloadavg()[0]
    more: dict[str, Any] = {"percentageOfNodesToScore": 100} if all_nodes else {}
    async with Admin(plane.access()) as admin:
        counting = Counting(admin.cluster.requests)
        await counting.start()
        flags = [*serving_flags(plane, free_ports(1)[0]), *flags]
        with SCHEDULERS[scheduler](plane, configuration(plane, qps=QPS, **more), flags=flags) as process:
            await wait_until_started(process)
            began, start_cpu = time.monotonic(), process.cpu_seconds()
            servers = _server_cpu(plane)
            bound, ended = await counting.until(course.pods, process)
            cpu, memory = process.cpu_seconds(), process.memory_bytes()
            servers = _server_cpu(plane) - servers
        await counting.stop()
        events = len(await admin.list("Event"))
    return Result(
        course=course,
        scheduler=scheduler,
        all_nodes=all_nodes,
        bound=bound,
        seconds=(ended or began) - began,
        cpu_seconds=cpu - start_cpu,
        start_seconds=began - process.started,
        start_cpu_seconds=start_cpu,
        memory_bytes=memory,
        server_cpu_seconds=servers,
        events=events,
        load=round(load, 2),
    )


async def wait_until_started(process: Process) -> None:
    async with asyncio.timeout(STUCK_SECONDS):
        while HANDLERS_SYNCED not in process.log.read_text(errors="replace"):
            process.check()
            await asyncio.sleep(0.02)


def _server_cpu(plane: ControlPlane) -> float:
    return sum(server.cpu_seconds() for server in (plane.etcd, plane.apiserver) if server is not None)


class _Item(msgspec.Struct):
    """A pod whose fields are not decoded."""


class _Version(msgspec.Struct, rename="camel"):
    resource_version: str


class _Waiting(msgspec.Struct):
    metadata: _Version
    items: list[_Item]


class Counting:
    """Counts pods that get a node, from a watch."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._pods: int | None = None
        """Without a node at first, and those that were created since."""
        self._bound = 0
        self._last: float | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def created(self) -> None:
        """Waits for the event of a pod that was created after the start."""
        self._pods = (self._pods or 0) + 1

    async def start(self) -> None:
        version = await self._list()
        self._task = asyncio.ensure_future(self._follow(version))

    async def _list(self) -> str:
        """Counts those that wait. Returns from where to watch."""
        listed = msgspec.json.decode(await self._requests.send("GET", WAITING), type=_Waiting)
        waiting = len(listed.items)
        if self._pods is None:
            self._pods = waiting
        elif self._pods - waiting != self._bound:
            self._bound = self._pods - waiting
            self._last = time.monotonic()
        self._changed.set()
        return listed.metadata.resource_version

    async def _follow(self, version: str) -> None:
        while True:
            await self._count(version)
            # A server that is short of time closes watches that it could not serve quickly enough.
            version = await self._list()

    async def _count(self, version: str) -> None:
        query = urlencode({"watch": "true", "timeoutSeconds": "3600", "resourceVersion": version})
        stream = await self._requests.open(f"{WAITING}&{query}")
        rest = b""
        try:
            while piece := await stream.read(3600.0):
                # A mark may be cut in two; no more than its length can be missing.
                seen = (rest + piece).count(_LEFT)
                rest = (rest + piece)[-len(_LEFT) + 1 :]
                if seen:
                    self._bound += seen
                    self._last = time.monotonic()
                    self._changed.set()
        finally:
            stream.close()

    async def until(self, pods: int, process: Process) -> tuple[int, float | None]:
        """Waits until this number of pods is bound, or nothing happens any more. Returns the number, and the
        time of the last binding."""
        while self._bound < pods:
            process.check()
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), STUCK_SECONDS)
            except TimeoutError:
                break
        return self._bound, self._last

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
