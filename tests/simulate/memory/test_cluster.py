"""The store as the scheduler sees it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from bayplan.api.cluster_api import Change, PodStatusPatch, WatchEvent
from bayplan.api.pod import Pod
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.simulate.memory.writes import end_after_grace_period
from bayplan.simulate.virtual_time import current_loop, run_virtual
from bayplan.testing.builders import make_pod


def test_a_cluster_is_its_store() -> None:
    async def main() -> None:
        store = MemoryStore()
        cluster = MemoryCluster(store)
        pod = await cluster.create(make_pod("a"))
        assert isinstance(pod, Pod)
        await cluster.patch_pod_status(pod, PodStatusPatch(nominated_node_name="n1"))
        await cluster.bind(pod, "n1", {"chosen": "0-1"})
        bound = await cluster.get(Pod, "a", "default")
        assert bound.annotations == {"chosen": "0-1"}
        assert (bound.spec.node_name, bound.status.nominated_node_name) == ("n1", "")
        assert await cluster.list(Pod) == ([bound], "3")
        labelled = await cluster.update(replace(bound, metadata=replace(bound.metadata, labels={"a": "b"})))
        await cluster.delete_pod(pod)
        assert await cluster.list(Pod) == ([], "5")
        batch = await anext(aiter(cluster.watch(Pod, "3")))
        gone = replace(labelled, metadata=replace(labelled.metadata, resource_version="5"))
        assert batch == [
            WatchEvent(Change.MODIFIED, labelled, "4"),
            WatchEvent(Change.DELETED, gone, "5"),
        ]

    run_virtual(main())


def test_requests_never_give_way_to_another_task() -> None:
    """So that a binding cycle against a store in this process needs no task of its own."""
    store = MemoryStore()
    pod = store.create(make_pod("a"))
    with pytest.raises(StopIteration):
        MemoryCluster(store).bind(pod, "n1").send(None)
    assert store.get(Pod, "a", "default").spec.node_name == "n1"


def test_a_finished_pod_is_not_listed_but_can_be_read() -> None:
    store = MemoryStore()
    running, done = store.create(make_pod("a")), store.create(make_pod("b", phase="Succeeded"))
    cluster = MemoryCluster(store)
    assert run_virtual(cluster.list(Pod)) == ([running], "2")
    assert run_virtual(cluster.get(Pod, "b", "default")) is done


START = datetime(2026, 1, 1, tzinfo=UTC)


def make_store() -> MemoryStore:
    """A store in virtual time with a pod on a node and half a minute to end."""
    store = MemoryStore(clock=current_loop().wall_time, kubelet=end_after_grace_period)
    store.create(make_pod("a"))
    store.bind("a", "default", "n1")
    return store


def test_a_running_pod_ends_with_its_grace_period() -> None:
    async def main() -> None:
        store = make_store()
        store.delete(Pod, "a", "default")
        pod = store.get(Pod, "a", "default")
        assert pod.metadata.deletion_timestamp == START.replace(second=30)
        assert pod.metadata.generation == 2
        await asyncio.sleep(29)
        assert store.list(Pod) == [pod]
        await asyncio.sleep(2)
        assert store.list(Pod) == []

    run_virtual(main(), start=START.timestamp())


def test_a_second_request_changes_nothing() -> None:
    async def main() -> None:
        store = make_store()
        store.delete(Pod, "a", "default")
        version = store.resource_version
        await asyncio.sleep(10)
        store.delete(Pod, "a", "default")
        assert store.resource_version == version
        await asyncio.sleep(21)
        assert store.list(Pod) == []

    run_virtual(main())


def test_no_grace_means_at_once() -> None:
    async def main() -> None:
        store = make_store()
        store.delete(Pod, "a", "default")
        store.delete(Pod, "a", "default", grace_period_seconds=0)
        assert store.list(Pod) == []

    run_virtual(main())


def test_a_waiting_pod_is_gone_at_once() -> None:
    async def main() -> None:
        store = make_store()
        store.create(make_pod("b"))
        store.delete(Pod, "b", "default")
        assert [pod.name for pod in store.list(Pod)] == ["a"]

    run_virtual(main())


def test_leaves_a_new_pod_of_the_same_name_alone() -> None:
    async def main() -> None:
        store = make_store()
        store.delete(Pod, "a", "default")
        store.delete(Pod, "a", "default", grace_period_seconds=0)
        new = store.create(make_pod("a"))
        await asyncio.sleep(60)
        assert store.list(Pod) == [new]

    run_virtual(main())
