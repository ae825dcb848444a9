"""Timestamps (RFC 3339) and durations ("1h30m") in expressions."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from bayplan.cel.errors import EvaluationError
from bayplan.cel.values import MAX_INT, MIN_INT, Duration, Timestamp

ZERO: Final = Timestamp(datetime(1, 1, 1, tzinfo=UTC))
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


def add(time: Timestamp, duration: int) -> Timestamp:
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
