"""Controllers create and delete many objects in several calls, so that other tasks run in between."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.embedded.controllers.controller import Controller
from bayplan.embedded.controllers.daemon_set import DaemonSets
from bayplan.embedded.controllers.garbage_collector import EventExpiry, GarbageCollector
from bayplan.embedded.controllers.job import Jobs
from bayplan.embedded.controllers.replica_set import ReplicaSets
from bayplan.embedded.controllers.stateful_set import StatefulSets
from bayplan.embedded.controllers.volumes import EphemeralClaims
from bayplan.embedded.server.deletion import FOREGROUND, ORPHAN, DeleteOptions
from bayplan.embedded.server.kinds import (
    CONFIG_MAPS,
    DAEMON_SETS,
    EVENTS,
    JOBS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Resource,
)
from tests.embedded.controllers.world import World, in_world, workload

COUNT = 60
LARGE = [{"name": f"e{number}", "value": "v" * 100} for number in range(1000)]


def count_writes(
    world: World, controller: type[Controller], resource: Resource, monkeypatch: pytest.MonkeyPatch
) -> list[int]:
    """How many objects of a resource are written in each call of a controller."""
    counts: list[int] = []
    reconcile, store = controller.reconcile, world.api.store
    put, remove = store.put, store.remove
    written = 0

    def counted(self: Any, key: str) -> float | None:
        nonlocal written
        written = 0
        try:
            return reconcile(self, key)
        finally:
            counts.append(written)

    def count(original: Any) -> Any:
        def call(stored: Resource, *args: Any) -> Any:
            nonlocal written
            written += stored == resource
            return original(stored, *args)

        return call

    monkeypatch.setattr(controller, "reconcile", counted)
    monkeypatch.setattr(store, "put", count(put))
    monkeypatch.setattr(store, "remove", count(remove))
    return counts


@pytest.mark.parametrize(("env", "most"), [([], 25), (LARGE, 2)], ids=["small", "large"])
@pytest.mark.parametrize(
    ("controller", "resource", "spec"),
    [
        (ReplicaSets, REPLICA_SETS, {"replicas": COUNT}),
        (StatefulSets, STATEFUL_SETS, {"replicas": COUNT, "podManagementPolicy": "Parallel"}),
        (DaemonSets, DAEMON_SETS, {}),
        (Jobs, JOBS, {"completions": COUNT, "parallelism": COUNT}),
    ],
)
def test_pods_are_created_in_several_calls(
    controller: type[Controller],
    resource: Resource,
    spec: dict[str, Any],
    env: list[Any],
    most: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fewer at once if they are large."""

    async def test(world: World) -> None:
        counts = count_writes(world, controller, PODS, monkeypatch)
        made = {**workload(), **spec}
        made["template"]["spec"]["containers"][0]["env"] = env
        if resource == JOBS:
            del made["selector"]
            made["template"]["spec"]["restartPolicy"] = "Never"
        world.create(resource, "many", made)
        await world.after(1)  # DaemonSets wait for more changes first
        assert len(world.names(PODS)) == COUNT
        assert 0 < max(counts) <= most

    in_world(test, nodes=COUNT)


@pytest.mark.parametrize("propagation", [FOREGROUND, ORPHAN])
def test_dependents_are_written_in_several_calls(propagation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(world: World) -> None:
        owner = world.create(CONFIG_MAPS, "owner")
        reference = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "owner",
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }
        for number in range(250):
            world.create(CONFIG_MAPS, f"c{number}", ownerReferences=[reference])
        await world.run_until_idle()
        counts = count_writes(world, GarbageCollector, CONFIG_MAPS, monkeypatch)
        world.api.delete(CONFIG_MAPS, "owner", "default", DeleteOptions(propagation=propagation))
        await world.run_until_idle()
        left = [name for name in world.names(CONFIG_MAPS) if name.startswith("c")]
        assert len(left) == (250 if propagation == ORPHAN else 0)
        assert "owner" not in world.names(CONFIG_MAPS)
        assert max(counts) <= 101

    in_world(test)


@pytest.mark.parametrize("propagation", [FOREGROUND, None])
def test_finalizers_of_jobs_are_removed_in_several_calls(
    propagation: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(world: World) -> None:
        made = {**workload(), "completions": 250, "parallelism": 250}
        del made["selector"]
        made["template"]["spec"]["restartPolicy"] = "Never"
        world.create(JOBS, "many", made)
        await world.run_until_idle()
        counts = count_writes(world, Jobs, PODS, monkeypatch)
        world.api.delete(JOBS, "many", "default", DeleteOptions(propagation=propagation))
        await world.after(60)
        assert (world.names(PODS), world.names(JOBS)) == ([], [])
        assert 0 < max(counts) <= 100

    in_world(test)


def test_events_are_checked_in_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(world: World) -> None:
        about = {"kind": "Pod", "namespace": "default", "name": "p"}
        for number in range(500):
            event = {"metadata": {"name": f"e{number}"}, "involvedObject": about, "type": "Normal"}
            world.api.create(EVENTS, event, "default")
        counts = count_writes(world, EventExpiry, EVENTS, monkeypatch)
        await world.after(4200)
        assert world.names(EVENTS) == []
        assert 0 < max(counts) <= 200

    in_world(test)


def test_claims_of_ephemeral_volumes_are_created_in_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(world: World) -> None:
        counts = count_writes(world, EphemeralClaims, PERSISTENT_VOLUME_CLAIMS, monkeypatch)
        storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        template = {"volumeClaimTemplate": {"spec": storage}}
        volumes = [{"name": f"v{number}", "ephemeral": template} for number in range(250)]
        world.create(PODS, "p", {"containers": [{"name": "c", "image": "i"}], "volumes": volumes})
        await world.run_until_idle()
        assert len(world.names(PERSISTENT_VOLUME_CLAIMS)) == 250
        assert 0 < max(counts) <= 100

    in_world(test)
