"""What v1.37 allocates differently than v1.36, each rule beside its predecessor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api.devices import (
    ALL_DEVICES,
    AllocationResult,
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    CounterSet,
    Device,
    DeviceCapacity,
    DeviceClaimConfiguration,
    DeviceClass,
    DeviceClassConfiguration,
    DeviceClassSpec,
    DeviceConstraint,
    DeviceCounterConsumption,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    DeviceToleration,
    OpaqueDeviceConfiguration,
    ResourceClaim,
    ResourceSlice,
)
from bayplan.api.meta import ObjectMeta
from bayplan.api.release import device_features
from bayplan.api.releases import V1_36, V1_37, Release
from bayplan.clock import Freshness
from bayplan.dra.allocator import CANNOT_ALLOCATE, INVALID_POOLS, Allocator, NoFit
from bayplan.dra.state import DeviceState
from bayplan.errors import AllocationError
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

NODE = make_node("n")
GPU = make_device_class("gpu")
FRACTIONAL = V1_37.with_gates(V1_37.gates | {"DRAFractionalCapacityRange"})


def allocations(
    release: Release,
    slices: Sequence[ResourceSlice],
    *claims: ResourceClaim,
    held: Sequence[ResourceClaim] = (),
    rules: Sequence[DeviceTaintRule] = (),
    device_class: DeviceClass = GPU,
) -> Sequence[AllocationResult] | NoFit:
    state = DeviceState(device_features(release))
    for one in slices:
        state.put_slice(one)
    for rule in rules:
        state.put_taint_rule(rule)
    for claim in held:
        state.put_claim(claim.uid, claim.key, claim.status.allocation)
    return Allocator(state.inventory, state.allocated, {"gpu": device_class}.get).allocate(NODE, claims)


def devices(found: Sequence[AllocationResult] | NoFit) -> list[str] | NoFit:
    if isinstance(found, NoFit):
        return found
    return [one.device for result in found for one in result.devices.results]


def on_node(*items: Device, name: str = "s", node: str = "n", **more: Any) -> ResourceSlice:
    return make_resource_slice(name, *items, node=node, **more)


def test_distinct_devices_of_one_request() -> None:
    slices = [on_node(*(make_device(name, {"rack": name[0]}) for name in ("a1", "b1", "a2")))]
    constraint = DeviceConstraint(distinct_attribute="gpu.example.com/rack")
    claim = make_resource_claim("c", make_device_request(count=3), constraints=[constraint])
    # a2 differs from b1, which is all that v1.36 records.
    assert devices(allocations(V1_36, slices, claim)) == ["a1", "b1", "a2"]
    assert allocations(V1_37, slices, claim) == CANNOT_ALLOCATE


def test_a_value_is_free_again_when_its_device_is_given_back() -> None:
    """The search tries a1 first and has to take it back."""
    names = {"a1": "a", "b1": "b", "c1": "a"}
    slices = [on_node(*(make_device(name, {"rack": rack, "n": name}) for name, rack in names.items()))]
    constraint = DeviceConstraint(distinct_attribute="gpu.example.com/rack")
    first = make_device_request("any")
    second = make_device_request("two", "gpu", 'device.attributes["gpu.example.com"].n != "b1"')
    claim = make_resource_claim("c", first, second, constraints=[constraint])
    assert devices(allocations(V1_37, slices, claim)) == ["b1", "a1"]


def shared(name: str, value: str = "10Gi", policy: CapacityRequestPolicy | None = None) -> Device:
    capacity = {"memory": DeviceCapacity(value=value, request_policy=policy)}
    return replace(make_device(name), allow_multiple_allocations=True, capacity=capacity)


def share_of(name: str, **capacity: str) -> ResourceClaim:
    result = replace(
        make_allocated_device(name, "n"), share_id="held", consumed_capacity=dict(capacity) or None
    )
    return make_resource_claim("held", allocated=[result])


def test_a_request_for_all_devices_with_one_exhausted() -> None:
    slices = [on_node(shared("a"), shared("b"))]
    claim = make_resource_claim("c", make_device_request(mode=ALL_DEVICES, capacity={"memory": "4Gi"}))
    held = [share_of("a", memory="8Gi")]
    assert devices(allocations(V1_36, slices, claim, held=held)) == ["b"]
    assert allocations(V1_37, slices, claim, held=held) == CANNOT_ALLOCATE
    # What can never fit is not part of "all".
    small = [on_node(shared("a"), shared("tiny", "1Gi"))]
    assert devices(allocations(V1_37, small, claim)) == ["a"]


def counted(name: str, amount: str = "1", **more: Any) -> Device:
    consumed = DeviceCounterConsumption(counter_set="set", counters={"slots": Counter(value=amount)}, **more)
    return replace(make_device(name), consumes_counters=(consumed,))


COUNTERS = [CounterSet(name="set", counters={"slots": Counter(value="1")})]


def test_an_incomplete_pool_with_counters_of_another_node() -> None:
    """Its counters are on a slice of their own, and one more slice is missing."""
    broken = [
        make_resource_slice("x1", counted("p"), node="other", pool="p", slices=3),
        make_resource_slice("x2", node="other", pool="p", slices=3, counters=COUNTERS),
    ]
    slices = [*broken, on_node(make_device("a"))]
    claim = make_resource_claim("c", make_device_request(mode=ALL_DEVICES))
    with pytest.raises(AllocationError, match="is currently being updated"):
        allocations(V1_36, slices, claim)
    assert devices(allocations(V1_37, slices, claim)) == ["a"]


def test_an_invalid_pool_with_counters_of_another_node() -> None:
    invalid = make_resource_slice("x", node="other", pool="p", counters=[*COUNTERS, *COUNTERS])
    slices = [invalid, on_node(make_device("a"))]
    claim = make_resource_claim("c", make_device_request(count=2))
    assert allocations(V1_36, slices, claim) == INVALID_POOLS
    assert allocations(V1_37, slices, claim) == CANNOT_ALLOCATE


@pytest.mark.parametrize("release", [V1_36, V1_37], ids=str)
def test_counters_on_a_slice_for_other_nodes_still_limit(release: Release) -> None:
    slices = [
        on_node(counted("a"), counted("b"), pool="p", slices=2),
        make_resource_slice("counters", node="other", pool="p", slices=2, counters=COUNTERS),
    ]
    assert devices(allocations(release, slices, make_resource_claim("c", make_device_request()))) == ["a"]
    two = make_resource_claim("c", make_device_request(count=2))
    assert allocations(release, slices, two) == CANNOT_ALLOCATE


def test_a_share_without_capacity_uses_counters_once() -> None:
    device = replace(counted("a"), allow_multiple_allocations=True)
    slices = [on_node(device, slices=2), on_node(name="c", slices=2, counters=COUNTERS)]
    claim = make_resource_claim("c", make_device_request())
    held = [share_of("a")]
    assert allocations(V1_36, slices, claim, held=held) == CANNOT_ALLOCATE
    assert devices(allocations(V1_37, slices, claim, held=held)) == ["a"]


def stepped(step: str, lowest: str = "0") -> CapacityRequestPolicy:
    limits = CapacityRequestPolicyRange(min=lowest, step=step)
    return CapacityRequestPolicy(default=lowest, valid_range=limits)


def consumed(found: Sequence[AllocationResult] | NoFit) -> str | NoFit:
    if isinstance(found, NoFit):
        return found
    capacity = found[0].devices.results[0].consumed_capacity
    assert capacity is not None
    return str(capacity["memory"])


@pytest.mark.parametrize(
    ("release", "step", "requested", "expected"),
    [
        pytest.param(V1_36, "1k", "2500", "3000", id="v1.36 writes binary suffixes"),
        pytest.param(V1_37, "1k", "2500", "3k", id="v1.37 writes those of the step"),
        pytest.param(V1_37, "1Ki", "2500", "3Ki", id="a binary step"),
        pytest.param(V1_37, "1e3", "2500", "3e3", id="an exponent"),
        pytest.param(V1_37, "500m", "1200m", "2", id="whole units"),
        pytest.param(FRACTIONAL, "500m", "1200m", "1500m", id="thousandths"),
        pytest.param(FRACTIONAL, "500m", "1500m", "1500m", id="thousandths that fit"),
        pytest.param(FRACTIONAL, "1k", "2500", "3k", id="whole numbers in thousandths"),
    ],
)
def test_requested_capacity_is_rounded_to_the_step(
    release: Release, step: str, requested: str, expected: str
) -> None:
    slices = [on_node(shared("a", policy=stepped(step)))]
    claim = make_resource_claim("c", make_device_request(capacity={"memory": requested}))
    assert consumed(allocations(release, slices, claim)) == expected


def test_capacity_that_cannot_be_computed() -> None:
    slices = [on_node(shared("a", policy=stepped("4Ei")), shared("b"))]
    requested = make_resource_claim("c", make_device_request(capacity={"memory": "5Ei"}))
    assert allocations(V1_36, slices, requested) == CANNOT_ALLOCATE
    with pytest.raises(AllocationError) as error:
        allocations(V1_37, slices, requested)
    assert str(error.value) == (
        "claim default/c, request gpu: checking capacity for device gpu.example.com/n/a: "
        'capacity "memory": capacity request cannot be represented in the device\'s range arithmetic: '
        "rounding request 5Ei up to the next step passes MaxInt64"
    )
    negative = make_resource_claim("c", make_device_request(capacity={"memory": "-1"}, mode=ALL_DEVICES))
    with pytest.raises(AllocationError, match='for device b: capacity "memory": capacity value is negative'):
        allocations(V1_37, [on_node(shared("b"))], negative)
    missing = make_resource_claim("c", make_device_request(capacity={"disk": "1"}))
    assert allocations(V1_37, slices, missing) == CANNOT_ALLOCATE


def test_too_many_devices_name_the_request() -> None:
    slices = [on_node(*(make_device(f"d{i}") for i in range(40)))]
    requests = [make_device_request("a", count=30), make_device_request("b", count=3)]
    claim = make_resource_claim("c", *requests)
    with pytest.raises(AllocationError, match="number of requested devices 33 exceeds the claim limit of 32"):
        allocations(V1_36, slices, claim)
    with pytest.raises(AllocationError) as error:
        allocations(V1_37, slices, claim)
    assert str(error.value) == (
        "claim default/c, request b: adding 3 devices exceeds the claim limit of 32, "
        "with 30 already accounted for"
    )


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (
            'device.attributes["gpu.example.com"].model == "x"',
            "claim default/c: selector #0 on device gpu.example.com/n/a: CEL runtime error: "
            "no such key: model. consider using CEL optional chaining (.? followed by orValue()) "
            "or guarding the check with "
            "has() for optional fields",
        ),
        (
            "1 / (device.attributes.size() - 1) == 0",
            "claim default/c: selector #0 on device gpu.example.com/n/a: CEL runtime error: division by zero",
        ),
        ("device.nosuch", "claim default/c: selector #0: CEL compile error: "),
    ],
)
def test_errors_of_selectors_name_the_device(expression: str, text: str) -> None:
    slices = [on_node(make_device("a", {"other": 1}))]
    claim = make_resource_claim("c", make_device_request("gpu", "gpu", expression))
    with pytest.raises(AllocationError) as error:
        allocations(V1_37, slices, claim)
    assert str(error.value).startswith(text)
    if "compile" not in text:
        assert str(error.value) == text


def opaque(name: str) -> OpaqueDeviceConfiguration:
    return OpaqueDeviceConfiguration(driver="gpu.example.com", parameters={"name": name})


def config_of(found: Sequence[AllocationResult] | NoFit) -> list[tuple[str, str, tuple[str, ...]]]:
    assert not isinstance(found, NoFit)
    return [
        (entry.source, entry.opaque.parameters["name"], entry.requests)
        for entry in found[0].devices.config
        if entry.opaque is not None
    ]


def test_configuration_is_listed_once() -> None:
    slices = [on_node(*(make_device(f"d{i}") for i in range(3)))]
    of_class = DeviceClassConfiguration(opaque=opaque("class"))
    device_class = replace(GPU, spec=DeviceClassSpec(config=(of_class,)))
    claim = make_resource_claim(
        "c",
        make_device_request("a"),
        make_device_request("b"),
        make_first_available("f", make_device_request("x")),
    )
    config = tuple(
        DeviceClaimConfiguration(requests=requests, opaque=opaque(name))
        for name, requests in (("some", ("a", "b")), ("all", ("b", "a", "f/x")), ("other", ("f/y",)))
    )
    spec = replace(claim.spec, devices=replace(claim.spec.devices, config=config))
    claim = replace(claim, spec=spec)
    assert config_of(allocations(V1_36, slices, claim, device_class=device_class)) == [
        ("FromClass", "class", ("a", "b", "f/x")),
        ("FromClaim", "some", ("a", "b")),
        ("FromClaim", "some", ("a", "b")),
        ("FromClaim", "all", ("b", "a", "f/x")),
        ("FromClaim", "all", ("b", "a", "f/x")),
        ("FromClaim", "all", ("b", "a", "f/x")),
    ]
    assert config_of(allocations(V1_37, slices, claim, device_class=device_class)) == [
        ("FromClass", "class", ()),
        ("FromClaim", "some", ("a", "b")),
        ("FromClaim", "all", ()),
    ]


def test_fields_of_alpha_features() -> None:
    """v1.36 does not have them."""
    grouped = counted("a", compatibility_groups=("x",))
    slices = [
        on_node(grouped, slices=3),
        on_node(make_device("b"), name="t", slices=3),
        on_node(name="u", slices=3, counters=COUNTERS),
    ]
    claim = make_resource_claim("c", make_device_request())
    assert devices(allocations(V1_36, slices, claim)) == ["a"]
    assert allocations(V1_37, slices, claim) == CANNOT_ALLOCATE
    everything = make_resource_claim("c", make_device_request(mode=ALL_DEVICES))
    with pytest.raises(AllocationError, match="is currently being updated"):
        allocations(V1_37, slices, everything)
    request = make_device_request()
    assert request.exactly is not None
    derived = replace(request, exactly=replace(request.exactly, derived_attributes=({"name": "x"},)))
    with pytest.raises(AllocationError) as error:
        allocations(V1_37, slices, make_resource_claim("c", derived))
    assert str(error.value) == (
        "claim default/c, request gpu: cannot handle request with derived attributes, the feature is disabled"
    )


# DeviceTaintRules


def rule(name: str, selector: DeviceTaintSelector | None, effect: str = "NoSchedule") -> DeviceTaintRule:
    taint = DeviceTaint(key=f"example.com/{name}", effect=effect)
    return DeviceTaintRule(
        metadata=ObjectMeta(name=name), spec=DeviceTaintRuleSpec(device_selector=selector, taint=taint)
    )


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param(DeviceTaintSelector(), CANNOT_ALLOCATE, id="every device"),
        pytest.param(None, ["a"], id="no selector, no device"),
        pytest.param(DeviceTaintSelector(driver="gpu.example.com"), CANNOT_ALLOCATE, id="driver"),
        pytest.param(DeviceTaintSelector(driver="nic.example.com"), ["a"], id="another driver"),
        pytest.param(DeviceTaintSelector(pool="n"), CANNOT_ALLOCATE, id="pool"),
        pytest.param(DeviceTaintSelector(pool="m"), ["a"], id="another pool"),
        pytest.param(DeviceTaintSelector(device="a"), ["b"], id="device"),
        pytest.param(DeviceTaintSelector(pool="m", device="a"), ["a"], id="all parts have to agree"),
    ],
)
def test_rules_taint_the_devices_that_they_select(
    selector: DeviceTaintSelector | None, expected: list[str] | NoFit
) -> None:
    slices = [on_node(make_device("a"), make_device("b"))]
    claim = make_resource_claim("c", make_device_request())
    found = allocations(V1_37, slices, claim, rules=[rule("r", selector)])
    assert devices(found) == expected
    assert devices(allocations(V1_36, slices, claim, rules=[rule("r", selector)])) == ["a"]


def test_taints_of_rules_are_tolerated_like_others() -> None:
    slices = [on_node(make_device("a"))]
    rules = [rule("x", DeviceTaintSelector()), rule("none", DeviceTaintSelector(), "None")]
    tolerations = [DeviceToleration(key="example.com/x", operator="Exists")]
    claim = make_resource_claim("c", make_device_request(tolerations=tolerations))
    assert devices(allocations(V1_37, slices, claim, rules=rules)) == ["a"]
    more = [*rules, rule("y", DeviceTaintSelector(), "NoExecute")]
    assert allocations(V1_37, slices, claim, rules=more) == CANNOT_ALLOCATE


def test_rules_are_added_updated_and_deleted() -> None:
    state = DeviceState(device_features(V1_37))
    claim = make_resource_claim("c", make_device_request())
    state.put_slice(on_node(make_device("a")))
    state.put_slice(make_resource_slice("other", make_device("z"), node="m"))

    def fits() -> bool:
        allocator = Allocator(state.inventory, state.allocated, {"gpu": GPU}.get)
        return not isinstance(allocator.allocate(NODE, [claim]), NoFit)

    assert fits()
    freshness = Freshness(state.changes.nodes.clock)
    freshness.mark_current()
    state.put_taint_rule(first := rule("r", DeviceTaintSelector(pool="n")))
    assert not fits()
    assert freshness.recorded(state.changes.nodes) == ["n"]
    # A slice that is published again is still tainted.
    state.put_slice(on_node(make_device("a"), generation=2))
    assert not fits()
    state.remove_taint_rule(first)
    assert fits()
    assert state.inventory.pools(NODE).devices[0].device.taints == ()


def test_features_of_a_release_are_one_object() -> None:
    """Results for devices are cached by it, in all clusters of a process."""
    assert device_features(V1_37) is device_features(V1_37.with_gates(V1_37.gates))
    assert device_features(V1_36) is not device_features(V1_37)
    assert not device_features(V1_37.with_gates(frozenset())).taint_rules
