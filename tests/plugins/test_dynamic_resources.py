"""DynamicResources: what upstream's plugin does to pods without claims; pods with claims are refused."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from bayplan.api.pod import PodResourceClaim
from bayplan.plugin import (
    SKIP,
    Action,
    CycleState,
    FilterOutcome,
    Pod,
    Resource,
    Status,
    failure,
    unresolvable,
    unschedulable,
)
from bayplan.plugins.dynamic_resources import REASON_NOT_BUILT, DynamicResources
from bayplan.testing.builders import make_node, make_pod

from .judging import Asked, make_cluster, points, registrations, wakes

CLAIMS_MADE = (Resource.POD, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM)

plain = make_pod()
claiming = make_pod(resource_claims=(PodResourceClaim(name="gpu", resource_claim_name="gpu"),))


def post_filter(pod: Pod, pre_filtered: set[str]) -> Status:
    """What PostFilter says if the PreFilter of these plugins was run."""
    outcome = cast(FilterOutcome, SimpleNamespace(pre_filtered=pre_filtered))
    return DynamicResources().post_filter(CycleState(), pod, outcome).status


def test_its_points_are_upstreams() -> None:
    assert points(DynamicResources) == {
        "PreEnqueue",
        "PreFilter",
        "Filter",
        "PostFilter",
        "Score",
        "NormalizeScore",
        "Reserve",
        "PreBind",
    }


@pytest.mark.parametrize(
    ("pod", "answer"),
    [
        pytest.param(plain, SKIP, id="no claims"),
        pytest.param(claiming, unresolvable(REASON_NOT_BUILT), id="claims are not built yet"),
    ],
)
def test_pre_filter(pod: Pod, answer: object) -> None:
    asked = Asked(DynamicResources(), pod, make_cluster([make_node("n")]))
    assert (asked.plugin.pre_enqueue(pod), asked.pre_filter) == (None, answer)


@pytest.mark.parametrize("pod", [pytest.param(plain, id="no claims"), pytest.param(claiming, id="claims")])
def test_post_filter_has_nothing_to_free(pod: Pod) -> None:
    status = post_filter(pod, {"NodeAffinity", "DynamicResources"})
    assert status == unschedulable("no new claims to deallocate")


def test_post_filter_misses_what_pre_filter_did_not_leave() -> None:
    """Where an earlier PreFilter ended the attempt; upstream reports it as an error, and so do we."""
    assert post_filter(plain, {"NodeAffinity"}) == failure("not found")


def test_every_node_scores_nothing() -> None:
    asked = Asked(DynamicResources(), plain, make_cluster([make_node("a"), make_node("b")]))
    assert (asked.scores(), asked.normalized()) == ([0, 0], [0, 0])


def test_there_is_nothing_to_reserve_or_to_bind() -> None:
    plugin, state = DynamicResources(), CycleState()
    plugin.unreserve(state, plain, "n")
    assert (
        plugin.reserve(state, plain, "n"),
        plugin.pre_bind_pre_flight(state, plain, "n"),
        asyncio.run(plugin.pre_bind(state, plain, "n")),
    ) == (None, SKIP, None)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [pytest.param("p", True, id="its own"), pytest.param("other", False, id="another pod's")],
)
def test_hint_on_claims_made_from_templates(changed: str, expected: bool) -> None:
    pod = make_pod(changed)
    assert wakes(DynamicResources(), CLAIMS_MADE, claiming, pod, pod) is expected


def test_registrations() -> None:
    assert registrations(DynamicResources()) == [
        (Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE),
        (Resource.RESOURCE_CLAIM, Action.ADD | Action.UPDATE),
        CLAIMS_MADE,
        (Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE),
        (Resource.RESOURCE_SLICE, Action.ADD | Action.UPDATE),
    ]
