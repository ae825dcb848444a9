"""Long searches end early where there is no solution, and only there."""

from __future__ import annotations

import random
from itertools import combinations, product

import pytest

from bayplan.api.resource_claims import ALL_DEVICES, DeviceConstraint, ResourceClaim
from bayplan.dra import search
from bayplan.dra.allocator import CANNOT_ALLOCATE, Allocator, NoFit
from bayplan.dra.pruning import Need, can_be_met
from bayplan.dra.state import DeviceState
from bayplan.errors import AllocationError
from bayplan.testing.builders import (
    make_device,
    make_device_class,
    make_device_request,
    make_node,
    make_resource_claim,
    make_resource_slice,
)

from .generated import CLASSES, NODES, random_claim, random_slices


@pytest.mark.parametrize("seed", range(60))
def test_needs_can_be_met_if_devices_can_be_shared_out(seed: int) -> None:
    rng = random.Random(seed)
    devices = [("d", "p", str(i)) for i in range(4)]
    needs = [
        Need(rng.randint(1, 2), rng.sample(devices, rng.randint(0, 3)), rng.randint(0, 1)) for _ in range(3)
    ]
    choices = [list(combinations(need.exclusive, max(need.count - need.shared, 0))) for need in needs]
    possible = any(
        len({key for part in one for key in part}) == sum(map(len, one)) for one in product(*choices)
    )
    assert can_be_met(needs) is possible


def test_needs_are_met_by_giving_others_different_devices() -> None:
    """`a` takes what only `b` can use as well, until `b` requests it: three needs, moved along a chain."""
    first, second, third = ([("d", "p", f"{kind}{i}") for i in range(5)] for kind in "xyz")
    needs = [Need(5, first + second, 0), Need(5, second + third, 0), Need(5, first, 0)]
    assert can_be_met(needs)
    assert not can_be_met([*needs, Need(1, third[:1] + first, 0)])
    assert can_be_met([*needs, Need(1, [("d", "p", "other"), *first], 0)])


def gpus(count: int) -> DeviceState:
    state = DeviceState()
    state.put_slice(
        make_resource_slice("s", *(make_device(f"gpu-{i:02}", {"i": i}) for i in range(count)), node="n")
    )
    return state


def run(state: DeviceState, claim: ResourceClaim, monkeypatch: pytest.MonkeyPatch) -> tuple[object, int]:
    """The answer, and the steps that it took."""
    steps: list[int] = []
    original = search.Search.run

    def counted(self: search.Search) -> bool:
        try:
            return original(self)
        finally:
            steps.append(self.steps)

    monkeypatch.setattr(search.Search, "run", counted)
    allocator = Allocator(state.inventory, state.allocated, {"gpu": make_device_class("gpu")}.get)
    return allocator.allocate(make_node("n"), [claim]), steps[0]


def test_a_request_without_devices_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = make_device_request("no", "gpu", 'device.driver == "other"')
    claim = make_resource_claim("c", make_device_request("many", count=8), nothing)
    answer, steps = run(gpus(32), claim, monkeypatch)
    assert answer == CANNOT_ALLOCATE
    assert steps <= 1000


def test_devices_that_are_identical_are_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the search would take the 10,518,300 ways to take 8 of 32 devices."""
    same = DeviceConstraint(match_attribute="gpu.example.com/i", requests=("pair",))
    claim = make_resource_claim(
        "c", make_device_request("many", count=8), make_device_request("pair", count=2), constraints=[same]
    )
    state = DeviceState()
    devices = [make_device(f"gpu-{i:02}", {"i": i if i >= 30 else 0}) for i in range(32)]
    devices[0] = make_device("gpu-00", {"i": 99})
    state.put_slice(make_resource_slice("s", *devices, node="n"))
    answer, steps = run(state, claim, monkeypatch)
    assert not isinstance(answer, NoFit)
    assert steps < 20_000


def test_an_error_is_not_hidden_by_the_shortcut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_LONG", 1)
    attributes = 'device.attributes["gpu.example.com"]'
    failing = make_device_request("bad", "gpu", f"{attributes}.i < 4 ? false : {attributes}.nosuch")
    claim = make_resource_claim("c", make_device_request("many", count=2), failing)
    with pytest.raises(AllocationError, match="no such key: nosuch"):
        run(gpus(5), claim, monkeypatch)
    answer, _ = run(gpus(4), claim, monkeypatch)
    assert answer == CANNOT_ALLOCATE


@pytest.mark.parametrize("seed", range(150))
def test_shortcuts_change_no_answer(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    state = DeviceState()
    for pool in ("p0", "p1", "p2"):
        for item in random_slices(rng, pool):
            state.put_slice(item)
    claims = [random_claim(rng, name) for name in ("a", "b")]
    answers = []
    for long in (1, 1_000_000):
        monkeypatch.setattr(search, "_LONG", long)
        allocator = Allocator(state.inventory, state.allocated, CLASSES.get, make_share_id=lambda: "id")
        found: list[object] = []
        for node in NODES:
            try:
                found.append(allocator.allocate(node, claims))
            except AllocationError as error:
                found.append(str(error))
        answers.append(found)
    assert answers[0] == answers[1]


def test_all_devices_are_needed_where_some_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_LONG", 1)
    claim = make_resource_claim("c", make_device_request("all", mode=ALL_DEVICES), make_device_request("one"))
    answer, _ = run(gpus(3), claim, monkeypatch)
    assert answer == CANNOT_ALLOCATE
