"""Several extenders together, each behind a real socket."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from bayplan.extender.chain import ExtenderChain
from bayplan.extender.client import ExtenderError
from bayplan.framework.outcome import Eviction
from bayplan.framework.status import unresolvable, unschedulable
from bayplan.runtime.search import (
    FilterRequest,
    FilterResponse,
    PreemptRequest,
    PreemptResponse,
    PrioritizeRequest,
    PrioritizeResponse,
)
from bayplan.testing.builders import make_pod

from .webhook import VERBS, Webhook, chain_of, make_config

NODES = ("n1", "n2", "n3")
POD = make_pod("p")
A, B, C = (
    make_pod(name, uid=f"u-{name}", node=node) for name, node in (("a", "n1"), ("b", "n2"), ("c", "n3"))
)
CANDIDATES = (Eviction("n1", (A,)), Eviction("n2", (B,)), Eviction("n3", (C,)))


@dataclass(frozen=True)
class Hook:
    """An extender of a test: what it answers to the verb in question, and how it is configured."""

    answer: Any = field(default_factory=dict)
    ignorable: bool = False
    weight: int = 1
    manages: tuple[str, ...] = ()
    verbs: tuple[str, ...] = VERBS


def names(*left: str) -> dict[str, Any]:
    return {"NodeNames": left}


def victims(**uids: list[str]) -> dict[str, Any]:
    return {"NodeNameToMetaVictims": {n: {"Pods": [{"UID": uid} for uid in of]} for n, of in uids.items()}}


FAILS = {"Error": "unwell"}


class Playing:
    """Hooks behind sockets and the chain of them; `called` lists the calls as (hook, names or None)."""

    def __init__(self, verb: str, hooks: Sequence[Hook]) -> None:
        self.verb, self.hooks = verb, hooks
        self.called: list[tuple[int, Any]] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> ExtenderChain:
        configs = []
        for i, hook in enumerate(self.hooks):
            webhook = await self._stack.enter_async_context(
                Webhook({self.verb: self._noting(i, hook.answer)})
            )
            configs.append(
                make_config(
                    webhook.url,
                    *hook.verbs,
                    ignorable=hook.ignorable,
                    weight=hook.weight,
                    manages=hook.manages,
                )
            )
        return await self._stack.enter_async_context(chain_of(configs, NODES, (A, B, C)))

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stack.aclose()

    def _noting(self, hook: int, answer: Any) -> Any:
        async def handler(request: web.Request) -> web.StreamResponse:
            body = await request.json()
            self.called.append((hook, body.get("NodeNames") or list(body.get("NodeNameToMetaVictims") or ())))
            return web.Response(status=answer) if isinstance(answer, int) else web.json_response(answer)

        return handler


@pytest.mark.parametrize(
    ("hooks", "response", "called"),
    [
        pytest.param([], FilterResponse(NODES), [], id="no extender"),
        pytest.param(
            [Hook(names("n3", "n1")), Hook(names("n1"))],
            FilterResponse(("n1",), removed=True),
            [(0, list(NODES)), (1, ["n3", "n1"])],
            id="each sees what the one before left",
        ),
        pytest.param(
            [Hook(names(*NODES), ignorable=True), Hook(names("n2"))],
            FilterResponse(("n2",), removed=True),
            [(1, list(NODES)), (0, ["n2"])],
            id="ignorable ones come last",
        ),
        pytest.param(
            [Hook(names(*NODES))], FilterResponse(NODES), [(0, list(NODES))], id="nothing was removed"
        ),
        pytest.param(
            [Hook({}), Hook(names("n1"))],
            FilterResponse(removed=True),
            [(0, list(NODES))],
            id="with nothing left no other extender is called",
        ),
        pytest.param(
            [Hook(names("n1"), manages=("example.com/gpu",)), Hook(names("n2"))],
            FilterResponse(("n2",), removed=True),
            [(1, list(NODES))],
            id="an extender that is not interested is not called",
        ),
        pytest.param(
            [Hook({"NodeNames": ["n1"], "FailedNodes": {"n2": "no"}})],
            FilterResponse(("n1",), {"n2": unschedulable("no")}, removed=True),
            [(0, list(NODES))],
            id="a node that fails, and one that is dropped without a reason",
        ),
        pytest.param(
            [
                Hook(
                    {
                        "FailedNodes": {"n2": "no"},
                        "FailedAndUnresolvableNodes": {"n2": "never", "n3": "never"},
                    }
                )
            ],
            FilterResponse(statuses={"n2": unresolvable("never"), "n3": unresolvable("never")}, removed=True),
            [(0, list(NODES))],
            id="never beats no",
        ),
        pytest.param(
            [
                Hook({"NodeNames": ["n1"], "FailedAndUnresolvableNodes": {"n2": "never"}}),
                Hook({"NodeNames": ["n1"], "FailedNodes": {"n2": "no"}}),
            ],
            FilterResponse(("n1",), {"n2": unschedulable("no")}, removed=True),
            [(0, list(NODES)), (1, ["n1"])],
            id="the last extender that rejects a node counts",
        ),
        pytest.param(
            [Hook(names("n1")), Hook(FAILS)],
            FilterResponse(error="unwell"),
            [(0, list(NODES)), (1, ["n1"])],
            id="an error fails the attempt",
        ),
        pytest.param(
            [Hook(FAILS, ignorable=True), Hook(names("n1"), ignorable=True)],
            FilterResponse(("n1",), removed=True),
            [(0, list(NODES)), (1, list(NODES))],
            id="one that may be ignored is skipped",
        ),
        pytest.param(
            [Hook(names("n9"), ignorable=True)],
            FilterResponse(NODES),
            [(0, list(NODES))],
            id="one with invalid results is skipped too if it may be ignored",
        ),
    ],
)
def test_filter(hooks: list[Hook], response: FilterResponse, called: list[tuple[int, Any]]) -> None:
    playing = Playing("filter", hooks)

    async def scenario() -> FilterResponse:
        async with playing as chain:
            return await chain.answer(FilterRequest(POD, NODES))

    assert (asyncio.run(scenario()), playing.called) == (response, called)


def scored(**scores: int) -> list[dict[str, Any]]:
    return [{"Host": node, "Score": score} for node, score in scores.items()]


@pytest.mark.parametrize(
    ("hooks", "scores"),
    [
        pytest.param([], {}, id="no extender"),
        pytest.param([Hook(scored(n1=3, n2=0), weight=5)], {"n1": 150, "n2": 0}, id="score x weight x 10"),
        pytest.param(
            [Hook(scored(n1=1), weight=2), Hook(scored(n1=4, n3=1), weight=3)],
            {"n1": 140, "n3": 30},
            id="scores of several add up",
        ),
        pytest.param([Hook(scored(n1=1, n9=5))], {"n1": 10}, id="nodes that were not sent are left out"),
        pytest.param([Hook(500), Hook(scored(n2=1))], {"n2": 10}, id="errors are ignored, ignorable or not"),
        pytest.param(
            [Hook(scored(n1=7), manages=("example.com/gpu",))],
            {},
            id="an extender that is not interested does not score",
        ),
        pytest.param(
            [Hook(verbs=("filter",)), Hook(scored(n2=1))],
            {"n1": 0, "n2": 10, "n3": 0},
            id="one without the verb has an entry of 0 for every node",
        ),
        pytest.param(
            [Hook(scored(n1=2**62, n2=-(2**63)), weight=1)],
            {"n1": -(2**63), "n2": 0},
            id="totals wrap around at 64 bits",
        ),
    ],
)
def test_prioritize(hooks: list[Hook], scores: dict[str, int]) -> None:
    async def scenario() -> PrioritizeResponse:
        async with Playing("prioritize", hooks) as chain:
            return await chain.answer(PrioritizeRequest(POD, NODES))

    assert asyncio.run(scenario()).scores == scores


def test_all_are_called_for_scores_at_once() -> None:
    """Each answers only when both have been called."""

    async def scenario() -> PrioritizeResponse:
        both = asyncio.Barrier(2)

        async def handler(request: web.Request) -> web.StreamResponse:
            await both.wait()
            return web.json_response(scored(n1=1))

        async with (
            Webhook({"prioritize": handler}) as one,
            Webhook({"prioritize": handler}) as other,
            chain_of([make_config(one.url), make_config(other.url)]) as chain,
        ):
            return await chain.answer(PrioritizeRequest(POD, NODES))

    assert asyncio.run(scenario()).scores == {"n1": 20}


@pytest.mark.parametrize(
    ("hooks", "response", "called"),
    [
        pytest.param([], PreemptResponse(CANDIDATES), [], id="no extender"),
        pytest.param(
            [Hook(victims(n1=["u-a"], n2=["u-b"])), Hook(victims(n2=["u-b"]))],
            PreemptResponse((Eviction("n2", (B,)),)),
            [(0, list(NODES)), (1, ["n1", "n2"])],
            id="each sees the answer of the one before",
        ),
        pytest.param(
            [Hook(victims()), Hook(victims(n1=["u-a"]))],
            PreemptResponse(),
            [(0, list(NODES))],
            id="with nothing left no other extender is called",
        ),
        pytest.param(
            [Hook(verbs=("filter",)), Hook(manages=("example.com/gpu",)), Hook(victims(n1=["u-a"]))],
            PreemptResponse((Eviction("n1", (A,)),)),
            [(2, list(NODES))],
            id="only those with the verb and an interest",
        ),
        pytest.param(
            [Hook(victims(n1=["u-a"], n2=[]))],
            PreemptResponse(error='expected at least one victim pod on node "n2"'),
            [(0, list(NODES))],
            id="a node without victims",
        ),
        pytest.param(
            [Hook(victims(n1=["u-a"], n2=[]), ignorable=True)],
            PreemptResponse((Eviction("n1", (A,)),)),
            [(0, list(NODES))],
            id="a node without victims is dropped if the extender may be ignored",
        ),
        pytest.param(
            [Hook(victims(n9=["u-a"]))],
            PreemptResponse(error='nodeinfo not found for node name "n9"'),
            [(0, list(NODES))],
            id="an error fails preemption",
        ),
        pytest.param(
            [Hook(victims(n1=["u-c"]), ignorable=True), Hook(500, ignorable=True)],
            PreemptResponse(CANDIDATES),
            [(0, list(NODES)), (1, list(NODES))],
            id="those that may be ignored are skipped",
        ),
    ],
)
def test_preempt(hooks: list[Hook], response: PreemptResponse, called: list[tuple[int, Any]]) -> None:
    playing = Playing("preempt", hooks)

    async def scenario() -> PreemptResponse:
        async with playing as chain:
            return await chain.answer(PreemptRequest(POD, CANDIDATES))

    assert (asyncio.run(scenario()), playing.called) == (response, called)


@pytest.mark.parametrize(
    ("hooks", "outcome", "called"),
    [
        pytest.param([Hook(verbs=("filter",))], False, [], id="no extender binds: the plugins do"),
        pytest.param([Hook(), Hook()], True, [0], id="the first binds"),
        pytest.param([Hook(ignorable=True), Hook()], True, [1], id="the first that may not be ignored"),
        pytest.param(
            [Hook(manages=("example.com/gpu",)), Hook()], True, [1], id="the first that is interested"
        ),
        pytest.param([Hook(FAILS)], "unwell", [0], id="an error is the message, bare"),
        pytest.param(
            [Hook(FAILS, ignorable=True), Hook(ignorable=True)], True, [0, 1], id="the next after one ignored"
        ),
        pytest.param([Hook(FAILS, ignorable=True)], False, [0], id="the plugins after one ignored"),
    ],
)
def test_bind(hooks: list[Hook], outcome: bool | str, called: list[int]) -> None:
    playing = Playing("bind", hooks)

    async def scenario() -> bool | str:
        async with playing as chain:
            try:
                return await chain.bind(POD, "n1")
            except ExtenderError as error:
                return str(error)

    assert (asyncio.run(scenario()), [hook for hook, _ in playing.called]) == (outcome, called)


def test_skipping_leaves_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> str:
        async with Playing("filter", [Hook(FAILS, ignorable=True)]) as chain:
            await chain.answer(FilterRequest(POD, NODES))
            return chain.extenders[0].url

    with caplog.at_level(logging.WARNING, "bayplan.extender.chain"):
        url = asyncio.run(scenario())
    assert caplog.messages == [f"pod default/p: skipping extender {url}, which is ignorable: unwell"]


@pytest.mark.parametrize(
    ("verbs", "matters"),
    [(("filter",), True), (("prioritize",), True), (("preempt", "bind"), False)],
    ids=["it filters", "it prioritizes", "it does neither"],
)
def test_whether_finding_one_node_is_enough(verbs: tuple[str, ...], matters: bool) -> None:
    async def scenario() -> tuple[bool, bool]:
        async with chain_of([make_config("http://x", *verbs)]) as chain:
            return bool(chain), chain.filters_or_prioritizes

    assert asyncio.run(scenario()) == (True, matters)
