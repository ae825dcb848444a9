"""Types of flags: how a text is parsed, and the error if it is invalid.

The error texts are those of Go's libraries, which users of kube-scheduler and their tools know.
"""

from __future__ import annotations

import csv
import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from bayplan.framework.args import Duration
from bayplan.framework.points import TieBreak

_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})
_INTEGER: Final = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO]?[0-7_]+|0|[1-9][0-9_]*)")
_PLAIN_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")


@dataclass(frozen=True, slots=True)
class FlagKind:
    """The values that a flag takes.

    Args:
        metavar: the placeholder for the value in the usage text.
        parse: parses a text; raises ValueError with the reason if it is invalid.
        bare: the value of the flag without a value; None if it requires one.
        many: the flag may be repeated, and its values (tuples) are concatenated.
    """

    metavar: str
    parse: Callable[[str], Any]
    bare: str | None = None
    many: bool = False
    brackets: bool = True
    """Whether several values are shown in brackets."""


def _boolean(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(f'strconv.ParseBool: parsing "{text}": invalid syntax')


def _integer(bits: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not _INTEGER.fullmatch(text) or text.endswith("_") or "__" in text:
            raise ValueError(f'strconv.ParseInt: parsing "{text}": invalid syntax')
        digits = re.sub(r"^([+-]?)0([0-7])", r"\g<1>0o\2", text)
        value = int(digits, 0)
        if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            raise ValueError(f'strconv.ParseInt: parsing "{text}": value out of range')
        return value

    return parse


def _natural(text: str) -> int:
    if not text.isdecimal() or not text.isascii():
        raise ValueError(f'strconv.ParseUint: parsing "{text}": invalid syntax')
    if int(text) >= 2**31:
        raise ValueError(f'strconv.ParseUint: parsing "{text}": value out of range')
    return int(text)


def _number(text: str) -> float:
    try:
        return float(text.replace("_", "x"))
    except ValueError:
        raise ValueError(f'strconv.ParseFloat: parsing "{text}": invalid syntax') from None


def _duration(text: str) -> Duration:
    try:
        return Duration.parse(text)
    except ValueError:
        if _PLAIN_NUMBER.fullmatch(text):
            raise ValueError(f'time: missing unit in duration "{text}"') from None
        raise ValueError(f'time: invalid duration "{text}"') from None


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text.strip()))
    except ValueError:
        raise ValueError(f'failed to parse IP: "{text}"') from None


def _tie_break(text: str) -> TieBreak:
    try:
        return TieBreak(text)
    except ValueError:
        raise ValueError(f"must be {' or '.join(TieBreak)}") from None


def _texts(text: str) -> tuple[str, ...]:
    return tuple(next(csv.reader([text]), ())) if text else ()


def _module_levels(text: str) -> tuple[str, ...]:
    parts = tuple(part for part in text.split(",") if part)
    for part in parts:
        pattern, _, level = part.partition("=")
        if not pattern or not level:
            raise ValueError(f'"{part}" does not have the pattern=N format')
        try:
            _natural(level)
        except ValueError as error:
            raise ValueError(f'parsing verbosity in "{part}": {error}') from None
    return parts


def _integers(text: str) -> tuple[int, ...]:
    return tuple(_integer(32)(part) for part in text.split(",") if text)


def _certificate_pair(text: str) -> tuple[str, ...]:
    """`cert,key` or `cert,key:name,name`, unparsed."""
    certificate, _, key = text.partition(":")[0].partition(",")
    if not (certificate and key) or "," in key:
        raise ValueError("expected comma separated certificate and key file paths")
    return (text,)


TEXT: Final = FlagKind("string", str)
BOOLEAN: Final = FlagKind("", _boolean, bare="true")
INTEGER: Final = FlagKind("int", _integer(64))
INTEGER_32: Final = FlagKind("int32", _integer(32))
NATURAL: Final = FlagKind("N", _natural)
NUMBER: Final = FlagKind("float32", _number)
DURATION: Final = FlagKind("duration", _duration)
ADDRESS: Final = FlagKind("ip", _address)
TIE_BREAK: Final = FlagKind("|".join(TieBreak), _tie_break)
TEXTS: Final = FlagKind("strings", _texts, many=True)
"""Separated by commas."""
EACH: Final = FlagKind("string", lambda text: (text,), many=True)
"""Unparsed, commas included."""
INTEGERS: Final = FlagKind("ints", _integers, many=True)
CERTIFICATE_PAIRS: Final = FlagKind("cert,key[:name,...]", _certificate_pair, many=True)
GATES: Final = FlagKind("A=true,B=false", lambda text: (text,), many=True, brackets=False)
MODULE_LEVELS: Final = FlagKind("pattern=N,...", _module_levels, many=True, brackets=False)
VERSION: Final = FlagKind("", str, bare="true")
"""true, raw, or a version to report."""
