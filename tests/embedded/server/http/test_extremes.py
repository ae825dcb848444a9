"""Extreme numbers and times: a 4xx or what kube-apiserver makes of them, never a 500."""

from __future__ import annotations

import pytest

from .serving import MERGE, PODS, Caller, pod, serve

LONG = "1" * 4301


@pytest.mark.parametrize(
    ("method", "path", "code", "message"),
    [
        ("GET", f"{PODS}?resourceVersion={LONG}", 400, "value out of range"),
        ("GET", f"{PODS}?resourceVersion=99999999999999999999", 400, "value out of range"),
        ("GET", f"{PODS}?resourceVersion={LONG}&resourceVersionMatch=Exact", 400, "value out of range"),
        ("GET", f"{PODS}?watch=1&resourceVersion={LONG}", 400, "value out of range"),
        ("GET", f"{PODS}?limit={LONG}", 400, "value out of range"),
        ("GET", f"{PODS}?limit=%201", 400, "invalid syntax"),
        ("GET", f"{PODS}?watch=1&timeoutSeconds={LONG}", 400, "value out of range"),
        ("DELETE", f"{PODS}/web?gracePeriodSeconds=99999999999999999999", 400, "value out of range"),
    ],
)
def test_numbers_in_the_query(method: str, path: str, code: int, message: str) -> None:
    async def scenario(call: Caller) -> None:
        await call("POST", PODS, pod())
        reply = await call(method, path)
        assert reply.status == code
        assert reply.message.endswith(message)

    serve(scenario)


@pytest.mark.parametrize("in_spec", [True, False], ids=["of the pod", "of the deletion"])
def test_the_longest_grace_period(in_spec: bool) -> None:
    """Go's durations wrap around: the time of the deletion is a second ago."""

    async def scenario(call: Caller) -> None:
        longest = 2**63 - 1
        spec = {"terminationGracePeriodSeconds": longest} if in_spec else {}
        made = pod()
        made["spec"] |= {"nodeName": "n1", **spec}
        assert (await call("POST", PODS, made)).status == 201
        options = None if in_spec else {"gracePeriodSeconds": longest}
        deleted = await call("DELETE", f"{PODS}/web", options)
        assert (deleted.status, deleted.body["metadata"]["deletionGracePeriodSeconds"]) == (200, longest)

    serve(scenario)


def test_a_negative_grace_period_is_one_second() -> None:
    async def scenario(call: Caller) -> None:
        made = pod()
        made["spec"]["terminationGracePeriodSeconds"] = -5
        assert (await call("POST", PODS, made)).body["spec"]["terminationGracePeriodSeconds"] == 1

    serve(scenario)


def test_a_day_that_does_not_exist() -> None:
    async def scenario(call: Caller) -> None:
        await call("POST", PODS, pod())
        change = {"status": {"startTime": "2025-02-29T00:00:00Z"}}
        reply = await call("PATCH", f"{PODS}/web/status", change, MERGE)
        assert reply.status == 422
        assert reply.message.endswith('parsing time "2025-02-29T00:00:00Z": day out of range')

    serve(scenario)
