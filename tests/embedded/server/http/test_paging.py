"""Lists in pages: a token is good for its own list, in the life of its server, and for a while."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayplan.embedded.server.http import reading
from tests.embedded.server.http.serving import CONFIG_MAPS, Caller, Reply, config_map, serve

SECRETS = "/api/v1/namespaces/default/secrets"


async def first_page(call: Caller, path: str = CONFIG_MAPS) -> str:
    """Creates three objects, lists one of them, and returns the token for the others."""
    for name in ("a", "b", "c"):
        await call("POST", CONFIG_MAPS, config_map(name))
    page = await call("GET", f"{path}{'&' if '?' in path else '?'}limit=1")
    token: str = page.body["metadata"]["continue"]
    return token


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(SECRETS, id="another kind"),
        pytest.param("/api/v1/configmaps", id="all namespaces"),
        pytest.param(f"{CONFIG_MAPS}?labelSelector=a%3Db", id="another selector"),
        pytest.param(f"{CONFIG_MAPS}?fieldSelector=metadata.name%3Da", id="another field selector"),
    ],
)
def test_a_token_is_good_for_its_own_list(other: str) -> None:
    async def scenario(call: Caller) -> Reply:
        token = await first_page(call)
        return await call("GET", f"{other}{'&' if '?' in other else '?'}limit=1&continue={token}")

    reply = serve(scenario)
    assert (reply.status, reply.message) == (400, "continue key is not valid: it is for another list")


def test_a_token_ends_with_its_server(tmp_path: Path) -> None:
    """The next server counts from the start, too: its first token must not be taken for the old one."""
    old = serve(first_page, tmp_path)

    async def scenario(call: Caller) -> Reply:
        await first_page(call)
        return await call("GET", f"{CONFIG_MAPS}?limit=1&continue={old}")

    reply = serve(scenario, tmp_path)
    assert (reply.status, reply.reason) == (410, "Expired")
    assert reply.message.startswith("The provided continue parameter is too old")


def test_a_page_can_be_requested_again() -> None:
    """An answer may get lost on its way."""

    async def scenario(call: Caller) -> list[list[str]]:
        token = await first_page(call)
        pages = [await call("GET", f"{CONFIG_MAPS}?limit=1&continue={token}") for _ in range(2)]
        return [[item["metadata"]["name"] for item in page.body["items"]] for page in pages]

    assert serve(scenario) == [["b"], ["b"]]


@pytest.mark.parametrize("limit", ["-1", "-9223372036854775808", "0"])
def test_a_limit_that_is_none(limit: str) -> None:
    async def scenario(call: Caller) -> int:
        await first_page(call)
        page = await call("GET", f"{CONFIG_MAPS}?limit={limit}")
        assert "continue" not in page.body["metadata"]
        return len(page.body["items"])

    assert serve(scenario) == 3


@pytest.mark.parametrize(("limit", "value"), [("MAX_OPEN_LISTS", 0), ("MAX_LIST_SECONDS", -1.0)])
def test_tokens_expire(limit: str, value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With time, and with the number of lists that are read at the same time."""
    monkeypatch.setattr(reading, limit, value)

    async def scenario(call: Caller) -> Reply:
        token = await first_page(call)
        return await call("GET", f"{CONFIG_MAPS}?limit=1&continue={token}")

    assert serve(scenario).status == 410


def test_an_expired_list_can_be_continued_with_the_objects_of_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the last object that was read on, whatever happened since; and again in pages of one version."""

    async def names(call: Caller, token: str | None) -> tuple[list[str], str | None]:
        page = await call("GET", f"{CONFIG_MAPS}?limit=2&continue={token}")
        return [item["metadata"]["name"] for item in page.body["items"]], page.body["metadata"].get(
            "continue"
        )

    async def scenario(call: Caller) -> list[list[str]]:
        token = await first_page(call)
        version = (await call("GET", CONFIG_MAPS)).body["metadata"]["resourceVersion"]
        with monkeypatch.context() as patched:
            patched.setattr(reading, "MAX_LIST_SECONDS", -1.0)
            unchanged = await call("GET", f"{CONFIG_MAPS}?limit=2&continue={token}")
        rest = await call("GET", f"{CONFIG_MAPS}?continue={unchanged.body['metadata']['continue']}")
        assert rest.body["metadata"]["resourceVersion"] != version
        await call("DELETE", f"{CONFIG_MAPS}/b")
        for name in ("0", "d", "e"):
            await call("POST", CONFIG_MAPS, config_map(name))
        with monkeypatch.context() as patched:
            patched.setattr(reading, "MAX_LIST_SECONDS", -1.0)
            expired = await call("GET", f"{CONFIG_MAPS}?limit=2&continue={token}")
        assert (expired.status, expired.reason) == (410, "Expired")
        second, following = await names(call, expired.body["metadata"]["continue"])
        await call("POST", CONFIG_MAPS, config_map("f"))
        third, end = await names(call, following)
        assert end is None
        return [second, third]

    assert serve(scenario, tmp_path) == [["c", "d"], ["e"]]
