"""Parser of expressions: from text to syntax, macros expanded.

A recursive descent over CEL's grammar; binary operators are parsed by precedence. Texts of syntax errors
follow those of upstream's generated parser for the mistakes people make (a missing operand, something left
over, a stray character); after the first one parsing stops.

https://github.com/google/cel-spec/blob/master/doc/langdef.md#syntax
"""

from __future__ import annotations

from typing import Final

from bayplan.cel.lexer import EOF, Token, tokenize
from bayplan.cel.literals import bytes_literal, int_literal, string_literal, uint_literal
from bayplan.cel.macros import MacroError, expand
from bayplan.cel.source import Source
from bayplan.cel.syntax import Call, Expr, Ident, ListExpr, Literal, MapEntry, MapExpr, Select, Struct

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
