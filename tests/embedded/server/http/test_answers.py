"""The embedded server answers as kube-apiserver v1.36.4 did, request by request."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.api.cases import Case, body_of, comparable, headers_of, load

from .serving import Caller, serve

CASES = load()


async def answers(call: Caller) -> list[dict[str, Any]]:
    """All answers, in order: the requests build on each other."""
    found = []
    for case in CASES:
        reply = await call(case["method"], case["path"], body_of(case), **headers_of(case))
        found.append(comparable(reply.status, reply.body))
    return found


@pytest.fixture(scope="module")
def answered() -> dict[str, dict[str, Any]]:
    return dict(zip((case["id"] for case in CASES), serve(answers), strict=True))


@pytest.mark.parametrize("case", [c for c in CASES if "differs" not in c], ids=lambda case: case["id"])
def test_answers_as_the_real_server(case: Case, answered: dict[str, dict[str, Any]]) -> None:
    """Code, reason, message and causes; and the object, with all that a server fills in."""
    assert answered[case["id"]] == case["answer"]


@pytest.mark.parametrize("case", [c for c in CASES if "differs" in c], ids=lambda case: case["id"])
def test_differs_only_in_the_text(case: Case, answered: dict[str, dict[str, Any]]) -> None:
    """Where the words are our own, code and reason are not."""
    ours, real = answered[case["id"]], case["answer"]
    assert (ours["status"], ours.get("reason")) == (real["status"], real.get("reason"))
    assert ours["message"] != real["message"], "then it is no difference"
