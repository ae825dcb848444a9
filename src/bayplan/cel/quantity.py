"""Quantities in expressions: exact amounts such as "40Gi", with the quirks of Kubernetes' representation.

Upstream keeps an amount as a 64-bit number with a decimal exponent while it fits, and as an arbitrary decimal
otherwise. Selectors can see the difference: `isInteger()` is false for "1000m", "1.0" and "1024Ti", because
only a 64-bit number with an exponent of zero or more counts as an integer. And the result of `add` or `sub`
on the right of `==` fails, because upstream compares only with a value that was parsed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final, NamedTuple

from bayplan.api.quantity import NANO, parse_quantity
from bayplan.cel.errors import NO_SUCH_OVERLOAD, EvaluationError
from bayplan.cel.values import MAX_INT, MIN_INT, Comparable, Value
from bayplan.errors import QuantityError

_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_FORM: Final = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+)|([A-Za-z]*))", re.ASCII)
_SHAPE: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]*(?:\.[0-9]*)?)(?P<suffix>[eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII
)
_WRONG_FORMAT: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_WRONG_SUFFIX: Final = "unable to parse quantity's suffix"
_MAX_DECIMAL_DIGITS: Final = 18
_MIN_EXPONENT: Final = -9


class Small(NamedTuple):
    """An amount that upstream keeps in 64 bits: number times ten to the exponent."""

    number: int
    exponent: int


@dataclass(frozen=True, slots=True, eq=False)
class Quantity(Comparable):
    TYPE_NAME: ClassVar = "kubernetes.Quantity"

    nano: int
    """The exact amount in units of 10⁻⁹."""
    small: Small | None
    """None for what upstream keeps as an arbitrary decimal."""
    computed: bool = False
    """Whether it is the result of `add` or `sub`."""

    def equals(self, other: Value) -> bool:
        if not isinstance(other, Quantity) or other.computed:
            raise EvaluationError(NO_SUCH_OVERLOAD)
        return self.nano == other.nano

    def go_type_name(self) -> str:
        return f"{'*' if self.computed else ''}{super(Quantity, self).go_type_name()}"

    def compare(self, other: Quantity) -> int:
        return int(self.nano > other.nano) - int(self.nano < other.nano)

    def add(self, other: Quantity) -> Quantity:
        return Quantity(self.nano + other.nano, _sum(self.small, other.small, 1), computed=True)

    def sub(self, other: Quantity) -> Quantity:
        return Quantity(self.nano - other.nano, _sum(self.small, other.small, -1), computed=True)

    def integer(self) -> int | None:
        """The amount, if upstream knows it as a 64-bit integer."""
        if self.small is None or self.small.exponent < 0:
            return None
        number = self.small.number * 10**self.small.exponent
        return number if MIN_INT <= number <= MAX_INT else None

    def approximate_float(self) -> float:
        if self.small is None:
            return self.nano / NANO
        number, exponent = self.small
        return float(number) if exponent == 0 else float(number) * 10.0**exponent


def from_int(number: int) -> Quantity:
    return Quantity(number * NANO, Small(number, 0))


@lru_cache(maxsize=65536)
def quantity(text: str) -> Quantity:
    """The quantity in a text.

    Raises:
        EvaluationError: it is not a quantity.
    """
    shaped = _SHAPE.fullmatch(text)
    if not text or shaped is None:
        raise EvaluationError(_WRONG_FORMAT)
    if not shaped["number"].strip("."):
        text = f"{shaped['sign']}0{shaped['suffix']}"
    try:
        nano = parse_quantity(text)
    except QuantityError as error:
        raise EvaluationError(_WRONG_SUFFIX) from error
    return Quantity(nano, _small(text))


def _small(text: str) -> Small | None:
    """Upstream's representation of the amount: its fast path counts digits before it multiplies."""
    found = _FORM.fullmatch(text)
    assert found is not None, "parsed before"
    sign, whole, fraction, exponent_text, suffix = found.groups()
    whole, fraction = whole.lstrip("0"), fraction or ""
    factor, exponent = 1, 0
    if suffix in _BINARY:
        shift = _BINARY[suffix]
        if fraction:
            return None
        factor = 1 << shift
        digits_left = 15 - len(whole) - int(shift * 3 / 10) - 1
    else:
        exponent = int(exponent_text) if exponent_text else _DECIMAL[suffix]
        digits_left = _MAX_DECIMAL_DIGITS - len(whole) - len(fraction)
    exponent -= len(fraction)
    if digits_left < 0 or exponent < _MIN_EXPONENT:
        return None
    number = int((whole + fraction) or "0") * factor
    if number > MAX_INT:
        return None
    return Small(-number if sign == "-" else number, exponent)


def _sum(one: Small | None, other: Small | None, sign: int) -> Small | None:
    if one is None or other is None:
        return None
    if other.number == 0:
        return one
    if one.number == 0:
        return Small(sign * other.number, other.exponent)
    exponent = min(one.exponent, other.exponent)
    left = one.number * 10 ** (one.exponent - exponent)
    right = other.number * 10 ** (other.exponent - exponent)
    number = left + sign * right
    fits = all(MIN_INT <= each <= MAX_INT for each in (left, right, number))
    return Small(number, exponent) if fits else None
