"""What holds for every allocation, and that caching changes no result."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from itertools import count

import pytest
from msgspec.structs import replace

from bayplan.api.devices import AllocationResult, ResourceClaim, ResourceSlice
from bayplan.api.node import Node
from bayplan.api.quantity import parse_quantity
from bayplan.clock import Freshness
from bayplan.dra.allocator import AllocationCache, Allocator, NoFit
from bayplan.dra.pools import DeviceKey
from bayplan.dra.search import Search
from bayplan.dra.state import DeviceState
from bayplan.errors import AllocationError
from bayplan.testing.builders import (
    make_device,
    make_device_request,
    make_resource_claim,
    make_resource_slice,
)

from .generated import CLASSES, NODES, random_claim, random_slices

Answer = tuple[AllocationResult, ...] | NoFit | str


def allocate(
    state: DeviceState, node: Node, claims: list[ResourceClaim], cache: AllocationCache | None = None
) -> Answer:
    numbers = count()
    allocator = Allocator(
        state.inventory, state.allocated, CLASSES.get, make_share_id=lambda: str(next(numbers))
    )
    try:
        return allocator.allocate(node, claims, cache)
    except AllocationError as error:
        return str(error)


class World:
    """Slices and allocated claims, with a device state that follows them step by step."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.slices: dict[str, ResourceSlice] = {}
        self.allocations: dict[str, AllocationResult] = {}
        self.state = DeviceState()

    def fresh(self) -> DeviceState:
        state = DeviceState()
        for item in self.slices.values():
            state.put_slice(item)
        for uid, allocation in self.allocations.items():
            state.put_claim(uid, uid, allocation)
        return state

    def step(self) -> None:
        chance = self.rng.random()
        if chance < 0.25:
            for item in random_slices(self.rng, self.rng.choice(["p0", "p1", "p2"])):
                if self.rng.random() < 0.9:
                    self.slices[item.name] = item
                    self.state.put_slice(item)
        elif chance < 0.35 and self.slices:
            name = self.rng.choice(list(self.slices))
            del self.slices[name]
            self.state.remove_slice(name)
        elif chance < 0.5 and self.allocations:
            uid = self.rng.choice(list(self.allocations))
            del self.allocations[uid]
            self.state.remove_claim(uid)
        else:
            self.allocate()

    def allocate(self) -> None:
        number = len(self.allocations)
        claims = [random_claim(self.rng, f"c{number}-{i}") for i in range(self.rng.randint(1, 2))]
        found = allocate(self.state, self.rng.choice(NODES), claims)
        if isinstance(found, tuple):
            for claim, allocation in zip(claims, found, strict=True):
                uid = f"{claim.uid}-{self.rng.random()}"
                self.allocations[uid] = allocation
                self.state.put_claim(uid, uid, allocation)


@pytest.mark.parametrize("seed", range(40))
def test_a_state_that_was_changed_step_by_step_allocates_like_a_new_one(seed: int) -> None:
    world = World(seed)
    claims = [[random_claim(world.rng, "c")] for _ in range(4)]
    known: dict[tuple[str, int], Answer] = {}
    changes = world.state.changes
    freshness = Freshness(changes.nodes.clock, (changes.everywhere,))
    for _ in range(40):
        world.step()
        with freshness as stale:
            changed = None if stale is None else freshness.recorded(changes.nodes)
        fresh = world.fresh()
        for node in NODES:
            for i, wanted in enumerate(claims):
                answer = allocate(world.state, node, wanted)
                assert answer == allocate(fresh, node, wanted)
                if changed is not None and node.name not in changed and (node.name, i) in known:
                    assert answer == known[node.name, i]
                known[node.name, i] = answer


@pytest.mark.parametrize("seed", range(40))
def test_a_cache_changes_no_answer(seed: int) -> None:
    """Its claims have other names each time, and errors name the claim."""
    world = World(seed)
    claims = [[random_claim(world.rng, f"c{i}") for i in range(1 + n % 2)] for n in range(4)]
    caches = [AllocationCache() for _ in claims]
    for step in range(40):
        world.step()
        for node in NODES:
            for wanted, cache in zip(claims, caches, strict=True):
                named = [
                    replace(claim, metadata=replace(claim.metadata, name=f"{claim.name}-{step}"))
                    for claim in wanted
                ]
                assert allocate(world.state, node, named, cache) == allocate(world.state, node, named)


def test_a_search_is_not_repeated_when_the_same_devices_are_taken_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[object] = []
    run = Search.run

    def counted(search: Search) -> bool:
        runs.append(search)
        return run(search)

    monkeypatch.setattr(Search, "run", counted)
    state, cache = DeviceState(), AllocationCache()
    state.put_slice(make_resource_slice("s", *(make_device(f"gpu-{i}") for i in range(4)), node="n0"))
    claims = [make_resource_claim(f"c{i}", make_device_request()) for i in range(4)]
    for _ in range(3):
        for claim in claims:
            found = allocate(state, NODES[0], [claim], cache)
            assert isinstance(found, tuple)
            state.put_claim(claim.uid, claim.key, found[0])
        assert isinstance(
            allocate(state, NODES[0], [make_resource_claim("more", make_device_request())], cache), NoFit
        )
        for claim in claims:
            state.remove_claim(claim.uid)
    assert len(runs) == 5


@pytest.mark.parametrize("seed", range(40))
def test_no_device_counter_or_capacity_is_given_twice(seed: int) -> None:
    """As long as drivers do not change their devices under allocations."""
    world = World(seed)
    for pool in ("p0", "p1", "p2"):
        for item in random_slices(world.rng, pool):
            world.slices[item.name] = item
            world.state.put_slice(item)
    for _ in range(30):
        if world.rng.random() < 0.3 and world.allocations:
            uid = world.rng.choice(list(world.allocations))
            del world.allocations[uid]
            world.state.remove_claim(uid)
        else:
            world.allocate()
        check(world)


def check(world: World) -> None:
    devices = {
        (item.spec.driver, item.spec.pool.name, device.name): device
        for item in world.slices.values()
        for device in item.spec.devices
    }
    holders: Counter[DeviceKey] = Counter()
    used: defaultdict[tuple[DeviceKey, str], int] = defaultdict(int)
    for allocation in world.allocations.values():
        for result in allocation.devices.results:
            key = result.driver, result.pool, result.device
            assert (result.share_id is not None) is devices[key].allow_multiple_allocations
            if not result.admin_access:
                holders[key] += 1
                for name, quantity in (result.consumed_capacity or {}).items():
                    used[key, name] += parse_quantity(quantity)
    assert all(held == 1 or devices[key].allow_multiple_allocations for key, held in holders.items())
    for (key, name), amount in used.items():
        assert amount <= parse_quantity(devices[key].capacity[name].value)
    counters: defaultdict[tuple[str, str], int] = defaultdict(int)
    for key in holders:
        for consumed in devices[key].consumes_counters:
            for name, counter in consumed.counters.items():
                counters[key[1], name] += parse_quantity(counter.value)
    limits = {"a": parse_quantity(4), "b": parse_quantity(3)}
    assert all(amount <= limits[name] for (_, name), amount in counters.items())


@pytest.mark.parametrize("seed", range(20))
def test_the_same_question_has_the_same_answer(seed: int) -> None:
    world = World(seed)
    for _ in range(10):
        world.step()
    claims = [random_claim(world.rng, name) for name in ("a", "b")]
    for node in NODES:
        assert allocate(world.state, node, claims) == allocate(world.state, node, claims)
