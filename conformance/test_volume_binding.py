"""Binding volumes: bayplan writes what the real kube-scheduler writes, and both report the same failures.

The test is the PV controller and the provisioner: there is no other.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from bayplan.api.releases import parse_release
from bayplan.client.http import KubernetesCluster
from bayplan.config import parse_config
from bayplan.scheduler.context import LoopSettings
from bayplan.scheduler.loop import Scheduler
from bayplan.scheduler.recorder import EventOutput
from conformance.harness.admin import Admin, Raw, path_of
from conformance.harness.control_plane import KUBE_SCHEDULER, ControlPlane
from conformance.harness.process import Process

KINDS: Final = ("Pod", "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "Node", "Event")
SELECTED: Final = "volume.kubernetes.io/selected-node"
COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BIND_SECONDS: Final = 10


def cluster_objects() -> list[Raw]:
    room = {"cpu": "4", "memory": "8Gi", "pods": "10"}

    def storage_class(name: str, provisioner: str) -> Raw:
        return {
            "kind": "StorageClass",
            "metadata": {"name": name},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
        }

    def claim(name: str) -> Raw:
        return {
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default", "annotations": {"theirs": "kept"}},
            "spec": {
                "storageClassName": name,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }

    return [
        {
            "kind": "Node",
            "metadata": {"name": "n"},
            "status": {"capacity": room, "allocatable": room},
        },
        storage_class("static", "kubernetes.io/no-provisioner"),
        storage_class("made", "example.com/provisioner"),
        volume("there", "static"),
        claim("static"),
        claim("made"),
        {
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {
                "containers": [{"name": "main", "image": "nothing"}],
                "terminationGracePeriodSeconds": 0,
                "volumes": [
                    {"name": name, "persistentVolumeClaim": {"claimName": name}}
                    for name in ("static", "made")
                ],
            },
        },
    ]


def volume(name: str, storage_class: str) -> Raw:
    return {
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {"theirs": "kept"}},
        "spec": {
            "storageClassName": storage_class,
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/srv"},
        },
        "status": {"phase": "Available"},
    }


# The schedulers


def config(plane: ControlPlane) -> str:
    """For both."""
    return json.dumps(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(plane.kubeconfig(KUBE_SCHEDULER))},
            "leaderElection": {"leaderElect": False},
            "profiles": [
                {"pluginConfig": [{"name": "VolumeBinding", "args": {"bindTimeoutSeconds": BIND_SECONDS}}]}
            ],
        }
    )


@asynccontextmanager
async def kube_scheduler(plane: ControlPlane, directory: Path) -> AsyncIterator[None]:
    file = directory / "scheduler.json"
    file.write_text(config(plane))
    command: list[str | Path] = [plane.programs.kube_scheduler, "--config", file, "--secure-port", "0"]
    with Process("kube-scheduler", command, directory / "kube-scheduler.log"):
        yield


@asynccontextmanager
async def bayplan(plane: ControlPlane, directory: Path) -> AsyncIterator[None]:
    async with KubernetesCluster(plane.access(KUBE_SCHEDULER)) as cluster:
        settings = parse_config(config(plane), release=parse_release(plane.programs.release))
        scheduler = Scheduler(
            cluster, settings, settings=LoopSettings(eager=False), events=EventOutput(cluster.events())
        )
        running = asyncio.ensure_future(scheduler.run())
        try:
            yield
            assert not running.done()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


SCHEDULERS: Final = (kube_scheduler, bayplan)


# What the controllers do


async def when(admin: Admin, kind: str, name: str, true: Callable[[Raw], bool], namespace: str = "") -> Raw:
    while True:
        item = await admin.get(kind, name, namespace)
        if true(item):
            return item
        await asyncio.sleep(0.1)


async def complete(admin: Admin, claim_name: str, volume_name: str) -> None:
    claim = await admin.get("PersistentVolumeClaim", claim_name, "default")
    claim["spec"]["volumeName"] = volume_name
    claim["metadata"]["annotations"][COMPLETED] = "yes"
    await admin.send("PUT", path_of(claim), claim)


async def all_is_bound(admin: Admin) -> Raw:
    """The way it should go. Returns what was written on it, without what differs at random."""
    given = await when(admin, "PersistentVolume", "there", lambda item: "claimRef" in item["spec"])
    wanted = await when(admin, "PersistentVolumeClaim", "made", is_selected, "default")
    pod = await admin.get("Pod", "p", "default")
    await complete(admin, "static", "there")
    await admin.create(volume("new", "made"))
    await complete(admin, "made", "new")
    bound = await when(admin, "Pod", "p", lambda item: bool(item["spec"].get("nodeName")), "default")
    claim = await admin.get("PersistentVolumeClaim", "static", "default")
    reference = given["spec"].pop("claimRef")
    assert reference.pop("uid") == claim["metadata"]["uid"]
    assert reference.pop("resourceVersion")
    return {
        "reference": reference,
        "volume": (given["spec"], given["metadata"]["annotations"]),
        "claim": (wanted["spec"], wanted["metadata"]["annotations"]),
        "announced": pod["status"].get("nominatedNodeName"),
        "node": bound["spec"]["nodeName"],
    }


async def provisioner_gives_up(admin: Admin) -> Raw:
    """It removes the node's name from the claim."""
    await complete(admin, "static", "there")
    claim = await when(admin, "PersistentVolumeClaim", "made", is_selected, "default")
    del claim["metadata"]["annotations"][SELECTED]
    await admin.send("PUT", path_of(claim), claim)
    pod = await when(admin, "Pod", "p", has_failed, "default")
    return failure_of(pod)


async def delete_node(admin: Admin) -> Raw:
    await when(admin, "PersistentVolumeClaim", "made", is_selected, "default")
    await admin.delete("Node", "n")
    return failure_of(await when(admin, "Pod", "p", has_failed, "default"))


async def volume_is_taken_away(admin: Admin) -> Raw:
    given = await when(admin, "PersistentVolume", "there", lambda item: "claimRef" in item["spec"])
    await when(admin, "PersistentVolumeClaim", "made", is_selected, "default")
    del given["spec"]["claimRef"]
    given["metadata"].pop("resourceVersion")
    await admin.send("PUT", path_of(given), given)
    return failure_of(await when(admin, "Pod", "p", has_failed, "default"))


async def volume_is_deleted(admin: Admin) -> Raw:
    await when(admin, "PersistentVolumeClaim", "made", is_selected, "default")
    await delete(admin, "PersistentVolume", "there")
    return failure_of(await when(admin, "Pod", "p", has_failed, "default"))


async def claim_is_deleted(admin: Admin) -> Raw:
    await when(admin, "PersistentVolumeClaim", "made", is_selected, "default")
    await complete(admin, "static", "there")
    await delete(admin, "PersistentVolumeClaim", "made", "default")
    return failure_of(await when(admin, "Pod", "p", has_failed, "default"))


async def nothing(admin: Admin) -> Raw:
    return failure_of(await when(admin, "Pod", "p", has_failed, "default"))


def is_selected(claim: Raw) -> bool:
    return SELECTED in claim["metadata"].get("annotations", {})


def has_failed(pod: Raw) -> bool:
    return any(condition.get("reason") for condition in pod["status"].get("conditions", ()))


def failure_of(pod: Raw) -> Raw:
    (condition,) = pod["status"]["conditions"]
    return {name: condition[name] for name in ("type", "status", "reason", "message")}


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(all_is_bound, id="all is bound"),
        pytest.param(provisioner_gives_up, id="the provisioner gives up"),
        pytest.param(delete_node, id="the node is deleted"),
        pytest.param(volume_is_taken_away, id="the volume is taken away"),
        pytest.param(volume_is_deleted, id="the volume is deleted"),
        pytest.param(claim_is_deleted, id="a claim is deleted"),
        pytest.param(nothing, id="nothing happens for too long"),
    ],
)
def test_both_write_and_report_the_same(
    plane: ControlPlane, tmp_path: Path, happens: Callable[[Admin], Awaitable[Raw]]
) -> None:
    async def main() -> list[Raw]:
        seen = []
        async with Admin(plane.access()) as admin:
            for scheduler in SCHEDULERS:
                await clear(admin)
                await admin.create_all(cluster_objects()[:-1])
                async with scheduler(plane, tmp_path), asyncio.timeout(60):
                    await admin.create(cluster_objects()[-1])
                    seen.append(await happens(admin))
            await clear(admin)
        return seen

    theirs, ours = asyncio.run(main())
    assert ours == theirs
    assert plane.forbidden(KUBE_SCHEDULER) == []


async def delete(admin: Admin, kind: str, name: str, namespace: str = "") -> None:
    """Claims and volumes are protected until their controllers remove the finalizers, and there are none."""
    item: Any = await admin.get(kind, name, namespace)
    item["metadata"]["finalizers"] = []
    item["metadata"].pop("resourceVersion")
    await admin.send("PUT", path_of(item), item)
    await admin.delete(kind, name, namespace)


async def clear(admin: Admin) -> None:
    for kind in ("PersistentVolumeClaim", "PersistentVolume"):
        for item in await admin.list(kind):
            await delete(admin, kind, item["metadata"]["name"], item["metadata"].get("namespace", ""))
    await admin.clear(*KINDS)
