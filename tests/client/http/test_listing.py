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
from bayplan.api.pod_group import PodGroup
from bayplan.client import listing
from bayplan.client.http import KubernetesCluster
from bayplan.errors import APIError, GoneError, ServerError
from bayplan.memory_api.cluster import MemoryStore
from bayplan.testing.builders import make_node, make_pod

from .api_server import BREAK, ApiServer, Asked, refused
from .clients import talk


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


def asked(server: ApiServer) -> list[dict[str, str]]:
    """The queries so far, without what is the same in all."""
    dull = ("fieldSelector", "watch", "allowWatchBookmarks", "timeoutSeconds")
    return [{name: text for name, text in one.query.items() if name not in dull} for one in server.asked]


STREAM = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
ALL = [f"p{i:03}" for i in range(5)]


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "PAGE_SIZE", 2)


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
        return await names(server, cluster), asked(server)

    assert talk(store_of(5), act, **settings) == ((ALL, "7"), queries)


@pytest.mark.parametrize("streaming", [True, False])
def test_nothing(streaming: bool) -> None:
    assert talk(MemoryStore(), names, streaming=streaming) == ([], "0")


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
        server.asked.clear()
        return await names(server, cluster), asked(server)

    assert talk(store_of(5), act, streaming=streaming) == ((ALL, "7"), second)


@pytest.mark.parametrize("streaming", [True, False])
def test_a_server_that_was_restored_from_a_backup(streaming: bool) -> None:
    """Its versions are lower than those that we know: then any version has to do."""

    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        await cluster.list(Pod)
        server.store = store_of(2)
        return await names(server, cluster)

    assert talk(store_of(5), act, streaming=streaming) == (ALL[:2], "4")


@pytest.mark.parametrize("streaming", [True, False])
def test_a_version_that_is_too_old(streaming: bool) -> None:
    async def too_old(asked: Asked) -> web.StreamResponse | None:
        version = asked.query.get("resourceVersion", "")
        return refused(GoneError("too old")) if version not in ("", "0") else None

    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        await cluster.list(Pod)
        return await names(server, cluster)

    assert talk(store_of(5), act, streaming=streaming, interfere=too_old) == (ALL, "7")


def test_pages_that_expire_on_the_way_are_given_up_for_the_whole() -> None:
    async def expired(asked: Asked) -> web.StreamResponse | None:
        return refused(GoneError("the continue token is too old")) if "continue" in asked.query else None

    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        return await names(server, cluster), asked(server)[-1]

    settings = {"streaming": False, "paging": True, "interfere": expired}
    assert talk(store_of(5), act, **settings) == ((ALL, "7"), {"resourceVersion": "0"})


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
        return await names(server, cluster), asked(server)

    assert talk(store_of(5), act) == ((ALL, "7"), queries)


def test_what_changes_during_a_stream_counts() -> None:
    """A change may arrive before the bookmark that ends the list."""

    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        gone = server.store.get(Pod, "p001", "default")
        server.before_bookmark = [{"type": "DELETED", "object": server.raw(gone)}]
        return await names(server, cluster)

    assert talk(store_of(3), act) == (["p000", "p002"], "5")


def test_a_broken_list_is_no_list() -> None:
    async def broken(asked: Asked) -> web.StreamResponse | str | None:
        return None if asked.is_watch else BREAK

    with pytest.raises(ServerError):
        talk(store_of(5), names, streaming=False, interfere=broken)


@pytest.mark.parametrize("code", [401, 403])
def test_who_may_not_list_is_reported(code: int) -> None:
    message = 'pods is forbidden: User "x" cannot list resource "pods" in API group "" at the cluster scope'

    async def forbidden(asked: Asked) -> web.StreamResponse | None:
        return refused(APIError(message, code=code))

    with pytest.raises(APIError) as error:
        talk(store_of(1), names, interfere=forbidden)
    assert (str(error.value), error.value.code) == (message, code)


@pytest.mark.parametrize("streaming", [True, False])
def test_a_kind_that_the_server_does_not_know_is_named(streaming: bool) -> None:
    async def act(server: ApiServer, cluster: KubernetesCluster) -> None:
        await cluster.list(PodGroup)

    with pytest.raises(APIError) as error:
        talk(MemoryStore(), act, streaming=streaming, served=KINDS.names - {"PodGroup"})
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
def test_who_may_not_list_an_optional_kind_asks_whether_it_is_served(
    discovered: dict[str, Any] | None, code: int
) -> None:
    """An API server that does not serve a kind, and whose roles do not name it, answers with 403."""

    async def forbidden(asked: Asked) -> web.StreamResponse | None:
        if asked.path != "/apis/resource.k8s.io/v1":
            return refused(APIError("devicetaintrules is forbidden", code=403))
        if discovered is None:
            return refused(APIError("not found", code=404))
        return web.json_response(discovered)

    async def act(server: ApiServer, cluster: KubernetesCluster) -> None:
        await cluster.list(DeviceTaintRule)

    with pytest.raises(APIError, match="devicetaintrules is forbidden") as error:
        talk(MemoryStore(), act, interfere=forbidden)
    assert error.value.code == code


def test_too_many_requests_are_left_to_who_asked() -> None:
    async def busy(asked: Asked) -> web.StreamResponse | None:
        return refused(ServerError("busy", code=429))

    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        with pytest.raises(ServerError, match="busy"):
            await cluster.list(Pod)
        return len(server.asked)

    assert talk(store_of(1), act, interfere=busy) == 1


def test_kinds_without_a_selector_have_none() -> None:
    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        items, _ = await cluster.list(Node)
        return [item.name for item in items], ["fieldSelector" in one.query for one in server.asked]

    store = MemoryStore()
    store.create(make_node("n"))
    assert talk(store, act, streaming=False) == (["n"], [False, False])


@pytest.mark.parametrize("streaming", [True, False], ids=["as a stream", "in pages"])
def test_a_list_may_take_longer_than_a_short_request(streaming: bool) -> None:
    """A server with much to do takes its time before it begins."""

    async def slowly(asked: Asked) -> None:
        await asyncio.sleep(0.1)

    listed, _ = talk(
        store_of(5), names, streaming=streaming, interfere=slowly, options={"request_seconds": 0.02}
    )
    assert listed == ALL
