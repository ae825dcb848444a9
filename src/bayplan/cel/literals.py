"""The values of literals: numbers, strings and bytes with their escapes."""

from __future__ import annotations

import re
from typing import Final

from bayplan.cel.values import MAX_INT, MAX_UINT, MIN_INT, Uint

_SIMPLE: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    '"': '"', "'": "'", "\\": "\\", "?": "?", "`": "`",
}  # fmt: skip
_ESCAPE: Final = re.compile(
    r"\\(?:([abfnrtv\"'\\?`])|([0-3][0-7]{2})|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))"
)
_SURROGATES: Final = range(0xD800, 0xE000)


def int_literal(text: str, negative: bool) -> int | None:
    """The number, None if it does not fit into 64 bits."""
    number = int(text, 16) if text.startswith("0x") else int(text)
    number = -number if negative else number
    return number if MIN_INT <= number <= MAX_INT else None


def uint_literal(text: str) -> Uint | None:
    digits = text[:-1]
    number = int(digits, 16) if digits.startswith("0x") else int(digits)
    return Uint(number) if number <= MAX_UINT else None


def string_literal(text: str) -> str | None:
    """The string, None if an escape is not a valid character."""
    raw, body = _body(text)
    if raw:
        return body
    try:
        return _ESCAPE.sub(lambda found: _character(found), body)
    except ValueError:
        return None


def bytes_literal(text: str) -> bytes | None:
    """The bytes: octal and hexadecimal escapes are bytes, everything else is encoded as UTF-8."""
    raw, body = _body(text[1:])
    if raw:
        return body.encode()
    parts, position = [], 0
    for found in _ESCAPE.finditer(body):
        parts.append(body[position : found.start()].encode())
        position = found.end()
        if found[2] or found[3]:
            parts.append(bytes([int(found[2], 8) if found[2] else int(found[3], 16)]))
            continue
        if found[4] or found[5]:
            return None
        parts.append(_character(found).encode())
    parts.append(body[position:].encode())
    return b"".join(parts)


def _body(text: str) -> tuple[bool, str]:
    raw = text[0] in "rR"
    text = (text[1:] if raw else text).replace("\r\n", "\n").replace("\r", "\n")
    quotes = 3 if text[:3] in ('"""', "'''") and len(text) >= 6 else 1
    return raw, text[quotes:-quotes]


def _character(found: re.Match[str]) -> str:
    simple, octal, byte, short, long = found.groups()
    if simple:
        return _SIMPLE[simple]
    code = int(octal, 8) if octal else int(byte or short or long, 16)
    if code in _SURROGATES:
        raise ValueError(code)
    return chr(code)
