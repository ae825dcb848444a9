"""Who is let in, and what the others are told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bayplan.errors import ForbiddenError
from bayplan.serving import client_authorities, reviews
from bayplan.serving.settings import AuthenticationSettings, AuthorizationSettings, ProxySettings
from tests.client.http.certificates import Pair, authority

from .talking import ALICE, Answer, Client, Cluster, talk

SEES_METRICS = {("alice", "get", "/metrics")}
USERS, PROXIES = authority("users"), authority("proxies")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviews, "FIRST_WAIT_SECONDS", 0.001)


def ask(path: str, cluster: Cluster | None, method: str = "GET", **how: Any) -> Answer:
    asked = {name: how.pop(name) for name in ("token", "headers", "pair") if name in how}
    return talk(lambda client: client.ask(path, method, **asked), cluster=cluster, **how)


# What each outcome looks like


def test_who_is_allowed_sees_it() -> None:
    answer = ask("/metrics", Cluster(allowed=SEES_METRICS), token="alices")
    assert (answer.status, answer.text) == (200, "up 1\n")


@pytest.mark.parametrize(
    ("token", "user", "reason"),
    [
        pytest.param("", "system:anonymous", ": no rule", id="nobody"),
        pytest.param("alices", "alice", ": no rule", id="somebody else"),
    ],
)
def test_who_is_not_allowed_is_reported(token: str, user: str, reason: str) -> None:
    answer = ask("/metrics", Cluster(), token=token)
    assert (answer.status, json.loads(answer.text)) == (
        403,
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": f'forbidden: User "{user}" cannot get path "/metrics"{reason}',
            "reason": "Forbidden",
            "details": {},
            "code": 403,
        },
    )
    assert answer.headers["Content-Type"].startswith("application/json")


def test_who_shows_a_bad_token_is_not_let_in_anywhere() -> None:
    """Not even where nobody needs one."""
    answer = ask("/healthz", Cluster(), token="stolen")
    assert (answer.status, json.loads(answer.text)) == (
        401,
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "Unauthorized",
            "reason": "Unauthorized",
            "code": 401,
        },
    )


def test_what_cannot_be_found_out_is_an_error() -> None:
    answer = ask("/metrics", Cluster(refusals=[403]))
    assert (answer.status, answer.text) == (500, 'Internal Server Error: "/metrics": not now\n')


# Paths


@pytest.mark.parametrize(
    ("path", "open_paths", "status"),
    [
        pytest.param("/healthz", None, 200, id="probes are open"),
        pytest.param("/readyz", None, 200, id="all of them"),
        pytest.param("/healthz/ping", None, 403, id="but not single checks"),
        pytest.param("/metrics", None, 403, id="and nothing else"),
        pytest.param("/nothing", None, 403, id="what is not there is no secret for who may ask"),
        pytest.param("/metrics", ("/metrics",), 200, id="what is opened is open"),
        pytest.param("/healthz", ("/metrics",), 403, id="instead of probes"),
        pytest.param("/healthz/ping", ("/healthz/*",), 200, id="anything that begins so"),
        pytest.param("/metrics", ("*",), 200, id="everything"),
    ],
)
def test_open_paths(path: str, open_paths: tuple[str, ...] | None, status: int) -> None:
    settings = AuthorizationSettings() if open_paths is None else AuthorizationSettings(open_paths)
    for cluster in (None, Cluster()):
        assert ask(path, cluster, authorization=settings).status == status


def test_without_a_cluster_to_ask_tokens_are_ignored() -> None:
    assert ask("/healthz", None, token="anything").status == 200


# Reviews


def test_what_is_asked_about_a_user() -> None:
    cluster = Cluster(allowed={("alice", "delete", "/metrics")})
    assert ask("/metrics", cluster, "DELETE", token="alices").status == 200
    assert cluster.asked == [
        {"token": "alices"},
        {
            "nonResourceAttributes": {"path": "/metrics", "verb": "delete"},
            "user": "alice",
            "uid": "u1",
            "groups": ["team", "system:authenticated"],
            "extra": {"scope": ["a", "b"]},
        },
    ]


def test_what_is_asked_about_nobody() -> None:
    cluster = Cluster()
    ask("/metrics", cluster)
    (spec,) = cluster.asked
    assert (spec["user"], spec["groups"]) == ("system:anonymous", ["system:unauthenticated"])


def test_masters_may_all_without_being_asked_about() -> None:
    cluster = Cluster(tokens={"roots": {"username": "root", "groups": ["system:masters"]}})
    assert ask("/metrics", cluster, token="roots").status == 200
    assert cluster.asked == [{"token": "roots"}]


@pytest.mark.parametrize(
    ("refusals", "status", "tries"),
    [
        pytest.param([500, 429], 200, 3, id="an answer that may be better the next time is asked for again"),
        pytest.param([500] * 5, 500, 5, id="five times in all"),
        pytest.param([403], 500, 1, id="a rejection is not retried"),
        pytest.param([503], 500, 1, id="and so does a server that is away"),
    ],
)
def test_reviews_are_tried_again(refusals: list[int], status: int, tries: int) -> None:
    cluster = Cluster(allowed={("system:anonymous", "get", "/metrics")}, refusals=refusals)
    assert (ask("/metrics", cluster).status, len(cluster.asked)) == (status, tries)


def test_a_token_that_cannot_be_reviewed_admits_no_request(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert ask("/healthz", Cluster(refusals=[403]), token="alices").status == 401
    assert "the token could not be reviewed: not now" in caplog.text


@pytest.mark.parametrize(
    ("seconds", "reviewed"),
    [
        pytest.param((0, 9), 2, id="for ten seconds"),
        pytest.param((0, 11), 4, id="and no longer"),
    ],
)
@pytest.mark.parametrize("allowed", [True, False])
def test_answers_are_remembered(seconds: tuple[float, float], reviewed: int, allowed: bool) -> None:
    now = [0.0]
    cluster = Cluster(allowed=SEES_METRICS if allowed else set())

    async def act(client: Client) -> list[int]:
        statuses = []
        for moment in seconds:
            now[0] = moment
            statuses.append((await client.ask("/metrics", token="alices")).status)
        return statuses

    assert talk(act, cluster=cluster, clock=lambda: now[0]) == [200 if allowed else 403] * 2
    assert len(cluster.asked) == reviewed


def test_who_asks_the_same_at_the_same_time_is_reviewed_once() -> None:
    cluster = Cluster(allowed=SEES_METRICS)

    async def act(client: Client) -> list[int]:
        answers = await asyncio.gather(*(client.ask("/metrics", token="alices") for _ in range(5)))
        return [answer.status for answer in answers]

    assert talk(act, cluster=cluster) == [200] * 5
    assert len(cluster.asked) == 2


@pytest.mark.parametrize(
    "header",
    [
        pytest.param("Basic YWxpY2U6c2VjcmV0", id="another scheme"),
        pytest.param("Bearer", id="no token"),
        pytest.param("alices", id="no scheme"),
    ],
)
def test_what_is_no_bearer_token_is_nobody_s(header: str) -> None:
    answer = ask("/metrics", Cluster(), headers={"Authorization": header})
    assert json.loads(answer.text)["message"].startswith('forbidden: User "system:anonymous" cannot')


def test_the_scheme_may_be_written_in_any_case() -> None:
    cluster = Cluster(allowed=SEES_METRICS)
    assert ask("/metrics", cluster, headers={"Authorization": "bearer alices"}).status == 200


def test_no_token_is_ever_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for cluster in (Cluster(), Cluster(refusals=[500] * 5), Cluster(tokens={"s3cr3t": ALICE})):
            ask("/metrics", cluster, token="s3cr3t")
    assert "s3cr3t" not in caplog.text


# Client certificates


def with_authorities(directory: Path, *, users: bool = True, **proxy: Any) -> AuthenticationSettings:
    files = {}
    for name, issuer in (("users", USERS), ("proxies", PROXIES)):
        files[name] = directory / f"{name}.crt"
        files[name].write_bytes(issuer.certificate)
    proxies = ProxySettings(ca_file=str(files["proxies"]), **proxy) if proxy else ProxySettings()
    return AuthenticationSettings(client_ca_file=str(files["users"]) if users else "", proxy=proxies)


def user_in(answer: Answer, cluster: Cluster) -> tuple[str, list[str]]:
    """Who the server thought it was that asked."""
    assert answer.status in (200, 403)
    return cluster.asked[-1]["user"], cluster.asked[-1]["groups"]


def test_a_certificate_names_user_and_groups(tmp_path: Path) -> None:
    cluster = Cluster(allowed={("bob", "get", "/metrics")})
    bob = USERS.issue("bob", groups=["ops", "night"])
    answer = ask("/metrics", cluster, pair=bob, authentication=with_authorities(tmp_path))
    assert answer.status == 200
    assert user_in(answer, cluster) == ("bob", ["ops", "night", "system:authenticated"])


def test_a_certificate_beats_a_token(tmp_path: Path) -> None:
    cluster = Cluster()
    answer = ask(
        "/metrics",
        cluster,
        pair=USERS.issue("bob"),
        token="alices",
        authentication=with_authorities(tmp_path),
    )
    assert user_in(answer, cluster)[0] == "bob"


REMOTE = [("X-Remote-User", "carol"), ("X-Remote-Group", "a"), ("X-Remote-Group", "b")]


def test_a_proxy_says_for_whom_it_asks(tmp_path: Path) -> None:
    cluster = Cluster()
    headers = [*REMOTE, ("X-Remote-Extra-Scopes%2Fx", "one"), ("X-Remote-Uid", "u7")]
    settings = with_authorities(tmp_path, allowed_names=("front",), uid_headers=("X-Remote-Uid",))
    answer = ask("/metrics", cluster, pair=PROXIES.issue("front"), headers=headers, authentication=settings)
    assert user_in(answer, cluster) == ("carol", ["a", "b", "system:authenticated"])
    assert (cluster.asked[-1]["extra"], cluster.asked[-1]["uid"]) == ({"scopes/x": ["one"]}, "u7")


@pytest.mark.parametrize(
    ("pair", "headers", "expected"),
    [
        pytest.param(PROXIES.issue("other"), REMOTE, 401, id="a proxy of another name is not believed"),
        pytest.param(PROXIES.issue("front"), [], 401, id="a proxy is nobody itself"),
        pytest.param(USERS.issue("bob"), REMOTE, "bob", id="a user cannot ask for others"),
        pytest.param(None, REMOTE, "system:anonymous", id="nor can somebody without a certificate"),
    ],
)
def test_who_is_no_proxy(
    tmp_path: Path, pair: Pair | None, headers: list[tuple[str, str]], expected: str | int
) -> None:
    cluster = Cluster()
    settings = with_authorities(tmp_path, allowed_names=("front",))
    answer = ask("/metrics", cluster, pair=pair, headers=headers, authentication=settings)
    found = answer.status if answer.status == 401 else user_in(answer, cluster)[0]
    assert found == expected


def test_authorities_come_from_the_cluster() -> None:
    cluster = Cluster(
        config_map={
            "client-ca-file": USERS.certificate.decode(),
            "requestheader-client-ca-file": PROXIES.certificate.decode(),
            "requestheader-allowed-names": '["front"]',
            "requestheader-username-headers": '["X-User"]',
            "requestheader-group-headers": '["X-Group"]',
            "requestheader-extra-headers-prefix": '["X-Extra-"]',
        }
    )

    async def act(client: Client) -> list[tuple[str, list[str]]]:
        found = []
        for pair, headers in ((USERS.issue("bob"), {}), (PROXIES.issue("front"), {"X-User": "carol"})):
            await client.ask("/metrics", pair=pair, headers=headers)
            found.append((cluster.asked[-1]["user"], cluster.asked[-1]["groups"]))
        return found

    known = ["system:authenticated"]
    assert talk(act, cluster=cluster) == [("bob", known), ("carol", known)]


def test_what_the_cluster_says_later_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_authorities, "POLL_SECONDS", 0.01)
    cluster, bob = Cluster(), USERS.issue("bob")

    async def act(client: Client) -> None:
        cluster.config_map = {"client-ca-file": USERS.certificate.decode()}
        while not cluster.asked or cluster.asked[-1]["user"] != "bob":
            with contextlib.suppress(aiohttp.ClientError):  # as long as bob is a stranger
                await client.ask("/metrics", pair=bob)

    talk(act, cluster=cluster)


def test_a_cluster_that_does_not_say_is_gone_on_without(caplog: pytest.LogCaptureFixture) -> None:
    assert ask("/healthz", Cluster(config_map=None)).status == 200
    assert "continuing without it: requests may be considered anonymous" in caplog.messages


@pytest.mark.parametrize("content", ["no mapping", {"client-ca-file": 5}])
def test_or_that_says_nonsense(content: object, caplog: pytest.LogCaptureFixture) -> None:
    """It would end the task that asks again, and new authorities would never be seen."""
    assert ask("/healthz", Cluster(config_map=content)).status == 200
    assert any("the response is not a ConfigMap" in message for message in caplog.messages)


def test_or_it_is_not_gone_on() -> None:
    with pytest.raises(ForbiddenError, match="you may not"):
        ask(
            "/healthz",
            Cluster(config_map=None),
            authentication=AuthenticationSettings(tolerate_lookup_failure=False),
        )


def test_authorities_may_be_replaced_while_it_runs(tmp_path: Path) -> None:
    settings = with_authorities(tmp_path)
    cluster, others = Cluster(), authority("other users")

    async def act(client: Client) -> str:
        await client.ask("/metrics", pair=USERS.issue("bob"))
        (tmp_path / "users.crt").write_bytes(USERS.certificate + others.certificate)
        await client.ask("/metrics", pair=others.issue("dave"))
        return str(cluster.asked[-1]["user"])

    assert talk(act, cluster=cluster, authentication=settings) == "dave"
