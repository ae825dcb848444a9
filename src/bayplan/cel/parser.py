"""Parser of expressions: from text to syntax, macros expanded.

A recursive descent over CEL's grammar; binary operators are parsed by precedence. Texts of syntax errors
follow those of upstream's generated parser for the mistakes people make (a missing operand, something left
over, a stray character); after the first one parsing stops.

https://github.com/google/cel-spec/blob/master/doc/langdef.md#syntax
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from bayplan.cel.syntax import (
    Call,
    Expr,
    Ident,
    ListExpr,
    Literal,
    MacroError,
    MapEntry,
    MapExpr,
    Select,
    Source,
    Struct,
    expand,
)
from bayplan.cel.values import MAX_INT, MAX_UINT, MIN_INT, Uint

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


_SIMPLE: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    '"': '"', "'": "'", "\\": "\\", "?": "?", "`": "`",
}  # fmt: skip
_ESCAPED: Final = re.compile(
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
        return _ESCAPED.sub(lambda found: _character(found), body)
    except ValueError:
        return None


def bytes_literal(text: str) -> bytes | None:
    """The bytes: octal and hexadecimal escapes are bytes, everything else is encoded as UTF-8."""
    raw, body = _body(text[1:])
    if raw:
        return body.encode()
    parts, position = [], 0
    for found in _ESCAPED.finditer(body):
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


MAX_DEPTH: Final = 250
_PRECEDENCE: Final = {
    "||": 0,
    "&&": 1,
    **dict.fromkeys(("<", "<=", ">=", ">", "==", "!=", "in"), 2),
    **dict.fromkeys(("+", "-"), 3),
    **dict.fromkeys(("*", "/", "%"), 4),
}
_OPERAND: Final = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, "
    "IDENTIFIER}"
)
_RESERVED: Final = frozenset({
    "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package",
    "namespace", "return", "var", "void", "while",
})  # fmt: skip


def parse(source: Source) -> Expr:
    """The syntax tree of the source.

    Raises:
        CompileError: the text is not an expression; it lists every problem with its location.
    """
    parser = _Parser(source)
    expr: Expr | None = None
    try:
        expr = parser.start()
    except _SyntaxError as error:
        parser.report(error)
    source.raise_problems()
    assert expr is not None, "an expression without problems was parsed"
    return expr


class _SyntaxError(Exception):
    """Ends parsing at a token."""

    def __init__(self, token: Token, message: str, syntax: bool = True) -> None:
        super().__init__(message)
        self.token = token
        self.message = f"Syntax error: {message}" if syntax else message


class _Parser:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._tokens = tokenize(source)
        self._position = 0
        self._depth = 0

    def start(self) -> Expr:
        expr = self._expr()
        token = self._peek()
        if token.kind != EOF:
            following = self._tokens[self._position + 1]
            kind = "extraneous" if following.kind == EOF else "mismatched"
            raise _SyntaxError(token, f"{kind} input '{token.text}' expecting <EOF>")
        return expr

    def report(self, error: _SyntaxError) -> None:
        if error.token.kind == EOF:
            self._source.report_at_end(error.message)
        else:
            self._source.report(error.token.offset, error.message)

    def _peek(self) -> Token:
        return self._tokens[self._position]

    def _next(self) -> Token:
        token = self._tokens[self._position]
        self._position += 1
        return token

    def _take(self, kind: str) -> Token | None:
        if self._peek().kind == kind:
            return self._next()
        return None

    def _expect(self, kind: str) -> Token:
        token = self._peek()
        if token.kind != kind:
            name = kind if kind.isupper() else f"'{kind}'"
            raise _SyntaxError(token, f"mismatched input '{token.text}' expecting {name}")
        return self._next()

    def _expr(self) -> Expr:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _SyntaxError(
                self._peek(), f"expression recursion limit exceeded: {MAX_DEPTH}", syntax=False
            )
        condition = self._binary(0)
        operator = self._take("?")
        if operator is not None:
            then = self._binary(0)
            self._expect(":")
            condition = Call(operator.offset, "_?_:_", [condition, then, self._expr()])
        self._depth -= 1
        return condition

    def _binary(self, level: int) -> Expr:
        """Operands between operators of this level of precedence or a higher one."""
        left = self._unary()
        while (found := _PRECEDENCE.get(self._peek().kind, -1)) >= level:
            token = self._next()
            right = self._binary(found + 1)
            name = "@in" if token.kind == "in" else f"_{token.kind}_"
            if isinstance(left, Call) and left.function == name and name in ("_&&_", "_||_"):
                left.args.append(right)
            else:
                left = Call(token.offset, name, [left, right])
        return left

    def _unary(self) -> Expr:
        token = self._peek()
        if token.kind not in ("!", "-"):
            return self._member()
        following = self._tokens[self._position + 1].kind
        if token.kind == "-" and following in ("NUM_INT", "NUM_FLOAT"):
            return self._member()
        count = 0
        while self._take(token.kind) is not None:
            count += 1
        operand = self._member()
        return operand if count % 2 == 0 else Call(token.offset, f"{token.kind}_", [operand])

    def _member(self) -> Expr:
        expr = self._primary()
        while True:
            dot = self._take(".")
            if dot is not None:
                expr = self._after_dot(expr, dot)
                continue
            bracket = self._take("[")
            if bracket is None:
                return expr
            name = "_[?_]" if self._take("?") is not None else "_[_]"
            index = self._expr()
            self._expect("]")
            expr = Call(bracket.offset, name, [expr, index])

    def _after_dot(self, operand: Expr, dot: Token) -> Expr:
        optional = self._take("?") is not None
        token = self._peek()
        if token.kind not in ("IDENTIFIER", "ESC_IDENTIFIER"):
            text = "" if token.kind == EOF else token.text
            raise _SyntaxError(token, f"no viable alternative at input '.{text}'")
        self._next()
        name = token.text
        if token.kind == "ESC_IDENTIFIER":
            self._source.report(token.offset, "unsupported syntax: '`'")
        if optional:
            return Call(dot.offset, "_?._", [operand, Literal(token.offset, name)])
        opening = self._take("(") if token.kind == "IDENTIFIER" else None
        if opening is None:
            return Select(dot.offset, operand, name)
        return self._expanded(Call(opening.offset, name, self._arguments(), operand))

    def _primary(self) -> Expr:
        token = self._next()
        match token.kind:
            case "(":
                expr = self._expr()
                self._expect(")")
                return expr
            case "[":
                return self._list(token)
            case "{":
                return MapExpr(token.offset, self._entries())
            case "." | "IDENTIFIER":
                return self._name(token)
            case "true" | "false":
                return Literal(token.offset, token.kind == "true")
            case "null":
                return Literal(token.offset, None)
            case "-" | "NUM_INT" | "NUM_FLOAT" | "NUM_UINT" | "STRING" | "BYTES":
                return self._literal(token)
        self._position -= 1
        raise _SyntaxError(token, f"mismatched input '{token.text}' expecting {_OPERAND}")

    def _name(self, token: Token) -> Expr:
        leading = "."
        if token.kind == ".":
            token = self._expect("IDENTIFIER")
        else:
            leading = ""
        if token.text in _RESERVED:
            self._source.report(token.offset, f"reserved identifier: {token.text}")
        opening = self._take("(")
        if opening is not None:
            return self._expanded(Call(opening.offset, leading + token.text, self._arguments()))
        message = self._message(leading + token.text)
        return message or Ident(token.offset, leading + token.text)

    def _message(self, name: str) -> Expr | None:
        """`a.b.C{field: value}`, if that is what follows."""
        ahead = self._position
        while self._tokens[ahead].kind == "." and self._tokens[ahead + 1].kind == "IDENTIFIER":
            name = f"{name}.{self._tokens[ahead + 1].text}"
            ahead += 2
        if self._tokens[ahead].kind != "{":
            return None
        opening = self._tokens[ahead]
        self._position = ahead + 1
        return Struct(opening.offset, name, [entry.value for entry in self._entries()])

    def _arguments(self) -> list[Expr]:
        arguments: list[Expr] = []
        if self._take(")") is not None:
            return arguments
        while True:
            arguments.append(self._expr())
            if self._take(",") is None:
                self._expect(")")
                return arguments

    def _list(self, opening: Token) -> Expr:
        elements: list[Expr] = []
        optional: set[int] = set()
        while self._take("]") is None:
            if self._take("?") is not None:
                optional.add(len(elements))
            elements.append(self._expr())
            if self._take(",") is None:
                self._expect("]")
                break
        return ListExpr(opening.offset, elements, frozenset(optional))

    def _entries(self) -> list[MapEntry]:
        entries: list[MapEntry] = []
        while self._take("}") is None:
            optional = self._take("?") is not None
            key = self._expr()
            self._expect(":")
            entries.append(MapEntry(key, self._expr(), optional))
            if self._take(",") is None:
                self._expect("}")
                break
        return entries

    def _literal(self, token: Token) -> Expr:
        negative = token.kind == "-"
        number = self._next() if negative else token
        match number.kind:
            case "NUM_INT":
                value = int_literal(number.text, negative)
                problem = "invalid int literal"
            case "NUM_UINT":
                value, problem = uint_literal(number.text), "invalid uint literal"
            case "NUM_FLOAT":
                return Literal(token.offset, -float(number.text) if negative else float(number.text))
            case "STRING":
                return self._text(token, string_literal(number.text))
            case "BYTES":
                return self._text(token, bytes_literal(number.text))
            case _:
                raise _SyntaxError(number, f"mismatched input '{number.text}' expecting {_OPERAND}")
        if value is None:
            self._source.report(token.offset, problem)
        return Literal(token.offset, value)

    def _text(self, token: Token, value: str | bytes | None) -> Expr:
        if value is None:
            self._source.report(token.offset, "invalid string literal")
        return Literal(token.offset, value)

    def _expanded(self, call: Call) -> Expr:
        try:
            return expand(call)
        except MacroError as error:
            self._source.report(error.offset, error.message)
            return call
