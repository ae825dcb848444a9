"""Why nodes have no devices for claims, in tables."""

from __future__ import annotations

from dataclasses import replace

from bayplan.answers.explain.devices import MissingDevices, missing_devices
from bayplan.answers.explain.explanation import explain
from bayplan.api.devices import DeviceConstraint
from bayplan.api.pod import PodResourceClaim
from bayplan.plugin import Object
from bayplan.scheduler.core import SchedulingCore
from bayplan.testing.builders import (
    make_allocated_device,
    make_device,
    make_device_class,
    make_device_request,
    make_node,
    make_pod,
    make_resource_claim,
    make_resource_slice,
)

POD = make_pod(resource_claims=(PodResourceClaim(name="gpu", resource_claim_name="c"),))
BIG = 'device.attributes["gpu.example.com"].model == "big"'


def missing(*objects: Object, nodes: str = "abc") -> list[MissingDevices]:
    core = SchedulingCore()
    core.load([*(make_node(name) for name in nodes), make_device_class("gpu"), *objects])
    framework = core.framework_for(POD)
    assert framework is not None
    return missing_devices(core.cluster, POD, explain(framework, POD))


def test_nodes_are_grouped_by_the_request_that_fails_and_its_reason() -> None:
    found = missing(
        make_resource_slice("sa", make_device("gpu-0", {"model": "small"}), node="a"),
        make_resource_slice(
            "sb", make_device("gpu-0", {"model": "big"}), make_device("gpu-1", {"model": "small"}), node="b"
        ),
        make_resource_claim("taken", allocated=[make_allocated_device("gpu-0", "b")]),
        make_resource_claim("c", make_device_request("fast", "gpu", BIG)),
        nodes="abcd",
    )
    assert [replace(one, remedies=()) for one in found] == [
        MissingDevices("default/c", "fast", ("c", "d"), "0 of 1 devices available: the node has no devices"),
        MissingDevices(
            "default/c",
            "fast",
            ("a",),
            f"0 of 1 devices available: 1 device not matched by selector #0 of the request: {BIG}",
        ),
        MissingDevices(
            "default/c",
            "fast",
            ("b",),
            "0 of 1 devices available: 1 device allocated to default/taken; 1 device not matched by "
            "selector #0 of the request: " + BIG,
        ),
    ]


def test_requests_that_fail_only_together() -> None:
    requests = (make_device_request("one", "gpu"), make_device_request("two", "gpu"))
    found = missing(
        make_resource_slice("s", make_device("gpu-0"), node="a"),
        make_resource_claim("c", *requests),
        nodes="a",
    )
    text = "enough devices for this request alone, but not for all requests together"
    assert [(one.request, one.reason) for one in found] == [("one", text), ("two", text)]


def same(attribute: str) -> list[DeviceConstraint]:
    return [DeviceConstraint(match_attribute=f"gpu.example.com/{attribute}")]


TWO_BOARDS = (make_device("gpu-0", {"board": "x"}), make_device("gpu-1", {"board": "y"}))


def test_a_constraint_within_one_request() -> None:
    found = missing(
        make_resource_slice("s", *TWO_BOARDS, node="a"),
        make_resource_claim("c", make_device_request("pair", "gpu", count=2), constraints=same("board")),
        nodes="a",
    )
    assert [(one.request, one.reason) for one in found] == [
        (
            "pair",
            "the request needs 2 devices with the same gpu.example.com/board, and at most 1 of the free "
            "ones have that",
        )
    ]


def test_a_constraint_between_requests() -> None:
    requests = (make_device_request("one", "gpu"), make_device_request("two", "gpu"))
    found = missing(
        make_resource_slice("s", *TWO_BOARDS, node="a"),
        make_resource_claim("c", *requests, constraints=same("board")),
        nodes="a",
    )
    text = (
        "enough devices for each request, but no combination meets matchAttribute gpu.example.com/board "
        "of claim default/c"
    )
    assert [(one.request, one.reason) for one in found] == [("one", text), ("two", text)]


def test_all_devices_are_requested_and_one_is_in_use() -> None:
    found = missing(
        make_resource_slice("s", *TWO_BOARDS, node="a"),
        make_resource_claim("taken", allocated=[make_allocated_device("gpu-0", "a")]),
        make_resource_claim("c", make_device_request("all", "gpu", mode="All")),
        nodes="a",
    )
    assert [one.reason for one in found] == ["1 devices available: 1 device allocated to default/taken"]


def test_pods_that_fit_and_pods_without_claims_have_none() -> None:
    request = make_device_request("gpu", "gpu")
    fits = [make_resource_slice("s", make_device("gpu-0"), node="a"), make_resource_claim("c", request)]
    assert missing(*fits, nodes="a") == []
    assert missing(nodes="a") == []


def test_extended_resources_that_devices_serve() -> None:
    pod = make_pod(requests={"example.com/gpu": 2})
    core = SchedulingCore()
    core.load(
        [
            *(make_node(name) for name in "ab"),
            make_device_class("gpu", extended_resource="example.com/gpu"),
            make_resource_slice("s", make_device("gpu-0"), node="a"),
        ]
    )
    framework = core.framework_for(pod)
    assert framework is not None
    found = missing_devices(core.cluster, pod, explain(framework, pod))
    assert [(one.claim, one.request, one.nodes, one.reason) for one in found] == [
        (
            "default/<extended-resources>",
            "container-0-request-0",
            (name,),
            reason,
        )
        for name, reason in (
            ("a", "1 of 2 devices available: the node has no other devices"),
            ("b", "0 of 2 devices available: the node has no devices"),
        )
    ]
