"""DynamicResources: which nodes have devices for the claims of a pod, and which are preferred."""

from __future__ import annotations

import pytest

from bayplan.api.meta import LabelSelectorRequirement, NodeSelector, NodeSelectorTerm
from bayplan.api.pod import PodResourceClaim
from bayplan.plugin import (
    DEFAULT_RELEASE,
    SKIP,
    SKIP_FOR_SIGNATURE,
    Code,
    CycleState,
    Object,
    Status,
    failure,
    unresolvable,
)
from bayplan.plugin.devices import DeviceRequest, put_in_flight
from bayplan.testing.builders import (
    make_allocated_device,
    make_device,
    make_device_class,
    make_device_request,
    make_first_available,
    make_pod,
    make_resource_claim,
    make_resource_slice,
)

from ..evaluating import UNRESOLVABLE
from .clusters import (
    ALLOCATED,
    CLAIM,
    ON_A,
    REQUEST,
    claiming,
    cluster_with,
    created,
    evaluate,
    gpus,
    plain,
    templated,
)


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        pytest.param(REQUEST, None, id="fine"),
        pytest.param(
            make_device_request("r", "x"),
            unresolvable("request r: device class x does not exist"),
            id="no class",
        ),
        pytest.param(
            make_first_available("r", REQUEST, make_device_request("s", "x")),
            unresolvable("request r/s: device class x does not exist"),
            id="no class of an alternative",
        ),
        pytest.param(
            make_device_request("r", ""), failure("request r: unsupported request type"), id="no class name"
        ),
        pytest.param(
            DeviceRequest(name="r"),
            unresolvable("resource claim default/c, request r: unknown request type"),
            id="no request",
        ),
    ],
)
def test_pre_filter_checks_requests(request_: DeviceRequest, answer: Status | None) -> None:
    assert evaluate(claiming, cluster_with(make_resource_claim("c", request_))).pre_filter == answer


def test_alternatives_whose_feature_is_off() -> None:
    release = DEFAULT_RELEASE.with_gates(DEFAULT_RELEASE.gates - {"DRAPrioritizedList"})
    claim = make_resource_claim("c", make_first_available("r", REQUEST))
    assert evaluate(claiming, cluster_with(claim, gpus("a"), release=release)).pre_filter == unresolvable(
        "resource claim default/c, request r: has subrequests, but the DRAPrioritizedList feature is disabled"
    )


def test_pre_filter_leaves_pods_without_claims_alone() -> None:
    cluster = cluster_with()
    assert evaluate(plain, cluster).pre_filter is SKIP_FOR_SIGNATURE
    assert evaluate(created(templated, None), cluster).pre_filter is SKIP


def test_a_claim_that_another_pod_is_about_to_allocate() -> None:
    cluster = cluster_with(CLAIM)
    put_in_flight(cluster.objects, CLAIM.uid, ALLOCATED)
    expected = unresolvable("resource claim default/c is in the process of being allocated")
    assert evaluate(claiming, cluster).pre_filter == expected


def test_an_allocation_with_a_malformed_selector_is_an_error() -> None:
    broken = NodeSelector(
        node_selector_terms=(
            NodeSelectorTerm(match_expressions=(LabelSelectorRequirement(key="a", operator="Near"),)),
        )
    )
    claim = make_resource_claim(
        "c", REQUEST, allocated=[make_allocated_device("gpu-0", "a")], node_selector=broken
    )
    answer = evaluate(claiming, cluster_with(claim)).pre_filter
    assert answer.code is Code.ERROR
    assert "Near" in answer.message


@pytest.mark.parametrize(
    ("objects", "rejected"),
    [
        pytest.param([CLAIM, gpus("a")], {"b": "cannot allocate all claims"}, id="devices on one node"),
        pytest.param(
            [CLAIM, gpus("a"), make_resource_claim("d", allocated=[make_allocated_device("gpu-0", "a")])],
            dict.fromkeys("ab", "cannot allocate all claims"),
            id="taken",
        ),
        pytest.param(
            [CLAIM, make_resource_slice("s", make_device("x"), make_device("x"), node="a")],
            {"a": "invalid resource pools were encountered", "b": "cannot allocate all claims"},
            id="an invalid pool",
        ),
        pytest.param(
            [CLAIM, make_resource_slice("s", node="a")],
            dict.fromkeys("ab", "cannot allocate all claims"),
            id="a slice without devices",
        ),
        pytest.param(
            [CLAIM, make_resource_slice("s", make_device("x"), node="a", slices=2)],
            dict.fromkeys("ab", "cannot allocate all claims"),
            id="an incomplete pool",
        ),
        pytest.param(
            [
                make_resource_claim(
                    "c", REQUEST, allocated=[make_allocated_device("gpu-0", "a")], node_selector=ON_A
                )
            ],
            {"b": "resourceclaim not available on the node"},
            id="allocated elsewhere",
        ),
    ],
)
def test_nodes_without_devices_are_rejected(objects: list[Object], rejected: dict[str, str]) -> None:
    expected = {name: (UNRESOLVABLE, (reason,)) for name, reason in rejected.items()}
    assert evaluate(claiming, cluster_with(*objects)).rejected() == expected


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        pytest.param("device.", "CEL compile error: ", id="malformed"),
        pytest.param(
            'device.attributes["gpu.example.com"].model == "x"',
            "CEL runtime error: no such key: model",
            id="unknown attribute",
        ),
    ],
)
def test_a_selector_that_cannot_be_evaluated_is_an_error_that_names_the_claim(
    selector: str, text: str
) -> None:
    """Also for the next pod, whose claim has another name."""
    cluster = cluster_with(gpus("a"))
    state = CycleState()
    for name in ("c", "d"):
        cluster.objects.put(make_resource_claim(name, make_device_request("gpu", "gpu", selector)))
        entry = PodResourceClaim(name="gpu", resource_claim_name=name)
        one = evaluate(make_pod(name, resource_claims=(entry,)), cluster)
        one.state = CycleState.of(state.signature)
        one.plugin.pre_filter(one.state, one.pod, one.nodes)
        (status,) = [status for status in one.statuses() if status is not None and status.code is Code.ERROR]
        assert status.message.startswith(f"claim default/{name}: selector #0: {text}")


def test_alternatives_are_scored_in_order() -> None:
    cluster = cluster_with(
        make_device_class("big", 'device.attributes["gpu.example.com"].size == "big"'),
        make_device_class("small", 'device.attributes["gpu.example.com"].size == "small"'),
        gpus("a", attributes={"size": "small"}),
        gpus("b", attributes={"size": "big"}),
        make_resource_claim(
            "c",
            make_first_available(
                "r", make_device_request("big", "big"), make_device_request("small", "small")
            ),
        ),
    )
    found = evaluate(claiming, cluster)
    assert found.rejected() == {}
    assert (found.scores(), found.normalized()) == ([7, 8], [87, 100])
    assert not found.plugin.has_uniform_score(found.state, found.pod)


def test_every_node_scores_nothing_without_alternatives() -> None:
    for pod in (plain, claiming):
        found = evaluate(pod, cluster_with(CLAIM, gpus("a"), gpus("b")))
        found.statuses()
        assert (found.scores(), found.normalized()) == ([0, 0], [0, 0])
        assert found.plugin.has_uniform_score(found.state, pod)
