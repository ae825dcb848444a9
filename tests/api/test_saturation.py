"""Numbers beyond the limits of the columns."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from bayplan.api.quantity import (
    MAX_ALLOCATABLE,
    MAX_NANOS,
    MAX_REQUEST,
    saturated_allocatable,
    saturated_nanos,
    saturated_request,
)
from bayplan.api.requests import ContainerAccounting, PodAccounting, fit_requests, scoring_requests
from bayplan.testing.builders import make_pod


@pytest.mark.parametrize("amount", [-(2**80), -1, 0, 1, 2**56, 2**62, 2**63, 2**80])
def test_no_formula_over_columns_leaves_64_bits(amount: int) -> None:
    allocatable, request = saturated_allocatable(amount), saturated_request(amount)
    assert 0 <= allocatable * 100 < 2**63
    assert 0 - request - MAX_REQUEST >= -(2**63)
    assert request + MAX_REQUEST < 2**63


def test_a_request_beyond_the_limits_exceeds_every_node() -> None:
    assert saturated_request(2**80) > saturated_allocatable(2**80)


@pytest.mark.parametrize(
    "requests",
    [
        fit_requests,
        ContainerAccounting().assigned_requests,
        PodAccounting().assigned_requests,
        scoring_requests,
    ],
)
def test_all_readings_of_a_request_saturate(requests: object) -> None:
    assert callable(requests)
    assert requests(make_pod("p", memory="7Ei", cpu="1e30"))["memory"] == MAX_REQUEST
    assert PodAccounting().nonzero_requests(make_pod("p", memory="7Ei", cpu="1e30")) == (
        MAX_REQUEST,
        MAX_REQUEST,
    )


@pytest.mark.parametrize(
    ("time", "nanos"),
    [
        (datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC), 1_000_005_000),
        (datetime(1, 1, 1, tzinfo=UTC), -MAX_NANOS),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))), -MAX_NANOS),
        (datetime(2300, 1, 1, tzinfo=UTC), MAX_NANOS),
        (datetime(9999, 12, 31, tzinfo=timezone(-timedelta(hours=14))), MAX_NANOS),
    ],
)
def test_times_saturate(time: datetime, nanos: int) -> None:
    assert saturated_nanos(time) == nanos


def test_the_largest_node_can_still_be_used() -> None:
    assert saturated_allocatable(2**60) == MAX_ALLOCATABLE
