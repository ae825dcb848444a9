"""Ticks of axes: round numbers, and times of day that are easy to read."""

from __future__ import annotations

import math
from typing import Final

_TIME_STEPS: Final = (
    *(1, 2, 5, 10, 15, 30),
    *(60 * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(3600 * hours for hours in (1, 2, 3, 6, 12)),
    *(86400 * days for days in (1, 2, 5, 7, 14, 28)),
)


def number_ticks(high: float, count: int) -> list[float]:
    """At most `count` + 2 round numbers from 0 to at least `high`."""
    if high <= 0:
        return [0.0, 1.0]
    rough = high / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * (1 - 1e-9))
    return [number * step for number in range(math.ceil(high / step - 1e-9) + 1)]


def time_ticks(end: float, count: int) -> list[float]:
    """At most `count` + 1 times from 0 to at most `end`, in seconds."""
    step = next((step for step in _TIME_STEPS if end / step <= count), None)
    if step is None:
        step = 28 * 86400 * math.ceil(end / count / (28 * 86400))
    return [float(number * step) for number in range(int(end // step) + 1)]


def time_label(seconds: float) -> str:
    """`0`, `30s`, `5m`, `1h30m`, `2d`: without units that are zero."""
    whole = round(seconds)
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        amount, whole = divmod(whole, size)
        if amount:
            parts.append(f"{amount}{unit}")
    return "".join(parts[:2]) or "0"


def count_label(number: float) -> str:
    """`0`, `12`, `1,500`, `0.5`."""
    return f"{number:,.0f}" if number >= 10 or number == int(number) else f"{number:g}"


def percent_label(share: float) -> str:
    return f"{100 * share:.0f} %"
