"""Label selectors written as text: `app=web,tier in (front,back),!canary`.

kubectl's `-l`, the query `labelSelector=` and policy files use this form. Tokens, grammar and the words of
errors are those of Kubernetes, because users see them. Selectors written as objects are compiled by
`selectors.py`.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#api
"""

from __future__ import annotations

import re
from typing import Final

from bayplan.api.selectors import EVERYTHING, Operator, Requirement, Selector, requirement_problems
from bayplan.errors import SelectorError

_TOKEN: Final = re.compile(r"[ \t\r\n]*(==|!=|[=!><(),]|[^ \t\r\n=!<>(),]+)")
_SYMBOLS: Final = frozenset("=!><(),") | {"==", "!="}
_BINARY: Final = {
    "=": Operator.IN,
    "==": Operator.IN,
    "!=": Operator.NOT_IN,
    ">": Operator.GT,
    "<": Operator.LT,
    "in": Operator.IN,
    "notin": Operator.NOT_IN,
}
_END: Final = ""


def parse_selector(text: str) -> Selector:
    """The selector that a text describes; an empty text selects everything.

    Raises:
        SelectorError: it does not parse; `problem` is Kubernetes' text.
    """
    return _Parser(text).parse()


class _Parser:
    """labels/selector.go: Parser."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = [*_TOKEN.findall(text), _END]
        self._at = 0

    @property
    def _next(self) -> str:
        return self._tokens[self._at]

    def _take(self) -> str:
        token = self._next
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def parse(self) -> Selector:
        found = []
        while self._next != _END:
            if self._next in _SYMBOLS and self._next != "!":
                raise SelectorError(f"found '{self._next}', expected: !, identifier, or 'end of string'")
            try:
                found.append(self._requirement())
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error.problem}") from None
            separator = self._take()
            if separator == _END:
                break
            if separator != ",":
                raise SelectorError(f"found '{separator}', expected: ',' or 'end of string'")
            if self._next == _END or (self._next in _SYMBOLS and self._next != "!"):
                raise SelectorError(f"found '{self._next}', expected: identifier after ','")
        return Selector(tuple(found)) if found else EVERYTHING

    def _requirement(self) -> Requirement:
        is_absent = self._next == "!"
        if is_absent:
            self._take()
        key = self._identifier()
        for problem in requirement_problems(key, Operator.EXISTS, ()):
            # The parser checks keys itself, and has no name for the field.
            raise SelectorError(f"<nil>{problem.removeprefix('key')}")
        if is_absent:
            return _checked(key, Operator.DOES_NOT_EXIST, ())
        if self._next in (_END, ","):
            return _checked(key, Operator.EXISTS, ())
        word = self._take()
        if word not in _BINARY:
            raise SelectorError(f"found '{word}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._values() if word in ("in", "notin") else (self._value(),)
        return _checked(key, _BINARY[word], values)

    def _identifier(self) -> str:
        word = self._take()
        if word == _END or word in _SYMBOLS:
            raise SelectorError(f"found '{word}', expected: identifier")
        return word

    def _value(self) -> str:
        return "" if self._next in (_END, ",") else self._identifier()

    def _values(self) -> tuple[str, ...]:
        found = self._take()
        if found != "(":
            raise SelectorError(f"found '{found}' expected: '('")
        first = self._next
        if first == ")":
            self._take()
            return ("",)
        if first == _END or (first in _SYMBOLS and first != ","):
            raise SelectorError(f"found '{first}', expected: ',', ')' or identifier")
        values: set[str] = set()
        while True:
            word = self._take()
            if word == ",":
                if not values:
                    values.add("")
                if self._next == ")":
                    values.add("")
                    break
                if self._next == ",":
                    self._take()
                    values.add("")
            elif word == _END or word in _SYMBOLS:
                raise SelectorError(f"found '{word}', expected: ',', or identifier")
            else:
                values.add(word)
                if self._next == ")":
                    break
                if self._next != ",":
                    raise SelectorError(f"found '{self._next}', expected: ',' or ')'")
        self._take()
        return tuple(sorted(values))


def _checked(key: str, operator: Operator, values: tuple[str, ...]) -> Requirement:
    if problems := requirement_problems(key, operator, values):
        raise SelectorError(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")
    return Requirement(key, operator, frozenset(values))
