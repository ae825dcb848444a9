"""Which users have access, and the responses to others."""

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
from bayplan.process.serving import access, client_authorities
from bayplan.process.serving.settings import AuthenticationSettings, AuthorizationSettings, ProxySettings
from tests.client.http.certificates import Pair, authority

from .secure_server import ALICE, Client, Cluster, Response, with_server

SEES_METRICS = {("alice", "get", "/metrics")}
USERS, PROXIES = authority("users"), authority("proxies")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "FIRST_WAIT_SECONDS", 0.001)


def request(path: str, cluster: Cluster | None, method: str = "GET", **how: Any) -> Response:
    options = {name: how.pop(name) for name in ("token", "headers", "pair") if name in how}
    return with_server(lambda client: client.request(path, method, **options), cluster=cluster, **how)


# The response for each outcome


def test_an_allowed_user_sees_it() -> None:
    answer = request("/metrics", Cluster(allowed=SEES_METRICS), token="alices")
    assert (answer.status, answer.text) == (200, "up 1\n")


@pytest.mark.parametrize(
    ("token", "user", "reason"),
    [
        pytest.param("", "system:anonymous", ": no rule", id="anonymous"),
        pytest.param("alices", "alice", ": no rule", id="another user"),
    ],
)
def test_a_forbidden_user_is_named(token: str, user: str, reason: str) -> None:
    answer = request("/metrics", Cluster(), token=token)
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


def test_a_bad_token_is_rejected_everywhere() -> None:
    """Even where no token is needed."""
    answer = request("/healthz", Cluster(), token="stolen")
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
    answer = request("/metrics", Cluster(errors=[403]))
    assert (answer.status, answer.text) == (500, 'Internal Server Error: "/metrics": not now\n')


# Paths


@pytest.mark.parametrize(
    ("path", "open_paths", "status"),
    [
        pytest.param("/healthz", None, 200, id="probes are open"),
        pytest.param("/readyz", None, 200, id="all of them"),
        pytest.param("/healthz/ping", None, 403, id="but not single checks"),
        pytest.param("/metrics", None, 403, id="and nothing else"),
        pytest.param("/nothing", None, 403, id="an unknown path is forbidden, not missing"),
        pytest.param("/metrics", ("/metrics",), 200, id="what is opened is open"),
        pytest.param("/healthz", ("/metrics",), 403, id="instead of probes"),
        pytest.param("/healthz/ping", ("/healthz/*",), 200, id="anything that begins so"),
        pytest.param("/metrics", ("*",), 200, id="everything"),
    ],
)
def test_open_paths(path: str, open_paths: tuple[str, ...] | None, status: int) -> None:
    settings = AuthorizationSettings() if open_paths is None else AuthorizationSettings(open_paths)
    for cluster in (None, Cluster()):
        assert request(path, cluster, authorization=settings).status == status


def test_without_a_cluster_tokens_are_ignored() -> None:
    assert request("/healthz", None, token="anything").status == 200


# Reviews


def test_the_reviews_of_a_user() -> None:
    cluster = Cluster(allowed={("alice", "delete", "/metrics")})
    assert request("/metrics", cluster, "DELETE", token="alices").status == 200
    assert cluster.reviews == [
        {"token": "alices"},
        {
            "nonResourceAttributes": {"path": "/metrics", "verb": "delete"},
            "user": "alice",
            "uid": "u1",
            "groups": ["team", "system:authenticated"],
            "extra": {"scope": ["a", "b"]},
        },
    ]


def test_the_review_of_an_anonymous_user() -> None:
    cluster = Cluster()
    request("/metrics", cluster)
    (spec,) = cluster.reviews
    assert (spec["user"], spec["groups"]) == ("system:anonymous", ["system:unauthenticated"])


def test_masters_may_do_all_without_a_review() -> None:
    cluster = Cluster(tokens={"roots": {"username": "root", "groups": ["system:masters"]}})
    assert request("/metrics", cluster, token="roots").status == 200
    assert cluster.reviews == [{"token": "roots"}]


@pytest.mark.parametrize(
    ("errors", "status", "tries"),
    [
        pytest.param([500, 429], 200, 3, id="a temporary error is tried again"),
        pytest.param([500] * 5, 500, 5, id="five times in all"),
        pytest.param([403], 500, 1, id="a rejection is not retried"),
        pytest.param([503], 500, 1, id="and so does a server that is away"),
    ],
)
def test_reviews_are_tried_again(errors: list[int], status: int, tries: int) -> None:
    cluster = Cluster(allowed={("system:anonymous", "get", "/metrics")}, errors=errors)
    assert (request("/metrics", cluster).status, len(cluster.reviews)) == (status, tries)


def test_a_token_that_cannot_be_reviewed_admits_no_request(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert request("/healthz", Cluster(errors=[403]), token="alices").status == 401
    assert "the token could not be reviewed: not now" in caplog.text


@pytest.mark.parametrize(
    ("seconds", "reviewed"),
    [
        pytest.param((0, 9), 2, id="for ten seconds"),
        pytest.param((0, 11), 4, id="and no longer"),
    ],
)
@pytest.mark.parametrize("allowed", [True, False])
def test_reviews_are_cached(seconds: tuple[float, float], reviewed: int, allowed: bool) -> None:
    now = [0.0]
    cluster = Cluster(allowed=SEES_METRICS if allowed else set())

    async def act(client: Client) -> list[int]:
        statuses = []
        for moment in seconds:
            now[0] = moment
            statuses.append((await client.request("/metrics", token="alices")).status)
        return statuses

    assert with_server(act, cluster=cluster, clock=lambda: now[0]) == [200 if allowed else 403] * 2
    assert len(cluster.reviews) == reviewed


def test_identical_concurrent_requests_are_reviewed_once() -> None:
    cluster = Cluster(allowed=SEES_METRICS)

    async def act(client: Client) -> list[int]:
        answers = await asyncio.gather(*(client.request("/metrics", token="alices") for _ in range(5)))
        return [answer.status for answer in answers]

    assert with_server(act, cluster=cluster) == [200] * 5
    assert len(cluster.reviews) == 2


@pytest.mark.parametrize(
    "header",
    [
        pytest.param("Basic YWxpY2U6c2VjcmV0", id="another scheme"),
        pytest.param("Bearer", id="no token"),
        pytest.param("alices", id="no scheme"),
    ],
)
def test_what_is_not_a_bearer_token_is_anonymous(header: str) -> None:
    answer = request("/metrics", Cluster(), headers={"Authorization": header})
    assert json.loads(answer.text)["message"].startswith('forbidden: User "system:anonymous" cannot')


def test_the_scheme_may_be_written_in_any_case() -> None:
    cluster = Cluster(allowed=SEES_METRICS)
    assert request("/metrics", cluster, headers={"Authorization": "bearer alices"}).status == 200


def test_no_token_is_ever_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for cluster in (Cluster(), Cluster(errors=[500] * 5), Cluster(tokens={"s3cr3t": ALICE})):
            request("/metrics", cluster, token="s3cr3t")
    assert "s3cr3t" not in caplog.text


# Client certificates


def with_authorities(directory: Path, *, users: bool = True, **proxy: Any) -> AuthenticationSettings:
    files = {}
    for name, issuer in (("users", USERS), ("proxies", PROXIES)):
        files[name] = directory / f"{name}.crt"
        files[name].write_bytes(issuer.certificate)
    proxies = ProxySettings(ca_file=str(files["proxies"]), **proxy) if proxy else ProxySettings()
    return AuthenticationSettings(client_ca_file=str(files["users"]) if users else "", proxy=proxies)


def user_in(answer: Response, cluster: Cluster) -> tuple[str, list[str]]:
    """The user of the last request as the server saw it."""
    assert answer.status in (200, 403)
    return cluster.reviews[-1]["user"], cluster.reviews[-1]["groups"]


def test_a_certificate_names_user_and_groups(tmp_path: Path) -> None:
    cluster = Cluster(allowed={("bob", "get", "/metrics")})
    bob = USERS.issue("bob", groups=["ops", "night"])
    answer = request("/metrics", cluster, pair=bob, authentication=with_authorities(tmp_path))
    assert answer.status == 200
    assert user_in(answer, cluster) == ("bob", ["ops", "night", "system:authenticated"])


def test_a_certificate_beats_a_token(tmp_path: Path) -> None:
    cluster = Cluster()
    answer = request(
        "/metrics",
        cluster,
        pair=USERS.issue("bob"),
        token="alices",
        authentication=with_authorities(tmp_path),
    )
    assert user_in(answer, cluster)[0] == "bob"


REMOTE = [("X-Remote-User", "carol"), ("X-Remote-Group", "a"), ("X-Remote-Group", "b")]


def test_a_proxy_names_the_user(tmp_path: Path) -> None:
    cluster = Cluster()
    headers = [*REMOTE, ("X-Remote-Extra-Scopes%2Fx", "one"), ("X-Remote-Uid", "u7")]
    settings = with_authorities(tmp_path, allowed_names=("front",), uid_headers=("X-Remote-Uid",))
    answer = request(
        "/metrics", cluster, pair=PROXIES.issue("front"), headers=headers, authentication=settings
    )
    assert user_in(answer, cluster) == ("carol", ["a", "b", "system:authenticated"])
    assert (cluster.reviews[-1]["extra"], cluster.reviews[-1]["uid"]) == ({"scopes/x": ["one"]}, "u7")


@pytest.mark.parametrize(
    ("pair", "headers", "expected"),
    [
        pytest.param(PROXIES.issue("other"), REMOTE, 401, id="a proxy of another name is not believed"),
        pytest.param(PROXIES.issue("front"), [], 401, id="a proxy is no user itself"),
        pytest.param(USERS.issue("bob"), REMOTE, "bob", id="a user cannot name another"),
        pytest.param(None, REMOTE, "system:anonymous", id="nor can a client without a certificate"),
    ],
)
def test_clients_that_are_not_proxies(
    tmp_path: Path, pair: Pair | None, headers: list[tuple[str, str]], expected: str | int
) -> None:
    cluster = Cluster()
    settings = with_authorities(tmp_path, allowed_names=("front",))
    answer = request("/metrics", cluster, pair=pair, headers=headers, authentication=settings)
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
            await client.request("/metrics", pair=pair, headers=headers)
            found.append((cluster.reviews[-1]["user"], cluster.reviews[-1]["groups"]))
        return found

    known = ["system:authenticated"]
    assert with_server(act, cluster=cluster) == [("bob", known), ("carol", known)]


def test_later_changes_of_the_authorities_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_authorities, "POLL_SECONDS", 0.01)
    cluster, bob = Cluster(), USERS.issue("bob")

    async def act(client: Client) -> None:
        cluster.config_map = {"client-ca-file": USERS.certificate.decode()}
        while not cluster.reviews or cluster.reviews[-1]["user"] != "bob":
            with contextlib.suppress(aiohttp.ClientError):  # as long as bob is a stranger
                await client.request("/metrics", pair=bob)

    with_server(act, cluster=cluster)


def test_without_authorities_of_the_cluster_serving_starts(caplog: pytest.LogCaptureFixture) -> None:
    assert request("/healthz", Cluster(config_map=None)).status == 200
    assert "continuing without it: requests may be considered anonymous" in caplog.messages


@pytest.mark.parametrize("content", ["no mapping", {"client-ca-file": 5}])
def test_invalid_authorities_are_ignored(content: object, caplog: pytest.LogCaptureFixture) -> None:
    """It would end the task that reads again, and new authorities would never be seen."""
    assert request("/healthz", Cluster(config_map=content)).status == 200
    assert any("the response is not a ConfigMap" in message for message in caplog.messages)


def test_required_authorities_of_the_cluster_stop_the_start() -> None:
    with pytest.raises(ForbiddenError, match="you may not"):
        request(
            "/healthz",
            Cluster(config_map=None),
            authentication=AuthenticationSettings(tolerate_lookup_failure=False),
        )


def test_authorities_may_be_replaced_while_it_runs(tmp_path: Path) -> None:
    settings = with_authorities(tmp_path)
    cluster, others = Cluster(), authority("other users")

    async def act(client: Client) -> str:
        await client.request("/metrics", pair=USERS.issue("bob"))
        (tmp_path / "users.crt").write_bytes(USERS.certificate + others.certificate)
        await client.request("/metrics", pair=others.issue("dave"))
        return str(cluster.reviews[-1]["user"])

    assert with_server(act, cluster=cluster, authentication=settings) == "dave"
