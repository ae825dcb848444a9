"""What the responses of an API server mean to the callers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bayplan.api.cluster_api import PodStatusPatch
from bayplan.api.pod import Pod
from bayplan.client.access import Access
from bayplan.client.api_errors import TooLargeError
from bayplan.client.http import KubernetesCluster
from bayplan.client.requests import UnreachableError, user_agent
from bayplan.errors import (
    APIError,
    ConflictError,
    ForbiddenError,
    GoneError,
    NotFoundError,
    ServerError,
    UnauthorizedError,
    UnknownOutcomeError,
)
from bayplan.net.tls import TLSSettings
from bayplan.simulate.memory.store import MemoryStore
from bayplan.testing.builders import make_pod

from .api_server import BREAK, ApiServer, ReceivedRequest, error_response, json_response, serving
from .certificates import authority, server_tls

Verb = Callable[[KubernetesCluster, Pod], Awaitable[Any]]


async def get(cluster: KubernetesCluster, pod: Pod) -> Any:
    await cluster.get(Pod, pod.name, pod.namespace)


async def bind(cluster: KubernetesCluster, pod: Pod) -> Any:
    await cluster.bind(pod, "n1")


async def patch(cluster: KubernetesCluster, pod: Pod) -> Any:
    await cluster.patch_pod_status(pod, PodStatusPatch(nominated_node_name="n1"))


async def delete(cluster: KubernetesCluster, pod: Pod) -> Any:
    await cluster.delete_pod(pod)


VERBS = [get, bind, patch, delete]
every_verb = pytest.mark.parametrize("verb", VERBS)


def status(code: int, reason: str, message: str = "message") -> web.Response:
    content = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return json_response(content, code)


def plain(code: int, text: str, **headers: str) -> Callable[[], web.Response]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda: web.Response(status=code, text=text, headers=named)


class JumpingLoop(asyncio.SelectorEventLoop):
    """Real time, which can be advanced: a request is then late on any machine, and not before it arrived."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


def send(
    verb: Verb, answers: Sequence[Callable[[], web.Response] | str | None], *, act_first: bool = False
) -> tuple[APIError | None, ApiServer]:
    """One request to a server that first gives these answers (None: a good one), and then good ones.

    At "silence" the time for the request is over as soon as the server has it.
    """
    seconds = 60.0

    async def main() -> tuple[APIError | None, ApiServer]:
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        assert isinstance(loop, JumpingLoop)
        store = MemoryStore()
        pod = store.create(make_pod("a", namespace="x"))
        left = list(answers)

        async def interfere(received: ReceivedRequest) -> web.StreamResponse | str | None:
            answer = left.pop(0) if left else None
            if answer == "silence":
                if act_first:
                    store.bind("a", "x", "n1")
                loop.ahead += seconds
                await over.wait()
            return answer() if callable(answer) else answer

        server = ApiServer(store, interfere=interfere)
        async with serving(server), KubernetesCluster(server.access, request_seconds=seconds) as cluster:
            try:
                await verb(cluster, pod)
            except APIError as error:
                return error, server
            finally:
                over.set()
            return None, server

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(main())


@every_verb
@pytest.mark.parametrize(
    ("answer", "expected", "code", "message"),
    [
        pytest.param(lambda: status(404, "NotFound"), NotFoundError, 404, "message", id="not found"),
        pytest.param(lambda: status(409, "Conflict"), ConflictError, 409, "message", id="conflict"),
        pytest.param(lambda: status(409, "AlreadyExists"), ConflictError, 409, "message", id="exists"),
        pytest.param(lambda: status(410, "Expired"), GoneError, 410, "message", id="gone"),
        pytest.param(
            lambda: status(401, "Unauthorized"), UnauthorizedError, 401, "message", id="unauthorized"
        ),
        pytest.param(lambda: status(403, "Forbidden"), ForbiddenError, 403, "message", id="not allowed"),
        pytest.param(lambda: status(422, "Invalid"), APIError, 422, "message", id="invalid"),
        pytest.param(lambda: status(429, "TooManyRequests"), ServerError, 429, "message", id="too many"),
        pytest.param(lambda: status(500, "InternalError"), ServerError, 500, "message", id="broken"),
        pytest.param(lambda: status(504, "Timeout"), ServerError, 504, "message", id="too slow"),
        pytest.param(
            plain(503, "no backend"),
            ServerError,
            503,
            "the server is currently unable to handle the request (VERB): no backend",
            id="a load balancer without a server",
        ),
        pytest.param(
            plain(404, "404 page not found"),
            NotFoundError,
            404,
            "the server could not find the requested resource (VERB)",
            id="something else than an API server",
        ),
        pytest.param(
            plain(502, "<b>Bad</b>"),
            ServerError,
            502,
            'an error on the server ("<b>Bad</b>") has prevented the request from succeeding',
            id="a web page",
        ),
        pytest.param(
            plain(302, "over there"),
            APIError,
            302,
            "the server responded with the status code 302 but did not return more information",
            id="elsewhere",
        ),
    ],
)
def test_rejections(
    verb: Verb, answer: Callable[[], web.Response], expected: type[APIError], code: int, message: str
) -> None:
    error, server = send(verb, [answer])
    what = f"{server.received[0].method.lower()} {server.received[0].path}"
    assert type(error) is expected
    assert error.code == code
    assert str(error).startswith(message.replace("VERB", what))
    assert len(server.received) == 1


@every_verb
def test_too_many_requests_are_sent_again_after_the_given_time(verb: Verb) -> None:
    error, server = send(verb, [plain(429, "", Retry_After="0")] * 3)
    assert (error, len(server.received)) == (None, 4)


def test_the_time_to_wait_is_that_of_retry_after() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        started = loop.time()
        await asyncio.to_thread(send, get, [plain(429, "", Retry_After="1")])
        return loop.time() - started

    assert asyncio.run(main()) >= 1.0


@every_verb
def test_the_number_of_retries_is_limited(verb: Verb) -> None:
    error, server = send(verb, [plain(429, "", Retry_After="0")] * 20)
    assert type(error) is ServerError
    assert len(server.received) == 11


@pytest.mark.parametrize(
    ("verb", "times"),
    [
        pytest.param(get, 2, id="a read is repeated"),
        pytest.param(patch, 2, id="so is a patch"),
        pytest.param(delete, 2, id="and a deletion"),
        pytest.param(bind, 1, id="a binding might have been done"),
    ],
)
def test_after_an_error_only_what_does_no_harm_is_sent_again(verb: Verb, times: int) -> None:
    error, server = send(verb, [plain(503, "", Retry_After="0")])
    assert len(server.received) == times
    assert (error is None) == (times == 2)


@every_verb
@pytest.mark.parametrize("retry_after", ["", "soon", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_without_a_number_of_seconds_nothing_is_sent_again(verb: Verb, retry_after: str) -> None:
    error, server = send(verb, [plain(429, "", Retry_After=retry_after)])
    assert (type(error), len(server.received)) == (ServerError, 1)


def test_a_version_of_the_future_is_not_requested_again() -> None:
    """Even with Retry-After: it takes seconds each time, and will not come soon."""
    future = ServerError("Too large resource version: 9", 504)
    error, server = send(get, [lambda: error_response(future, {"Retry-After": "0"})])
    assert (type(error), len(server.received)) == (TooLargeError, 1)


@pytest.mark.parametrize("act_first", [False, True], ids=["before it is done", "after it was done"])
@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        pytest.param(bind, UnknownOutcomeError, id="bind"),
        pytest.param(patch, UnknownOutcomeError, id="patch"),
        pytest.param(delete, UnknownOutcomeError, id="delete"),
        pytest.param(get, ServerError, id="get"),
    ],
)
def test_no_response_in_time(verb: Verb, expected: type[APIError], act_first: bool) -> None:
    error, server = send(verb, ["silence"], act_first=act_first)
    assert (type(error), getattr(error, "code", None)) == (expected, 0)
    assert "Client.Timeout exceeded" in str(error)
    assert bool(server.store.get(Pod, "a", "x").spec.node_name) is act_first


@every_verb
def test_a_connection_that_breaks_before_the_answer(verb: Verb) -> None:
    error, _ = send(verb, [BREAK])
    assert type(error) is (ServerError if verb is get else UnknownOutcomeError)


@every_verb
def test_a_server_that_is_not_there(verb: Verb) -> None:
    async def main() -> None:
        async with serving(ApiServer(MemoryStore())) as server:
            access = server.access
        async with KubernetesCluster(access) as cluster:
            await verb(cluster, make_pod("a", namespace="x"))

    with pytest.raises(
        UnreachableError, match=r'^\w+ "http://127.0.0.1:\d+/api/v1.*connection refused$'
    ) as error:
        asyncio.run(main())
    assert isinstance(error.value, ServerError)
    assert error.value.code == 0


def test_a_token_that_is_rejected_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")

    async def main() -> list[str]:
        store = MemoryStore()
        pod = store.create(make_pod("a"))

        async def only_new(received: ReceivedRequest) -> web.StreamResponse | None:
            if received.headers["Authorization"] == "Bearer new":
                return None
            path.write_text("new")
            return error_response(APIError("Unauthorized", code=401))

        access = Access("", tls=TLSSettings(ca_data=authority("cluster").certificate), token_file=str(path))
        server = ApiServer(store, interfere=only_new)
        async with serving(server, server_tls(), access), KubernetesCluster(server.access) as cluster:
            await bind(cluster, pod)
            await cluster.list(Pod)
        return [received.headers["Authorization"] for received in server.received]

    assert asyncio.run(main()) == ["Bearer old", "Bearer new", "Bearer new"]


def test_a_token_that_is_rejected_for_good_is_rejected() -> None:
    error, server = send(get, [lambda: status(401, "Unauthorized", "Unauthorized")] * 5)
    assert (str(error), len(server.received)) == ("Unauthorized", 1)


def test_requests_have_a_user_agent() -> None:
    _, server = send(get, [])
    assert server.received[0].headers["User-Agent"] == user_agent("scheduler")
    assert server.received[0].headers["Accept"] == "application/json"
    assert user_agent("x").startswith("bayplan/v")
    assert user_agent("x").endswith("/x")


def test_the_limit_holds_for_all_requests() -> None:
    async def main() -> float:
        store = MemoryStore()
        pod = store.create(make_pod("a"))
        server = ApiServer(store)
        async with serving(server), KubernetesCluster(server.access, qps=50, burst=1) as cluster:
            started = asyncio.get_running_loop().time()
            await asyncio.gather(*(get(cluster, pod) for _ in range(3)), cluster.list(Pod))
            return asyncio.get_running_loop().time() - started

    assert asyncio.run(main()) >= 0.06
