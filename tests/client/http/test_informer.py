"""Informers over a network that breaks as networks do: their copies end up equal to the store."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace

from bayplan.api.meta import Object
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.client.http import KubernetesCluster
from bayplan.client.informer import Informer
from bayplan.errors import GoneError, ServerError
from bayplan.simulate.memory.store import MemoryStore, is_hidden
from bayplan.testing.builders import make_node, make_pod

from .api_server import BREAK, ApiServer, ReceivedRequest, error_response
from .clients import until, with_server


class Copy:
    """The objects that events add up to; events in a wrong order fail."""

    def __init__(self) -> None:
        self.items: dict[str, Object] = {}

    def added(self, item: Object) -> None:
        assert item.key not in self.items
        self.items[item.key] = item

    def updated(self, old: Object, new: Object) -> None:
        assert self.items[new.key] == old
        self.items[new.key] = new

    def deleted(self, item: Object) -> None:
        del self.items[item.key]


def visible(store: MemoryStore, kind: type[Object]) -> dict[str, Object]:
    return {item.key: item for item in store.list(kind) if not is_hidden(item)}


def live(store: MemoryStore, rng: random.Random) -> None:
    """One thing happens in the cluster."""
    name = f"p{rng.randrange(8)}"
    known = {pod.name: pod for pod in store.list(Pod)}
    pod = known.get(name)
    match rng.randrange(5):
        case 0 | 1 if pod is None:
            store.create(make_pod(name, labels={"size": "x" * rng.randrange(3000)}))
        case 2 if pod is not None and not pod.spec.node_name:
            store.bind(name, "default", "n1")
        case 3 if pod is not None:
            store.set_pod_phase(name, "default", rng.choice(("Running", "Succeeded")))
        case 4 if pod is not None:
            store.delete(Pod, name, "default")
        case _:
            store.send_bookmarks()
    if rng.random() < 0.05:
        store.compact()


class Weather:
    """Random faults, until they are switched off."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.is_bad = True

    async def interfere(self, received: ReceivedRequest) -> web.StreamResponse | str | None:
        if not self.is_bad:
            return None
        match self.rng.randrange(14):
            case 0:
                return BREAK
            case 1:
                return error_response(ServerError("broken", code=500))
            case 2:
                return error_response(ServerError("busy", code=429), {"Retry-After": "0"})
            case 3:
                return error_response(GoneError("too old"))
            case 4:
                await asyncio.sleep(self.rng.random() * 0.02)
        return None

    def cut_after(self) -> int | None:
        return self.rng.randrange(4000) if self.is_bad and self.rng.random() < 0.7 else None


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("streaming", [True, False], ids=["streams", "lists"])
@pytest.mark.parametrize("seed", range(8))
def test_the_copy_ends_up_right(seed: int, streaming: bool) -> None:
    rng = random.Random(seed)
    weather, store, copy = Weather(rng), MemoryStore(history=40), Copy()

    async def act(server: ApiServer, cluster: KubernetesCluster) -> None:
        server.cut_after = weather.cut_after
        informer = Informer(cluster, Pod, copy, rng=rng)
        running = asyncio.ensure_future(informer.run())
        for _ in range(100):
            live(store, rng)
            await asyncio.sleep(rng.choice((0, 0, 0.001, 0.003)))
        weather.is_bad = False
        store.create(make_pod("last"))
        await until(lambda: copy.items == visible(store, Pod))
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert {item.key: item for item in informer.all()} == copy.items

    with_server(
        store,
        act,
        streaming=streaming,
        interfere=weather.interfere,
        options={"rng": rng, "idle_seconds": 1.0},
    )


def test_on_a_quiet_day_one_request_does_for_each_kind() -> None:
    """The list is a stream, and the stream is the watch."""
    store = MemoryStore()
    for i in range(20):
        store.create(make_pod(f"p{i}"))
        store.create(make_node(f"n{i}"))
    copies: dict[type[Object], Copy] = {Pod: Copy(), Node: Copy()}

    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        running = [asyncio.ensure_future(Informer(cluster, kind, copies[kind]).run()) for kind in copies]
        await until(lambda: all(len(copy.items) == 20 for copy in copies.values()))
        store.delete(Node, "n3")
        store.update(
            replace(store.get(Node, "n4"), spec=replace(store.get(Node, "n4").spec, unschedulable=True))
        )
        await until(lambda: all(copies[kind].items == visible(store, kind) for kind in copies))
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        return len(server.received)

    assert with_server(store, act, tls=True) == 2
