"""HTTP to an extender that is slow, down, not HTTP or too large; and connections that are kept."""

from __future__ import annotations

import asyncio
import socket

import pytest
from aiohttp import web

from bayplan.extender.client import MAX_RESPONSE_BYTES, ExtenderClient, ExtenderError

from .webhook import PATIENT, Handler, Stream, Webhook, make_config, raw_server, read_request

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
LATE = 'Post "URL/filter": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
LATE_BODY = "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
TOO_LARGE = "failed filter with extender at URL URL/filter: the response is larger than 64 MiB"


async def post(url: str, verb: str = "filter", *, timeout: float = PATIENT, repeatable: bool = True) -> str:
    """The answer to one call, or the text of its error."""
    client = ExtenderClient(make_config(url, timeout=timeout))
    try:
        return (await client.post(verb, b"{}", repeatable=repeatable)).decode()
    except ExtenderError as error:
        return str(error)
    finally:
        await client.close()


async def _never(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(60)
    raise AssertionError


async def _dribbling(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.01)


async def _endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    piece = b" " * (1024 * 1024)
    for _ in range(65):
        await response.write(piece)
    return response


SLOW = (_never, _dribbling)


async def _unavailable(request: web.Request) -> web.StreamResponse:
    return web.json_response({"NodeNames": ["n1"]}, status=503)


async def _created(request: web.Request) -> web.StreamResponse:
    return web.json_response({"NodeNames": ["n1"]}, status=201)


async def _in_circles(request: web.Request) -> web.StreamResponse:
    raise web.HTTPTemporaryRedirect("/filter")


@pytest.mark.parametrize(
    ("handler", "text"),
    [
        pytest.param(_never, LATE, id="it never answers"),
        pytest.param(_dribbling, LATE_BODY, id="its answer never ends"),
        pytest.param(_endless, TOO_LARGE, id="its answer is huge"),
        pytest.param(
            _unavailable, "failed filter with extender at URL URL/filter, code 503", id="it is unavailable"
        ),
        pytest.param(
            _created, "failed filter with extender at URL URL/filter, code 201", id="only 200 is success"
        ),
        pytest.param(_in_circles, 'Post "URL/filter": stopped after 10 redirects', id="a redirect loop"),
    ],
)
def test_bad_answers(handler: Handler, text: str) -> None:
    async def scenario() -> tuple[str, str]:
        async with Webhook({"filter": handler}) as webhook:
            return await post(webhook.url, timeout=0.2 if handler in SLOW else PATIENT), webhook.url

    message, url = asyncio.run(scenario())
    assert message == text.replace("URL/", f"{url}/")


async def _hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)


async def _cut_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"NodeNames"')


async def _boasts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (MAX_RESPONSE_BYTES + 1))
    await reader.read()


async def _no_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        pytest.param(_hangs_up, 'Post "URL/filter": EOF', id="it hangs up"),
        pytest.param(_cut_off, "unexpected EOF", id="it hangs up in the middle"),
        pytest.param(_boasts, TOO_LARGE, id="the Content-Length is huge"),
        pytest.param(_no_http, 'Post "URL/filter": malformed HTTP response', id="it is not HTTP"),
    ],
)
def test_bad_connections(stream: Stream, text: str) -> None:
    async def scenario() -> tuple[str, str]:
        async with raw_server(stream) as url:
            return await post(url), url

    message, url = asyncio.run(scenario())
    assert message == text.replace("URL/", f"{url}/")


def _unused_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@pytest.mark.parametrize(
    ("url", "text"),
    [
        pytest.param(
            "http://127.0.0.1:{port}",
            'Post "http://127.0.0.1:{port}/filter": dial tcp 127.0.0.1:{port}: connect: connection refused',
            id="no listener",
        ),
        pytest.param("nowhere", 'Post "nowhere/filter": invalid URL', id="no URL"),
        pytest.param("http://[", 'Post "http://[/filter": invalid URL', id="a broken URL"),
    ],
)
def test_an_unreachable_extender(url: str, text: str) -> None:
    port = _unused_port()
    assert asyncio.run(post(url.format(port=port))) == text.format(port=port)


def test_no_such_host(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*args: object, **kwargs: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", unknown)
    text = 'Post "http://nowhere.invalid/filter": dial tcp: lookup nowhere.invalid: no such host'
    assert asyncio.run(post("http://nowhere.invalid")) == text


@pytest.mark.parametrize(("slashes", "verb"), [("", "filter"), ("/", "filter"), ("//", "a/b")])
def test_the_url_is_prefix_and_verb(slashes: str, verb: str) -> None:
    paths: list[str] = []

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        paths.append(head.split()[1].decode())
        writer.write(ANSWER)

    async def scenario() -> str:
        async with raw_server(stream) as url:
            return await post(f"{url}/prefix{slashes}", verb)

    assert (asyncio.run(scenario()), paths) == ("{}", [f"/prefix/{verb}"])


def test_a_redirect_is_followed() -> None:
    async def elsewhere(request: web.Request) -> web.StreamResponse:
        raise web.HTTPPermanentRedirect("/moved")

    async def scenario() -> tuple[str, list[str]]:
        async with Webhook({"filter": elsewhere, "moved": {"x": 1}}) as webhook:
            return await post(webhook.url), [verb for verb, _ in webhook.calls]

    assert asyncio.run(scenario()) == ('{"x": 1}', ["filter", "moved"])


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [(0, 5), (1.5, 1.5), (-1, None)],
    ids=["0 is 5 s", "as configured", "negative: none"],
)
def test_timeouts(timeout: float, seconds: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[float | None] = []
    real = asyncio.timeout

    def noting(delay: float | None) -> asyncio.Timeout:
        used.append(delay)
        return real(delay)

    async def scenario() -> None:
        async with Webhook({"filter": {}}) as webhook:
            monkeypatch.setattr(asyncio, "timeout", noting)
            await post(webhook.url, timeout=timeout)

    asyncio.run(scenario())
    assert used[0] == seconds


def test_connections_are_kept() -> None:
    """Calls one after the other need one connection; at once, one each, which the next ones use again."""

    async def scenario() -> tuple[int, int]:
        async with Webhook({"filter": {}, "bind": {}}) as webhook:
            client = ExtenderClient(make_config(webhook.url))
            for _ in range(10):
                await client.post("filter", b"{}", repeatable=True)
                await client.post("bind", b"{}", repeatable=False)
            one_by_one = len(webhook.connections)
            for _ in range(5):
                await asyncio.gather(*(client.post("filter", b"{}", repeatable=True) for _ in range(4)))
            await client.close()
            return one_by_one, len(webhook.connections)

    one_by_one, at_once = asyncio.run(scenario())
    assert one_by_one == 1
    assert at_once <= 4


def test_an_error_answer_does_not_cost_the_connection() -> None:
    async def scenario() -> int:
        async with Webhook({"filter": _unavailable}) as webhook:
            client = ExtenderClient(make_config(webhook.url))
            for _ in range(3):
                with pytest.raises(ExtenderError):
                    await client.post("filter", b"{}", repeatable=True)
            await client.close()
            return len(webhook.connections)

    assert asyncio.run(scenario()) == 1


@pytest.mark.parametrize(
    ("repeatable", "second", "connections"),
    [
        pytest.param(True, "{}", 2, id="a question is sent again"),
        pytest.param(False, "EOF", 1, id="an order is not"),
    ],
)
def test_a_kept_connection_that_was_closed(repeatable: bool, second: str, connections: int) -> None:
    """The extender closes the connection when the second call arrives, having read it."""
    opened = 0

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        await read_request(reader)
        writer.write(ANSWER)
        await read_request(reader)

    async def scenario() -> str:
        async with raw_server(stream) as url:
            client = ExtenderClient(make_config(url))
            await client.post("filter", b"{}", repeatable=repeatable)
            try:
                return (await client.post("filter", b"{}", repeatable=repeatable)).decode()
            except ExtenderError as error:
                return str(error).removeprefix(f'Post "{url}/filter": ')
            finally:
                await client.close()

    assert (asyncio.run(scenario()), opened) == (second, connections)


def test_a_client_that_was_closed_opens_new_connections() -> None:
    async def scenario() -> int:
        async with Webhook({"filter": {}}) as webhook:
            client = ExtenderClient(make_config(webhook.url))
            for _ in range(2):
                await client.post("filter", b"{}", repeatable=True)
                await client.close()
            return len(webhook.connections)

    assert asyncio.run(scenario()) == 2


def test_a_password_in_the_url_is_not_logged() -> None:
    """Messages reach logs and the events of pods."""
    message = asyncio.run(post("http://me:secret@127.0.0.1:1"))
    assert 'Post "http://me:***@127.0.0.1:1/filter"' in message
    assert "secret" not in message
