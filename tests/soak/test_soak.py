"""A soak of a few seconds: with all clients and restarts, and with the rules of the long one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.soak.__main__ import Size, soak
from tests.soak.measurements import (
    FILLING_BYTES,
    FULL_SECONDS,
    Measured,
    errors_in,
    find_problems,
    grows,
    percentiles,
    slope,
    steady_window,
    summary,
)


@pytest.mark.long
def test_a_short_soak(tmp_path: Path) -> None:
    size = Size(seconds=8.0, nodes=10, pods=30, scale=0.3, watchers=2, slow=1)
    measured, program = asyncio.run(soak(size, tmp_path))
    assert find_problems(measured, program.log.read_text()) == []
    assert len(measured.restarts) == 4
    assert len(measured.latencies) > 0


def line(growth: float) -> list[tuple[float, int]]:
    """Memory of 200 MB that grows by so many bytes a second, over ten minutes."""
    return [(float(second), int(200e6 + growth * second)) for second in range(0, 600, 5)]


@pytest.mark.parametrize(
    ("growth", "expected"),
    [
        pytest.param(0.0, False, id="flat"),
        pytest.param(20_000.0, False, id="12 MB in ten minutes is noise"),
        pytest.param(200_000.0, True, id="120 MB is a leak"),
        pytest.param(-200_000.0, False, id="shrinking is no leak"),
    ],
)
def test_growth(growth: float, expected: bool) -> None:
    assert slope(line(growth)) == pytest.approx(growth, abs=1.0)
    assert grows(line(growth)) is expected


def test_the_warm_up_does_not_count() -> None:
    assert steady_window(line(1.0))[0][0] == 205.0


def life(minutes: int, filling_mb: float, leak_mb: float) -> Measured:
    """So many megabytes a minute while bounded stores fill up, and so many always."""
    memory = []
    for second in range(0, 60 * minutes, 5):
        size = 200 + filling_mb * min(second, FULL_SECONDS) / 60 + leak_mb * second / 60
        memory.append((float(second), int(size * 1e6)))
    return Measured(bound=1, memory=memory)


@pytest.mark.parametrize(
    ("minutes", "filling_mb", "leak_mb", "expected"),
    [
        pytest.param(21, 10, 0, [], id="stores that fill up are no leak"),
        pytest.param(21, 10, 10, ["memory grows by 10.00 MB a minute"], id="a leak beside them"),
        pytest.param(12, 10, 0, [], id="too short to see them full"),
        pytest.param(12, 10, 30, ["memory grows by 40.00 MB a minute"], id="more than they can hold"),
    ],
)
def test_bounded_stores(minutes: int, filling_mb: float, leak_mb: float, expected: list[str]) -> None:
    measured = life(minutes, filling_mb, leak_mb)
    assert find_problems(measured, "") == expected
    assert summary(measured)["stores_full"] is (minutes == 21)


def test_the_bound_of_what_fills_up() -> None:
    """As docs/soak.md states it."""
    assert round(FILLING_BYTES / 1e6) == 149


def test_percentiles_are_in_milliseconds() -> None:
    assert percentiles([0.001 * number for number in range(1, 101)]) == {
        "p50": 51.0,
        "p90": 91.0,
        "p99": 100.0,
        "max": 100.0,
    }


@pytest.mark.parametrize(
    "text",
    [
        "E1116 22:00:00.000000       1 loop.py:1] the attempt broke",
        "Traceback (most recent call last):",
        "error: cannot listen",
    ],
)
def test_errors_in_the_log_are_found(text: str) -> None:
    assert errors_in(f"all is well\n{text}\n") == [text]
    assert find_problems(Measured(bound=1), text) == [f"log: {text}"]


def test_what_clients_report_is_a_problem() -> None:
    assert find_problems(Measured(bound=1, problems=["pod-1 is lost"]), "") == ["pod-1 is lost"]
