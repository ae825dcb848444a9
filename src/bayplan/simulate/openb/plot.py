"""The curves of several policies as an SVG file: GPU allocation by how much was requested.

Written by hand: a plotting library would be the largest dependency of the program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

WIDTH: Final = 720
HEIGHT: Final = 460
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 24, 52
COLORS: Final = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#555555")
FIRST_PERCENT: Final = 60
"""Below, all policies allocate everything that is requested."""

Curve = Sequence[tuple[float, float]]
"""Requested and allocated, in percent of the cluster."""


def allocation_plot(curves: Mapping[str, Curve]) -> str:
    """One line for each curve, from 60 % requested on (or from the beginning, if none comes so far)."""
    shown = {name: [point for point in curve if point[0] >= FIRST_PERCENT] for name, curve in curves.items()}
    if not any(len(curve) > 1 for curve in shown.values()):
        shown = {name: list(curve) for name, curve in curves.items()}
    points = [point for curve in shown.values() for point in curve]
    area = _Area(
        min((x for x, _ in points), default=0.0),
        max((x for x, _ in points), default=1.0),
        min((y for _, y in points), default=0.0),
        100.0,
    )
    lines = [*area.grid()]
    for number, (name, curve) in enumerate(shown.items()):
        color = COLORS[number % len(COLORS)]
        path = " ".join(f"{area.x(x):.1f},{area.y(y):.1f}" for x, y in curve)
        lines.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.8"/>')
        y = TOP + 14 + 20 * number
        x = WIDTH - RIGHT + 16
        lines.append(
            f'<line x1="{x}" y1="{y - 4}" x2="{x + 18}" y2="{y - 4}" stroke="{color}" stroke-width="3"/>'
        )
        lines.append(f'<text x="{x + 26}" y="{y}">{escape(name)}</text>')
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12" fill="#222">'
    )
    background = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
    return "\n".join([head, background, *lines, "</svg>", ""])


class _Area:
    """The axes, and where values are on them."""

    def __init__(self, left: float, right: float, bottom: float, top: float) -> None:
        self._left, self._right = left, max(right, left + 1)
        self._bottom, self._top = min(5.0 * (bottom // 5), top - 5), top

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (value - self._left) / (self._right - self._left)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - self._bottom) / (self._top - self._bottom)

    def grid(self) -> list[str]:
        lines = []
        for value in range(int(self._bottom), int(self._top) + 1, 5):
            y = self.y(value)
            lines.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
            lines.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value}</text>')
        for value in range(-(-int(self._left) // 10) * 10, int(self._right) + 1, 10):
            x = self.x(value)
            lines.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{value}</text>')
        middle = (LEFT + WIDTH - RIGHT) / 2
        below = f'x="{middle}" y="{HEIGHT - 12}" text-anchor="middle"'
        lines.append(f"<text {below}>GPU requested, % of the cluster</text>")
        lines.append(
            f'<text transform="rotate(-90 18 {HEIGHT / 2})" x="18" y="{HEIGHT / 2}" text-anchor="middle">'
            "GPU allocated, % of the cluster</text>"
        )
        return lines
