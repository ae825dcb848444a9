"""Access reviews: a scheduler's own server reviews the users of its metrics."""

from __future__ import annotations

import pytest

from .serving import Caller, serve

ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
METRICS = {"path": "/metrics", "verb": "get"}


@pytest.mark.parametrize(
    ("user", "groups", "allowed"),
    [
        pytest.param("kubernetes-admin", ["system:masters"], True, id="the user of the token"),
        pytest.param("system:anonymous", ["system:unauthenticated"], False, id="anonymous"),
        pytest.param("someone", [], False, id="an unknown user"),
    ],
)
def test_users_that_may_see_metrics(user: str, groups: list[str], allowed: bool) -> None:
    async def scenario(call: Caller) -> bool:
        spec = {"user": user, "groups": groups, "nonResourceAttributes": METRICS}
        found: bool = (await call("POST", ACCESS, {"spec": spec})).body["status"]["allowed"]
        return found

    assert serve(scenario) is allowed


def test_an_unknown_token_is_not_authenticated() -> None:
    async def scenario(call: Caller) -> bool:
        status = (await call("POST", TOKENS, {"spec": {"token": "guessed"}})).body["status"]
        return bool(status.get("authenticated"))

    assert serve(scenario) is False


def test_a_review_has_no_table() -> None:
    async def scenario(call: Caller) -> tuple[int, str]:
        spec = {"user": "anna", "nonResourceAttributes": METRICS}
        accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
        reply = await call("POST", ACCESS, {"spec": spec}, Accept=accept)
        return reply.status, reply.reason

    assert serve(scenario) == (406, "NotAcceptable")
