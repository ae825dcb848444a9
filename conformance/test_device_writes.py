"""Devices on a real API server: kube-scheduler and bayplan allocate the same ones, and write the same.

The examples of the repository, pod after pod on one node. The test is the drivers and the claim controller:
there are no others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bayplan.api.documents import read_documents
from bayplan.embedded.drivers.device_file import read_devices
from bayplan.embedded.drivers.pools import pool_slices
from conformance.harness.admin import Admin, Raw, path_of
from conformance.harness.control_plane import KUBE_SCHEDULER, ControlPlane
from conformance.harness.programs import Programs
from conformance.harness.schedulers import SCHEDULERS, configuration, wait_until_synced
from conformance.test_devices import PODS, SECONDS, comparable_claims, larger_devices, pods_of

NODE: Final = "n01"


def test_both_allocate_and_write_the_same_on_a_real_server(programs: Programs, tmp_path: Path) -> None:
    found = {}
    for name, start in SCHEDULERS.items():
        directory = tmp_path / name
        directory.mkdir()
        with ControlPlane(programs, directory, audit=True) as plane:
            with start(plane, configuration(plane)) as scheduler:
                wait_until_synced(scheduler)
                claims = asyncio.run(_one_by_one(plane, larger_devices(directory)))
            found[name] = claims, _writes(plane)
            assert plane.refused(KUBE_SCHEDULER) == []
    assert found["bayplan"] == found["kube-scheduler"]
    assert found["bayplan"][1]["update resourceclaims/status"] >= len(found["bayplan"][0])


def _writes(plane: ControlPlane) -> dict[str, int]:
    """How often claims and the status of pods were written, by verb and resource."""
    counts: dict[str, int] = {}
    for entry in plane.requests(KUBE_SCHEDULER):
        reference = entry.get("objectRef") or {}
        resource = "/".join(filter(None, (reference.get("resource"), reference.get("subresource"))))
        if entry["verb"] in ("create", "update", "patch", "delete") and "claim" in resource:
            counts[f"{entry['verb']} {resource}"] = counts.get(f"{entry['verb']} {resource}", 0) + 1
    return counts


async def _one_by_one(plane: ControlPlane, devices: Path) -> dict[str, Any]:
    async with Admin(plane.access()) as admin:
        await admin.create(_node())
        for item in _slices(devices):
            await admin.create(item)
        for document in read_documents(PODS):
            content = document.content
            for item in pods_of(content) if content["kind"] == "Job" else [content]:
                created = await admin.create(item)
                if item["kind"] == "Pod":
                    await _create_claims(admin, created)
                    await _bound(admin, created)
        return await comparable_claims(admin)


def _node() -> Raw:
    room = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    status = {"capacity": room, "allocatable": room}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}, "status": status}


def _slices(devices: Path) -> list[Raw]:
    items = []
    for driver in read_devices(devices).drivers:
        specs = pool_slices(driver, "" if driver.all_nodes else NODE)
        for i, spec in enumerate(specs):
            pool = {"name": NODE, "generation": 1, "resourceSliceCount": len(specs)}
            pool["name"] = "network" if driver.all_nodes else NODE
            items.append(
                {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceSlice",
                    "metadata": {"name": f"{i:05x}-{driver.name}"},
                    "spec": {**spec, "pool": pool},
                }
            )
    return items


async def _create_claims(admin: Admin, pod: Raw) -> None:
    """What the claim controller does for a pod with a template."""
    statuses = []
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    for claim in pod["spec"].get("resourceClaims") or ():
        if "resourceClaimTemplateName" not in claim:
            continue
        template = await admin.get("ResourceClaimTemplate", claim["resourceClaimTemplateName"], namespace)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod["metadata"]["uid"]}
        meta = {
            "name": f"{name}-{claim['name']}",
            "namespace": namespace,
            "annotations": {"resource.kubernetes.io/pod-claim-name": claim["name"]},
            "ownerReferences": [{**owner, "controller": True}],
        }
        head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
        await admin.create({**head, "metadata": meta, "spec": template["spec"]["spec"]})
        statuses.append({"name": claim["name"], "resourceClaimName": meta["name"]})
    if statuses:
        await _write_status(
            admin, "Pod", name, namespace, lambda status: status.update(resourceClaimStatuses=statuses)
        )


async def _write_status(
    admin: Admin, kind: str, name: str, namespace: str, change: Callable[[Raw], None]
) -> None:
    content = await admin.get(kind, name, namespace)
    change(content.setdefault("status", {}))
    content["metadata"].pop("resourceVersion")  # whoever writes meanwhile writes something else
    await admin.send("PUT", f"{path_of({**content, 'kind': kind})}/status", content)


async def _bound(admin: Admin, pod: Raw) -> None:
    """Waits until a pod has a node. What its devices have to report before that is reported."""
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    async with asyncio.timeout(SECONDS):
        while not (await admin.get("Pod", name, namespace))["spec"].get("nodeName"):
            for claim in await admin.list("ResourceClaim", namespace):
                await _report(admin, claim)
            await asyncio.sleep(0.1)


async def _report(admin: Admin, claim: Raw) -> None:
    """What a driver does for allocated devices with binding conditions."""
    status = claim.get("status") or {}
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    entries = []
    for result in results:
        if result.get("bindingConditions"):
            fields = ("driver", "pool", "device", "shareID")
            entry = {field: result[field] for field in fields if field in result}
            times = {"lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Test", "message": ""}
            kinds = result["bindingConditions"]
            entry["conditions"] = [{"type": kind, "status": "True", **times} for kind in kinds]
            entries.append(entry)
    if entries and not status.get("devices"):
        meta = claim["metadata"]
        await admin.send(
            "PUT", f"{path_of({**claim, 'kind': 'ResourceClaim'})}/status",
            {**claim, "kind": "ResourceClaim", "status": {**status, "devices": entries}, "metadata": meta},
        )  # fmt: skip
