"""Durations as Kubernetes writes them: `10s`, `1m30s`, `100ms`.

They are stored in whole nanoseconds, because reading and writing a configuration must not change it:
`timedelta` would round `100ns` to 0. Code that waits uses `seconds`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self

_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # micro sign
    "μs": 1_000,  # Greek letter mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_WHOLE: Final = re.compile(rf"[-+]?(?:0|(?:{_PART.pattern})+)")
_LIMIT: Final = 2**63


@dataclass(frozen=True, order=True, slots=True)
class Duration:
    """A length of time, possibly negative; prints as it is written in a file."""

    nanoseconds: int = 0

    @classmethod
    def of(cls, seconds: float) -> Self:
        """The duration of this number of seconds."""
        return cls(round(seconds * 1e9))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses `1h2m3.5s` with an optional sign; ValueError if it is invalid or exceeds 64 bits."""
        if not _WHOLE.fullmatch(text):
            raise ValueError(f"{text!r} is not a duration")
        total = 0
        for number, unit in _PART.findall(text):
            # Each part is truncated to whole nanoseconds, as Go does.
            total += int(Fraction(number.rstrip(".") if number[0] != "." else f"0{number}") * _UNITS[unit])
        if total > _LIMIT - (not text.startswith("-")):
            raise ValueError(f"{text!r} is too long a duration")
        return cls(-total if text.startswith("-") else total)

    @property
    def seconds(self) -> float:
        return self.nanoseconds / 1e9

    def __bool__(self) -> bool:
        return self.nanoseconds != 0

    def __str__(self) -> str:
        if not self.nanoseconds:
            return "0s"
        sign = "-" if self.nanoseconds < 0 else ""
        rest = abs(self.nanoseconds)
        for unit in ("ns", "µs", "ms"):
            if rest < _UNITS[unit] * 1_000:
                return f"{sign}{_decimal(rest, _UNITS[unit])}{unit}"
        hours, rest = divmod(rest, _UNITS["h"])
        minutes, rest = divmod(rest, _UNITS["m"])
        text = f"{_decimal(rest, _UNITS['s'])}s"
        if hours or minutes:
            text = f"{minutes}m{text}"
        return f"{sign}{hours}h{text}" if hours else f"{sign}{text}"


def _decimal(amount: int, unit: int) -> str:
    """`amount / unit` without trailing zeros; units are powers of ten here, so this is exact."""
    whole, fraction = divmod(amount, unit)
    digits = f"{fraction:0{len(str(unit)) - 1}d}".rstrip("0") if fraction else ""
    return f"{whole}.{digits}" if digits else str(whole)
