"""Charts as SVG: series over time, and horizontal bars.

Colours and dashes are classes of the style sheet of `report.py`. Each chart is drawn twice, for desktop and
phone width, because text in a scaled drawing would be unreadable on a phone; the style sheet shows one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
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


COLOURS: Final = 8
"""The number of styles for lines; further lines use them again."""


@dataclass(frozen=True, slots=True)
class Line:
    """One series of a chart."""

    name: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Size:
    css_class: str
    width: int
    height: int
    time_ticks: int


SIZES: Final = (Size("wide", 760, 260, 8), Size("narrow", 350, 230, 3))
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 12, 26


def line_chart(
    key: str,
    title: str,
    times: Sequence[float],
    lines: Sequence[Line],
    label: Callable[[float], str],
    *,
    high: float | None = None,
) -> str:
    """Series over time, with a legend. `high` is the end of the vertical axis if it is fixed."""
    top = high or max((max(line.values, default=0.0) for line in lines), default=0.0)
    ticks = number_ticks(top, 4)
    peaks = "; ".join(f"{line.name} at most {label(max(line.values, default=0.0))}" for line in lines)
    drawings = [
        _lines(f"{key}-{size.css_class}", title, peaks, size, times, lines, ticks, label) for size in SIZES
    ]
    return f"{''.join(drawings)}{_legend(lines)}"


def _lines(
    key: str,
    title: str,
    peaks: str,
    size: Size,
    times: Sequence[float],
    lines: Sequence[Line],
    ticks: Sequence[float],
    label: Callable[[float], str],
) -> str:
    end = times[-1] or 1.0
    right, bottom = size.width - _RIGHT, size.height - _BOTTOM
    wide, tall = right - _LEFT, bottom - _TOP

    def x(time: float) -> str:
        return f"{_LEFT + wide * time / end:.1f}"

    def y(value: float) -> str:
        return f"{bottom - tall * min(value / ticks[-1], 1.0):.1f}"

    parts = [_open(key, title, f"From 0 to {time_label(end)}: {peaks}", size)]
    for tick in ticks:
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y(tick)}" y2="{y(tick)}"/>')
        parts.append(
            f'<text x="{_LEFT - 6}" y="{y(tick)}" dy="4" text-anchor="end">{escape(label(tick))}</text>'
        )
    for tick in time_ticks(end, size.time_ticks):
        anchor = "end" if tick > 0.97 * end else "middle"
        parts.append(
            f'<text x="{x(tick)}" y="{size.height - 8}" text-anchor="{anchor}">{time_label(tick)}</text>'
        )
    for number, line in enumerate(lines):
        points = " ".join(f"{x(time)},{y(value)}" for time, value in zip(times, line.values, strict=True))
        parts.append(f'<polyline class="line c{number % COLOURS}" points="{points}"/>')
    parts.append("</svg>")
    return "".join(parts)


def bar_chart(key: str, title: str, bars: Sequence[tuple[str, float]], label: Callable[[float], str]) -> str:
    """One horizontal bar for each name."""
    high = max((amount for _, amount in bars), default=0.0) or 1.0
    return "".join(_bars(f"{key}-{size.css_class}", title, size, bars, high, label) for size in SIZES)


def _bars(
    key: str,
    title: str,
    size: Size,
    bars: Sequence[tuple[str, float]],
    high: float,
    label: Callable[[float], str],
) -> str:
    step = 38
    sized = Size(size.css_class, size.width, step * len(bars) + 4, 0)
    longest = max(6, size.width // 7)
    parts = [_open(key, title, "; ".join(f"{name}: {label(amount)}" for name, amount in bars), sized)]
    for number, (name, amount) in enumerate(bars):
        top = number * step
        shown = name if len(name) <= longest else f"{name[: longest - 1]}…"
        width = (size.width - 90) * amount / high
        parts.append(f'<text x="0" y="{top + 13}">{escape(shown)}</text>')
        parts.append(f'<rect class="bar" x="0" y="{top + 18}" width="{width:.1f}" height="14" rx="2"/>')
        parts.append(f'<text x="{width + 6:.1f}" y="{top + 29}">{escape(label(amount))}</text>')
    parts.append("</svg>")
    return "".join(parts)


def _open(key: str, title: str, description: str, size: Size) -> str:
    return (
        f'<svg class="chart {size.css_class}" viewBox="0 0 {size.width} {size.height}" role="img" '
        f'aria-labelledby="{key}-t {key}-d"><title id="{key}-t">{escape(title)}</title>'
        f'<desc id="{key}-d">{escape(description)}</desc>'
    )


def _legend(lines: Sequence[Line]) -> str:
    if len(lines) < 2:
        return ""
    entries = "".join(
        f'<li><svg class="key" viewBox="0 0 24 8" aria-hidden="true"><line class="line c{number % COLOURS}" '
        f'x1="0" x2="24" y1="4" y2="4"/></svg>{escape(line.name)}</li>'
        for number, line in enumerate(lines)
    )
    return f'<ul class="legend">{entries}</ul>'
