"""The allocator: the first solution in kube-scheduler's order, and why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from bayplan.api.devices import (
    ALL_DEVICES,
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    CounterSet,
    Device,
    DeviceCapacity,
    DeviceClass,
    DeviceConstraint,
    DeviceCounterConsumption,
    DeviceTaint,
    DeviceToleration,
    ResourceClaim,
    ResourceSlice,
)
from bayplan.api.meta import NodeSelector
from bayplan.api.releases import DEFAULT_DEVICE_FEATURES
from bayplan.dra.allocator import CANNOT_ALLOCATE, INVALID_POOLS, Allocator, NoFit
from bayplan.dra.state import DeviceState
from bayplan.errors import AllocationError
from bayplan.testing.builders import (
    make_allocated_device,
    make_device,
    make_device_class,
    make_device_request,
    make_expression,
    make_first_available,
    make_node,
    make_node_term,
    make_resource_claim,
    make_resource_slice,
)

NODE = make_node("n")
ANY = make_device_class("gpu")


def state_of(*slices: ResourceSlice, held: Sequence[ResourceClaim] = ()) -> DeviceState:
    state = DeviceState()
    for one in slices:
        state.put_slice(one)
    for claim in held:
        state.put_claim(claim.uid, claim.key, claim.status.allocation)
    return state


def allocate(
    state: DeviceState, *claims: ResourceClaim, classes: Sequence[DeviceClass] = (ANY,)
) -> list[list[str]] | NoFit:
    """The devices of each claim, as `request:device`."""
    by_name = {one.name: one for one in classes}
    found = Allocator(state.inventory, state.allocated, by_name.get).allocate(NODE, claims)
    if isinstance(found, NoFit):
        return found
    return [[f"{one.request}:{one.device}" for one in result.devices.results] for result in found]


def on_node(
    *devices: Device, name: str = "s", counters: Sequence[CounterSet] = (), slices: int = 1
) -> ResourceSlice:
    return make_resource_slice(name, *devices, node="n", counters=counters, slices=slices)


def claim_for(*args: str, **kwargs: Any) -> ResourceClaim:
    """A claim with one request; the arguments are those of `make_device_request`."""
    return make_resource_claim("c", make_device_request(*args, **kwargs))


def gpus(count: int) -> ResourceSlice:
    return on_node(*(make_device(f"gpu-{i}") for i in range(count)))


def taken(*devices: str) -> ResourceClaim:
    return make_resource_claim("held", allocated=[make_allocated_device(name, "n") for name in devices])


def test_devices_are_taken_in_order() -> None:
    state = state_of(gpus(3), held=[taken("gpu-0")])
    assert allocate(state, claim_for(count=2)) == [["gpu:gpu-1", "gpu:gpu-2"]]
    assert allocate(state, claim_for(count=3)) == CANNOT_ALLOCATE


def test_claims_see_what_earlier_claims_took() -> None:
    one, two = (make_resource_claim(name, make_device_request()) for name in ("a", "b"))
    assert allocate(state_of(gpus(2)), one, two) == [["gpu:gpu-0"], ["gpu:gpu-1"]]
    assert allocate(state_of(gpus(1)), one, two) == CANNOT_ALLOCATE


def test_an_earlier_choice_is_changed_where_a_later_request_needs_the_device() -> None:
    state = state_of(on_node(make_device("a", {"big": True}), make_device("b", {"big": False})))
    big = 'device.attributes["gpu.example.com"].big'
    claim = make_resource_claim("c", make_device_request("any"), make_device_request("big", "gpu", big))
    assert allocate(state, claim) == [["any:b", "big:a"]]


def test_freed_devices_can_be_taken_again() -> None:
    state = state_of(gpus(1), held=[held := taken("gpu-0")])
    claim = claim_for()
    assert allocate(state, claim) == CANNOT_ALLOCATE
    state.remove_claim(held.uid)
    assert allocate(state, claim) == [["gpu:gpu-0"]]


def test_the_first_alternative_that_fits() -> None:
    big = make_device_request(
        "big", "gpu", "device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('4Gi'))"
    )
    small = make_device_request("small")
    claim = make_resource_claim("c", make_first_available("gpu", big, small))
    state = state_of(
        on_node(make_device("s", capacity={"memory": "1Gi"}), make_device("b", capacity={"memory": "8Gi"}))
    )
    assert allocate(state, claim) == [["gpu/big:b"]]
    state.put_claim("x", "default/x", taken("b").status.allocation)
    assert allocate(state, claim) == [["gpu/small:s"]]


def test_all_devices_means_those_in_use_too() -> None:
    claim = claim_for(mode=ALL_DEVICES)
    assert allocate(state_of(gpus(2)), claim) == [["gpu:gpu-0", "gpu:gpu-1"]]
    assert allocate(state_of(gpus(2), held=[taken("gpu-1")]), claim) == CANNOT_ALLOCATE
    assert allocate(state_of(), claim) == CANNOT_ALLOCATE


def test_administrators_may_use_devices_of_others() -> None:
    state = state_of(gpus(2), held=[taken("gpu-0")])
    claim = claim_for(count=2, admin_access=True)
    assert allocate(state, claim) == [["gpu:gpu-0", "gpu:gpu-1"]]


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        (DeviceConstraint(match_attribute="gpu.example.com/root"), [["gpu:b", "gpu:c"]]),
        (DeviceConstraint(distinct_attribute="gpu.example.com/root"), [["gpu:a", "gpu:b"]]),
        (DeviceConstraint(match_attribute="gpu.example.com/none"), CANNOT_ALLOCATE),
        (DeviceConstraint(match_attribute="other/root", requests=("other",)), [["gpu:a", "gpu:b"]]),
    ],
)
def test_constraints(constraint: DeviceConstraint, expected: list[list[str]] | NoFit) -> None:
    roots = {"a": "0", "b": "1", "c": "1"}
    state = state_of(on_node(*(make_device(name, {"root": root}) for name, root in roots.items())))
    claim = make_resource_claim("c", make_device_request(count=2), constraints=[constraint])
    assert allocate(state, claim) == expected


def partition(name: str, slices: int) -> Device:
    consumed = DeviceCounterConsumption(counter_set="gpu-0", counters={"slices": Counter(value=slices)})
    return make_device(name, consumes_counters=(consumed,))


def partitioned(*devices: Device) -> tuple[ResourceSlice, ResourceSlice]:
    counters = CounterSet(name="gpu-0", counters={"slices": Counter(value=4)})
    return on_node(name="counters", counters=[counters], slices=2), on_node(*devices, slices=2)


def test_shared_counters() -> None:
    state = state_of(*partitioned(partition("half-0", 2), partition("half-1", 2), partition("whole", 4)))
    assert allocate(state, claim_for(count=2)) == [["gpu:half-0", "gpu:half-1"]]
    assert allocate(state, claim_for(count=3)) == CANNOT_ALLOCATE
    state.put_claim("x", "default/x", taken("whole").status.allocation)
    assert allocate(state, claim_for()) == CANNOT_ALLOCATE


def test_a_pool_that_consumes_unknown_counters_is_invalid() -> None:
    state = state_of(*partitioned(partition("half-0", 2)))
    bad = DeviceCounterConsumption(counter_set="gpu-1", counters={"slices": Counter(value=1)})
    state.put_slice(on_node(make_device("bad", consumes_counters=(bad,)), slices=2))
    assert allocate(state, claim_for()) == INVALID_POOLS
    with pytest.raises(AllocationError, match=r"resource pool gpu.example.com/n is currently invalid"):
        allocate(state, claim_for(mode=ALL_DEVICES))
    elsewhere = Allocator(state.inventory, state.allocated, {"gpu": ANY}.get)
    found = elsewhere.allocate(make_node("other"), [claim_for()])
    assert found == CANNOT_ALLOCATE, "the pool has nothing for this node"


def shared_device(**policy: object) -> Device:
    limits = CapacityRequestPolicyRange(min="1Gi", max="8Gi", step="1Gi")
    memory = DeviceCapacity(
        value="8Gi",
        request_policy=CapacityRequestPolicy(default="2Gi", valid_range=limits) if policy else None,
    )
    return make_device("shared", capacity={"memory": memory}, allow_multiple_allocations=True)


@pytest.mark.parametrize(
    ("request_", "policy", "expected"),
    [
        ({"memory": "1500Mi"}, True, "2Gi"),
        ({"memory": "1Mi"}, True, "1Gi"),
        ({"memory": "1500Mi"}, False, "1500Mi"),
        (None, True, "2Gi"),
        (None, False, "8Gi"),
        ({"memory": "9Gi"}, True, None),
        ({"memory": "9Gi"}, False, None),
        ({"cores": "1"}, True, None),
    ],
)
def test_consumed_capacity(
    request_: dict[str, str | int | float] | None, policy: bool, expected: str | None
) -> None:
    state = state_of(on_node(shared_device(policy=True) if policy else shared_device()))
    allocator = Allocator(state.inventory, state.allocated, {"gpu": ANY}.get, make_share_id=lambda: "id")
    found = allocator.allocate(NODE, [claim_for(capacity=request_)])
    if expected is None:
        assert found == CANNOT_ALLOCATE
        return
    assert not isinstance(found, NoFit)
    (result,) = found[0].devices.results
    assert (result.consumed_capacity, result.share_id) == ({"memory": expected}, "id")


def test_a_shared_device_is_full_when_its_capacity_is_used() -> None:
    state = state_of(on_node(shared_device()))
    claim = claim_for(capacity={"memory": "3Gi"})
    for number in range(2):
        found = Allocator(state.inventory, state.allocated, {"gpu": ANY}.get).allocate(NODE, [claim])
        assert not isinstance(found, NoFit)
        state.put_claim(str(number), f"default/{number}", found[0])
    assert allocate(state, claim) == CANNOT_ALLOCATE
    state.remove_claim("0")
    assert allocate(state, claim) == [["gpu:shared"]]
    state.remove_claim("1")
    assert not state.allocated.used_capacity
    assert not state.allocated.shared


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        (DeviceToleration(key="bad", operator="Exists"), True),
        (DeviceToleration(operator="Exists", effect="NoExecute"), False),
        (DeviceToleration(key="bad", operator="Equal", value="yes"), True),
        (DeviceToleration(key="bad", value="no"), False),
    ],
)
def test_taints(toleration: DeviceToleration, fits: bool) -> None:
    taint = DeviceTaint(key="bad", value="yes", effect="NoSchedule")
    state = state_of(on_node(make_device("d", taints=(taint, DeviceTaint(key="x", effect="None")))))
    assert allocate(state, claim_for()) == CANNOT_ALLOCATE
    found = allocate(state, claim_for(tolerations=[toleration]))
    assert found == ([["gpu:d"]] if fits else CANNOT_ALLOCATE)


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        (
            "device.attributes['x'].y",
            "claim default/c: selector #0 on device gpu.example.com/n/gpu-0: CEL runtime error: no such key",
        ),
        ("1 +", "claim default/c: selector #0: CEL compile error: "),
    ],
)
def test_selector_errors_end_the_attempt_unless_the_device_is_in_use(selector: str, text: str) -> None:
    claim = claim_for("gpu", "gpu", selector)
    with pytest.raises(AllocationError) as caught:
        allocate(state_of(gpus(1)), claim)
    assert str(caught.value).startswith(text)
    assert allocate(state_of(gpus(1), held=[taken("gpu-0")]), claim) == CANNOT_ALLOCATE


def test_a_missing_class() -> None:
    with pytest.raises(AllocationError) as caught:
        allocate(state_of(gpus(1)), claim_for("r", "no"))
    assert str(caught.value) == (
        "claim default/c, request r: could not retrieve device class no: "
        'deviceclass.resource.k8s.io "no" not found'
    )


def test_too_many_devices() -> None:
    with pytest.raises(
        AllocationError, match="request gpu: adding 33 devices exceeds the claim limit of 32, with 0"
    ):
        allocate(state_of(gpus(40)), claim_for(count=33))


def test_an_incomplete_pool_offers_nothing() -> None:
    state = state_of(on_node(make_device("d"), slices=2))
    claim = claim_for()
    assert allocate(state, claim) == CANNOT_ALLOCATE
    with pytest.raises(AllocationError, match=r"resource pool gpu.example.com/n is currently being updated"):
        allocate(state, claim_for(mode=ALL_DEVICES))
    state.put_slice(on_node(make_device("e"), name="t", slices=2))
    assert allocate(state, claim) == [["gpu:d"]]


def test_a_newer_generation_replaces_the_older() -> None:
    state = state_of(gpus(1))
    state.put_slice(make_resource_slice("t", make_device("new"), node="n", generation=2))
    assert allocate(state, claim_for()) == [["gpu:new"]]


def test_node_selectors_of_slices_are_those_of_the_result() -> None:
    term = make_node_term(make_expression("zone", "In", "a"))
    chosen = NodeSelector(node_selector_terms=(term,))
    state = state_of(make_resource_slice("s", make_device("d"), pool="net", node_selector=chosen))
    claim = claim_for()
    allocator = Allocator(state.inventory, state.allocated, {"gpu": ANY}.get)
    found = allocator.allocate(make_node("n", labels={"zone": "a"}), [claim])
    assert not isinstance(found, NoFit)
    assert found[0].node_selector == chosen
    assert allocator.allocate(NODE, [claim]) == CANNOT_ALLOCATE
    assert allocator.allocate(make_node("n", labels={"zone": "a"}), [claim]) == found


def test_many_claims_do_not_exhaust_the_stack() -> None:
    state = state_of(
        *(
            on_node(*(make_device(f"d{n}-{i}") for i in range(100)), name=f"s{n}", slices=16)
            for n in range(16)
        )
    )
    claims = [make_resource_claim(f"c{i}", make_device_request(count=32)) for i in range(50)]
    found = allocate(state, *claims)
    assert not isinstance(found, NoFit)
    assert len({name for names in found for name in names}) == 1600


def test_features_that_are_off() -> None:
    state = DeviceState(
        replace(
            DEFAULT_DEVICE_FEATURES,
            partitionable_devices=False,
            consumable_capacity=False,
            prioritized_list=False,
        )
    )
    for one in partitioned(partition("half", 2)):
        state.put_slice(one)
    assert allocate(state, claim_for()) == CANNOT_ALLOCATE
    with pytest.raises(AllocationError, match="request gpu: has capacity requests, but the DRA"):
        allocate(state, claim_for(capacity={"memory": 1}))
    with pytest.raises(AllocationError, match="request r: has subrequests, but the DRAPrioritizedList"):
        allocate(state, make_resource_claim("c", make_first_available("r", make_device_request())))
