"""Large requests let other requests run in between."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from typing import Any

import pytest
import yaml

from bayplan.embedded.server import steps
from bayplan.embedded.server.http import answers, bodies
from bayplan.embedded.server.http.answers import pieces
from bayplan.embedded.server.steps import in_steps, in_thread_if, paced
from tests.embedded.server.http.serving import (
    CONFIG_MAPS,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    Caller,
    Reply,
    config_map,
    serve,
)


def test_work_on_many_objects_is_cut_into_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """With steps of no time at all, others are served after every few objects."""
    monkeypatch.setattr(steps, "STEP_SECONDS", 0.0)

    async def main() -> tuple[list[int], int]:
        turns_of_others = 0

        async def other() -> None:
            nonlocal turns_of_others
            while True:
                turns_of_others += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        results = await in_steps(lambda number: 2 * number, range(1000))
        task.cancel()
        return results, turns_of_others

    results, turns_of_others = asyncio.run(main())
    assert results == list(range(0, 2000, 2))
    assert turns_of_others > 50


@pytest.mark.parametrize(("step_seconds", "least", "most"), [(0.0, 200, 210), (0.005, 5, 100)])
def test_long_answers_are_written_many_pieces_at_a_time(
    step_seconds: float, least: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others run in between, but not after each piece: in a busy process that would take very long."""
    monkeypatch.setattr(steps, "STEP_SECONDS", step_seconds)

    async def main() -> tuple[int, int]:
        turns_of_others = 0

        async def other() -> None:
            nonlocal turns_of_others
            while True:
                turns_of_others += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        written = [piece async for piece in paced(b"piece" for _ in range(200))]
        task.cancel()
        return len(written), turns_of_others

    written, turns_of_others = asyncio.run(main())
    assert written == 200
    assert least <= turns_of_others <= most


def test_large_work_is_done_in_a_thread() -> None:
    async def main(is_large: bool) -> bool:
        return await in_thread_if(is_large, threading.current_thread) is threading.current_thread()

    assert asyncio.run(main(False))
    assert not asyncio.run(main(True))


def test_errors_come_out_of_the_thread() -> None:
    async def main() -> None:
        await in_thread_if(True, lambda: 1 // 0)

    with pytest.raises(ZeroDivisionError):
        asyncio.run(main())


def test_pieces_are_neither_small_nor_large() -> None:
    """Whatever the parts: what waits for a client that does not read is a piece or two."""
    parts = [b"a" * 10] * 20_000 + [b"b" * 1_000_000] + [b"c"]
    cut = list(pieces(parts))
    assert b"".join(cut) == b"".join(parts)
    assert max(map(len, cut)) <= 64 * 1024
    assert len(cut) < 30


LARGE = {f"k{number}": "v" * 20 for number in range(10_000)}


@pytest.mark.parametrize(
    ("content_type", "patch"),
    [
        pytest.param(MERGE, {"data": LARGE}, id="merge"),
        pytest.param(STRATEGIC, {"data": LARGE}, id="strategic"),
        pytest.param(JSON_PATCH, [{"op": "add", "path": "/data", "value": LARGE}], id="JSON"),
    ],
)
def test_a_large_patch_is_applied_to_what_is_there_in_the_end(content_type: str, patch: Any) -> None:
    """Its outcome is worked out in a thread; whatever is written meanwhile is not lost."""

    async def scenario(call: Caller) -> tuple[set[int], Reply]:
        await call("POST", CONFIG_MAPS, config_map(a="1"))
        path = f"{CONFIG_MAPS}/settings"
        labels = [{"metadata": {"labels": {f"l{number}": "x"}}} for number in range(20)]
        replies = await asyncio.gather(
            call("PATCH", path, patch, content_type),
            *(call("PATCH", path, label, MERGE) for label in labels[:10]),
            call("PATCH", path, patch, content_type),
            *(call("PATCH", path, label, MERGE) for label in labels[10:]),
        )
        return {reply.status for reply in replies}, await call("GET", path)

    statuses, found = serve(scenario)
    assert statuses == {200}
    assert len(found.body["metadata"]["labels"]) == 20
    assert found.body["data"].items() >= LARGE.items()


@pytest.mark.parametrize("content_type", ["application/json", "application/yaml"])
def test_large_objects(content_type: str) -> None:
    """JSON is YAML, and read as JSON where it is."""

    async def scenario(call: Caller) -> Reply:
        return await call("POST", CONFIG_MAPS, json.dumps(config_map(**LARGE)).encode(), content_type)

    reply = serve(scenario)
    assert (reply.status, reply.body["data"]) == (201, LARGE)


BLOCK_YAML = "metadata: {{name: {name}}}\ndata:\n{data}"
FLOW_YAML = "{{metadata: {{name: {name}}}, data: {{{data}}}}}"


@pytest.mark.parametrize("flow", [False, True], ids=["block style", "flow style"])
def test_yaml_that_takes_long_delays_nothing_else(flow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few large bodies wait, one at a time; more are refused, and smaller ones are served meanwhile."""
    goes_on = threading.Event()
    decode = bodies._decoded_yaml

    def held(body: bytes, what: str) -> Any:
        if len(body) > bodies.MAX_QUICK_YAML_BYTES:
            goes_on.wait(60)
        return decode(body, what)

    monkeypatch.setattr(bodies, "_decoded_yaml", held)

    def body(name: str, count: int) -> bytes:
        if flow:
            return FLOW_YAML.format(name=name, data=",".join(f"k{i}: v{i}" for i in range(count))).encode()
        return BLOCK_YAML.format(name=name, data="\n".join(f"  k{i}: v{i}" for i in range(count))).encode()

    async def scenario(call: Caller) -> list[int]:
        def write(name: str, count: int) -> asyncio.Task[Reply]:
            return asyncio.create_task(call("POST", CONFIG_MAPS, body(name, count), "application/yaml"))

        large = [write(f"large-{number}", 6000) for number in range(steps.MAX_YAML_WAITING + 2)]
        refused = [await task for task in itertools.islice(asyncio.as_completed(large), 2)]
        small = await write("small", 1500)
        goes_on.set()
        accepted = [reply.status for task in large if (reply := await task) not in refused]
        return [*(reply.status for reply in refused), small.status, *accepted]

    assert serve(scenario) == [429, 429, 201, *[201] * steps.MAX_YAML_WAITING]


def test_yaml_in_flow_style_has_the_limit_of_yaml() -> None:
    body = FLOW_YAML.format(name="x", data=f"a: {'x' * bodies.MAX_YAML_BODY_BYTES}").encode()

    async def scenario(call: Caller) -> Reply:
        return await call("POST", CONFIG_MAPS, body, "application/yaml")

    assert serve(scenario).status == 413


def test_yaml_in_flow_style_is_not_json() -> None:
    async def scenario(call: Caller) -> Reply:
        body = b"{metadata: {name: settings}, data: {a: '1'}}"
        return await call("POST", CONFIG_MAPS, body, "application/yaml")

    reply = serve(scenario)
    assert (reply.status, reply.body["data"]) == (201, {"a": "1"})


@pytest.mark.parametrize(("count", "where"), [(1, "loop"), (2000, "thread")])
def test_large_yaml_is_written_in_a_thread(count: int, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an object that is read, created, changed or deleted, and of a list."""
    seen: list[str] = []
    write = answers._yaml

    def observed(content: Any) -> str:
        seen.append("loop" if threading.current_thread() is threading.main_thread() else "thread")
        return write(content)

    monkeypatch.setattr(answers, "_yaml", observed)

    async def scenario(call: Caller) -> list[Reply]:
        data = {f"k{number}": "v" * 20 for number in range(count)}
        path, accept = f"{CONFIG_MAPS}/settings", "application/yaml"
        return [
            await call("POST", CONFIG_MAPS, config_map(**data), Accept=accept),
            await call("GET", path, Accept=accept),
            await call("GET", CONFIG_MAPS, Accept=accept),
            await call("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, MERGE, Accept=accept),
        ]

    replies = serve(scenario)
    assert [yaml.safe_load(str(reply.body))["kind"] for reply in replies] == [
        "ConfigMap", "ConfigMap", "ConfigMapList", "ConfigMap",
    ]  # fmt: skip
    assert seen == [where] * 4


@pytest.mark.parametrize(
    ("accept", "field"),
    [
        pytest.param("application/json", "items", id="objects"),
        pytest.param("application/json;as=Table;v=v1;g=meta.k8s.io", "rows", id="table"),
        pytest.param(
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "items", id="metadata"
        ),
    ],
)
def test_long_lists_are_written_piece_by_piece(
    accept: str, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every form, and when they are deleted. No entry is encoded together with all others."""
    monkeypatch.setattr(answers, "_STREAMED", 1000)

    async def scenario(call: Caller) -> tuple[Reply, Reply]:
        for number in range(30):
            await call("POST", CONFIG_MAPS, config_map(f"c{number}"))
        return await call("GET", CONFIG_MAPS, Accept=accept), await call("DELETE", CONFIG_MAPS)

    listed, deleted = serve(scenario)
    assert (len(listed.body[field]), len(deleted.body["items"])) == (30, 30)
    for reply in (listed, deleted):
        assert reply.headers["Transfer-Encoding"] == "chunked"
        assert reply.body["metadata"]["resourceVersion"]


@pytest.mark.parametrize(
    ("method", "content_type", "body"),
    [
        pytest.param(
            "POST", "application/json", {"metadata": {"name": "c"}, "data": {"x" * 20_000: "v"}}, id="JSON"
        ),
        pytest.param("POST", "application/yaml", f"data:\n  ? {'x' * 20_000}\n  : v".encode(), id="YAML"),
        pytest.param("PATCH", MERGE, {"data": {"x" * 20_000: "v"}}, id="merge patch"),
    ],
)
def test_names_are_not_endless(method: str, content_type: str, body: Any) -> None:
    """Every message about a value has the names that lead to it."""

    async def scenario(call: Caller) -> Reply:
        await call("POST", CONFIG_MAPS, config_map())
        path = CONFIG_MAPS if method == "POST" else f"{CONFIG_MAPS}/settings"
        return await call(method, path, body, content_type)

    reply = serve(scenario)
    assert (reply.status, "a name of more than 1024 characters" in reply.message) == (413, True)


def test_pointers_of_patches_have_no_endless_names() -> None:
    async def scenario(call: Caller) -> Reply:
        await call("POST", CONFIG_MAPS, config_map())
        patch = [{"op": "add", "path": f"/data/{'x' * 1025}", "value": "v"}]
        return await call("PATCH", f"{CONFIG_MAPS}/settings", patch, JSON_PATCH)

    assert serve(scenario).status == 422


@pytest.mark.parametrize("accept", ["application/json", "application/json;as=Table;v=v1;g=meta.k8s.io"])
@pytest.mark.parametrize("selector", ["", "labelSelector=even%3Dtrue"])
def test_lists_that_are_made_in_steps(accept: str, selector: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "STEP_SECONDS", 0.0)

    async def scenario(call: Caller) -> Reply:
        for number in range(50):
            item = config_map(f"c{number:02}")
            item["metadata"]["labels"] = {"even": str(number % 2 == 0).lower()}
            await call("POST", CONFIG_MAPS, item)
        return await call("GET", f"{CONFIG_MAPS}?{selector}", Accept=accept)

    body = serve(scenario).body
    rows = [row["object"] for row in body["rows"]] if "rows" in body else body["items"]
    names = [row["metadata"]["name"] for row in rows]
    assert names == [f"c{number:02}" for number in range(0, 50, 2 if selector else 1)]
