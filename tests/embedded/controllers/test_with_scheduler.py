"""Controllers, kubelets and the real scheduler on one store: manifests become pods that run, and stay so."""

from __future__ import annotations

import asyncio
from collections import Counter

from bayplan.api.meta import Content
from bayplan.embedded import kubelets
from bayplan.embedded.server.embedded_cluster import EmbeddedCluster
from bayplan.embedded.server.kinds import (
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    PERSISTENT_VOLUMES,
    PODS,
    STATEFUL_SETS,
    STORAGE_CLASSES,
)
from bayplan.scheduler.loop import Scheduler
from bayplan.simulate.virtual_time import run_virtual
from tests.embedded.controllers.world import World, running_world, template, workload


def running(world: World, app: str) -> Counter[str]:
    """How many pods of an application run on each node."""
    pods = [pod for pod in world.pods(app=app) if pod["status"]["phase"] == "Running"]
    return Counter(pod["spec"]["nodeName"] for pod in pods)


def zone_of(volume: Content) -> str:
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    (requirement,) = term["matchExpressions"]
    return str(requirement["values"][0])


def test_a_day_in_a_cluster() -> None:
    async def main() -> None:
        async with running_world(3, binds=False) as world:
            scheduler = Scheduler(EmbeddedCluster(world.api))
            task = asyncio.create_task(scheduler.run())
            await scheduler.synced()
            world.create(DAEMON_SETS, "agent", workload("agent"))
            world.create(DEPLOYMENTS, "web", workload("web", replicas=6))
            done = template("sum", restartPolicy="Never")
            done["metadata"]["annotations"] = {"bayplan/run-seconds": "20"}
            world.create(JOBS, "sum", {"template": done, "completions": 4, "parallelism": 2})
            wait = {"volumeBindingMode": "WaitForFirstConsumer", "provisioner": "disks.example"}
            world.api.create(STORAGE_CLASSES, {"metadata": {"name": "disk"}, **wait})
            size = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            claim = {"metadata": {"name": "data"}, "spec": {**size, "storageClassName": "disk"}}
            database = {"replicas": 3, "serviceName": "db", "volumeClaimTemplates": [claim]}
            world.create(STATEFUL_SETS, "db", {**workload("db"), **database})
            await world.after(60)
            assert running(world, "agent") == {"n01": 1, "n02": 1, "n03": 1}
            assert running(world, "web") == {"n01": 2, "n02": 2, "n03": 2}
            assert running(world, "db") == {"n01": 1, "n02": 1, "n03": 1}
            assert {zone_of(volume) for volume in world.api.list(PERSISTENT_VOLUMES)} == {
                "sim-a",
                "sim-b",
                "sim-c",
            }
            assert world.get(JOBS, "sum")["status"]["succeeded"] == 4

            kubelets.down(world.api, "n01")
            await world.after(400)
            assert running(world, "web") == {"n02": 3, "n03": 3}
            ending = [pod for pod in world.api.list(PODS) if "deletionTimestamp" in pod["metadata"]]
            assert {pod["spec"]["nodeName"] for pod in ending} == {"n01"}

            kubelets.up(world.api, "n01")
            await world.after(60)
            # The database's pod needs the disk in the zone of its node, so it could go nowhere else.
            assert running(world, "db") == {"n01": 1, "n02": 1, "n03": 1}
            assert running(world, "agent") == {"n01": 1, "n02": 1, "n03": 1}
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run_virtual(main())
