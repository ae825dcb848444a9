"""What is counted about requests, as a scrape shows it."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from bayplan.api.pod import Pod
from bayplan.client.http import KubernetesCluster
from bayplan.client.requests import Connections
from bayplan.errors import APIError, NotFoundError
from bayplan.metrics import SchedulerMetrics
from bayplan.metrics.exposition import exposition
from bayplan.simulate.memory.store import MemoryStore
from bayplan.testing.builders import make_pod
from tests.metrics.scrape import values

from .api_server import BREAK, ApiServer, ReceivedRequest, serving


def test_requests_are_counted_by_code_and_measured_by_verb() -> None:
    """Each try has its code; the whole request has its time and its size."""
    store = MemoryStore()
    pod = store.create(make_pod("a"))
    metrics = SchedulerMetrics()
    rejections = 1

    async def interfere(received: ReceivedRequest) -> web.StreamResponse | str | None:
        nonlocal rejections
        if received.method == "DELETE":
            return BREAK
        if received.path.endswith("/binding") and rejections:
            rejections -= 1
            return web.Response(status=429, headers={"Retry-After": "0"})
        return None

    async def main() -> str:
        async with serving(ApiServer(store, interfere=interfere)) as server:
            connections = Connections(server.access, metrics=metrics.families)
            async with KubernetesCluster(connections, qps=1000, burst=1000) as cluster:
                await cluster.list(Pod)
                await cluster.bind(pod, "n")
                with pytest.raises(NotFoundError):
                    await cluster.get(Pod, "b", "default")
                with pytest.raises(APIError):
                    await cluster.delete_pod(pod)
            return urlsplit(server.access.server).netloc

    host = asyncio.run(main())
    text = exposition(metrics.families).decode()
    assert values(text, "rest_client_requests_total") == {
        ("200", host, "GET"): 1,
        ("404", host, "GET"): 1,
        ("429", host, "POST"): 1,
        ("201", host, "POST"): 1,
        ("<error>", host, "DELETE"): 1,
    }
    # A list that is a stream continues as a watch, and is not measured.
    assert values(text, "rest_client_request_duration_seconds_count") == {
        (host, "GET"): 1,
        (host, "POST"): 1,
        (host, "DELETE"): 1,
    }
    assert values(text, "rest_client_rate_limiter_duration_seconds_count") == {
        (host, "GET"): 2,
        (host, "POST"): 2,
        (host, "DELETE"): 1,
    }
    assert values(text, "rest_client_request_size_bytes_count") == {(host, "POST"): 1}
    assert values(text, "rest_client_request_size_bytes_sum")[host, "POST"] > 50
    assert values(text, "rest_client_response_size_bytes_count") == {(host, "POST"): 1}
