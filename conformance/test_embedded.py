"""The embedded server with the real programs against it: kube-scheduler schedules there."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from bayplan.api.releases import parse_release
from bayplan.embedded.server.catalog import Catalog
from bayplan.embedded.server.http.discovery import resource_list
from conformance.harness.admin import Admin
from conformance.harness.control_plane import ControlPlane
from conformance.harness.embedded_plane import EmbeddedPlane
from conformance.harness.objects import condition
from conformance.harness.process import Process
from conformance.harness.programs import Programs

NODES = 6
PODS = 20


@pytest.fixture
def embedded(programs: Programs, tmp_path: Path) -> Any:
    with EmbeddedPlane(tmp_path, programs.release) as plane:
        yield plane


NOT_SERVED = frozenset(
    {
        "authorization.k8s.io/v1/localsubjectaccessreviews",
        "certificates.k8s.io/v1/clustertrustbundles",
        "certificates.k8s.io/v1/podcertificaterequests",
        "certificates.k8s.io/v1/podcertificaterequests/status",
        "networking.k8s.io/v1/ipaddresses",
        "networking.k8s.io/v1/servicecidrs",
        "networking.k8s.io/v1/servicecidrs/status",
        "storagemigration.k8s.io/v1/storageversionmigrations",
        "storagemigration.k8s.io/v1/storageversionmigrations/status",
        "v1/bindings",
        "v1/componentstatuses",
    }
)
"""What docs/embedded.md names as missing."""


def test_the_same_resources_are_served(plane: ControlPlane) -> None:
    """Groups, versions and kinds with their verbs, short names and subresources, as in the real server."""
    catalog = Catalog(release=parse_release(plane.programs.release))
    groups = json.loads(plane.kubectl("get", "--raw", "/apis"))["groups"]
    versions = ["v1", *(version["groupVersion"] for group in groups for version in group["versions"])]
    theirs: dict[str, dict[str, Any]] = {}
    ours: dict[str, dict[str, Any]] = {}
    for version in versions:
        path = "/api/v1" if version == "v1" else f"/apis/{version}"
        theirs |= _entries(json.loads(plane.kubectl("get", "--raw", path)))
        group, _, name = version.rpartition("/")
        ours |= _entries(resource_list(catalog, group, name) or {"groupVersion": version, "resources": []})
    assert ours == {name: entry for name, entry in theirs.items() if name not in NOT_SERVED}


def _entries(resources: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The entries of a list of resources by name, with lists in order."""
    return {
        f"{resources['groupVersion']}/{entry['name']}": {
            key: sorted(value) if isinstance(value, list) else value
            for key, value in entry.items()
            if key != "storageVersionHash"
        }
        for entry in resources["resources"]
    }


def _node(number: int) -> dict[str, Any]:
    name = f"n{number}"
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"z{number % 3}"}
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _pod(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "web", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "spec": {"containers": [container], **spec},
    }


def test_kube_scheduler_schedules_a_workload_there(programs: Programs, embedded: EmbeddedPlane) -> None:
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {
            "kubeconfig": str(embedded.kubeconfig()),
            # The server sends JSON.
            "contentType": "application/json",
            "acceptContentTypes": "application/json",
        },
        "leaderElection": {"leaderElect": True, "resourceNamespace": "kube-system"},
    }
    file = embedded.directory / "scheduler.json"
    file.write_text(json.dumps(config))
    command: list[str | Path] = [programs.kube_scheduler, "--config", file, "--secure-port", "0"]
    with Process("kube-scheduler", command, embedded.directory / "kube-scheduler.log"):
        asyncio.run(_workload(embedded))


async def _workload(embedded: EmbeddedPlane) -> None:
    spread = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    async with Admin(embedded.access()) as admin:
        await admin.create_all(_node(number) for number in range(NODES))
        await admin.create_all(
            _pod(f"web-{number}", "500m", topologySpreadConstraints=[spread]) for number in range(PODS)
        )
        await admin.create(_pod("huge", "64"))
        seen: dict[str, dict[str, Any]] = {}

        async def read() -> None:
            seen.update({pod["metadata"]["name"]: pod for pod in await admin.list("Pod")})

        def decided() -> bool:
            webs = [pod for name, pod in seen.items() if name.startswith("web-")]
            huge = condition(seen["huge"], "PodScheduled") if "huge" in seen else None
            return len(webs) == PODS and all(pod["spec"].get("nodeName") for pod in webs) and huge is not None

        while not decided():
            await asyncio.sleep(0.1)
            await read()
        zones = [int(pod["spec"]["nodeName"][1:]) % 3 for name, pod in seen.items() if name != "huge"]
        counts = [zones.count(zone) for zone in range(3)]
        assert max(counts) - min(counts) <= 1
        pod_scheduled = condition(seen["huge"], "PodScheduled")
        assert pod_scheduled is not None
        assert pod_scheduled["message"].startswith(
            f"0/{NODES} nodes are available: {NODES} Insufficient cpu."
        )
        events = await admin.list("Event", "default")
        assert any(event.get("reason") == "FailedScheduling" for event in events)
