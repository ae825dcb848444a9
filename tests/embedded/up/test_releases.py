"""The release of a cluster: what its API server serves and reports, and what follows from it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bayplan.api.releases import RELEASES, V1_36, V1_37, Release
from bayplan.dra.budget import ElapsedTime
from bayplan.embedded.server.http.discovery import version
from bayplan.embedded.server.kinds import DEVICE_TAINT_RULES, NODES, PODS
from bayplan.embedded.up.cluster import LocalCluster, LocalSettings
from bayplan.embedded.up.report import Outcomes
from bayplan.embedded.up.watched_files import WatchedDevices

from .test_devices import CLASS, Devices, claim, pod

RULE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceTaintRule",
    "metadata": {"name": "broken"},
    "spec": {"deviceSelector": {"driver": "a.com"}, "taint": {"key": "broken", "effect": "NoExecute"}},
}


@pytest.mark.parametrize("release", RELEASES.values(), ids=str)
def test_server_and_nodes_have_the_version_of_the_release(release: Release) -> None:
    async def main() -> None:
        async with LocalCluster(LocalSettings(nodes=1, release=release), Outcomes()) as cluster:
            await cluster.idle()
            api = cluster.server.api
            assert version(api.catalog.release)["gitVersion"] == f"v{release.patch_version}+bayplan"
            (node,) = api.list(NODES)
            assert node["status"]["nodeInfo"]["kubeletVersion"] == f"v{release.patch_version}"
            rules = api.catalog.find("resource.k8s.io", "v1", "devicetaintrules")
            assert (rules == DEVICE_TAINT_RULES) == (release is not V1_36)
            assert cluster.scheduler is not None
            assert cluster.scheduler.config.release is release
            clock = cluster.scheduler.core.handle.search_clock
            assert isinstance(clock, ElapsedTime), "a live scheduler measures time, not steps"

    asyncio.run(main())


def test_a_rule_drives_a_pod_from_its_device_until_it_is_deleted(tmp_path: Path) -> None:
    path = tmp_path / "devices.yaml"
    path.write_text("drivers: [{driver: a.com, devices: [{name: gpu}]}]")

    async def main() -> None:
        settings = LocalSettings(nodes=1, devices=WatchedDevices(path), stop_seconds=0, release=V1_37)
        async with LocalCluster(settings, Outcomes()) as cluster:
            devices = Devices(cluster)
            devices.create(CLASS, claim("c"), pod("p", "c"))
            await devices.until(lambda: devices.phases() == {"p": "Running"})
            devices.create(RULE)
            await devices.until(lambda: devices.phases() == {})
            devices.create(claim("d"), pod("q", "d"))
            await devices.until(
                lambda: "cannot allocate all claims" in str(devices.api.get(PODS, "q", "default"))
            )
            devices.api.delete(DEVICE_TAINT_RULES, "broken")
            await devices.until(lambda: devices.phases() == {"q": "Running"})

    asyncio.run(main())


def test_rules_of_a_newer_release_are_kept_by_an_older_one(tmp_path: Path) -> None:
    """A data directory may be used as another release in between."""

    async def names(release: Release, *, creates: bool = False) -> list[str] | None:
        async with LocalCluster(LocalSettings(data_dir=tmp_path, release=release), Outcomes()) as cluster:
            api = cluster.server.api
            if creates:
                api.create(DEVICE_TAINT_RULES, RULE)
            if api.catalog.find("resource.k8s.io", "v1", "devicetaintrules") is None:
                return None
            return [rule["metadata"]["name"] for rule in api.list(DEVICE_TAINT_RULES)]

    assert asyncio.run(names(V1_37, creates=True)) == ["broken"]
    assert asyncio.run(names(V1_36)) is None
    assert asyncio.run(names(V1_37)) == ["broken"]
