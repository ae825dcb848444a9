"""bayplan with exactly the rights that it documents: no request is forbidden.

Once with the roles of our own manifests, for a service account; once as `system:kube-scheduler`, whose roles
every cluster has. It has to do everything it ever does: bind, report failures, preempt, bind volumes, write a
series of events, lead, and review access to its metrics.
"""

from __future__ import annotations

import asyncio
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from conformance.harness.admin import Admin, Raw, path_of
from conformance.harness.control_plane import ADMIN, KUBE_SCHEDULER, ControlPlane, token_of
from conformance.harness.objects import condition, node, pod
from conformance.harness.process import free_ports
from conformance.harness.programs import DEFAULT_RELEASE, RELEASES, Programs
from conformance.harness.schedulers import configuration, serving_flags, start_bayplan, wait_until_synced

MANIFESTS = Path(__file__).parents[1] / "deploy" / "second-scheduler"
ACCOUNT = "system:serviceaccount:kube-system:bayplan"

NEEDED = {
    "create pods/binding",
    "patch pods/status",
    "delete pods",
    "create events",
    "patch events",
    "patch persistentvolumes",
    "create leases",
    "update leases",
    "get configmaps",
    "create tokenreviews",
    "create subjectaccessreviews",
}
"""Requests that must have been made, or the test shows nothing."""

CLASS: Raw = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "later"},
    "provisioner": "kubernetes.io/no-provisioner",
    "volumeBindingMode": "WaitForFirstConsumer",
}
VOLUME: Raw = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "disk"},
    "status": {"phase": "Available"},
    "spec": {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "later",
        "local": {"path": "/disk"},
        "nodeAffinity": {
            "required": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}
                        ]
                    }
                ]
            }
        },
    },
}
CLAIM: Raw = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data", "namespace": "default"},
    "spec": {
        "storageClassName": "later",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    },
}


@pytest.fixture(scope="module")
def plane(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    groups = ("system:serviceaccounts", "system:serviceaccounts:kube-system")
    directory = tmp_path_factory.mktemp("plane")
    with ControlPlane(programs, directory, users={ACCOUNT: groups}, audit=True) as plane:
        plane.kubectl("apply", "-f", str(MANIFESTS / "rbac.yaml"))
        yield plane


def second_scheduler() -> Raw:
    """The configuration of the manifests, as far as it is about scheduling."""
    config: Raw = yaml.safe_load((MANIFESTS / "configuration/scheduler.yaml").read_text())
    return {name: config[name] for name in ("leaderElection", "profiles")}


@pytest.mark.parametrize(
    ("user", "config", "scheduler_name"),
    [
        pytest.param(ACCOUNT, second_scheduler(), "bayplan", id="with the roles of our manifests"),
        pytest.param(
            KUBE_SCHEDULER,
            {"leaderElection": {"leaderElect": True}},
            "default-scheduler",
            id="with kube-scheduler's own roles",
        ),
    ],
)
def test_nothing_is_rejected(plane: ControlPlane, user: str, config: Raw, scheduler_name: str) -> None:
    port = free_ports(1)[0]
    settings = configuration(plane, user=user, **config)
    with start_bayplan(plane, settings, flags=serving_flags(plane, port, user)) as process:
        wait_until_synced(process)
        asyncio.run(do_everything(plane, scheduler_name))
        assert "scheduler_schedule_attempts_total" in metrics(plane, port)
        process.check()
    assert plane.forbidden(user) == []
    assert requested(plane, user) >= NEEDED


def test_a_newer_release_starts_on_an_older_server(plane: ControlPlane) -> None:
    """A kind that is not served is forbidden, too: no role names it. Discovery distinguishes the two."""
    if plane.programs.release != DEFAULT_RELEASE:
        pytest.skip("there is no newer release")
    newest = RELEASES[-1]
    config = configuration(plane, user=KUBE_SCHEDULER)
    with start_bayplan(plane, config, flags=[f"--emulated-version={newest}"], name="newer") as process:
        wait_until_synced(process)
        process.check()
        missing = "the API server does not serve DeviceTaintRule, continuing without it"
        assert missing in process.log.read_text()


def requested(plane: ControlPlane, user: str) -> set[str]:
    """Verbs and resources of a user's requests."""
    return {
        f"{entry['verb']} {'/'.join(filter(None, (ref['resource'], ref.get('subresource'))))}"
        for entry in plane.requests(user)
        if (ref := entry.get("objectRef")) is not None and "resource" in ref
    }


def metrics(plane: ControlPlane, port: int) -> str:
    """As an authorized user with a token that only the API server can verify."""
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    request = urllib.request.Request(
        f"https://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {token_of(KUBE_SCHEDULER)}"}
    )
    plane.kubectl("apply", "-f", "-", given=yaml.safe_dump_all(METRICS_READER))
    with urllib.request.urlopen(request, context=trusting, timeout=30) as answer:
        text: str = answer.read().decode()
        return text


METRICS_READER: list[Raw] = [
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "metrics"},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "metrics"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "metrics"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": KUBE_SCHEDULER}],
    },
]


async def do_everything(plane: ControlPlane, scheduler_name: str) -> None:
    """Has the scheduler do all that it ever does."""
    async with Admin(plane.access(ADMIN)) as admin, asyncio.timeout(90):
        await admin.clear("Pod", "Node", "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "Event")
        for item in (node("n1", cpu="2"), CLASS, VOLUME, CLAIM):
            await admin.create(item)

        def ours(name: str, **spec: Any) -> Raw:
            return pod(name, schedulerName=scheduler_name, **spec)

        async def until(name: str, true: Any) -> Raw:
            while True:
                found = await admin.get("Pod", name, "default")
                if true(found):
                    return found
                await asyncio.sleep(0.05)

        # A claim that is bound when its pod is scheduled. This test confirms it in place of the controller.
        claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
        await admin.create(ours("with-claim", cpu="100m", volumes=[claim]))
        while not (volume := await admin.get("PersistentVolume", "disk"))["spec"].get("claimRef"):
            await asyncio.sleep(0.05)
        claimed = await admin.get("PersistentVolumeClaim", "data", "default")
        claimed["spec"]["volumeName"] = volume["metadata"]["name"]
        claimed["metadata"].setdefault("annotations", {})["pv.kubernetes.io/bind-completed"] = "yes"
        await admin.send("PUT", path_of({**claimed, "kind": "PersistentVolumeClaim"}), claimed)
        await until("with-claim", lambda found: found["spec"].get("nodeName"))

        # One that has to leave for another.
        await admin.create(ours("small", cpu="1500m", priority=1))
        await until("small", lambda found: found["spec"].get("nodeName"))
        await admin.create(ours("important", cpu="1500m", priority=1000))
        await until("important", lambda found: found["spec"].get("nodeName"))

        # One that fits nowhere, tried again without success whenever a pod ends: equal events are a
        # series.
        await admin.create(ours("large", cpu="100"))
        await until("large", lambda found: (condition(found, "PodScheduled") or {}).get("status") == "False")
        for number in range(60):
            await admin.create(ours(f"passing-{number}", cpu="1m"))
            await until(f"passing-{number}", lambda found: found["spec"].get("nodeName"))
            await admin.delete("Pod", f"passing-{number}", "default")
            await asyncio.sleep(0.5)
            if any(event.get("series") for event in await admin.list("Event")):
                return
        raise AssertionError("no event has become a series")
