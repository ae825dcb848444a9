"""Timestamps (RFC 3339), durations ("1h30m"), quantities and semantic versions in expressions.

Quantities are exact amounts such as "40Gi", with the quirks of Kubernetes' representation. Upstream keeps an
amount as a 64-bit number with a decimal exponent while it fits, and as an arbitrary decimal otherwise.
Selectors can see the difference: `isInteger()` is false for "1000m", "1.0" and "1024Ti", because only a
64-bit number with an exponent of zero or more counts as an integer. And the result of `add` or `sub` on the
right of `==` fails, because upstream compares only with a value that was parsed.

Semantic versions (https://semver.org/spec/v2.0.0.html) have the parser's texts that users see when one is
malformed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from functools import lru_cache
from typing import ClassVar, Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from bayplan.api.quantity import NANO, parse_quantity
from bayplan.cel.values import (
    MAX_INT,
    MAX_UINT,
    MIN_INT,
    NO_SUCH_OVERLOAD,
    Comparable,
    Duration,
    EvaluationError,
    Timestamp,
    Value,
    go_quoted,
)
from bayplan.errors import QuantityError

ZERO_TIME: Final = Timestamp(datetime(1, 1, 1, tzinfo=UTC))
"""Go's zero time."""
_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART: Final = re.compile(r"(\d*)(?:\.(\d*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:[.,](\d+))?(Z|[+-](\d\d):(\d\d))", re.ASCII)
_OFFSET: Final = re.compile(r"([+-]?)(\d+):(\d+)", re.ASCII)


def parse_duration(text: str) -> Duration:
    """A duration as Go writes it.

    Raises:
        EvaluationError: the text is not a duration.
    """
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return Duration(0)
    total, position = 0, 0
    while position < len(body):
        found = _PART.match(body, position)
        if found is None or not (found[1] or found[2]):
            raise _conversion_error("google.protobuf.Duration")
        fraction = found[2] or ""
        total += int((found[1] or "0") + fraction) * _UNITS[found[3]] // 10 ** len(fraction)
        position = found.end()
    total = -total if text[:1] == "-" else total
    if not body or not MIN_INT <= total <= MAX_INT:
        raise _conversion_error("google.protobuf.Duration")
    return Duration(total)


def parse_timestamp(text: str) -> Timestamp:
    """A time as RFC 3339 writes it.

    Raises:
        EvaluationError: the text is not a time.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise _conversion_error("google.protobuf.Timestamp")
    fraction = (found[3] or "").ljust(9, "0")[:9]
    hours, minutes = int(found[5] or 0), int(found[6] or 0)
    offset = timedelta(hours=hours, minutes=minutes) * (-1 if found[4][0] == "-" else 1)
    # Go allows 24 hours and 60 minutes in a zone. Python has no zone of a day: only the moment is right then.
    try:
        if hours > 24 or minutes > 60:
            raise ValueError("no zone")
        time = datetime.fromisoformat(f"{found[1]}T{found[2]}.{fraction[:6]}+00:00") - offset
        if abs(offset) < timedelta(days=1):
            time = time.astimezone(timezone(offset))
    except (ValueError, OverflowError) as error:
        raise _conversion_error("google.protobuf.Timestamp") from error
    return Timestamp(time, int(fraction[6:]))


class LocalTime(NamedTuple):
    """A time in some zone, as its parts. Of `time` everything but the year is right."""

    time: datetime
    year: int


def in_zone(timestamp: Timestamp, zone: str = "UTC") -> LocalTime:
    """The time in a zone given by name or as an offset."""
    utc, years = timestamp.time.astimezone(UTC), 0
    if utc.year in (datetime.min.year, datetime.max.year):
        # In the zone it may be a year that Python does not have. The calendar repeats every 400 years.
        years = -400 if utc.year == datetime.min.year else 400
        utc = utc.replace(year=utc.year - years)
    local = _moved(utc, zone)
    return LocalTime(local, local.year + years)


def _moved(utc: datetime, zone: str) -> datetime:
    if zone in ("", "UTC", "Local"):
        return utc
    offset = _OFFSET.fullmatch(zone)
    if offset is not None:
        span = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        try:
            return utc - span if offset[1] == "-" else utc + span
        except OverflowError as error:
            raise EvaluationError("timestamp overflow") from error
    try:
        return utc.astimezone(ZoneInfo(zone))
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise EvaluationError(f"unknown time zone {zone}") from error


def shifted(time: Timestamp, duration: int) -> Timestamp:
    """The time after so many nanoseconds."""
    micro, nano = divmod(time.nanoseconds + duration, 1000)
    try:
        later = time.time + timedelta(microseconds=micro)
        later.astimezone(UTC)
        return Timestamp(later, nano)
    except OverflowError as error:
        raise EvaluationError("timestamp overflow") from error


def between(one: Timestamp, other: Timestamp) -> Duration:
    """How much later `one` is."""
    span = one.time - other.time
    nanoseconds = (span // timedelta(microseconds=1)) * 1000 + one.nanoseconds - other.nanoseconds
    if not MIN_INT <= nanoseconds <= MAX_INT:
        raise EvaluationError("integer overflow")
    return Duration(nanoseconds)


def format_duration(duration: Duration) -> str:
    """Seconds, as a double, with as many decimals as it needs."""
    sign = "-" if duration.nanoseconds < 0 else ""
    seconds, nano = divmod(abs(duration.nanoseconds), 10**9)
    text = f"{Decimal(repr(seconds + nano / 1e9)):f}"
    return f"{sign}{text.removesuffix('.0')}s"


def format_timestamp(timestamp: Timestamp) -> str:
    nano = timestamp.time.microsecond * 1000 + timestamp.nanoseconds
    fraction = f".{nano:09d}".rstrip("0").rstrip(".")
    zone = f"{timestamp.time:%z}"
    shown = "Z" if zone == "+0000" else f"{zone[:3]}:{zone[3:]}"
    return f"{timestamp.time:%Y-%m-%dT%H:%M:%S}{fraction}{shown}"


def _conversion_error(target: str) -> EvaluationError:
    return EvaluationError(f"type conversion error from 'string' to '{target}'")


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


_DIGITS: Final = re.compile(r"[0-9]*", re.ASCII)
_ALPHANUMERIC: Final = re.compile(r"[0-9A-Za-z-]*", re.ASCII)


@dataclass(frozen=True, slots=True, eq=False)
class Semver(Comparable):
    TYPE_NAME: ClassVar = "kubernetes.Semver"

    major: int
    minor: int
    patch: int
    prerelease: tuple[str, ...] = ()

    def equals(self, other: Value) -> bool:
        if not isinstance(other, Semver):
            raise EvaluationError(NO_SUCH_OVERLOAD)
        return self.compare(other) == 0

    def compare(self, other: Semver) -> int:
        """-1, 0 or 1 by precedence; build metadata does not matter."""
        left, right = self._key(), other._key()
        return int(left > right) - int(left < right)

    def _key(self) -> tuple[object, ...]:
        # A release comes after its prereleases, numbers before words, and a longer list after its own
        # beginning.
        identifiers = tuple(
            (0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.prerelease
        )
        return (self.major, self.minor, self.patch, not self.prerelease, identifiers)


@lru_cache(maxsize=65536)
def semver(text: str) -> Semver:
    """The version in a text.

    Raises:
        EvaluationError: it is not a version.
    """
    if not text:
        raise EvaluationError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise EvaluationError("No Major.Minor.Patch elements found")
    major, minor = _number("major", parts[0]), _number("minor", parts[1])
    rest, has_build, build = parts[2].partition("+")
    patch_text, has_prerelease, prerelease = rest.partition("-")
    patch = _number("patch", patch_text)
    identifiers = tuple(map(_prerelease, prerelease.split("."))) if has_prerelease else ()
    for part in build.split(".") if has_build else ():
        _check_build(part)
    return Semver(major, minor, patch, identifiers)


def normalized_semver(text: str) -> Semver:
    """The version of a text that may have a leading `v`, lack minor and patch, and have leading zeros."""
    parts = [_without_leading_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3:
        if "+" in parts[-1] or "-" in parts[-1]:
            raise EvaluationError("short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (3 - len(parts))
    return semver(".".join(parts))


def _without_leading_zeros(part: str) -> str:
    if len(part.encode()) <= 1:
        return part
    stripped = part.lstrip("0")
    return stripped if stripped[:1] in tuple("123456789") else "0" + stripped


def _number(which: str, text: str) -> int:
    if not _DIGITS.fullmatch(text):
        raise EvaluationError(f"Invalid character(s) found in {which} number {go_quoted(text)}")
    if len(text) > 1 and text[0] == "0":
        raise EvaluationError(
            f"{which.capitalize()} number must not contain leading zeroes {go_quoted(text)}"
        )
    if not text:
        raise EvaluationError('strconv.ParseUint: parsing "": invalid syntax')
    number = int(text) if len(text) < 21 else MAX_UINT + 1
    if number > MAX_UINT:
        raise EvaluationError(f"strconv.ParseUint: parsing {go_quoted(text)}: value out of range")
    return number


def _prerelease(part: str) -> str:
    if not part:
        raise EvaluationError("Prerelease is empty")
    if part.isascii() and part.isdigit():
        if len(part) > 1 and part[0] == "0":
            raise EvaluationError(
                f"Numeric PreRelease version must not contain leading zeroes {go_quoted(part)}"
            )
    elif not _ALPHANUMERIC.fullmatch(part):
        raise EvaluationError(f"Invalid character(s) found in prerelease {go_quoted(part)}")
    return part


def _check_build(part: str) -> None:
    if not part:
        raise EvaluationError("Build meta data is empty")
    if not _ALPHANUMERIC.fullmatch(part):
        raise EvaluationError(f"Invalid character(s) found in build meta data {go_quoted(part)}")
