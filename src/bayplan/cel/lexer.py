"""Tokens of an expression.

Characters that form no token are reported and skipped, and the parser continues with the rest, as upstream's
generated lexer does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from bayplan.cel.source import Source

EOF: Final = "<EOF>"
_ESCAPE: Final = r"\\(?:[abfnrtv\"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
_STRING: Final = (
    r"[rR]\"\"\"[\s\S]*?\"\"\"|[rR]'''[\s\S]*?'''|[rR]\"[^\"\n\r]*\"|[rR]'[^'\n\r]*'"
    rf"|\"\"\"(?:{_ESCAPE}|[^\\])*?\"\"\"|'''(?:{_ESCAPE}|[^\\])*?'''"
    rf"|\"(?:{_ESCAPE}|[^\\\"\n\r])*\"|'(?:{_ESCAPE}|[^\\'\n\r])*'"
)
_TOKEN: Final = re.compile(
    rf"""(?P<hidden>[\t \r\n\f]+|//[^\n]*)
    |(?P<BYTES>[bB](?:{_STRING}))
    |(?P<STRING>{_STRING})
    |(?P<NUM_FLOAT>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<NUM_UINT>0x[0-9a-fA-F]+[uU]|[0-9]+[uU])
    |(?P<NUM_INT>0x[0-9a-fA-F]+|[0-9]+)
    |(?P<IDENTIFIER>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<ESC_IDENTIFIER>`[A-Za-z0-9_./\- ]+`)
    |(?P<operator>==|!=|<=|>=|&&|\|\||[-\[\]{{}}().,!?:+*/%<>])""",
    re.VERBOSE,
)
_KEYWORDS: Final = frozenset({"in", "true", "false", "null"})
_TWO_CHARACTERS: Final = "=&|"
"""Characters that are tokens only when doubled; upstream reports them together with what follows."""


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    """STRING, IDENTIFIER, …; for operators and keywords their text."""
    text: str
    offset: int


def tokenize(source: Source) -> list[Token]:
    """All tokens, closed by an EOF token; unknown characters are reported to the source."""
    text, position = source.text, 0
    tokens: list[Token] = []
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            position = _skip_unknown(source, position)
            continue
        if found.lastgroup != "hidden":
            tokens.append(_token(found))
        position = found.end()
    tokens.append(Token(EOF, EOF, len(text)))
    return tokens


def _token(found: re.Match[str]) -> Token:
    kind, text = found.lastgroup or "", found[0]
    if kind == "operator" or text in _KEYWORDS:
        kind = text
    return Token(kind, text, found.start())


def _skip_unknown(source: Source, position: int) -> int:
    text = source.text
    if text[position] in "\"'":
        end = len(text)
        for stop in "\n\r":
            at = text.find(stop, position)
            end = min(end, at if at >= 0 else end)
    else:
        end = position + (2 if text[position] in _TWO_CHARACTERS else 1)
    unknown = text[position:end].replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    source.report(position, f"Syntax error: token recognition error at: '{unknown}'")
    return end
