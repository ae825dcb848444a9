"""A long search leaves out branches without a solution, and only those: its results stay the same."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api.devices import (
    ALL_DEVICES,
    Counter,
    CounterSet,
    DeviceConstraint,
    DeviceCounterConsumption,
    ResourceClaim,
)
from bayplan.api.release import device_features
from bayplan.api.releases import V1_36, V1_37, Release
from bayplan.dra import search
from bayplan.dra.allocator import CANNOT_ALLOCATE, Allocator, NoFit
from bayplan.dra.pruning import Need, can_be_met
from bayplan.dra.state import DeviceState
from bayplan.errors import AllocationError
from bayplan.testing.builders import (
    make_device,
    make_device_class,
    make_device_request,
    make_first_available,
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
    assert steps <= 200


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


def test_an_error_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_LONG", 1)
    attributes = 'device.attributes["gpu.example.com"]'
    failing = make_device_request("bad", "gpu", f"{attributes}.i < 4 ? false : {attributes}.nosuch")
    claim = make_resource_claim("c", make_device_request("many", count=2), failing)
    with pytest.raises(AllocationError, match="no such key: nosuch"):
        run(gpus(5), claim, monkeypatch)
    answer, _ = run(gpus(4), claim, monkeypatch)
    assert answer == CANNOT_ALLOCATE


@pytest.mark.parametrize("release", [V1_36, V1_37], ids=str)
@pytest.mark.parametrize("seed", range(150))
def test_pruning_changes_no_answer(seed: int, release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    state = DeviceState(device_features(release))
    for pool in ("p0", "p1", "p2"):
        for item in random_slices(rng, pool):
            state.put_slice(item)
    claims = [random_claim(rng, name) for name in ("a", "b")]
    assert answers(state, claims, 1, monkeypatch) == answers(state, claims, NEVER, monkeypatch)


@pytest.mark.parametrize("release", [V1_36, V1_37], ids=str)
@pytest.mark.parametrize("seed", range(250))
def test_pruning_changes_no_answer_under_constraints(
    seed: int, release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few values, several constraints over some of the requests, alternatives, and shared devices."""
    rng = random.Random(seed)
    state = DeviceState(device_features(release))
    shared = rng.random() < 0.3
    devices = [
        make_device(
            f"d{i}",
            {"a": rng.randrange(4), "b": rng.randrange(3)}
            if rng.random() < 0.95
            else {"a": rng.randrange(4)},
            allow_multiple_allocations=shared and rng.random() < 0.4,
        )
        for i in range(rng.randint(4, 7))
    ]
    state.put_slice(make_resource_slice("s", *devices, node="n0"))
    claims = [constrained_claim(rng, name) for name in rng.choice(("a", "ab"))]
    assert answers(state, claims, 0, monkeypatch) == answers(state, claims, NEVER, monkeypatch)


@pytest.mark.parametrize("release", [V1_36, V1_37], ids=str)
@pytest.mark.parametrize("seed", range(150))
def test_pruning_changes_no_answer_with_counters(
    seed: int, release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    state = DeviceState(device_features(release))
    for pool in ("p", "q")[: rng.randint(1, 2)]:
        limits = {name: Counter(value=rng.randint(3, 9)) for name in "ab"}
        where: dict[str, Any] = {"pool": pool, "node": "n0", "slices": 2}
        devices = [
            make_device(
                f"d{i}",
                {"a": rng.randrange(4), "b": 0},
                consumes_counters=consumed(rng) if rng.random() < 0.9 else (),
                allow_multiple_allocations=rng.random() < 0.1,
            )
            for i in range(rng.randint(2, 4))
        ]
        state.put_slice(make_resource_slice(f"{pool}-d", *devices, **where))
        counters = CounterSet(name="set", counters=limits)
        state.put_slice(make_resource_slice(f"{pool}-c", counters=[counters], **where))
    claims = [constrained_claim(rng, name) for name in rng.choice(("a", "ab"))]
    assert answers(state, claims, 0, monkeypatch) == answers(state, claims, NEVER, monkeypatch)


def consumed(rng: random.Random) -> tuple[DeviceCounterConsumption, ...]:
    counters = {name: Counter(value=rng.randint(0, 4)) for name in rng.choice(("a", "b", "ab"))}
    return (DeviceCounterConsumption(counter_set="set", counters=counters),)


def test_partitions_that_are_too_large_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions of 1 to 32 where 35 are left: seven of them fit, and eight never."""
    state = DeviceState()
    devices = [
        make_device(
            f"gpu-{size:02}",
            consumes_counters=(
                DeviceCounterConsumption(counter_set="set", counters={"a": Counter(value=size)}),
            ),
        )
        for size in range(1, 33)
    ]
    counters = CounterSet(name="set", counters={"a": Counter(value=35)})
    state.put_slice(make_resource_slice("s", *devices, node="n", slices=2))
    state.put_slice(make_resource_slice("c", node="n", slices=2, counters=[counters]))
    for count, fits in ((7, True), (8, False)):
        claim = make_resource_claim("c", *(make_device_request(f"r{i}") for i in range(count)))
        answer, steps = run(state, claim, monkeypatch)
        assert isinstance(answer, tuple) is fits
        assert steps < 1000


NEVER = 10**9


def constrained_claim(rng: random.Random, name: str) -> ResourceClaim:
    requests = []
    for i in range(rng.randint(2, 4)):
        options = [
            make_device_request(
                f"s{j}",
                "gpu",
                *(
                    [f'device.attributes["gpu.example.com"].a != {rng.randrange(4)}']
                    if rng.random() < 0.3
                    else []
                ),
                count=rng.choice((1, 1, 1, 2)),
            )
            for j in range(rng.choice((1, 1, 1, 2)))
        ]
        single = replace(options[0], name=f"r{i}")
        requests.append(single if len(options) == 1 else make_first_available(f"r{i}", *options))
    constraints = []
    for _ in range(rng.randint(1, 2)):
        names = tuple(one.name for one in requests if rng.random() < 0.7)
        attribute = f"gpu.example.com/{rng.choice('ab')}"
        if rng.random() < 0.7:
            constraints.append(DeviceConstraint(match_attribute=attribute, requests=names))
        else:
            constraints.append(DeviceConstraint(distinct_attribute=attribute, requests=names))
    return make_resource_claim(name, *requests, constraints=constraints)


def answers(
    state: DeviceState, claims: list[ResourceClaim], long: int, monkeypatch: pytest.MonkeyPatch
) -> list[object]:
    """On all nodes, if a branch counts as long after this number of steps."""
    monkeypatch.setattr(search, "_LONG", long)
    allocator = Allocator(state.inventory, state.allocated, CLASSES.get, make_share_id=lambda: "id")
    found: list[object] = []
    for node in NODES:
        try:
            found.append(allocator.allocate(node, claims))
        except AllocationError as error:
            found.append(str(error))
    return found


FIRST_AND_LAST = DeviceConstraint(match_attribute="gpu.example.com/i", requests=("r0", "r7"))


@pytest.mark.parametrize(
    ("values", "constraint", "chosen"),
    [
        pytest.param(range(32), FIRST_AND_LAST, [], id="no two devices match"),
        pytest.param([i // 2 for i in range(32)], FIRST_AND_LAST, [0, 2, 3, 4, 5, 6, 7, 1], id="pairs"),
        pytest.param(
            [*range(30), 30, 30], FIRST_AND_LAST, [30, 0, 1, 2, 3, 4, 5, 31], id="only the last two match"
        ),
        pytest.param(
            [0, 0, *range(1, 31)],
            DeviceConstraint(match_attribute="gpu.example.com/i", requests=("r6", "r7")),
            [2, 3, 4, 5, 6, 7, 0, 1],
            id="the first two match and must be left for the last requests",
        ),
        pytest.param(
            [i // 4 for i in range(32)],
            DeviceConstraint(distinct_attribute="gpu.example.com/i"),
            [0, 4, 8, 12, 16, 20, 24, 28],
            id="eight values for eight requests",
        ),
        pytest.param(
            [i % 7 for i in range(32)],
            DeviceConstraint(distinct_attribute="gpu.example.com/i"),
            [],
            id="seven values for eight requests",
        ),
    ],
)
def test_eight_requests_and_a_constraint(
    values: Sequence[int], constraint: DeviceConstraint, chosen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unpruned, a search for eight of 32 devices tries up to 4e11 combinations."""
    state = DeviceState()
    devices = [make_device(f"gpu-{i:02}", {"i": value, "own": i}) for i, value in enumerate(values)]
    state.put_slice(make_resource_slice("s", *devices, node="n"))
    # No two devices are equivalent.
    own = DeviceConstraint(match_attribute="gpu.example.com/own", requests=("r1",))
    claim = make_resource_claim(
        "c", *(make_device_request(f"r{i}") for i in range(8)), constraints=[constraint, own]
    )
    answer, steps = run(state, claim, monkeypatch)
    assert steps < 10_000
    if not chosen:
        assert answer == CANNOT_ALLOCATE
    else:
        assert isinstance(answer, tuple)
        assert [one.device for one in answer[0].devices.results] == [f"gpu-{i:02}" for i in chosen]


def test_all_devices_are_needed_where_some_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_LONG", 1)
    claim = make_resource_claim("c", make_device_request("all", mode=ALL_DEVICES), make_device_request("one"))
    answer, _ = run(gpus(3), claim, monkeypatch)
    assert answer == CANNOT_ALLOCATE
