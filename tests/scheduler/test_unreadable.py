"""One object that cannot be read does not stop the scheduler, and frees nothing that it may occupy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from bayplan.api.meta import Content
from bayplan.embedded.server.embedded import open_api
from bayplan.embedded.server.embedded_cluster import EmbeddedCluster
from bayplan.embedded.server.kinds import NODES, POD_DISRUPTION_BUDGETS, PODS, Resource
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.metrics import SchedulerMetrics
from bayplan.scheduler.loop import Scheduler
from bayplan.simulate.virtual_time import current_loop, run_virtual

NO_DAY = "2025-02-29T00:00:00Z"

Break = Callable[[Content], None]


def pod(name: str, cpu: str, **spec: Any) -> Content:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def node(name: str) -> Content:
    room = {"cpu": "8", "memory": "8Gi", "pods": "10"}
    return {"metadata": {"name": name}, "status": {"allocatable": room, "capacity": room}}


def spoil(api: ObjectAPI, resource: Resource, key: str, change: Break) -> None:
    """Writes what the API would not accept, as an earlier version or another writer may have done."""
    document = api.store.find(resource, key)
    assert document is not None
    content = document.parse()
    change(content)
    api.store.put(resource, key, content)


def requests_a_list(content: Content) -> None:
    content["spec"]["containers"][0]["resources"]["requests"] = ["7"]


def requests_nonsense(content: Content) -> None:
    content["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "seven"


def conditions_are_a_number(content: Content) -> None:
    content["status"]["conditions"] = 7


def started_on_no_day(content: Content) -> None:
    content["status"]["startTime"] = NO_DAY


def nodes_of(api: ObjectAPI) -> dict[str, str]:
    return {document.key: document.parse()["spec"].get("nodeName", "") for document in api.documents(PODS)}


async def until_idle(api: ObjectAPI, metrics: SchedulerMetrics) -> None:
    """A scheduler that starts now has done all that it can."""
    scheduler = Scheduler(EmbeddedCluster(api), metrics=metrics)
    running = asyncio.ensure_future(scheduler.run())
    await asyncio.sleep(60)
    assert not running.done(), running.exception()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


@pytest.mark.parametrize(
    "break_", [requests_a_list, requests_nonsense, conditions_are_a_number, started_on_no_day]
)
@pytest.mark.parametrize("known", [True, False], ids=["while it runs", "at the start"])
def test_no_node_is_overcommitted(break_: Break, known: bool) -> None:
    """7 of 8 cpus are taken by a pod that cannot be read: a second such pod waits, others do not."""

    async def main() -> None:
        api = open_api(clock=current_loop().wall_time)
        api.create(NODES, node("n"))
        api.create(PODS, pod("taken", "7", nodeName="n"), "default")
        metrics = SchedulerMetrics()
        scheduler = None
        if known:
            scheduler = asyncio.ensure_future(Scheduler(EmbeddedCluster(api), metrics=metrics).run())
            await asyncio.sleep(1)
        spoil(api, PODS, "default/taken", break_)
        api.store.compact()
        api.create(PODS, pod("second", "7"), "default")
        if scheduler is None:
            await until_idle(api, metrics)
        else:
            await asyncio.sleep(60)
            assert not scheduler.done()
            scheduler.cancel()
            with suppress(asyncio.CancelledError):
                await scheduler
        assert nodes_of(api) == {"default/taken": "n", "default/second": ""}
        assert 'bayplan_unreadable_objects{kind="Pod"} 1.0' in metrics.exposition().decode()

    run_virtual(main())


@pytest.mark.parametrize(
    ("resource", "key", "change"),
    [
        (NODES, "bad", lambda content: content["spec"].update(taints="none")),
        (NODES, "bad", lambda content: content["status"]["allocatable"].update(cpu="lots")),
        (PODS, "default/bad", lambda content: content["spec"].update(priority="high")),
        (
            PODS,
            "default/bad",
            lambda content: content["metadata"].update(creationTimestamp="2025-02-30T00:00:00Z"),
        ),
    ],
)
def test_the_others_are_scheduled(resource: Resource, key: str, change: Break) -> None:
    async def main() -> None:
        api = open_api(clock=current_loop().wall_time)
        for name in ("bad", "good"):
            api.create(NODES, node(name))
        api.create(PODS, pod("bad", "1", schedulerName="another"), "default")
        spoil(api, resource, key, change)
        for i in range(3):
            api.create(PODS, pod(f"p{i}", "1"), "default")
        await until_idle(api, SchedulerMetrics())
        assert all(nodes_of(api)[f"default/p{i}"] for i in range(3))

    run_virtual(main())


def test_amounts_beyond_64_bits() -> None:
    """Two pods of 7Ei on one node, and pods that started in the years 1 and 2300."""

    async def main() -> None:
        api = open_api(clock=current_loop().wall_time)
        for name in ("n", "m"):
            api.create(NODES, node(name))
        for i in range(2):
            huge = pod(f"huge-{i}", "1", nodeName="n")
            huge["spec"]["containers"][0]["resources"]["requests"]["memory"] = "7Ei"
            api.create(PODS, huge, "default")
        for name, started in (("huge-0", "0001-01-01T00:00:00Z"), ("huge-1", "2300-01-01T00:00:00Z")):
            api.patch(PODS, name, "default", {"status": {"startTime": started}}, subresource="status")
        one = pod("one", "1")
        one["spec"]["containers"][0]["resources"]["requests"]["memory"] = "1Gi"
        api.create(PODS, one, "default")
        api.create(PODS, pod("none", "100"), "default")
        await until_idle(api, SchedulerMetrics())
        assert (nodes_of(api)["default/one"], nodes_of(api)["default/none"]) == ("m", "")

    run_virtual(main())


def test_a_budget_with_a_day_that_does_not_exist_still_protects() -> None:
    async def main() -> None:
        api = open_api(clock=current_loop().wall_time)
        api.create(NODES, node("n"))
        budget = {"metadata": {"name": "b"}, "spec": {"selector": {}, "minAvailable": 1}}
        api.create(POD_DISRUPTION_BUDGETS, budget, "default")
        spoil(
            api,
            POD_DISRUPTION_BUDGETS,
            "default/b",
            lambda content: content.update(status={"disruptedPods": {"p": NO_DAY}}),
        )
        api.create(PODS, pod("p", "1"), "default")
        await until_idle(api, SchedulerMetrics())
        assert nodes_of(api) == {"default/p": "n"}

    run_virtual(main())
