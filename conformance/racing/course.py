"""What is raced on: a cluster with nodes, pods that run, and a backlog of pods that wait.

The workloads are those of `bayplan bench`, which are those of Kubernetes' scheduler_perf. Pods that run are
dealt to the nodes in turn, so that both schedulers find the same. A course is made once in a real API server;
its store is copied, and each heat begins with that copy and with a fresh server.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from bayplan.api.kinds import KINDS
from bayplan.api.meta import Object, ObjectMeta
from bayplan.api.pod import Pod
from bayplan.bench.workloads import find_workload
from bayplan.client import bodies
from conformance.harness.admin import Admin
from conformance.harness.control_plane import ControlPlane

AT_ONCE: Final = 32
"""Objects that are created at a time."""


@dataclass(frozen=True, slots=True)
class Course:
    """A workload in a size. With no pods to schedule it is a race to the start alone."""

    workload: str
    nodes: int
    init_pods: int
    pods: int

    @property
    def name(self) -> str:
        return f"{self.workload}-{self.nodes}"

    def lay_out(self, plane: ControlPlane, kept: Path) -> None:
        """Makes the cluster, in a control plane that is running and empty, and keeps a copy of its store."""
        asyncio.run(self._create(plane))
        plane.stop()
        shutil.copytree(plane.store, kept)

    async def _create(self, plane: ControlPlane) -> None:
        workload = find_workload(self.workload)
        async with Admin(plane.access()) as admin:
            await _create_all(admin, workload.make_namespaces())
            await _create_all(admin, workload.make_nodes(self.nodes))
            names = [node.name for node in workload.make_nodes(self.nodes)]
            await _create_all(admin, _placed(workload.make_init_pods(self.init_pods), names))
            await _create_all(admin, (at_once(pod) for pod in workload.make_pods(self.pods)))


def put_back(plane: ControlPlane, kept: Path) -> None:
    """The cluster as it was laid out, in a control plane that is restarted."""
    plane.stop()
    shutil.rmtree(plane.store, ignore_errors=True)
    shutil.copytree(kept, plane.store)
    plane.start()


async def create(admin: Admin, item: Object) -> None:
    """Creates one object. Identity, version and time are the server's to give."""
    meta = item.metadata
    new = ObjectMeta(name=meta.name, namespace=meta.namespace, labels=meta.labels)
    path = KINDS.of(type(item)).collection(meta.namespace)
    await admin.cluster.requests.send("POST", path, bodies.whole(replace(item, metadata=new)))


async def _create_all(admin: Admin, items: Iterable[Object]) -> None:
    waiting = iter(items)

    async def work() -> None:
        for item in waiting:
            await create(admin, item)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


def _placed(pods: Iterable[Pod], nodes: list[str]) -> Iterator[Pod]:
    for number, pod in enumerate(pods):
        placed = replace(pod.spec, node_name=nodes[number % len(nodes)])
        yield at_once(replace(pod, spec=placed))


def at_once(pod: Pod) -> Pod:
    """The pod without a grace period: there is no kubelet that would end it after its deletion."""
    return replace(pod, spec=replace(pod.spec, termination_grace_period_seconds=0))
