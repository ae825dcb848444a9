"""Random devices and claims, the same for the same seed: small, and with some of everything."""

from __future__ import annotations

import random

from bayplan.api.devices import (
    ALL_DEVICES,
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    CounterSet,
    Device,
    DeviceCapacity,
    DeviceConstraint,
    DeviceCounterConsumption,
    DeviceRequest,
    DeviceTaint,
    DeviceToleration,
    ResourceClaim,
    ResourceSlice,
)
from bayplan.api.meta import NodeSelector
from bayplan.api.node import Node
from bayplan.testing.builders import (
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

DRIVER = "gpu.example.com"
NODES = [make_node(f"n{i}", labels={"zone": f"z{i % 2}"}) for i in range(3)]
CLASSES = {
    "gpu": make_device_class("gpu"),
    "big": make_device_class("big", f'device.attributes["{DRIVER}"].size >= 2'),
}
COUNTERS = CounterSet(name="set", counters={"a": Counter(value=4), "b": Counter(value=3)})


def random_device(rng: random.Random, name: str, *, counters: bool) -> Device:
    memory = DeviceCapacity(value=8)
    is_shared = rng.random() < 0.3
    if is_shared and rng.random() < 0.5:
        limits = CapacityRequestPolicyRange(min=1, max=6, step=2)
        memory = DeviceCapacity(value=8, request_policy=CapacityRequestPolicy(default=3, valid_range=limits))
    names = rng.sample("ab", rng.randint(1, 2))
    consumed = DeviceCounterConsumption(
        counter_set="set", counters={name: Counter(value=rng.randint(1, 3)) for name in names}
    )
    return make_device(
        name,
        {"size": rng.randint(1, 3), "root": rng.choice("xy")},
        {"memory": memory},
        allow_multiple_allocations=is_shared,
        consumes_counters=(consumed,) if counters and rng.random() < 0.7 else (),
        taints=(DeviceTaint(key="bad", effect="NoSchedule"),) if rng.random() < 0.2 else (),
    )


def random_slices(rng: random.Random, pool: str) -> list[ResourceSlice]:
    """The slices of one pool."""
    counters = rng.random() < 0.4
    generation = rng.randint(1, 3)
    devices = [random_device(rng, f"{pool}-{i}", counters=counters) for i in range(rng.randint(1, 4))]
    where: dict[str, object] = {"node": rng.choice(NODES).name}
    if rng.random() < 0.3:
        term = make_node_term(make_expression("zone", "In", rng.choice(["z0", "z1"])))
        where = rng.choice(
            [{"all_nodes": True}, {"node_selector": NodeSelector(node_selector_terms=(term,))}]
        )
    split = rng.randint(0, len(devices))
    parts = [devices[:split], devices[split:]]
    count = len(parts) + counters
    found = [
        make_resource_slice(f"{pool}-{i}", *part, pool=pool, generation=generation, slices=count, **where)  # type: ignore[arg-type]
        for i, part in enumerate(parts)
    ]
    if counters:
        found.append(
            make_resource_slice(
                f"{pool}-c",
                pool=pool,
                generation=generation,
                slices=count,
                counters=[COUNTERS],
                **where,  # type: ignore[arg-type]
            )
        )
    return found


def random_request(rng: random.Random, name: str) -> DeviceRequest:
    selectors = [f'device.attributes["{DRIVER}"].root == "{rng.choice("xy")}"'] if rng.random() < 0.3 else []
    return make_device_request(
        name,
        rng.choice(["gpu", "gpu", "big"]),
        *selectors,
        count=rng.randint(1, 2),
        mode=ALL_DEVICES if rng.random() < 0.05 else "ExactCount",
        admin_access=True if rng.random() < 0.1 else None,
        tolerations=[DeviceToleration(operator="Exists")] if rng.random() < 0.3 else (),
        capacity={"memory": rng.randint(1, 9)} if rng.random() < 0.3 else None,
    )


def random_claim(rng: random.Random, name: str, *, distinct: bool = True) -> ResourceClaim:
    requests = []
    for i in range(rng.randint(1, 2)):
        if rng.random() < 0.3:
            options = [random_request(rng, f"s{j}") for j in range(2)]
            requests.append(make_first_available(f"r{i}", *options))
        else:
            requests.append(random_request(rng, f"r{i}"))
    constraints = []
    if rng.random() < 0.3:
        constraints.append(DeviceConstraint(match_attribute=f"{DRIVER}/root"))
    if distinct and rng.random() < 0.1:
        constraints.append(DeviceConstraint(distinct_attribute=f"{DRIVER}/size"))
    return make_resource_claim(name, *requests, constraints=constraints)


def node_of(name: str) -> Node:
    return next(node for node in NODES if node.name == name)
