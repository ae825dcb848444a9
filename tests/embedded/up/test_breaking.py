"""A cluster starts with whatever is in its data directory, and a part that fails ends it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from bayplan.api.meta import Content
from bayplan.embedded import controllers, kubelets
from bayplan.embedded.server.deletion import DeleteOptions
from bayplan.embedded.server.kinds import NODES, POD_DISRUPTION_BUDGETS, PODS, Resource
from bayplan.embedded.up.cluster import LocalCluster, LocalSettings
from bayplan.embedded.up.report import Outcomes
from bayplan.scheduler.loop import Scheduler

NO_DAY = "2025-02-29T00:00:00Z"


def pod(name: str, **requests: Any) -> Content:
    container = {"name": "c", "image": "i", "resources": {"requests": requests}}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


class PartError(Exception):
    pass


@pytest.mark.parametrize(("part", "name"), [(controllers, "run_all"), (kubelets, "run"), (Scheduler, "run")])
def test_a_part_that_fails_at_the_start_ends_it(
    part: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler must not be waited for: it may never have synced then."""

    async def breaks(*_: object, **__: object) -> None:
        raise PartError

    async def main() -> None:
        async with asyncio.timeout(20), LocalCluster(LocalSettings(nodes=1), Outcomes()):
            await asyncio.sleep(20)

    if part is not Scheduler:
        monkeypatch.setattr(Scheduler, "synced", lambda _: asyncio.Event().wait())
    monkeypatch.setattr(part, name, breaks)
    with pytest.raises(PartError):
        asyncio.run(main())


def spoil(cluster: LocalCluster, resource: Resource, key: str, change: Content) -> None:
    """Writes what the API does not accept, as an earlier version did."""
    store = cluster.server.api.store
    document = store.find(resource, key)
    assert document is not None
    content = document.parse()
    for path, value in change.items():
        *outer, last = path.split("/")
        inner: Any = content
        for step in outer:
            inner = inner[int(step)] if isinstance(inner, list) else inner.setdefault(step, {})
        inner[last] = value
    store.put(resource, key, content)


def test_a_data_directory_with_objects_that_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It starts, others are scheduled, controllers and kubelets continue."""
    settings = LocalSettings(nodes=2, data_dir=tmp_path / "data")
    budget = {"metadata": {"name": "b"}, "spec": {"selector": {}, "minAvailable": 1}}

    async def before() -> None:
        async with LocalCluster(settings, Outcomes()) as cluster:
            api = cluster.server.api
            for name in ("started", "conditions", "requests", "owners"):
                api.create(PODS, pod(name, cpu="1"), "default")
            api.create(POD_DISRUPTION_BUDGETS, budget, "default")
            await cluster.idle()
            spoil(cluster, PODS, "default/started", {"status/startTime": NO_DAY})
            spoil(cluster, PODS, "default/conditions", {"status/conditions/0/lastTransitionTime": NO_DAY})
            spoil(cluster, PODS, "default/requests", {"spec/containers/0/resources": ["cpu"]})
            spoil(cluster, PODS, "default/owners", {"metadata/ownerReferences": "none"})
            spoil(cluster, NODES, "n02", {"status/conditions/0/lastHeartbeatTime": NO_DAY})
            spoil(cluster, POD_DISRUPTION_BUDGETS, "default/b", {"status/disruptedPods": {"p": NO_DAY}})

    async def after() -> tuple[Content, int]:
        async with asyncio.timeout(60), LocalCluster(settings, Outcomes()) as cluster:
            api = cluster.server.api
            api.create(PODS, pod("new", cpu="1"), "default")
            for _ in range(100):
                await asyncio.sleep(0.05)
                if cluster.census().running >= 4:
                    break
            content = api.get(PODS, "new", "default")
            for name in ("started", "requests"):
                api.delete(PODS, name, "default", DeleteOptions(grace_period_seconds=0))
            await asyncio.sleep(0.2)
            return content, cluster.census().nodes

    asyncio.run(before())
    with caplog.at_level(logging.ERROR):
        caplog.clear()
        content, nodes = asyncio.run(after())
    assert (content["status"]["phase"], nodes) == ("Running", 2)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == len(set(messages))
    assert not [record for record in caplog.records if record.exc_info]
