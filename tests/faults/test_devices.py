"""Fault runs with devices: no device is given twice, and no claim is left behind."""

from __future__ import annotations

import pytest

from bayplan.api.devices import ResourceClaim
from bayplan.simulate.memory.store import MemoryStore
from bayplan.testing.builders import make_allocated_device, make_device_request, make_resource_claim
from tests.effort import LONG_RUN
from tests.faults.devices import EVERY, claim_problems, devices_given_twice, has_devices
from tests.faults.life import play


def store_with(*names: str, reserved_for: str = "gone") -> MemoryStore:
    store = MemoryStore()
    for name in names:
        claim = make_resource_claim(
            name,
            make_device_request(),
            allocated=[make_allocated_device("gpu-0", "n")],
            reserved_for=[reserved_for],
        )
        created = store.create(claim)
        store.update_claim_status(
            claim.__class__(metadata=created.metadata, spec=claim.spec, status=claim.status)
        )
    return store


def test_a_device_that_is_given_twice_is_found() -> None:
    assert list(devices_given_twice(store_with("a"), set())) == []
    store = store_with("a", "b")
    assert list(devices_given_twice(store, set())) == ["device n/gpu-0 is given to a and b"]
    assert list(devices_given_twice(store, {store.list(ResourceClaim)[1].uid})) == []


def test_a_claim_that_is_left_behind_is_found() -> None:
    store = store_with("a")
    assert list(claim_problems(store, ())) == [
        "claim a is allocated, but no pod uses it",
        "claim a is reserved for gone, which is gone",
    ]


@pytest.mark.parametrize("first", [0, pytest.param(5 * EVERY, marks=LONG_RUN)])
def test_lives_with_devices(first: int) -> None:
    reports = [play(seed) for seed in range(first, first + 5 * EVERY, EVERY)]
    assert all(has_devices(report.seed) for report in reports)
    assert [problem for report in reports for problem in report.problems] == []
    assert any(
        "ResourceClaim" in line and "has a new status" in line for report in reports for line in report.trace
    )
