"""Numbers, times and regular expressions in texts, parsed as Go does, with the same errors.

Kubernetes compiles the `pattern` of a schema and the expressions in CEL with Go's regexp package, whose
syntax is RE2's: it does not backtrack, so no expression takes hours. This is the same engine; what it rejects
(look-ahead, back-references), kube-apiserver rejects as well.
"""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple

import re2

_DIGITS: Final = 20
"""No 64-bit number has more digits. Python limits the length of integers it converts."""


class GoValueError(ValueError):
    """A text that Go does not parse; the message is Go's."""


def parse_int(text: str) -> int:
    """Parses a signed 64-bit number.

    Raises:
        GoValueError: it is invalid.
    """
    return _parse(text, "ParseInt", r"[+-]?[0-9]+", -(2**63), 2**63 - 1)


def parse_uint(text: str) -> int:
    """Parses an unsigned 64-bit number.

    Raises:
        GoValueError: it is invalid.
    """
    return _parse(text, "ParseUint", r"[0-9]+", 0, 2**64 - 1)


def is_version(text: str | None) -> bool:
    """Whether a text is a resourceVersion. An invalid text counts as none."""
    try:
        return bool(text) and parse_uint(text or "") > 0
    except GoValueError:
        return False


def _parse(text: str, function: str, form: str, least: int, most: int) -> int:
    if re.fullmatch(form, text) is None:
        raise GoValueError(f'strconv.{function}: parsing "{text}": invalid syntax')
    digits = text.lstrip("+-").lstrip("0") or "0"
    number = int(digits) if len(digits) <= _DIGITS else most + 1
    number = -number if text[0] == "-" else number
    if not least <= number <= most:
        raise GoValueError(f'strconv.{function}: parsing "{text}": value out of range')
    return number


class _Element(NamedTuple):
    """A part of a time layout, as Go writes it, and what it matches."""

    layout: str
    form: re.Pattern[str]


_DATE_AND_TIME: Final = (
    _Element("2006", re.compile(r"(?P<year>[0-9]{4})")),
    _Element("-", re.compile("-")),
    _Element("01", re.compile(r"(?P<month>[0-9]{2})")),
    _Element("-", re.compile("-")),
    _Element("02", re.compile(r"(?P<day>[0-9]{2})")),
    _Element("T", re.compile("T")),
    _Element("15", re.compile(r"(?P<hour>[0-9]{1,2})")),
    _Element(":", re.compile(":")),
    _Element("04", re.compile(r"(?P<minute>[0-9]{2})")),
    _Element(":", re.compile(":")),
    _Element("05", re.compile(r"(?P<second>[0-9]{2})")),
)
_ZONE: Final = _Element("Z07:00", re.compile(r"Z|(?P<sign>[+-])(?P<hours>[0-9]{2}):(?P<minutes>[0-9]{2})"))
_TIME: Final = (*_DATE_AND_TIME, _Element("", re.compile(r"(?:[.,][0-9]+)?")), _ZONE)
_MICRO_TIME: Final = (*_DATE_AND_TIME, _Element(".000000", re.compile(r"[.,](?P<micros>[0-9]{6})")), _ZONE)
_MAX: Final = {"month": 12, "hour": 23, "minute": 59, "second": 59, "hours": 24, "minutes": 60}
_NAMES: Final = {"hours": "time zone offset hour", "minutes": "time zone offset minute"}


def canonical_time(text: str, *, micro: bool) -> str | None:
    """A time as the API server writes it: in UTC, in seconds or, for MicroTime, microseconds.

    None for Go's zero time. The years 0 and 10000, which Go supports, are out of range.

    Raises:
        GoValueError: it is not a time.
    """
    found: dict[str, str] = {}
    layout = _MICRO_TIME if micro else _TIME
    at = 0
    for element in layout:
        match = element.form.match(text, at)
        if match is None:
            whole = "".join(each.layout for each in layout)
            raise GoValueError(
                f'parsing time "{text}" as "{whole}": cannot parse "{text[at:]}" as "{element.layout}"'
            )
        at = match.end()
        for name, digits in match.groupdict().items():
            if digits is not None:
                _check(name, digits, text)
                found[name] = digits
    if at < len(text):
        raise GoValueError(f'parsing time "{text}": extra text: "{text[at:]}"')
    return _in_utc(found, text, micro)


def _check(name: str, digits: str, text: str) -> None:
    if name in _MAX and (int(digits) > _MAX[name] or (name == "month" and digits == "00")):
        raise GoValueError(f'parsing time "{text}": {_NAMES.get(name, name)} out of range')


def _in_utc(found: dict[str, str], text: str, micro: bool) -> str | None:
    year, month, day = (int(found[name]) for name in ("year", "month", "day"))
    if not 1 <= day <= monthrange(max(year, 4), month)[1]:
        raise GoValueError(f'parsing time "{text}": day out of range')
    offset = timedelta(hours=int(found.get("hours", "0")), minutes=int(found.get("minutes", "0")))
    try:
        time = datetime(year, month, day, tzinfo=UTC) + timedelta(
            hours=int(found["hour"]),
            minutes=int(found["minute"]),
            seconds=int(found["second"]),
            microseconds=int(found.get("micros", "0")),
        )
        time += offset if found.get("sign") == "-" else -offset
    except (OverflowError, ValueError) as error:
        raise GoValueError(f'parsing time "{text}": year out of range') from error
    if time == datetime.min.replace(tzinfo=UTC):
        return None
    return time.isoformat(timespec="microseconds" if micro else "seconds").replace("+00:00", "Z")


_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False


_ANY_BYTE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\C")
"""What RE2 supports and Go does not."""
_KINDS: Final = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}
"""What RE2 says, and what Go says."""


class PatternError(ValueError):
    """It is not a regular expression in the syntax of RE2."""


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> Any:
    """Raises: PatternError: kube-apiserver would not accept it."""
    if _ANY_BYTE.search(pattern):
        raise PatternError(r"error parsing regexp: invalid escape sequence: `\C`")
    try:
        return re2.compile(pattern, options=_OPTIONS)
    except re2.error as error:
        why = error.args[0] if error.args else error
        text = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        kind, _, part = text.partition(": ")
        raise PatternError(f"error parsing regexp: {_KINDS.get(kind, kind)}: `{part}`") from error


def seconds_of(moment: Any) -> float | None:
    """Seconds since the epoch; None if the value is not a time with an offset, as the API writes them."""
    if not isinstance(moment, str):
        return None
    try:
        time = datetime.fromisoformat(moment)
    except ValueError:
        return None
    return None if time.tzinfo is None else time.timestamp()


def seconds_or_1970(moment: Any) -> float:
    """The same for stored objects, which may have an unreadable time (`reading.py`)."""
    return seconds_of(moment) or 0.0
