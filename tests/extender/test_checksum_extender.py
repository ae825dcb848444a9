"""The extenders of recorded runs, called through the real client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from bayplan.extender.chain import ExtenderChain
from bayplan.extender.client import ExtenderError
from bayplan.framework.outcome import Eviction
from bayplan.framework.status import Code
from bayplan.runtime.search import FilterRequest, FilterResponse, PreemptRequest, PrioritizeRequest
from bayplan.simulate.checksum_extender import Bind, ChecksumExtenders, checksum
from bayplan.testing.builders import make_pod

from .webhook import chain_of, make_config

NODES = tuple(f"n{i}" for i in range(30))
POD = make_pod("p17", namespace="team-a", uid="u")
RUNNING = tuple(make_pod(f"on-{node}", node=node) for node in NODES)


async def _no_bind(namespace: str, name: str, uid: str, node: str) -> None:
    raise AssertionError


@asynccontextmanager
async def playing(
    policies: Mapping[str, Mapping[str, int]], bind: Bind = _no_bind
) -> AsyncIterator[tuple[ChecksumExtenders, ExtenderChain]]:
    async with ChecksumExtenders(policies, bind) as extenders:
        configs = [make_config(extenders.url(name)) for name in policies]
        async with chain_of(configs, NODES, RUNNING) as chain:
            yield extenders, chain


def filtered(policies: Mapping[str, Mapping[str, int]]) -> tuple[FilterResponse, list[list[object]]]:
    async def scenario() -> tuple[FilterResponse, list[list[object]]]:
        async with playing(policies) as (extenders, chain):
            return await chain.answer(FilterRequest(POD, NODES[::-1])), extenders.filtered

    return asyncio.run(scenario())


def test_a_checksum_is_the_crc_of_the_words() -> None:
    """CRC-32's own check value, and words that are joined by slashes."""
    assert (checksum("123456789"), checksum("a", "b")) == (0xCBF43926, checksum("a/b"))


def test_filter_splits_the_nodes_by_policy() -> None:
    """In two steps: never first, of the rest some rejected; what is left keeps its order."""
    response, _ = filtered({"a": {"refuse": 3, "unresolvable": 5}})
    never = {node for node in NODES if checksum("never", "a", "p17", node) % 5 == 0}
    rejected = {node for node in NODES if checksum("refuse", "a", "p17", node) % 3 == 0} - never
    by_code = {
        (status.code, status.message): {n for n, s in response.statuses.items() if s == status}
        for status in response.statuses.values()
    }
    assert by_code == {
        (Code.UNRESOLVABLE, "a never takes it"): never,
        (Code.UNSCHEDULABLE, "a refuses"): rejected,
    }
    assert response.node_names == tuple(node for node in NODES[::-1] if node not in never | rejected)


def test_filter_calls_are_recorded_with_sorted_names() -> None:
    response, calls = filtered({"b": {"refuse": 0}, "a": {"unresolvable": 0}})
    assert (response.node_names, calls) == (NODES[::-1], [["b", sorted(NODES)], ["a", sorted(NODES)]])


@pytest.mark.parametrize(("fail", "error"), [(0, ""), (1, "a is unwell")], ids=["never", "always"])
def test_failing(fail: int, error: str) -> None:
    assert filtered({"a": {"fail": fail}})[0].error == error


def test_scores() -> None:
    async def scenario() -> dict[str, int]:
        async with playing({"a": {}}) as (_, chain):
            return (await chain.answer(PrioritizeRequest(POD, NODES))).scores

    expected = {node: checksum("score", "a", "p17", node) % 100_003 * 10 for node in NODES}
    assert asyncio.run(scenario()) == expected


@pytest.mark.parametrize("policy", [{}, {"spare": 3}], ids=["all stay", "some are spared"])
def test_preempt(policy: dict[str, int]) -> None:
    candidates = tuple(Eviction(pod.spec.node_name, (pod,), 1) for pod in RUNNING)

    async def scenario() -> tuple[Eviction, ...]:
        async with playing({"a": policy}) as (_, chain):
            return (await chain.answer(PreemptRequest(POD, candidates))).candidates

    spared = {node for node in NODES if policy and checksum("spare", "a", "p17", node) % 3 == 0}
    left = tuple(eviction for eviction in candidates if eviction.node_name not in spared)
    assert asyncio.run(scenario()) == left


def test_bind_binds_the_pod() -> None:
    bound: list[tuple[str, ...]] = []

    async def bind(*args: str) -> None:
        bound.append(args)

    async def scenario() -> bool:
        async with playing({"a": {"fail": 0}}, bind) as (_, chain):
            return await chain.bind(POD, "n3")

    assert (asyncio.run(scenario()), bound) == (True, [("team-a", "p17", "u", "n3")])


@pytest.mark.parametrize(
    ("policy", "text"), [({"fail": 1}, "a is unwell"), ({}, "taken")], ids=["by policy", "by the cluster"]
)
def test_bind_that_fails(policy: dict[str, int], text: str) -> None:
    async def bind(*args: str) -> None:
        raise ValueError("taken")

    async def scenario() -> None:
        async with playing({"a": policy}, bind) as (_, chain):
            await chain.bind(POD, "n3")

    with pytest.raises(ExtenderError, match=f"^{text}$"):
        asyncio.run(scenario())


def test_an_extender_that_is_not_there() -> None:
    async def scenario() -> str:
        async with (
            ChecksumExtenders({"a": {}}, _no_bind) as extenders,
            chain_of([make_config(extenders.url("c"))], NODES) as chain,
        ):
            return (await chain.answer(FilterRequest(POD, NODES))).error

    assert asyncio.run(scenario()).endswith("/c/filter, code 404")
