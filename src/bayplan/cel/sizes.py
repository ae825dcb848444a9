"""Bounds of the sizes of values, as far as the text of an expression determines them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bayplan.cel.costs import REGEX_FACTOR, STRING_FACTOR
from bayplan.cel.syntax import Expr, ListExpr, Literal, MapExpr

UNBOUNDED: Final = 2**64 - 1


def bounded(number: int) -> int:
    return min(number, UNBOUNDED)


def scaled(number: int, factor: float) -> int:
    product = math.ceil(float(number) * factor)
    return UNBOUNDED if product >= 2**64 else product


@dataclass(frozen=True, slots=True)
class Size:
    """The minimum and maximum size of a value."""

    least: int
    most: int

    def __add__(self, other: Size) -> Size:
        return Size(bounded(self.least + other.least), bounded(self.most + other.most))

    def __mul__(self, other: Size) -> Size:
        return Size(bounded(self.least * other.least), bounded(self.most * other.most))

    def __or__(self, other: Size) -> Size:
        """Either of the two."""
        return Size(min(self.least, other.least), max(self.most, other.most))


UNKNOWN: Final = Size(0, UNBOUNDED)
ONE: Final = Size(1, 1)


def no_item(items: Sequence[object]) -> Size:
    """The size of an item before any was seen: anything else takes its place."""
    return Size(UNBOUNDED, 0) if items else Size(0, 0)


def literal_size(expr: Expr) -> Size | None:
    match expr:
        case Literal():
            length = len(expr.value) if isinstance(expr.value, str | bytes) else 1
        case ListExpr():
            length = len(expr.elements)
        case MapExpr():
            length = len(expr.entries)
        case _:
            return None
    return Size(length, length)


def regex_bound(text: Size, expression: Size) -> int:
    return bounded(scaled(bounded(text.most + 1), STRING_FACTOR) * scaled(expression.most, REGEX_FACTOR))


def replaced(text: Size, old: Size, new: Size) -> Size:
    """The size of a text after `replace`."""
    if old.least == 0:
        most = bounded(bounded(text.most + 1) * new.most) + text.most
    elif new.most <= old.least:
        most = text.most
    else:
        most = bounded(math.ceil(float(text.most) / old.least)) * new.most
    if old.most == 0:
        least = (text.least + 1) * new.least + text.least
    elif old.most <= new.least:
        least = text.least
    else:
        least = math.ceil(text.least / old.most) * new.least
    return Size(bounded(least), bounded(most))
