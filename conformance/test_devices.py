"""Devices on `bayplan up`: kube-scheduler and bayplan's own scheduler allocate the same ones there.

The examples of the repository run with simulated drivers. Created pod after pod on one node, the status of
every claim is compared field by field.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bayplan.api.documents import read_documents
from bayplan.client.kubeconfig import load_access
from conformance.harness.admin import Admin, Raw
from conformance.harness.process import Process, wait_until
from conformance.harness.programs import Programs

EXAMPLES: Final = Path(__file__).parents[1] / "examples"
PODS: Final = EXAMPLES / "gpu-pods.yaml"
DEVICES: Final = EXAMPLES / "gpus.yaml"
SECONDS: Final = 60.0


@contextmanager
def cluster(programs: Programs, directory: Path, *flags: str) -> Iterator[Path]:
    """`bayplan up` with devices, as the release of the programs; gives its kubeconfig."""
    kubeconfig = directory / "kubeconfig"
    command: list[str | Path] = [
        sys.executable, "-m", "bayplan.cli.main", "up", "--kubeconfig", kubeconfig,
        "--emulated-version", programs.release, "--job-run-time", "3600", *flags,
    ]  # fmt: skip
    with Process("bayplan up", command, directory / "up.log") as process:

        def ready() -> bool:
            process.check()
            return kubeconfig.exists()

        wait_until(ready, "the embedded cluster is up")
        yield kubeconfig


@contextmanager
def kube_scheduler(programs: Programs, kubeconfig: Path) -> Iterator[None]:
    connection = {"contentType": "application/json", "acceptContentTypes": "application/json"}
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), **connection},
        "leaderElection": {"leaderElect": False},
    }
    file = kubeconfig.with_name("scheduler.json")
    file.write_text(json.dumps(config))
    command: list[str | Path] = [programs.kube_scheduler, "--config", file, "--secure-port", "0"]
    with Process("kube-scheduler", command, kubeconfig.with_name("kube-scheduler.log")):
        yield


async def all_running(admin: Admin, *names: str) -> None:
    """Waits until these pods run, or all that there are."""
    seen: list[Raw] = []
    async with asyncio.timeout(SECONDS):
        while True:
            seen = [pod for pod in await admin.list("Pod") if not names or pod["metadata"]["name"] in names]
            if seen and all(pod["status"].get("phase") == "Running" for pod in seen):
                return
            await asyncio.sleep(0.1)


def results_of(claim: Raw) -> list[Raw]:
    results: list[Raw] = claim["status"]["allocation"]["devices"]["results"]
    return results


# The examples as they are


def test_kube_scheduler_schedules_the_examples(programs: Programs, tmp_path: Path) -> None:
    flags = ("--no-scheduler", "--nodes", "3", "--devices", str(DEVICES), "-f", str(PODS))
    with cluster(programs, tmp_path, *flags) as kubeconfig, kube_scheduler(programs, kubeconfig):
        asyncio.run(_schedules_the_examples(kubeconfig))


def test_bayplan_schedules_the_examples(programs: Programs, tmp_path: Path) -> None:
    flags = ("--nodes", "3", "--devices", str(DEVICES), "-f", str(PODS))
    with cluster(programs, tmp_path, *flags) as kubeconfig:
        asyncio.run(_schedules_the_examples(kubeconfig))


async def _schedules_the_examples(kubeconfig: Path) -> None:
    async with Admin(load_access(str(kubeconfig))) as admin:
        await all_running(admin)
        pods = {pod["metadata"]["name"]: pod for pod in await admin.list("Pod")}
        assert len(pods) == 10
        claims = await admin.list("ResourceClaim")
        by_name = {claim["metadata"]["name"]: claim for claim in claims}
        assert len(claims) == 9
        taken = [
            (result["driver"], result["pool"], result["device"])
            for claim in claims
            for result in results_of(claim)
            if not result.get("adminAccess") and "shareID" not in result
        ]
        assert len(taken) == len(set(taken)), "no device is allocated twice"
        assert {each["name"] for each in by_name["shared-gpu"]["status"]["reservedFor"]} == {
            "notebook-1", "notebook-2",
        }  # fmt: skip
        gpu, nic = results_of(by_name["gpu-with-nic"])
        assert gpu["device"][4] == nic["device"][4], "both are on one PCIe root"
        (share,) = results_of(by_name["data"])
        assert share["consumedCapacity"] == {"bandwidth": "3G"}
        (device,) = by_name["data"]["status"]["devices"]
        assert [each["status"] for each in device["conditions"]] == ["True"]
        extended = pods["classic"]["status"]["extendedResourceClaimStatus"]
        assert extended["resourceClaimName"] in by_name
        for pod in pods.values():
            if pod["metadata"]["name"] not in ("notebook-2",) and "ownerReferences" not in pod["metadata"]:
                await admin.delete("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])
        await _freed(admin, set(by_name) - {"shared-gpu"} - {n for n in by_name if n.startswith("train-")})


async def _freed(admin: Admin, names: set[str]) -> None:
    """Waits until these claims are free, or gone if they were made for a pod."""
    async with asyncio.timeout(SECONDS):
        while True:
            claims = [each for each in await admin.list("ResourceClaim") if each["metadata"]["name"] in names]
            if not any(claim["status"] for claim in claims):
                assert not any("ownerReferences" in claim["metadata"] for claim in claims)
                return
            await asyncio.sleep(0.1)


# The same devices


def test_both_allocate_the_same_devices(programs: Programs, tmp_path: Path) -> None:
    flags = ("--nodes", "1", "--devices", str(larger_devices(tmp_path)))
    found = {}
    for name in ("kube-scheduler", "bayplan"):
        directory = tmp_path / name
        directory.mkdir()
        if name == "bayplan":
            with cluster(programs, directory, *flags) as kubeconfig:
                found[name] = asyncio.run(_one_by_one(kubeconfig))
        else:
            with (
                cluster(programs, directory, *flags, "--no-scheduler") as kubeconfig,
                kube_scheduler(programs, kubeconfig),
            ):
                found[name] = asyncio.run(_one_by_one(kubeconfig))
    assert found["bayplan"] == found["kube-scheduler"]


def larger_devices(directory: Path) -> Path:
    """The devices of the example, with twice as many GPUs: everything has to fit on one node."""
    path = directory / "devices.yaml"
    path.write_text(
        DEVICES.read_text().replace(
            "count: 2\n    attributes:\n      model", "count: 4\n    attributes:\n      model"
        )
    )
    return path


async def _one_by_one(kubeconfig: Path) -> dict[str, Any]:
    """Creates the objects of the examples, each pod when the one before runs; gives what became of claims."""
    async with Admin(load_access(str(kubeconfig))) as admin:
        for document in read_documents(PODS):
            content = document.content
            items = pods_of(content) if content["kind"] == "Job" else [content]
            for item in items:
                await admin.create(item)
                if item["kind"] == "Pod":
                    await all_running(admin, item["metadata"]["name"])
        return await comparable_claims(admin)


async def comparable_claims(admin: Admin) -> dict[str, Any]:
    """What became of all claims, by name."""
    claims = await admin.list("ResourceClaim")
    pods = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in await admin.list("Pod")}
    return {_name_of(claim): _comparable(claim, pods) for claim in claims}


def pods_of(job: Raw) -> list[Raw]:
    meta = job["metadata"]
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{meta['name']}-{i}", "namespace": meta["namespace"]},
            "spec": job["spec"]["template"]["spec"],
        }
        for i in range(job["spec"]["completions"])
    ]


def _name_of(claim: Raw) -> str:
    """The name, or the beginning of a generated one."""
    meta = claim["metadata"]
    return str(meta.get("generateName") or meta["name"])


def _comparable(claim: Raw, pods: dict[str, str]) -> Raw:
    """A claim's spec, status, finalizers and annotations, without what is different each time."""
    content: Raw = json.loads(json.dumps({key: claim[key] for key in ("spec", "status")}))
    meta = claim["metadata"]
    content["metadata"] = {key: meta.get(key) for key in ("annotations", "finalizers")}
    owners = meta.get("ownerReferences") or ()
    content["metadata"]["owners"] = [{**owner, "uid": pods[owner["uid"]]} for owner in owners]
    status = content["status"]
    assert status["allocation"].pop("allocationTimestamp")
    for part in (*status["allocation"]["devices"]["results"], *(status.get("devices") or ())):
        if "shareID" in part:
            part["shareID"] = "*"
        for condition in part.get("conditions") or ():
            del condition["lastTransitionTime"]
    for consumer in status["reservedFor"]:
        consumer["uid"] = pods[consumer["uid"]]
    return content
