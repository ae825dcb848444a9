"""Timestamps (RFC 3339) and durations ("1h30m") in expressions."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from bayplan.cel.errors import EvaluationError
from bayplan.cel.values import MAX_INT, MIN_INT, Duration, Timestamp

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
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE
)
_OFFSET: Final = re.compile(r"([+-]?)(\d\d):(\d\d)", re.ASCII)


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
    if not body or (total > MAX_INT):
        raise _conversion_error("google.protobuf.Duration")
    return Duration(-total if text[0] == "-" else total)


def parse_timestamp(text: str) -> Timestamp:
    """A time as RFC 3339 writes it.

    Raises:
        EvaluationError: the text is not a time.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise _conversion_error("google.protobuf.Timestamp")
    fraction = (found[3] or "").ljust(9, "0")[:9]
    zone = "+00:00" if found[4] in "Zz" else found[4]
    try:
        time = datetime.fromisoformat(f"{found[1]}T{found[2]}.{fraction[:6]}{zone}").astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise _conversion_error("google.protobuf.Timestamp") from error
    return Timestamp(time, int(fraction[6:]))


def in_zone(timestamp: Timestamp, zone: str | None) -> datetime:
    """The time in a zone given by name or as an offset; UTC without one."""
    if not zone:
        return timestamp.time
    offset = _OFFSET.fullmatch(zone)
    if offset is not None:
        span = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        return timestamp.time.astimezone(timezone(-span if offset[1] == "-" else span))
    try:
        return timestamp.time.astimezone(ZoneInfo(zone))
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise EvaluationError(f"unknown time zone {zone}") from error


def add(time: Timestamp, duration: int) -> Timestamp:
    """The time after so many nanoseconds."""
    micro, nano = divmod(time.nanoseconds + duration, 1000)
    try:
        return Timestamp(time.time + timedelta(microseconds=micro), nano)
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
    """Seconds with as many decimals as needed, as protobuf's JSON writes a duration."""
    sign = "-" if duration.nanoseconds < 0 else ""
    seconds, nano = divmod(abs(duration.nanoseconds), 10**9)
    fraction = f".{nano:09d}".rstrip("0").rstrip(".")
    return f"{sign}{seconds}{fraction}s"


def format_timestamp(timestamp: Timestamp) -> str:
    nano = timestamp.time.microsecond * 1000 + timestamp.nanoseconds
    fraction = f".{nano:09d}".rstrip("0").rstrip(".")
    return f"{timestamp.time:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def _conversion_error(target: str) -> EvaluationError:
    return EvaluationError(f"type conversion error from 'string' to '{target}'")
