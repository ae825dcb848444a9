"""The cluster of a race: nodes, running pods, and a backlog of pending pods.

The workloads are those of `bayplan bench`, which are those of Kubernetes' scheduler_perf. Running pods are
assigned to the nodes in turn, so that both schedulers have the same state. A course is made once in a real
API server; its store is copied, and each heat begins with that copy and with a fresh server.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from bayplan.api.kinds import KINDS
from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.bench.workload import DeviceSetup, with_claims
from bayplan.bench.workloads import find_workload
from bayplan.client import bodies
from bayplan.client.requests import MERGE_PATCH
from conformance.harness.admin import Admin
from conformance.harness.control_plane import ControlPlane
from conformance.harness.programs import DEFAULT_RELEASE

AT_ONCE: Final = 32
"""Objects that are created at a time."""


@dataclass(frozen=True, slots=True)
class Course:
    """A workload of one size. Without pending pods only the start is measured."""

    workload: str
    nodes: int
    init_pods: int
    pods: int

    @property
    def name(self) -> str:
        return f"{self.workload}-{self.nodes}"

    @property
    def gates(self) -> list[str]:
        """The feature gates that API server and schedulers need for its pod groups."""
        groups = find_workload(self.workload).groups
        return [] if groups is None else sorted(groups.gates)

    @property
    def release(self) -> str:
        """The release whose schedulers run: that with pod groups for these, else the default one."""
        return "1.37" if self.gates else DEFAULT_RELEASE

    @property
    def gate_flags(self) -> list[str]:
        return [f"--feature-gates={','.join(f'{gate}=true' for gate in self.gates)}"] if self.gates else []

    @property
    def server_flags(self) -> list[str]:
        """Of the API server: beta APIs are off by default."""
        return [*self.gate_flags, "--runtime-config=scheduling.k8s.io/v1beta1=true"] if self.gates else []

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
            groups = workload.groups
            if groups is not None:
                await _create_all(admin, groups.make("i", list(workload.make_init_pods(self.init_pods))))
                await _create_all(admin, groups.make("m", list(workload.make_pods(self.pods))))
            await _create_all(admin, _assigned(workload.make_init_pods(self.init_pods), names))
            if workload.devices is not None:
                await _create_all(admin, workload.devices.make_classes())
                await _create_all(admin, map(workload.devices.make_slice, names))
            await _create_all(
                admin, (at_once(pod) for pod in workload.make_pods(self.pods)), workload.devices
            )


def put_back(plane: ControlPlane, kept: Path) -> None:
    """The cluster as it was laid out, in a control plane that is restarted."""
    plane.stop()
    shutil.rmtree(plane.store, ignore_errors=True)
    shutil.copytree(kept, plane.store)
    plane.start()


async def create(admin: Admin, item: Object) -> bytes:
    """Creates one object and returns it as stored. Identity, version and time are the server's to give."""
    meta = item.metadata
    new = replace(meta, uid="", resource_version="", creation_timestamp=None)
    path = KINDS.of(type(item)).collection(meta.namespace)
    return await admin.cluster.requests.send("POST", path, bodies.whole(replace(item, metadata=new)))


async def _patch_status(admin: Admin, pod: Pod) -> None:
    path = f"{KINDS.of(Pod).item(pod.name, pod.namespace)}/status"
    body = msgspec.json.encode({"status": pod.status})
    await admin.cluster.requests.send("PATCH", path, body, content_type=MERGE_PATCH)


async def _create_all(admin: Admin, items: Iterable[Object], devices: DeviceSetup | None = None) -> None:
    """Creates the objects and, where pods have claims of their own, does what the claim controller would."""
    waiting = iter(items)

    async def work() -> None:
        for item in waiting:
            created = await create(admin, item)
            if devices is None:
                continue
            pod = msgspec.json.decode(created, type=Pod)
            if claims := devices.owned_claims(pod):
                for claim in claims:
                    await create(admin, claim)
                await _patch_status(admin, with_claims(pod, claims))

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


def _assigned(pods: Iterable[Pod], nodes: list[str]) -> Iterator[Pod]:
    for number, pod in enumerate(pods):
        spec = replace(pod.spec, node_name=nodes[number % len(nodes)])
        yield at_once(replace(pod, spec=spec))


def at_once(pod: Pod) -> Pod:
    """The pod without a grace period: there is no kubelet that would end it after its deletion."""
    return replace(pod, spec=replace(pod.spec, termination_grace_period_seconds=0))
