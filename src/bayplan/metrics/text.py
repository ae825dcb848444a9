"""Numbers and label values as they are in a scrape."""

from __future__ import annotations

from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of a scrape."""


def go_float(value: float) -> str:
    """The shortest text of a number, formatted as in Go: with an exponent from 1e+06 on."""
    text = repr(float(value))
    if "e" in text or abs(value) < 1e6:
        return text.removesuffix(".0")
    digits, _, fraction = text.partition(".")
    sign = "-" if value < 0 else ""
    digits = digits.removeprefix("-")
    mantissa = f"{digits}{fraction}".rstrip("0")
    point = f".{mantissa[1:]}" if len(mantissa) > 1 else ""
    return f"{sign}{mantissa[0]}{point}e+{len(digits) - 1:02d}"


def escaped(label_value: str) -> str:
    """A label value, escaped to be quoted."""
    return label_value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
