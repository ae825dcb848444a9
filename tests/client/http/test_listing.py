"""All objects of a kind, however the server gives them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from bayplan.api.devices import DeviceTaintRule
from bayplan.api.kinds import KINDS
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.workloads import PodGroup
from bayplan.client import list_watch
from bayplan.client.http import KubernetesCluster
from bayplan.errors import APIError, GoneError, ServerError
from bayplan.simulate.memory.store import MemoryStore
from bayplan.testing.builders import make_node, make_pod

from .api_server import BREAK, ApiServer, ReceivedRequest, error_response
from .clients import with_server


def store_of(count: int) -> MemoryStore:
    store = MemoryStore()
    for i in range(count):
        store.create(make_pod(f"p{i:03}"))
    store.create(make_pod("finished"))
    store.set_pod_phase("finished", "default", "Succeeded")
    return store


async def names(server: ApiServer, cluster: KubernetesCluster) -> tuple[list[str], str]:
    items, version = await cluster.list(Pod)
    return [item.name for item in items], version


def queries_of(server: ApiServer) -> list[dict[str, str]]:
    """The queries so far, without what is the same in all."""
    dull = ("fieldSelector", "watch", "allowWatchBookmarks", "timeoutSeconds")
    return [{name: text for name, text in one.query.items() if name not in dull} for one in server.received]


STREAM = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
ALL = [f"p{i:03}" for i in range(5)]


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_watch, "PAGE_SIZE", 2)


@pytest.mark.parametrize(
    ("settings", "queries"),
    [
        pytest.param({}, [STREAM], id="as a stream"),
        pytest.param(
            {"streaming": False}, [STREAM, {"resourceVersion": "0", "limit": "2"}], id="from the cache, whole"
        ),
        pytest.param(
            {"streaming": False, "paging": True},
            [
                STREAM,
                {"resourceVersion": "0", "limit": "2"},
                {"limit": "2", "continue": "7:2"},
                {"limit": "2", "continue": "7:4"},
            ],
            id="in pages",
        ),
    ],
)
def test_everything_that_has_not_finished(settings: dict[str, Any], queries: list[dict[str, str]]) -> None:
    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        return await names(server, cluster), queries_of(server)

    assert with_server(store_of(5), act, **settings) == ((ALL, "7"), queries)


@pytest.mark.parametrize("streaming", [True, False])
def test_nothing(streaming: bool) -> None:
    assert with_server(MemoryStore(), names, streaming=streaming) == ([], "0")


@pytest.mark.parametrize(
    ("streaming", "second"),
    [
        pytest.param(True, [{**STREAM, "resourceVersion": "7"}], id="as a stream"),
        pytest.param(
            False, [{**STREAM, "resourceVersion": "7"}, {"resourceVersion": "7"}], id="plainly, and whole"
        ),
    ],
)
def test_a_second_list_is_not_older_than_the_first(streaming: bool, second: list[dict[str, str]]) -> None:
    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        await cluster.list(Pod)
        server.received.clear()
        return await names(server, cluster), queries_of(server)

    assert with_server(store_of(5), act, streaming=streaming) == ((ALL, "7"), second)


@pytest.mark.parametrize("streaming", [True, False])
def test_a_server_that_was_restored_from_a_backup(streaming: bool) -> None:
    """Its versions are lower than the known ones: then any version is accepted."""

    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        await cluster.list(Pod)
        server.store = store_of(2)
        return await names(server, cluster)

    assert with_server(store_of(5), act, streaming=streaming) == (ALL[:2], "4")


@pytest.mark.parametrize("streaming", [True, False])
def test_a_version_that_is_too_old(streaming: bool) -> None:
    async def too_old(received: ReceivedRequest) -> web.StreamResponse | None:
        version = received.query.get("resourceVersion", "")
        return error_response(GoneError("too old")) if version not in ("", "0") else None

    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        await cluster.list(Pod)
        return await names(server, cluster)

    assert with_server(store_of(5), act, streaming=streaming, interfere=too_old) == (ALL, "7")


def test_pages_that_expire_on_the_way_are_given_up_for_the_whole() -> None:
    async def expired(received: ReceivedRequest) -> web.StreamResponse | None:
        return (
            error_response(GoneError("the continue token is too old"))
            if "continue" in received.query
            else None
        )

    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        return await names(server, cluster), queries_of(server)[-1]

    settings = {"streaming": False, "paging": True, "interfere": expired}
    assert with_server(store_of(5), act, **settings) == ((ALL, "7"), {"resourceVersion": "0"})


def cutting(*limits: int | None) -> Callable[[], int | None]:
    left = list(limits)
    return lambda: left.pop(0) if left else None


@pytest.mark.parametrize(
    ("limits", "queries"),
    [
        pytest.param([2000], [STREAM, STREAM], id="in the middle: once more"),
        pytest.param(
            [2000, 2000, 2000],
            [STREAM, STREAM, STREAM, {"resourceVersion": "0", "limit": "2"}],
            id="again and again: plainly",
        ),
        pytest.param([10], [STREAM, {"resourceVersion": "0", "limit": "2"}], id="at once: plainly"),
    ],
)
def test_a_stream_that_breaks(limits: list[int | None], queries: list[dict[str, str]]) -> None:
    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        server.cut_after = cutting(*limits)
        return await names(server, cluster), queries_of(server)

    assert with_server(store_of(5), act) == ((ALL, "7"), queries)


def test_what_changes_during_a_stream_counts() -> None:
    """A change may arrive before the bookmark that ends the list."""

    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        gone = server.store.get(Pod, "p001", "default")
        server.before_bookmark = [{"type": "DELETED", "object": server.raw(gone)}]
        return await names(server, cluster)

    assert with_server(store_of(3), act) == (["p000", "p002"], "5")


def test_an_incomplete_list_is_an_error() -> None:
    async def broken(received: ReceivedRequest) -> web.StreamResponse | str | None:
        return None if received.is_watch else BREAK

    with pytest.raises(ServerError):
        with_server(store_of(5), names, streaming=False, interfere=broken)


@pytest.mark.parametrize("code", [401, 403])
def test_a_forbidden_list_is_reported(code: int) -> None:
    message = 'pods is forbidden: User "x" cannot list resource "pods" in API group "" at the cluster scope'

    async def forbidden(received: ReceivedRequest) -> web.StreamResponse | None:
        return error_response(APIError(message, code=code))

    with pytest.raises(APIError) as error:
        with_server(store_of(1), names, interfere=forbidden)
    assert (str(error.value), error.value.code) == (message, code)


@pytest.mark.parametrize("streaming", [True, False])
def test_a_kind_that_is_not_served_is_named(streaming: bool) -> None:
    async def act(server: ApiServer, cluster: KubernetesCluster) -> None:
        await cluster.list(PodGroup)

    with pytest.raises(APIError) as error:
        with_server(MemoryStore(), act, streaming=streaming, served=KINDS.names - {"PodGroup"})
    assert str(error.value) == (
        "the API server does not serve podgroups of scheduling.x-k8s.io/v1alpha1: "
        "the server could not find the requested resource"
    )
    assert error.value.code == 404


@pytest.mark.parametrize(
    ("discovered", "code"),
    [
        pytest.param({"resources": [{"name": "deviceclasses"}]}, 404, id="the kind is not served"),
        pytest.param(None, 404, id="the group is not served"),
        pytest.param({"resources": [{"name": "devicetaintrules"}]}, 403, id="it is served"),
    ],
)
def test_after_a_forbidden_list_of_an_optional_kind_discovery_is_read(
    discovered: dict[str, Any] | None, code: int
) -> None:
    """An API server that does not serve a kind, and whose roles do not name it, answers with 403."""

    async def forbidden(received: ReceivedRequest) -> web.StreamResponse | None:
        if received.path != "/apis/resource.k8s.io/v1":
            return error_response(APIError("devicetaintrules is forbidden", code=403))
        if discovered is None:
            return error_response(APIError("not found", code=404))
        return web.json_response(discovered)

    async def act(server: ApiServer, cluster: KubernetesCluster) -> None:
        await cluster.list(DeviceTaintRule)

    with pytest.raises(APIError, match="devicetaintrules is forbidden") as error:
        with_server(MemoryStore(), act, interfere=forbidden)
    assert error.value.code == code


def test_too_many_requests_are_left_to_the_caller() -> None:
    async def busy(received: ReceivedRequest) -> web.StreamResponse | None:
        return error_response(ServerError("busy", code=429))

    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        with pytest.raises(ServerError, match="busy"):
            await cluster.list(Pod)
        return len(server.received)

    assert with_server(store_of(1), act, interfere=busy) == 1


def test_kinds_without_a_selector_have_none() -> None:
    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        items, _ = await cluster.list(Node)
        return [item.name for item in items], ["fieldSelector" in one.query for one in server.received]

    store = MemoryStore()
    store.create(make_node("n"))
    assert with_server(store, act, streaming=False) == (["n"], [False, False])


@pytest.mark.parametrize("streaming", [True, False], ids=["as a stream", "in pages"])
def test_a_list_may_take_longer_than_a_short_request(streaming: bool) -> None:
    """A server with much to do takes its time before it begins."""

    async def slowly(received: ReceivedRequest) -> None:
        await asyncio.sleep(0.1)

    listed, _ = with_server(
        store_of(5), names, streaming=streaming, interfere=slowly, options={"request_seconds": 0.02}
    )
    assert listed == ALL
