"""What-if on a snapshot of a real cluster predicts what the real kube-scheduler then does.

Before each pod is created, the cluster is read and the simulation run; then kube-scheduler (parallelism 1)
decides. Nodes with the same score count as equal. A pod that is scheduled gets a start time, as from a
kubelet: of pods without one, the victim depends on an order that no API shows. There are no groups:
kube-scheduler has none.
"""

from __future__ import annotations

import asyncio
import copy
import random
from typing import Any

from bayplan.answers.sources.live import read_kinds
from bayplan.answers.whatif import Cluster
from bayplan.api.decode import decode_object
from bayplan.api.meta import Object
from bayplan.api.pod_defaults import default_pod
from bayplan.api.releases import parse_release
from bayplan.client.api_errors import NotServedError
from bayplan.client.http import KubernetesCluster
from bayplan.config import default_config
from conformance.harness.admin import Admin, Raw, path_of
from conformance.harness.control_plane import ADMIN, ControlPlane
from conformance.harness.objects import condition, node, pod
from conformance.harness.schedulers import configuration, start_kube_scheduler, wait_until_synced

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
COUNT = 40


def random_pod(rng: random.Random, number: int) -> Raw:
    app = rng.choice(("web", "db", "job"))
    spec: dict[str, Any] = {"priority": rng.choice((0, 0, 0, 100))}
    selector = {"matchLabels": {"app": app}}
    match rng.randrange(5):
        case 0:
            constraint = {
                "maxSkew": 1,
                "topologyKey": ZONE,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": selector,
            }
            spec["topologySpreadConstraints"] = [constraint]
        case 1:
            term = {"topologyKey": HOSTNAME, "labelSelector": selector}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            spec["affinity"] = {"podAntiAffinity": required}
        case 2:
            spec["nodeSelector"] = {ZONE: rng.choice("abc")}
    return pod(f"p{number:02}", cpu=f"{rng.randrange(2, 16)}00m", memory="512Mi", labels={"app": app}, **spec)


async def read_cluster(cluster: KubernetesCluster) -> list[Object]:
    found: list[Object] = []
    for kind in read_kinds():
        try:
            found += (await cluster.list(kind.record))[0]
        except NotServedError:
            continue
    return found


def predicted(objects: list[Object], raw: Raw, release: str) -> tuple[set[str], str, tuple[str, ...]]:
    """The nodes that are equally good, or the message; and the victims."""
    cluster = Cluster.from_objects(objects, config=default_config(release=parse_release(release)))
    with cluster.branch() as branch:
        # Not applied: this server has no Priority admission, so pods state their priority themselves.
        content = copy.deepcopy(raw)
        default_pod(content)
        item = decode_object(content)
        assert item is not None
        [made] = branch.add(item)
        best = set(branch.explain(made).best)
        result = branch.schedule([made])
        found = result[made.key]
        if found.fits and not result.evicted:
            return best, "", ()
        return {found.node} if found.fits else set(), found.reason, result.evicted


async def outcome(admin: Admin, name: str) -> Raw:
    found: Raw = {}

    async def is_decided() -> bool:
        nonlocal found
        found = await admin.get("Pod", name, "default")
        pod_scheduled = condition(found, "PodScheduled")
        nominated = found.get("status", {}).get("nominatedNodeName")
        return bool(found["spec"].get("nodeName")) or (pod_scheduled is not None and not nominated)

    for _ in range(300):
        if await is_decided():
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"{name} is neither scheduled nor unschedulable")


async def play(plane: ControlPlane) -> list[tuple[str, Any, Any]]:
    rng = random.Random(7)
    compared: list[tuple[str, Any, Any]] = []
    async with Admin(plane.access(ADMIN)) as admin, KubernetesCluster(plane.access(ADMIN), qps=-1) as cluster:
        for number in range(6):
            await admin.create(node(f"n{number}", cpu="4", labels={ZONE: "abc"[number % 3]}))
        config = configuration(plane, parallelism=1, percentageOfNodesToScore=100)
        with start_kube_scheduler(plane, config) as process:
            wait_until_synced(process)
            for number in range(COUNT):
                raw = random_pod(rng, number)
                before = {f"default/{one['metadata']['name']}" for one in await admin.list("Pod", "default")}
                there = await read_cluster(cluster)
                best, message, victims = predicted(there, raw, plane.programs.release)
                await admin.create(raw)
                actual = await outcome(admin, raw["metadata"]["name"])
                left = {f"default/{one['metadata']['name']}" for one in await admin.list("Pod", "default")}
                chosen = actual["spec"].get("nodeName")
                pod_scheduled = condition(actual, "PodScheduled")
                reported = "" if chosen or pod_scheduled is None else pod_scheduled["message"]
                name, gone = raw["metadata"]["name"], tuple(sorted(before - left))
                is_right = chosen in best if chosen else not best
                compared.append((name, (is_right, tuple(sorted(victims))), (True, gone)))
                if chosen:
                    started = f"2026-01-01T00:{number:02}:00Z"
                    actual["status"] = {**actual["status"], "phase": "Running", "startTime": started}
                    await admin.send("PUT", f"{path_of(actual)}/status", actual)
                else:
                    compared.append((f"message of {name}", message, reported))
                    await admin.delete("Pod", name, "default")
    return compared


def test_kube_scheduler_does_what_was_predicted(plane: ControlPlane) -> None:
    compared = asyncio.run(play(plane))
    assert [one for one in compared if one[1] != one[2]] == []
    assert any(victims for _, (_, victims), _ in (one for one in compared if isinstance(one[1], tuple)))
    assert any(name.startswith("message") for name, _, _ in compared), "some pods do not fit"
