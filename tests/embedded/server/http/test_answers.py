"""The embedded server answers as kube-apiserver did, request by request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bayplan.api.releases import parse_release
from conformance.api.cases import GATES, RELEASES, Case, body_of, comparable, headers_of, load

from .serving import Caller, serve

FILES = {path: load(path) for path in RELEASES}
CASES = [case for cases in FILES.values() for case in cases]


def answers(cases: list[Case]) -> Callable[[Caller], Awaitable[list[dict[str, Any]]]]:
    """All answers, in order: the requests build on each other."""

    async def send(call: Caller) -> list[dict[str, Any]]:
        found = []
        for case in cases:
            reply = await call(case["method"], case["path"], body_of(case), **headers_of(case))
            found.append(comparable(reply.status, reply.body))
        return found

    return send


@pytest.fixture(scope="module")
def answered() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for path, cases in FILES.items():
        release = parse_release(RELEASES[path])
        release = release.with_gates(release.gates | frozenset(GATES.get(path, ())))
        replies = serve(answers(cases), release=release)
        found.update(zip((case["id"] for case in cases), replies, strict=True))
    return found


@pytest.mark.parametrize("case", [c for c in CASES if "differs" not in c], ids=lambda case: case["id"])
def test_answers_as_the_real_server(case: Case, answered: dict[str, dict[str, Any]]) -> None:
    """Code, reason, message and causes; and the object, with all that a server fills in."""
    assert answered[case["id"]] == case["answer"]


@pytest.mark.parametrize("case", [c for c in CASES if "differs" in c], ids=lambda case: case["id"])
def test_differs_only_in_the_text(case: Case, answered: dict[str, dict[str, Any]]) -> None:
    """Where the message is bayplan's own, code and reason are those of the real server."""
    served, real = answered[case["id"]], case["answer"]
    assert (served["status"], served.get("reason")) == (real["status"], real.get("reason"))
    assert served["message"] != real["message"], "then it is no difference"
