"""DynamicResources: claims that are freed at PostFilter, and devices that Reserve keeps."""

from __future__ import annotations

import asyncio

import pytest

from bayplan.api.meta import NodeSelector
from bayplan.api.pod import PodResourceClaim
from bayplan.api.releases import V1_37
from bayplan.plugin import SKIP, CycleState, failure, unschedulable
from bayplan.plugin.devices import is_in_flight
from bayplan.plugins.dynamic_resources import DynamicResources
from bayplan.testing.builders import make_allocated_device, make_pod, make_resource_claim
from bayplan.testing.calling import make_plugin

from .clusters import CLAIM, REQUEST, claiming, cluster_with, evaluate, gpus, plain, post_filter


def test_post_filter_misses_what_pre_filter_did_not_leave() -> None:
    """Where an earlier PreFilter ended the attempt; upstream reports it as an error."""
    found = evaluate(plain, cluster_with())
    assert post_filter(found, pre_filtered=frozenset({"NodeAffinity"})) == failure("not found")
    assert post_filter(found) == unschedulable("no new claims to deallocate")


@pytest.mark.parametrize(
    ("reserved_for", "text"),
    [
        pytest.param([], "deallocation of ResourceClaim completed", id="reserved for no pod"),
        pytest.param([claiming.uid], "deallocation of ResourceClaim completed", id="its own"),
        pytest.param(["other"], "still not schedulable", id="used by another pod"),
    ],
)
def test_post_filter_frees_an_unavailable_claim(reserved_for: list[str], text: str) -> None:
    claim = make_resource_claim(
        "c",
        REQUEST,
        allocated=[make_allocated_device("gpu-0", "x")],
        node_selector=NodeSelector(),
        reserved_for=reserved_for,
    )
    found = evaluate(claiming, cluster_with(claim))
    assert post_filter(found, "resourceclaim not available on the node") == unschedulable(text)


def test_post_filter_of_v1_37_reports_only_what_it_did() -> None:
    assert post_filter(evaluate(plain, cluster_with(release=V1_37))) == unschedulable()
    claims = {
        name: make_resource_claim(
            "c",
            REQUEST,
            allocated=[make_allocated_device("gpu-0", "x")],
            node_selector=NodeSelector(),
            reserved_for=[name],
        )
        for name in ("other", claiming.uid)
    }
    reason = "resourceclaim not available on the node"
    found = evaluate(claiming, cluster_with(claims["other"], release=V1_37))
    assert post_filter(found, reason) == unschedulable()
    found = evaluate(claiming, cluster_with(claims[claiming.uid], release=V1_37))
    assert post_filter(found, reason) == unschedulable("deallocation of ResourceClaim completed")


def test_post_filter_frees_only_claims_that_were_evaluated() -> None:
    """Where earlier filters rejected every node, DynamicResources rejected none."""
    claim = make_resource_claim(
        "c", REQUEST, allocated=[make_allocated_device("gpu-0", "x")], node_selector=NodeSelector()
    )
    assert post_filter(evaluate(claiming, cluster_with(claim))) == unschedulable("still not schedulable")


def test_reserve_keeps_devices_from_others_until_unreserve() -> None:
    cluster = cluster_with(CLAIM, gpus("a"), gpus("b"), make_resource_claim("d", REQUEST))
    other = make_pod("o", resource_claims=(PodResourceClaim(name="gpu", resource_claim_name="d"),))
    found = evaluate(claiming, cluster)
    assert found.plugin.reserve(found.state, claiming, "a") is None
    assert is_in_flight(cluster.objects, CLAIM.uid)
    assert list(evaluate(other, cluster).rejected()) == ["a"]
    found.plugin.unreserve(found.state, claiming, "a")
    assert not is_in_flight(cluster.objects, CLAIM.uid)
    assert evaluate(other, cluster).rejected() == {}


def test_reserve_of_v1_37_needs_the_claim() -> None:
    cluster = cluster_with(CLAIM, gpus("a"), release=V1_37)
    found = evaluate(claiming, cluster)
    cluster.objects.remove(CLAIM)
    assert found.plugin.reserve(found.state, claiming, "a") == failure(
        "internal error, couldn't signal allocation for claim c: look up assumed claim default/c, "
        f'UID={CLAIM.uid}: could not find ResourceClaim "default/c"'
    )
    assert not is_in_flight(cluster.objects, CLAIM.uid)


def test_there_is_nothing_to_reserve_or_to_bind_without_claims() -> None:
    plugin, state = make_plugin(DynamicResources), CycleState()
    plugin.unreserve(state, plain, "n")
    assert (
        plugin.reserve(state, plain, "n"),
        plugin.pre_bind_pre_flight(state, plain, "n"),
        asyncio.run(plugin.pre_bind(state, plain, "n")),
    ) == (None, SKIP, None)


def test_every_share_of_a_device_has_an_id_of_its_own() -> None:
    shared = gpus("a", allow_multiple_allocations=True)
    cluster = cluster_with(CLAIM, shared, make_resource_claim("d", REQUEST), nodes=("a",))
    ids = set()
    for name in ("c", "d"):
        entry = PodResourceClaim(name="gpu", resource_claim_name=name)
        found = evaluate(make_pod(name, resource_claims=(entry,)), cluster)
        found.plugin.reserve(found.state, found.pod, "a")
        (planned,) = found.state.read("DynamicResources").plan.claims
        ids.add(planned.allocation.devices.results[0].share_id)
    assert len(ids) == 2
    assert None not in ids
