"""Why there are no devices: which check each device fails, the nearest miss first."""

from __future__ import annotations

import pytest

from bayplan.api.devices import DeviceConstraint, DeviceTaint, ResourceClaim, ResourceSlice
from bayplan.dra.explanation import Failure, explain, why_not
from bayplan.dra.state import DeviceState
from bayplan.testing.builders import (
    make_allocated_device,
    make_device,
    make_device_class,
    make_device_request,
    make_first_available,
    make_node,
    make_resource_claim,
    make_resource_slice,
)

MODEL = 'device.attributes["gpu.example.com"].model == "{}"'
CLASSES = {"gpu": make_device_class("gpu", "device.driver == 'gpu.example.com'")}


def texts(claim: ResourceClaim, *slices: ResourceSlice, held: ResourceClaim | None = None) -> list[str]:
    state = DeviceState()
    for one in slices:
        state.put_slice(one)
    if held is not None:
        state.put_claim(held.uid, held.key, held.status.allocation)
    found = explain(state.inventory, state.allocated, CLASSES.get, make_node("n"), [claim])
    return [str(one) for one in why_not(found)]


def test_every_check() -> None:
    taint = DeviceTaint(key="broken", effect="NoSchedule")
    slices = [
        make_resource_slice(
            "s",
            make_device("small", {"model": "a"}, {"memory": "1Gi"}),
            make_device("other", {"model": "b"}, {"memory": "8Gi"}),
            make_device("taken", {"model": "a"}, {"memory": "8Gi"}),
            make_device("tainted", {"model": "a"}, {"memory": "8Gi"}, taints=(taint,)),
            node="n",
        ),
        make_resource_slice("t", make_device("nic"), node="n", driver="nic.example.com"),
    ]
    claim = make_resource_claim(
        "c", make_device_request("gpu", "gpu", MODEL.format("a"), capacity={"memory": "4Gi"})
    )
    held = make_resource_claim("held", allocated=[make_allocated_device("taken", "n")])
    assert texts(claim, *slices, held=held) == [
        "claim default/c, request gpu: 0 of 1 devices available: "
        "1 device with taints that are not tolerated (broken:NoSchedule); "
        "1 device allocated to default/held; "
        "1 device without enough memory left; "
        f"1 device not matched by selector #0 of the request: {MODEL.format('a')}; "
        "1 device not matched by selector #0 of class gpu: device.driver == 'gpu.example.com'"
    ]


def test_a_node_without_devices() -> None:
    claim = make_resource_claim("c", make_device_request())
    assert texts(claim) == ["claim default/c, request gpu: 0 of 1 devices available: the node has no devices"]


def test_a_node_with_too_few_devices() -> None:
    claim = make_resource_claim("c", make_device_request(count=3))
    (text,) = texts(claim, make_resource_slice("s", make_device("gpu-0"), node="n"))
    assert text == "claim default/c, request gpu: 1 of 3 devices available: the node has no other devices"


def test_an_incomplete_pool() -> None:
    claim = make_resource_claim("c", make_device_request())
    assert texts(claim, make_resource_slice("s", make_device("d"), node="n", slices=2)) == [
        "claim default/c, request gpu: resource pool gpu.example.com/n is being updated"
    ]


def test_only_the_request_that_fails_alone_is_named() -> None:
    claim = make_resource_claim(
        "c", make_device_request("one"), make_device_request("two", "gpu", MODEL.format("x"))
    )
    found = texts(claim, make_resource_slice("s", make_device("d", {"model": "a"}), node="n"))
    assert [text.split(":")[0] for text in found] == ["claim default/c, request two"]


def test_requests_that_fail_only_together_are_all_named() -> None:
    claim = make_resource_claim("c", make_device_request("one"), make_device_request("two"))
    found = texts(claim, make_resource_slice("s", make_device("d"), node="n"))
    assert [text.split(":")[0] for text in found] == [
        "claim default/c, request one",
        "claim default/c, request two",
    ]


def test_alternatives_and_constraints() -> None:
    claim = make_resource_claim(
        "c",
        make_first_available("r", make_device_request("a", count=2), make_device_request("b", "none")),
        constraints=[DeviceConstraint(match_attribute="gpu.example.com/numa")],
    )
    devices = make_device("d", {"numa": 0}), make_device("e")
    assert texts(claim, make_resource_slice("s", *devices, node="n")) == [
        "claim default/c, request r/a: 1 of 2 devices available: "
        "1 device without attribute gpu.example.com/numa, which a constraint needs",
        "claim default/c, request r/b: claim default/c, request b: could not retrieve device class none: "
        'deviceclass.resource.k8s.io "none" not found',
    ]


@pytest.mark.parametrize("selector", ["device.attributes['x'].y", "nonsense("])
def test_selectors_that_cannot_be_evaluated(selector: str) -> None:
    claim = make_resource_claim("c", make_device_request("gpu", "gpu", selector))
    (text,) = texts(claim, make_resource_slice("s", make_device("d"), node="n"))
    assert "selector #0" in text
    assert ": CEL " in text


def test_the_nearest_miss() -> None:
    state = DeviceState()
    state.put_slice(make_resource_slice("s", make_device("a"), make_device("b", {"model": "x"}), node="n"))
    held = make_resource_claim("h", allocated=[make_allocated_device("b", "n")])
    state.put_claim("u", "default/h", held.status.allocation)
    selector = "has(device.attributes['gpu.example.com'].model)"
    claim = make_resource_claim("c", make_device_request("r", "gpu", selector))
    (found,) = explain(state.inventory, state.allocated, CLASSES.get, make_node("n"), [claim])
    assert found.nearest_miss is not None
    assert (found.nearest_miss.failure, found.nearest_miss.devices) == (Failure.IN_USE, 1)
