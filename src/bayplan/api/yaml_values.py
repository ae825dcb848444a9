"""The meaning of plain words in YAML, as in kubectl and kube-scheduler.

PyYAML's own rules differ from those of a Go program: which plain words are numbers (`1e3`, `0o17`), truth
values (`y`) or null, and that `12:30` and `2024-01-31` are text. `yaml_reader.py` reads
whole texts with this.
"""

from __future__ import annotations

import math
import re
from typing import Final

from bayplan.errors import DecodeError

Scalar = str | int | float | bool | None

MAX_DIGITS: Final = 400
"""More digits than the largest float has; Python parses integers in quadratic time, and limits their
length."""

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE: Final = frozenset(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
_FALSE: Final = frozenset(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])
_INTEGER: Final = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO][0-7]+|0[0-7]*|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")


def resolve_plain(text: str, *, keep_floats: bool = False, line: int | None = None) -> Scalar:
    """The value of an unquoted word.

    A float without fraction is an integer, unless it is so large that JSON writes it with an exponent.
    """
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if text[0] not in "+-.0123456789":
        return text
    digits = text.replace("_", "")
    if len(digits) > MAX_DIGITS and _FLOAT.fullmatch(digits):
        raise DecodeError("a number has too many digits", line=line)
    if _INTEGER.fullmatch(digits):
        return _integer(digits)
    if _FLOAT.fullmatch(digits):
        number = float(digits)
        if math.isinf(number):
            raise DecodeError(f"the number {text} is too large", line=line)
        return int(number) if number.is_integer() and abs(number) < 1e21 and not keep_floats else number
    return text


def _integer(digits: str) -> int:
    body = digits.lstrip("+-")
    sign = -1 if digits.startswith("-") else 1
    if len(body) > 1 and body[0] == "0" and body[1].isdigit():
        return sign * int(body, 8)
    return sign * int(body, 0)
