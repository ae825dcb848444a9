"""Durations are read and written as Go does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayplan.framework.args import Duration


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("0", "0s"),
        ("0s", "0s"),
        ("10s", "10s"),
        ("600s", "10m0s"),
        ("1h", "1h0m0s"),
        ("1h2m3.5s", "1h2m3.5s"),
        ("1.5s", "1.5s"),
        (".5s", "500ms"),
        ("1.s", "1s"),
        ("100ms", "100ms"),
        ("1us", "1µs"),
        ("1μs", "1µs"),
        ("1ns", "1ns"),
        ("-1s", "-1s"),
        ("+1s", "1s"),
        ("1s1s", "2s"),
        ("2562047h47m16.854775807s", "2562047h47m16.854775807s"),
        ("-2562047h47m16.854775808s", "-2562047h47m16.854775808s"),
    ],
)
def test_texts(text: str, printed: str) -> None:
    assert str(Duration.parse(text)) == printed


@pytest.mark.parametrize("text", ["", "s", "1", "1x", "1s ", "--1s", "1.2.3s", ".s", "9999999h", "1d", "٣s"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        Duration.parse(text)


@given(st.integers(-(2**63), 2**63 - 1))
def test_what_is_written_is_read_back(nanoseconds: int) -> None:
    assert Duration.parse(str(Duration(nanoseconds))) == Duration(nanoseconds)


def test_seconds() -> None:
    assert Duration.of(1.5).nanoseconds == 1_500_000_000
    assert Duration.parse("100ms").seconds == 0.1
    assert not Duration()
