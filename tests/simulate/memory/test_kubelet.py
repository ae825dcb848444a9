"""Graceful deletion: a pod that runs is marked, and gone when its time is up."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from bayplan.api.pod import Pod
from bayplan.simulate.memory.cluster import MemoryStore
from bayplan.simulate.memory.kubelet import end_after_grace_period
from bayplan.simulate.virtual_time import current_loop, run_virtual
from bayplan.testing.builders import make_pod

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
