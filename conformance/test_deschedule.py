"""The real descheduler and ours, one after the other on the same real API server, evict the same pods.

The policies are such that upstream's result does not depend on the order of its maps. Pods are evicted for
real, with a grace period of 0, because there are no kubelets; then they are created again for the other.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from conformance.harness.admin import Admin, Raw, path_of
from conformance.harness.control_plane import ADMIN, ControlPlane
from conformance.harness.objects import node, pod
from conformance.harness.programs import MissingError, obtain_descheduler
from tests.commands import bayplan

ZONE = "topology.kubernetes.io/zone"
NODES_WITH_PODS = 3
STRATEGIES: dict[str, Raw] = {
    "RemovePodsViolatingNodeTaints": {},
    "RemovePodsViolatingNodeAffinity": {
        "nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]
    },
    "RemovePodsViolatingInterPodAntiAffinity": {},
    "RemovePodsHavingTooManyRestarts": {"podRestartThreshold": 5},
    "PodLifeTime": {"states": ["Pending"]},
    "HighNodeUtilization": {"thresholds": {"cpu": 20}},
    "LowNodeUtilization": {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}},
}


@pytest.fixture(scope="module")
def descheduler() -> Path:
    try:
        return obtain_descheduler()
    except MissingError as error:
        pytest.skip(str(error))


def cluster() -> list[Raw]:
    taint = {"key": "maintenance", "value": "true", "effect": "NoSchedule"}
    nodes = [node(f"n{i}", labels={ZONE: f"z{i % 2}", "disk": "ssd" if i < 2 else "hdd"}) for i in range(4)]
    nodes[0]["spec"] = {"taints": [taint]}
    pods = []
    for i in range(12):
        spec: Raw = {"nodeName": f"n{i % NODES_WITH_PODS}"}
        if i % 4 == 0:
            spec["tolerations"] = [{"key": "maintenance", "operator": "Exists"}]
        if i % 4 == 1:
            term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
            spec["affinity"] = {"nodeAffinity": required}
        made = pod(f"p{i:02}", cpu="800m" if i % 3 == 1 else "100m", labels={"app": f"a{i}"}, **spec)
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"rs{i}", "uid": f"u{i}"}
        made["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        pods.append(made)
    return [*nodes, *pods]


async def put(admin: Admin, items: list[Raw]) -> None:
    """Creates what is missing, with its status."""
    for item in items:
        if await admin.find(item["kind"], item["metadata"]["name"], item["metadata"].get("namespace", "")):
            continue
        created = await admin.create(item)
        if item["kind"] == "Pod":
            number = int(item["metadata"]["name"][1:])
            statuses = [{"name": "main", "restartCount": number, "ready": True, "image": "x", "imageID": ""}]
            phase = "Pending" if number % 5 == 0 else "Running"
            status: Raw = {"phase": phase, "containerStatuses": statuses}
        else:
            status = {**created.get("status", {}), "conditions": [{"type": "Ready", "status": "True"}]}
        await admin.send("PUT", f"{path_of(created)}/status", {**created, "status": status})


async def names(admin: Admin) -> set[str]:
    return {item["metadata"]["name"] for item in await admin.list("Pod", "default")}


def by_node(pods: set[str]) -> Counter[int]:
    return Counter(int(name[1:]) % NODES_WITH_PODS for name in pods)


def generated_policy(seed: int) -> str:
    """One or two strategies whose result does not depend on an order; DefaultEvictor may protect pods."""
    rng = random.Random(seed)
    kinds = [
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    ]
    states = ["Pending", "Running", "CrashLoopBackOff"]
    strategies: dict[str, Raw] = {
        "RemovePodsViolatingNodeTaints": {"includePreferNoSchedule": rng.random() < 0.5},
        "RemovePodsViolatingNodeAffinity": {"nodeAffinityType": rng.sample(kinds, rng.randint(1, 2))},
        "RemovePodsHavingTooManyRestarts": {"podRestartThreshold": rng.randint(1, 10)},
        "PodLifeTime": {"states": rng.sample(states, rng.randint(1, 2))},
    }
    names = rng.sample(sorted(strategies), rng.randint(1, 2))
    args = {name: strategies[name] for name in names}
    for one in args.values():
        if rng.random() < 0.3:
            chosen = sorted(rng.sample([f"a{i}" for i in range(12)], 6))
            one["labelSelector"] = {"matchExpressions": [{"key": "app", "operator": "In", "values": chosen}]}
    args["DefaultEvictor"] = {"nodeFit": rng.random() < 0.5, "minReplicas": rng.choice([0, 1])}
    if rng.random() < 0.2:
        args["DefaultEvictor"]["podProtections"] = {"extraEnabled": ["PodsWithoutPDB"]}
    return policy_of(args, {"deschedule": {"enabled": names}})


def policy(name: str) -> str:
    point = "balance" if "Utilization" in name else "deschedule"
    return policy_of({name: STRATEGIES[name]}, {point: {"enabled": [name]}})


def policy_of(args: dict[str, Raw], plugins: Raw) -> str:
    configs = [{"name": name, "args": one} for name, one in args.items()]
    profile: dict[str, Any] = {"name": "p", "pluginConfig": configs, "plugins": plugins}
    document = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": [profile]}
    return json.dumps({**document, "gracePeriodSeconds": 0})


def evicted_by_both(
    plane: ControlPlane, descheduler: Path, folder: Path, objects: list[Raw], text: str
) -> tuple[set[str], set[str]]:
    """The pods that descheduler and bayplan evict, one after the other, from the same cluster."""
    path, kubeconfig = folder / "policy.json", str(plane.kubeconfig(ADMIN))
    path.write_text(text)

    async def prepare() -> None:
        async with Admin(plane.access()) as admin:
            await put(admin, objects)

    async def remaining() -> set[str]:
        async with Admin(plane.access()) as admin:
            return await names(admin)

    asyncio.run(prepare())
    before = asyncio.run(remaining())
    serving = ["--secure-port", "0", "--cert-dir", str(folder)]
    command = [str(descheduler), "--policy-config-file", str(path), "--kubeconfig", kubeconfig, "-v", "1"]
    ended = subprocess.run([*command, *serving], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    theirs = before - asyncio.run(remaining())
    asyncio.run(prepare())
    options = ["--kubeconfig", kubeconfig, "--decision", "upstream", "--evictions-per-minute", "6000"]
    ours_ended = bayplan("deschedule", "run", "--policy", str(path), *options)
    assert ours_ended.status == 0, ours_ended.stderr
    return theirs, before - asyncio.run(remaining())


@pytest.mark.parametrize("name", STRATEGIES)
def test_both_evict_the_same_pods(plane: ControlPlane, descheduler: Path, name: str, tmp_path: Path) -> None:
    theirs, ours = evicted_by_both(plane, descheduler, tmp_path, cluster(), policy(name))
    assert theirs or name == "RemovePodsViolatingInterPodAntiAffinity", "the policy evicts nothing"
    if "Utilization" in name:
        # Which of several equal pods is evicted is random upstream: as many of each node.
        assert by_node(ours) == by_node(theirs)
    else:
        assert ours == theirs


@pytest.mark.parametrize("seed", range(1, 9))
def test_both_evict_the_same_pods_by_generated_policies(
    plane: ControlPlane, descheduler: Path, seed: int, tmp_path: Path
) -> None:
    theirs, ours = evicted_by_both(plane, descheduler, tmp_path, cluster(), generated_policy(seed))
    assert ours == theirs
