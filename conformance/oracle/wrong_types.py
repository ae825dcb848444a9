"""Every function and macro of device selectors with arguments of every type.

Values of type `dyn` are checked only when they are evaluated, so each argument of each overload can have any
type. There are few enough of these calls to try them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bayplan.cel.declarations import Overload, functions
from bayplan.cel.types import Type

_VALUES: Final = {
    "int": "1",
    "uint": "1u",
    "double": "1.5",
    "string": '"a"',
    "bytes": 'b"a"',
    "bool": "true",
    "null_type": "null",
    "list": "[1]",
    "map": '{"a": 1}',
    "optional_type": 'optional.of("a")',
    "no value": "optional.none()",
    "google.protobuf.Duration": 'duration("1s")',
    "google.protobuf.Timestamp": 'timestamp("2024-02-29T12:34:56Z")',
    "kubernetes.Quantity": 'quantity("1")',
    "kubernetes.Semver": 'semver("1.2.3")',
    "kubernetes.URL": 'url("http://a")',
    "kubernetes.NamedFormat": "format.dns1123Label()",
    "net.IP": 'ip("::1")',
    "net.CIDR": 'cidr("10.0.0.0/8")',
    "type": "int",
}
"""An expression of each type."""
_OPERATORS: Final = {
    "_[_]": "{}[{}]",
    "_[?_]": "{}[?{}]",
    "_?_:_": "({} ? {} : {})",
    "!_": "(!{})",
    "-_": "(-{})",
    "@in": "({} in {})",
    **{
        f"_{sign}_": f"({{}} {sign} {{}})"
        for sign in ("+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||")
    },
}
_MACROS: Final = (
    "{}.all(x, x == 1)", "{}.exists(x, x == 1)", "{}.exists_one(x, x == 1)", "{}.existsOne(x, x == 1)",
    "{}.all(i, x, x == 1)", "{}.exists(i, x, x == 1)", "{}.existsOne(i, x, x == 1)",
    "{}.map(x, x)", "{}.map(x, x == 1, x)", "{}.filter(x, x == 1)", "{}.sortBy(x, x)",
    "{}.transformList(i, x, x)", "{}.transformMap(i, x, x)", "{}.transformMapEntry(i, x, {{x: i}})",
    "{}.optMap(x, x)", "{}.optFlatMap(x, x)", "cel.bind(x, {}, x == 1)", "has({}.a)",
    "[1].all(x, {})", "[1].exists(x, {})", "[1].exists_one(x, {})", "[1].filter(x, {})", "[1].map(x, {}, x)",
    "[1].transformMap(i, x, {}, x)", "[1].transformMapEntry(i, x, {})", "[1, 2].sortBy(x, {})",
    "optional.of(1).optFlatMap(x, {})",
)  # fmt: skip
_LEFT_OUT: Final = frozenset({"in_map"})
"""Upstream fails for keys that cannot be hashed, but not in the maps of a device; here both are maps."""


def calls() -> Iterator[str]:
    """Expressions with one call or macro each, in which one argument may have a wrong type."""
    for name, overloads in functions().items():
        for overload in overloads:
            arguments = [_value(kind) for kind in overload.args]
            if overload.id in _LEFT_OUT or None in arguments:
                continue
            for index in range(len(arguments)):
                for wrong in _VALUES.values():
                    tried = [str(each) for each in arguments]
                    tried[index] = f"dyn({wrong})"
                    if call := _call(name, overload, tried):
                        yield f"dyn({call}) == dyn(1)"
    for macro in _MACROS:
        for value in _VALUES.values():
            yield f"dyn({macro.format(f'dyn({value})')}) == dyn(1)"


def _value(kind: Type) -> str | None:
    """An expression of this type; None if a selector has none, such as an authorizer."""
    if kind.kind == "list":
        return f"[{_value(kind.parameters[0])}]"
    if kind.kind == "map":
        key, value = kind.parameters
        name = '"a"' if key.kind == "parameter" else _value(key)
        return f"{{{name}: {_value(value)}}}"
    if kind.name == "optional_type":
        return f"optional.of({_value(kind.parameters[0])})"
    return "1" if kind.kind in ("parameter", "dyn") else _VALUES.get(kind.name)


def _call(name: str, overload: Overload, arguments: list[str]) -> str | None:
    """The call as text; None if the function cannot be called by its name."""
    if name in _OPERATORS:
        return _OPERATORS[name].format(*arguments)
    if "@" in name or name.startswith("_"):
        return None
    if overload.is_member:
        return f"{arguments[0]}.{name}({', '.join(arguments[1:])})"
    return f"{name}({', '.join(arguments)})"
