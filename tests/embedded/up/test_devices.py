"""Devices from end to end: drivers, claims, scheduler, kubelets and controllers in one cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bayplan.api.meta import Content
from bayplan.embedded.server.kinds import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from bayplan.embedded.up.cluster import LocalCluster, LocalSettings
from bayplan.embedded.up.manifests import read_manifests
from bayplan.embedded.up.report import Outcomes
from bayplan.embedded.up.watched_files import WatchedDevices

EXAMPLES = Path(__file__).parents[3] / "examples"
GPUS = "drivers: [{driver: a.com, devices: [{name: 'gpu-{i}', count: 2%s}]}]"
CLASS = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}}


def claim(name: str, **exactly: Any) -> Content:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", **exactly}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [request]}},
    }


def pod(name: str, claim_name: str) -> Content:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": claim_name}],
        },
    }


class Devices:
    """A cluster with one node and a file of devices."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.api = cluster.server.api

    def create(self, *contents: Content) -> None:
        for content in contents:
            resource = self.api.catalog.of_kind(content["apiVersion"], content["kind"])
            self.api.create(resource, content, "default" if resource.namespaced else "")

    def phases(self) -> dict[str, str]:
        return {each.name: each.status.phase for each in self.cluster.pods() if not each.is_terminating}

    def claim(self, name: str) -> Content:
        found: Content = self.api.get(RESOURCE_CLAIMS, name, "default").get("status") or {}
        return found

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(100):
            while not true():
                await asyncio.sleep(0.02)


def with_devices(path: Path, test: Callable[[Devices], Any], *, nodes: int = 1) -> None:
    async def main() -> None:
        devices = WatchedDevices(path)
        settings = LocalSettings(nodes=nodes, devices=devices, stop_seconds=0, job_run_seconds=3600)
        async with LocalCluster(settings, Outcomes()) as cluster:
            await test(Devices(cluster))

    asyncio.run(main())


def test_the_examples_run() -> None:
    async def test(devices: Devices) -> None:
        (documents,) = read_manifests([str(EXAMPLES / "gpu-pods.yaml")])
        await devices.cluster.apply(documents)
        await devices.until(
            lambda: len(devices.phases()) == 10 and set(devices.phases().values()) == {"Running"}
        )

    with_devices(EXAMPLES / "gpus.yaml", test, nodes=3)


def test_a_job_like_that_of_the_documentation_runs() -> None:
    """Each of its pods has a share of a GPU, and both have one of all GPUs of their node."""
    selector = (
        'device.driver == "driver.example.com" && '
        'device.attributes["driver.example.com"].type == "gpu" && '
        'device.capacity["driver.example.com"].memory == quantity("64Gi")'
    )
    device_class = {**CLASS, "spec": {"selectors": [{"cel": {"expression": selector}}]}}
    spec = claim("")["spec"]
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "own"},
        "spec": {"spec": spec},
    }
    workers = pod("", "all")["spec"]
    workers["restartPolicy"] = "Never"
    workers["resourceClaims"].insert(0, {"name": "own", "resourceClaimTemplateName": "own"})
    workers["containers"][0]["resources"]["claims"].append({"name": "own"})
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job"},
        "spec": {"completions": 10, "parallelism": 2, "template": {"spec": workers}},
    }

    async def test(devices: Devices) -> None:
        devices.create(device_class, template, claim("all", allocationMode="All"), job)
        await devices.until(lambda: list(devices.phases().values()) == ["Running", "Running"])
        assert len(devices.claim("all")["reservedFor"]) == 2

    with_devices(EXAMPLES / "gpus.yaml", test, nodes=3)


def test_a_claim_waits_for_a_device_and_gets_it_when_one_is_free(tmp_path: Path) -> None:
    path = tmp_path / "gpus.yaml"
    path.write_text(GPUS % "")

    async def test(devices: Devices) -> None:
        devices.create(CLASS, claim("both", count=2), claim("one"), pod("p", "both"))
        await devices.until(lambda: devices.phases() == {"p": "Running"})
        devices.create(pod("q", "one"))
        await devices.until(lambda: bool(devices.api.get(PODS, "q", "default")["status"].get("conditions")))
        (scheduled,) = devices.api.get(PODS, "q", "default")["status"]["conditions"]
        assert "cannot allocate all claims" in scheduled["message"]
        devices.api.delete(PODS, "p", "default")
        await devices.until(lambda: devices.phases() == {"q": "Running"})
        assert devices.claim("both") == {}, "its devices were freed before"

    with_devices(path, test)


def test_a_taint_in_the_file_evicts_the_pods_of_a_device(tmp_path: Path) -> None:
    path = tmp_path / "gpus.yaml"
    path.write_text(GPUS % "")

    async def test(devices: Devices) -> None:
        devices.create(CLASS, claim("c"), pod("p", "c"))
        await devices.until(lambda: devices.phases() == {"p": "Running"})
        path.write_text(GPUS % ", taints: [{key: broken, effect: NoExecute}]")
        await devices.until(lambda: devices.phases() == {})
        await devices.until(lambda: devices.claim("c") == {})
        (published,) = devices.api.list(RESOURCE_SLICES)
        assert published["spec"]["devices"][0]["taints"][0]["key"] == "broken"

    with_devices(path, test)


def test_a_pod_is_bound_when_its_device_is_ready(tmp_path: Path) -> None:
    path = tmp_path / "gpus.yaml"
    conditions = ", bindingConditions: [ready], bindingFailureConditions: [failed]"
    path.write_text((GPUS % conditions).replace("count: 2", "count: 1"))

    async def test(devices: Devices) -> None:
        devices.create(CLASS, claim("c"), pod("p", "c"))
        await devices.until(lambda: devices.phases() == {"p": "Running"})
        (device,) = devices.claim("c")["devices"]
        assert [(each["type"], each["status"]) for each in device["conditions"]] == [("ready", "True")]

    with_devices(path, test)


def test_a_cluster_is_not_idle_before_its_devices_are_published(tmp_path: Path) -> None:
    path = tmp_path / "devices.yaml"
    path.write_text(GPUS % "")

    async def test(devices: Devices) -> None:
        # In the first moment nothing has been written, and nothing been read.
        await devices.cluster.idle()
        assert len(devices.api.list(RESOURCE_SLICES)) == 50

    with_devices(path, test, nodes=50)
