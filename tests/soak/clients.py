"""The clients of a soak. All of them continue after a restart, each in its own way."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from bayplan.api.cluster_api import Change
from bayplan.api.pod import Pod
from bayplan.client.access import Access
from bayplan.client.http import KubernetesCluster
from bayplan.client.transport import LostError
from bayplan.errors import APIError, NotFoundError
from tests.soak.measurements import Measured

PODS: Final = "/api/v1/namespaces/default/pods"
EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/default/events"
RATES: Final = (50.0, 100.0)
"""Pods a second, in turns."""
RATE_SECONDS: Final = 20.0
SLOW_SECONDS: Final = 1.0
"""Between two reads of a slow client."""
EVENTS_SECONDS: Final = 60.0
AT_ONCE: Final = 32
SHAPES: Final = 20
"""Different sizes of pods."""
UNBOUND_SECONDS: Final = 30.0
"""A pod that is not bound by then is dropped: there is room for all."""


class Churn:
    """Pods come at a rate and go when there are enough. A watcher calls `seen`."""

    def __init__(self, measured: Measured, pods: int, scale: float) -> None:
        self._measured = measured
        self._pods = pods
        self._scale = scale
        self._rng = random.Random(1)
        self._number = 0
        self._alive: deque[str] = deque()
        self._acknowledged: dict[str, float] = {}
        """When each pod that is not seen bound yet was acknowledged."""
        self._creating: set[str] = set()
        self._bound_early: set[str] = set()
        """Pods that a watcher saw bound before their creation was acknowledged."""
        self._busy = asyncio.Semaphore(AT_ONCE)

    async def run(self, cluster: KubernetesCluster) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while True:
                rate = RATES[int(loop.time() / RATE_SECONDS) % len(RATES)] * self._scale
                await self._busy.acquire()
                group.create_task(self._turn(cluster))
                await asyncio.sleep(1 / rate)

    async def _turn(self, cluster: KubernetesCluster) -> None:
        try:
            await self._create(cluster)
            if len(self._alive) > self._pods:
                await self._delete(cluster, self._alive.popleft())
        finally:
            self._busy.release()

    async def _create(self, cluster: KubernetesCluster) -> None:
        self._number += 1
        name = f"pod-{self._number}"
        shape = self._rng.randrange(SHAPES)
        began = time.monotonic()
        self._creating.add(name)
        try:
            await cluster.requests.send("POST", PODS, _pod(name, shape), repeatable=False)
        finally:
            self._creating.discard(name)
        now = time.monotonic()
        self._measured.created += 1
        self._measured.answers.append(now - began)
        self._alive.append(name)
        if name in self._bound_early:
            self._bound_early.discard(name)
            self._measured.bound += 1
            self._measured.latencies.append(0.0)
        else:
            self._acknowledged[name] = now

    async def _delete(self, cluster: KubernetesCluster, name: str) -> None:
        with contextlib.suppress(NotFoundError):
            await cluster.requests.send("DELETE", f"{PODS}/{name}", b'{"gracePeriodSeconds":0}')
        self._measured.deleted += 1

    def seen(self, pod: Pod) -> None:
        """Called for each version of a pod."""
        if not pod.spec.node_name:
            return
        if pod.name in self._creating:
            self._bound_early.add(pod.name)
        elif (since := self._acknowledged.pop(pod.name, None)) is not None:
            self._measured.bound += 1
            if since > 0:
                self._measured.latencies.append(max(time.monotonic() - since, 0.0))

    def restarted(self) -> None:
        """The cluster was away. Pods that waited before that wait from now on, and have no latency."""
        self._acknowledged = dict.fromkeys(self._acknowledged, -time.monotonic())

    def check(self, found: list[Pod]) -> None:
        """After a restart: everything that was acknowledged is there."""
        names = {pod.name for pod in found}
        lost = [name for name in self._alive if name not in names]
        if lost:
            self._measured.problems.append(f"{len(lost)} acknowledged pods are gone, {lost[0]} for one")

    def overdue(self) -> None:
        """Notes pods that wait for too long."""
        limit = time.monotonic() - UNBOUND_SECONDS
        for name, since in list(self._acknowledged.items()):
            if abs(since) < limit:
                del self._acknowledged[name]
                self._measured.problems.append(f"{name} is not bound after {UNBOUND_SECONDS:.0f} s")


async def watch(cluster: KubernetesCluster, measured: Measured, seen: Callable[[Pod], None]) -> None:
    """Lists and watches pods; where the watch ends, from the list on again."""
    while True:
        items, version = await cluster.list(Pod)
        for pod in items:
            seen(pod)
        try:
            async for batch in cluster.watch(Pod, version):
                measured.watched += len(batch)
                for event in batch:
                    if event.object is not None and event.change is not Change.DELETED:
                        seen(event.object)
        except APIError:
            pass  # 410, or the connection: once more from the list
        measured.relists += 1


async def read_slowly(cluster: KubernetesCluster) -> None:
    """Watches everything and hardly reads: the server may cut this off, and must not be affected."""
    while True:
        stream = await cluster.requests.open(f"/api/v1/pods?watch=true&resourceVersion=0&{random.random()}=")
        try:
            while await stream.read(600.0):
                await asyncio.sleep(SLOW_SECONDS)
        except LostError:
            await asyncio.sleep(SLOW_SECONDS)
        finally:
            stream.close()


async def delete_events(cluster: KubernetesCluster) -> None:
    while True:
        await asyncio.sleep(EVENTS_SECONDS)
        await cluster.requests.send("DELETE", EVENTS)


async def connect_and_wait(access: Access) -> None:
    """Opens a connection, sends half a request, and waits until the server ends it."""
    host, _, port = access.server.removeprefix("https://").rpartition(":")
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(b"\x16\x03\x01")
                await reader.read()
            finally:
                writer.transport.abort()
        await asyncio.sleep(SLOW_SECONDS)


def _pod(name: str, shape: int) -> bytes:
    requests = {"cpu": f"{10 + shape}m", "memory": f"{16 + shape}Mi"}
    container = {"name": "c", "image": f"example.com/app-{shape}", "resources": {"requests": requests}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": f"app-{shape}"}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }
    return json.dumps(pod).encode()
