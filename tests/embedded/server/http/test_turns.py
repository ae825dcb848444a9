"""Large requests give others their turn."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from bayplan.embedded.server.http import turns
from bayplan.embedded.server.http.answers import pieces
from bayplan.embedded.server.http.turns import in_steps, in_thread_if, paced
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
    """With steps of no time at all, others are heard after every few objects."""
    monkeypatch.setattr(turns, "STEP_SECONDS", 0.0)

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
    """Others have their turn, but not after each piece: in a busy process that would take very long."""
    monkeypatch.setattr(turns, "STEP_SECONDS", step_seconds)

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


def test_yaml_in_flow_style_is_not_json() -> None:
    async def scenario(call: Caller) -> Reply:
        body = b"{metadata: {name: settings}, data: {a: '1'}}"
        return await call("POST", CONFIG_MAPS, body, "application/yaml")

    reply = serve(scenario)
    assert (reply.status, reply.body["data"]) == (201, {"a": "1"})


@pytest.mark.parametrize("accept", ["application/json", "application/json;as=Table;v=v1;g=meta.k8s.io"])
@pytest.mark.parametrize("selector", ["", "labelSelector=even%3Dtrue"])
def test_lists_that_are_made_in_steps(accept: str, selector: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "STEP_SECONDS", 0.0)

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
