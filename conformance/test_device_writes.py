"""Devices on a real API server: kube-scheduler and bayplan allocate the same ones, and write the same.

The examples of the repository, pod after pod on one node, with the real controller that creates claims from
templates and frees those of pods that ended. The drivers are this test: there are no others.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from bayplan.api.documents import read_documents
from bayplan.api.releases import parse_release
from bayplan.embedded.controllers.device_taint_eviction import RuleCounts, eviction_condition
from bayplan.embedded.drivers.device_file import read_devices
from bayplan.embedded.drivers.publishing import pool_slices
from conformance.harness.admin import Admin, Raw, path_of
from conformance.harness.control_plane import KUBE_SCHEDULER, ControlPlane
from conformance.harness.controllers import CLAIM_CONTROLLER, TAINT_CONTROLLER, start_controllers
from conformance.harness.programs import Programs
from conformance.harness.schedulers import SCHEDULERS, configuration, wait_until_synced
from conformance.test_devices import PODS, SECONDS, comparable_claims, larger_devices, pods_of

NODE: Final = "n01"
NAMESPACE: Final = "gpus"
SHARED: Final = "shared-gpu"
EFFECTS: Final = ("NoExecute", "NoSchedule", "None")
ENDED: Final = ("train-0", "notebook-1", "notebook-2")
"""Pods that end: one with a generated claim, and both that share a claim."""


def test_both_allocate_and_write_the_same_on_a_real_server(programs: Programs, tmp_path: Path) -> None:
    found = {}
    for name, start in SCHEDULERS.items():
        directory = tmp_path / name
        directory.mkdir()
        with ControlPlane(programs, directory, audit=True) as plane:
            with start_controllers(plane, CLAIM_CONTROLLER), start(plane, configuration(plane)) as scheduler:
                wait_until_synced(scheduler)
                claims = asyncio.run(_one_by_one(plane, larger_devices(directory)))
            found[name] = claims, _writes(plane)
            assert plane.forbidden(KUBE_SCHEDULER) == []
    assert found["bayplan"] == found["kube-scheduler"]
    assert found["bayplan"][1]["update resourceclaims/status"] > len(found["bayplan"][0]["before"])


def test_rules_get_the_condition_that_the_embedded_controller_writes(plane: ControlPlane) -> None:
    """With two devices that are published, and none that is allocated."""
    if "DeviceTaintRule" not in parse_release(plane.programs.release).new_kinds:
        pytest.skip("there are no DeviceTaintRules")

    async def conditions() -> dict[str, Raw]:
        async with Admin(plane.access()) as admin, asyncio.timeout(SECONDS):
            pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
            devices = [{"name": "d0"}, {"name": "d1"}]
            spec = {"driver": "d.example.com", "allNodes": True, "pool": pool, "devices": devices}
            await admin.create(_of_devices("ResourceSlice", "s", spec))
            # The controller counts what it has seen by then.
            await asyncio.sleep(2)
            for effect in EFFECTS:
                taint = {"key": "example.com/broken", "effect": effect}
                rule = {"deviceSelector": {"driver": "d.example.com"}, "taint": taint}
                await admin.create(_of_devices("DeviceTaintRule", effect.lower(), rule))
            found: dict[str, Raw] = {}
            while len(found) < len(EFFECTS):
                await asyncio.sleep(0.1)
                for effect in EFFECTS:
                    made = await admin.get("DeviceTaintRule", effect.lower())
                    for condition in (made.get("status") or {}).get("conditions", ()):
                        found[effect] = condition
            return found

    with start_controllers(plane, TAINT_CONTROLLER):
        found = asyncio.run(conditions())
    counts = RuleCounts(published=2)
    for effect, condition in found.items():
        assert condition == eviction_condition(effect, counts, 1, condition["lastTransitionTime"])


def _of_devices(kind: str, name: str, spec: Raw) -> Raw:
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


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
                    await _bound(admin, created)
        before = await comparable_claims(admin)
        for name in ENDED:
            await _end(admin, name)
        await _until_freed(admin)
        last = await admin.get("Pod", ENDED[-1], NAMESPACE)
        meta = {"name": "notebook-3", "namespace": NAMESPACE}
        spec = {key: last["spec"][key] for key in ("containers", "resourceClaims")}
        for name in ENDED:
            # Otherwise the controller may reserve the claim for a pod whose end it has not seen.
            await admin.delete("Pod", name, NAMESPACE)
        head = {"apiVersion": "v1", "kind": "Pod"}
        await _bound(admin, await admin.create({**head, "metadata": meta, "spec": spec}))
        return {"before": before, "after": await comparable_claims(admin)}


async def _end(admin: Admin, name: str) -> None:
    """A pod's containers end: the controller frees its claims."""
    pod = {**await admin.get("Pod", name, NAMESPACE), "kind": "Pod", "status": {"phase": "Succeeded"}}
    await admin.send("PUT", f"{path_of(pod)}/status", pod)


async def _until_freed(admin: Admin) -> None:
    """Waits until the claim that pods shared has no devices, and the generated claim of a pod is gone."""
    async with asyncio.timeout(SECONDS):
        while True:
            claims = await admin.list("ResourceClaim", NAMESPACE)
            shared = next(claim for claim in claims if claim["metadata"]["name"] == SHARED)
            owners = {
                owner["name"] for claim in claims for owner in claim["metadata"].get("ownerReferences", ())
            }
            if not (shared.get("status") or {}).get("allocation") and ENDED[0] not in owners:
                return
            await asyncio.sleep(0.1)


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
