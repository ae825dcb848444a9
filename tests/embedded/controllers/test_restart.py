"""A control plane that stops and starts again, with its objects in SQLite on the disk, in real time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from bayplan.embedded import controllers, kubelets
from bayplan.embedded.server import subresources
from bayplan.embedded.server.embedded import open_api
from bayplan.embedded.server.kinds import DEPLOYMENTS, NODES, PODS, REPLICA_SETS
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.server.sqlite import SQLiteJournal
from tests.embedded.controllers.world import workload


@asynccontextmanager
async def control_plane(directory: Path) -> AsyncIterator[ObjectAPI]:
    journal = SQLiteJournal(directory, fsync=False)
    api = open_api(journal)
    tasks = [asyncio.create_task(run) for run in (controllers.run_all(api), kubelets.run(api))]
    try:
        yield api
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await journal.close()


async def until(api: ObjectAPI, is_so: Callable[[], bool]) -> None:
    """Waits for the write after which something is so; pods are bound meanwhile."""
    written = asyncio.Event()
    unsubscribe = api.store.subscribe(lambda _: written.set())
    try:
        async with asyncio.timeout(20):
            while not is_so():
                written.clear()
                for pod in api.list(PODS):
                    if not pod["spec"].get("nodeName"):
                        subresources.bind(api, pod["metadata"]["name"], pod["metadata"]["namespace"], "n01")
                await written.wait()
    finally:
        unsubscribe()


def available(api: ObjectAPI) -> int:
    return int(api.get(DEPLOYMENTS, "web", "default")["status"].get("availableReplicas", 0))


def addresses(api: ObjectAPI) -> list[str]:
    return [pod["status"]["podIP"] for pod in api.list(PODS)]


def test_everything_continues_where_it_stopped(tmp_path: Path) -> None:
    async def main() -> None:
        async with control_plane(tmp_path) as api:
            api.create(NODES, kubelets.make_nodes(1)[0])
            spec = workload(replicas=3)
            spec["template"]["spec"]["terminationGracePeriodSeconds"] = 0
            api.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec}, "default")
            await until(api, lambda: available(api) == 3)
            before, sets = addresses(api), api.list(REPLICA_SETS)
        async with control_plane(tmp_path) as api:
            api.patch(DEPLOYMENTS, "web", "default", {"spec": {"replicas": 5}})
            await until(api, lambda: available(api) == 5)
            assert len(set(addresses(api))) == 5
            assert set(before) < set(addresses(api))
            assert [each["metadata"]["uid"] for each in api.list(REPLICA_SETS)] == [
                each["metadata"]["uid"] for each in sets
            ]
            api.delete(DEPLOYMENTS, "web", "default")
            await until(api, lambda: not api.list(PODS) and not api.list(REPLICA_SETS))

    asyncio.run(main())
