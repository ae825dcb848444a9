"""Lists and watches of the real server: as a stream and in pages, and whatever becomes of the server.

Debian's etcd is too old for streams, so with it every list falls back to plain ones; the newer etcd has them.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from bayplan.api.cluster_api import Change, PodStatusPatch
from bayplan.api.kinds import KINDS
from bayplan.api.meta import Condition, Object
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.releases import RELEASES
from bayplan.client import informer, list_watch
from bayplan.client.http import KubernetesCluster
from bayplan.client.informer import Informer
from bayplan.client.list_watch import PAGE_SIZE, list_all
from bayplan.client.requests import REQUEST_SECONDS, UnreachableError
from bayplan.errors import ConflictError, GoneError, UnknownOutcomeError
from conformance.harness.admin import Admin, Raw
from conformance.harness.clients import until, with_client
from conformance.harness.control_plane import KUBE_SCHEDULER, ControlPlane
from conformance.harness.objects import node, pod
from conformance.harness.programs import Programs


@pytest.fixture(scope="module", params=["pages", "streams"])
def plane(
    request: pytest.FixtureRequest, programs: Programs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    etcd = programs.streaming_etcd if request.param == "streams" else programs.etcd
    with ControlPlane(programs, tmp_path_factory.mktemp("plane"), audit=True, etcd=etcd) as plane:
        yield plane


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that try again soon."""
    for module in (informer, list_watch):
        monkeypatch.setattr(module, "FIRST_BACKOFF_SECONDS", 0.05)
        monkeypatch.setattr(module, "MAX_BACKOFF_SECONDS", 0.2)


class Copy:
    """The names of the objects that an informer's handler received."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.updates = 0

    def added(self, item: Object) -> None:
        assert item.name not in self.names, "nothing is added twice"
        self.names.add(item.name)

    def updated(self, old: Object, new: Object) -> None:
        self.updates += 1

    def deleted(self, item: Object) -> None:
        self.names.remove(item.name)


@asynccontextmanager
async def informed(cluster: KubernetesCluster, kind: type[Object]) -> AsyncIterator[Copy]:
    copy = Copy()
    watched = Informer(cluster, kind, copy)
    running = asyncio.ensure_future(watched.run())
    try:
        await watched.synced.wait()
        yield copy
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def restart(plane: ControlPlane) -> None:
    plane.stop_apiserver()
    plane.start_apiserver()
    await asyncio.to_thread(plane.wait_until_ready)


# Lists


def test_all_kinds_can_be_listed_and_watched(plane: ControlPlane) -> None:
    """Nothing that the scheduler watches is unknown to the server, or forbidden to kube-scheduler."""

    async def act(admin: Admin, cluster: KubernetesCluster) -> None:
        gates = RELEASES[plane.programs.release].gates
        watched = [kind for kind in KINDS.watched() if not kind.gate or kind.gate in gates]
        copies = [informed(cluster, kind.record) for kind in watched]
        for copy in copies:
            async with copy:
                pass

    with_client(plane, act)
    assert plane.forbidden(KUBE_SCHEDULER) == []


def test_a_long_list_is_whole(plane: ControlPlane, request: pytest.FixtureRequest) -> None:
    """Also after a version of the future, as it is known when a server comes back with an older store.

    That list is one that the server has to take from its store, and so comes in pages where it is no stream.
    """
    names = {f"long-{number:04}" for number in range(PAGE_SIZE + 100)}

    async def act(admin: Admin, cluster: KubernetesCluster) -> tuple[set[str], set[str]]:
        await admin.create_all(node(name) for name in sorted(names))
        plain, _ = await cluster.list(Node)
        future = await list_all(cluster.requests, Node, "999999999", random.Random(0))
        if future.watch is not None:
            future.watch.close()
        await admin.clear("Node")
        return {item.name for item in plain}, {item.name for item in future.items}

    assert with_client(plane, act) == (names, names)
    uris = [
        entry["requestURI"] for entry in plane.requests(KUBE_SCHEDULER) if "/nodes?" in entry["requestURI"]
    ]
    paged = any("continue=" in uri for uri in uris)
    assert paged is ("pages" in request.node.callspec.id)


# Watches


def test_a_watch_reports_all_that_happens(plane: ControlPlane) -> None:
    """A pod that has finished leaves the selection, so that it is seen as deleted."""

    async def act(admin: Admin, cluster: KubernetesCluster) -> list[tuple[Change, str]]:
        _, version = await cluster.list(Pod)
        seen: list[tuple[Change, str]] = []

        async def watch() -> None:
            async for batch in cluster.watch(Pod, version):
                seen.extend((event.change, event.object.name) for event in batch if event.object is not None)
                if seen and seen[-1] == (Change.ADDED, "last"):
                    return

        watching = asyncio.ensure_future(watch())
        for name in ("ends", "goes"):
            await admin.create(pod(name, nodeName="n1"))
        status = PodStatusPatch(Condition(type="PodScheduled", status="False", reason="r", message="m"))
        await cluster.patch_pod_status(await cluster.get(Pod, "goes", "default"), status)
        finished = await admin.get("Pod", "ends", "default")
        finished["status"]["phase"] = "Succeeded"
        await admin.send("PUT", "/api/v1/namespaces/default/pods/ends/status", finished)
        await admin.delete("Pod", "goes", "default")
        await admin.create(pod("last"))
        await watching
        await admin.clear("Pod")
        return seen

    assert with_client(plane, act) == [
        (Change.ADDED, "ends"),
        (Change.ADDED, "goes"),
        (Change.MODIFIED, "goes"),
        (Change.DELETED, "ends"),
        (Change.MODIFIED, "goes"),  # It is being deleted, be it without a grace period.
        (Change.DELETED, "goes"),
        (Change.ADDED, "last"),
    ]


def test_a_quiet_watch_has_a_bookmark_before_it_ends(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch that starts at a bookmark's resourceVersion has all later events.

    A server sends bookmarks each minute, and two seconds before a watch times out.
    """
    monkeypatch.setattr(list_watch, "MIN_TIMEOUT_SECONDS", 5)

    async def act(admin: Admin, cluster: KubernetesCluster) -> tuple[Change, str]:
        _, version = await cluster.list(Node)
        # A server sends bookmarks only to watches that have had an event since they were opened.
        await admin.create(node("in-the-past"))
        last: Raw = {}
        async for batch in cluster.watch(Node, version):
            mark = batch[-1]
            if mark.change is Change.BOOKMARK:
                break
            if not last:
                last = await admin.create(node("seen-live"))
        assert int(mark.resource_version) >= int(last["metadata"]["resourceVersion"])
        await admin.create(node("after"))
        async for batch in cluster.watch(Node, mark.resource_version):
            first = batch[0].object
            break
        await admin.clear("Node")
        return mark.change, "" if first is None else first.name

    assert with_client(plane, act) == (Change.BOOKMARK, "after")


# A server that stops


def test_a_version_that_is_too_old_is_gone(plane: ControlPlane) -> None:
    """A server that starts again has the current state, and no history."""

    async def act(admin: Admin, cluster: KubernetesCluster) -> None:
        first = await admin.create(node("old"))
        await admin.create(node("new"))
        await admin.clear("Node")
        await restart(plane)
        async for _ in cluster.watch(Node, first["metadata"]["resourceVersion"]):
            pass

    with pytest.raises(GoneError):
        with_client(plane, act)


def test_informers_resume_with_a_server_that_starts_again(plane: ControlPlane) -> None:
    """It has lost the history that the watches would need, so all is listed again: nothing is missed,
    and nothing is delivered twice."""

    async def act(admin: Admin, cluster: KubernetesCluster) -> set[str]:
        await admin.create_all(node(name) for name in ("stays", "goes"))
        async with informed(cluster, Node) as copy:
            await restart(plane)
            await admin.delete("Node", "goes")
            await admin.create(node("comes"))
            await until(lambda: copy.names == {"stays", "comes"}, "all that has happened is known")
            await admin.create(node("later"))
            await until(lambda: "later" in copy.names, "the new watch works")
            await admin.clear("Node")
            await until(lambda: not copy.names, "all nodes are gone")
            return copy.names

    assert with_client(plane, act) == set()


def test_the_client_reconnects_to_a_server_that_stopped_sending(plane: ControlPlane) -> None:
    """Its connections stay open, but no event arrives: the watch times out."""

    async def act(admin: Admin, cluster: KubernetesCluster) -> set[str]:
        assert plane.apiserver is not None
        await admin.create(node("before"))
        async with informed(cluster, Node) as copy:
            plane.apiserver.signal(signal.SIGSTOP)
            await asyncio.sleep(1.5)
            plane.apiserver.signal(signal.SIGCONT)
            await admin.create(node("after"))
            await until(lambda: copy.names == {"before", "after"}, "the node is known")
            names = set(copy.names)
            await admin.clear("Node")
        return names

    assert with_client(plane, act, idle_seconds=0.5) == {"before", "after"}


def test_a_binding_without_an_answer_may_have_happened(plane: ControlPlane) -> None:
    """A server that hangs may carry out what it has got, or detect that the client has disconnected.

    The caller gets an error that the outcome is unknown; reading the pod shows it.
    """

    async def act(admin: Admin, cluster: KubernetesCluster) -> tuple[str, str]:
        assert plane.apiserver is not None
        await admin.create(pod("perhaps"))
        waiting = await cluster.get(Pod, "perhaps", "default")
        plane.apiserver.signal(signal.SIGSTOP)
        # Not before: a server that is merely slow is no server that hangs.
        cluster.requests.seconds = 0.3
        try:
            with pytest.raises(UnknownOutcomeError):
                await cluster.bind(waiting, "n1")
        finally:
            plane.apiserver.signal(signal.SIGCONT)
        cluster.requests.seconds = REQUEST_SECONDS
        message = ""
        try:
            await cluster.bind(waiting, "n2")
        except ConflictError as error:
            message = str(error)
        found = await admin.get("Pod", "perhaps", "default")
        await admin.clear("Pod")
        return found["spec"]["nodeName"], message.rpartition(": ")[2]

    assert with_client(plane, act) in (
        ("n1", 'pod perhaps is already assigned to node "n1"'),
        ("n2", ""),
    )


def test_a_binding_that_reached_no_server_did_not_happen(plane: ControlPlane) -> None:
    async def act(admin: Admin, cluster: KubernetesCluster) -> bool:
        await admin.create(pod("never"))
        waiting = await cluster.get(Pod, "never", "default")
        plane.stop_apiserver()
        fresh = KubernetesCluster(plane.access(KUBE_SCHEDULER), qps=-1)
        try:
            with pytest.raises(UnreachableError):
                await fresh.bind(replace(waiting), "n1")
        finally:
            await fresh.close()
            await restart(plane)
        bound = "nodeName" in (await admin.get("Pod", "never", "default"))["spec"]
        await admin.clear("Pod")
        return bound

    assert with_client(plane, act) is False
