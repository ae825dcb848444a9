"""Functions beyond the standard ones: Kubernetes' library, and `"%s has %d".format([name, count])`.

The clauses of a format string are checked when an expression is compiled, and filled when it is evaluated.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from bayplan.api.go_values import PatternError, compile_pattern
from bayplan.cel import types
from bayplan.cel.addresses import (
    FORMATS,
    Address,
    Format,
    IpAddress,
    Network,
    Url,
    parse_cidr,
    parse_ip,
    parse_url,
)
from bayplan.cel.operators import to_string
from bayplan.cel.scalars import Quantity, Semver, from_int, normalized_semver, quantity, semver
from bayplan.cel.syntax import Expr, ListExpr, MapExpr
from bayplan.cel.types import Type
from bayplan.cel.values import (
    MAX_INT,
    NO_SUCH_OVERLOAD,
    NONE,
    Duration,
    EvaluationError,
    Optional,
    Timestamp,
    TypeValue,
    Value,
    go_double,
    go_quoted,
    no_such_overload,
    type_name,
    unsupported,
)


def guarded(name: str, *kinds: type) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Guards a function by the types of its arguments; arguments that may be omitted are checked if given."""

    def decorate(function: Callable[..., Value]) -> Callable[..., Value]:
        def call(*args: Value) -> Value:
            for arg, kind in zip(args, kinds, strict=False):
                if type(arg) is not kind:
                    raise no_such_overload(name, *map(type_name, args))
            return function(*args)

        return call

    return decorate


def _comparison(name: str, answer: Callable[[int], Value]) -> Callable[[Value, Value], Value]:
    """A method that quantities and versions share."""

    def call(one: Value, other: Value) -> Value:
        if type(one) is type(other) and type(one) in (Quantity, Semver):
            return answer(one.compare(other))
        raise no_such_overload(name, type_name(one), type_name(other))

    return call


def _summed(name: str, operate: Callable[[Quantity, Quantity], Quantity]) -> Callable[[Value, Value], Value]:
    def call(one: Value, other: Value) -> Value:
        amount = from_int(other) if type(other) is int else other
        if type(one) is not Quantity or type(amount) is not Quantity:
            raise no_such_overload(name, type_name(one), type_name(other))
        return operate(one, amount)

    return call


def _as_integer(amount: Quantity) -> int:
    number = amount.integer()
    if number is None:
        raise EvaluationError("cannot convert value to integer")
    return number


def _parses(parse: Callable[..., Value]) -> Callable[..., bool]:
    def call(*args: Value) -> bool:
        try:
            parse(*args)
        except EvaluationError:
            return False
        return True

    return call


def _semver(text: str, normalize: bool = False) -> Semver:
    return normalized_semver(text) if normalize else semver(text)


def pattern(text: str) -> Any:
    """A compiled regular expression.

    Raises:
        EvaluationError: it does not compile.
    """
    try:
        return compile_pattern(text)
    except PatternError as error:
        raise EvaluationError(str(error)) from error


def _matches(text: Value, expression: Value) -> bool:
    if type(text) is not str:
        raise unsupported("matches", text)
    if type(expression) is not str:
        raise EvaluationError(NO_SUCH_OVERLOAD)
    return pattern(expression).search(text) is not None


def _find(text: str, expression: str) -> str:
    found = pattern(expression).search(text)
    return found[0] if found else ""


def _find_all(text: str, expression: str, limit: int = -1) -> tuple[str, ...]:
    found: list[str] = []
    end = -1
    for each in pattern(expression).finditer(text):
        if each.end() > end:  # not an empty match right behind another one
            found.append(each[0])
        end = each.end()
    return tuple(found if limit < 0 else found[:limit])


def _contains_ip(network: Network, other: Value) -> bool:
    if type(other) not in (str, Address):
        raise no_such_overload("containsIP", type_name(network), type_name(other))
    try:
        address = (parse_ip(other) if type(other) is str else other).address
    except EvaluationError:
        raise EvaluationError(NO_SUCH_OVERLOAD) from None
    return address.version == network.interface.version and address in network.interface.network


def _contains_cidr(network: Network, other: Value) -> bool:
    if type(other) not in (str, Network):
        raise no_such_overload("containsCIDR", type_name(network), type_name(other))
    inner = parse_cidr(other) if type(other) is str else other
    if inner.interface.version != network.interface.version:
        return False
    outer = network.interface.network
    return inner.interface.ip in outer and inner.interface.network.prefixlen >= outer.prefixlen


def _global_unicast(address: IpAddress) -> bool:
    broadcast = isinstance(address, ipaddress.IPv4Address) and int(address) == 2**32 - 1
    excluded = (
        address.is_unspecified, address.is_loopback, address.is_multicast, address.is_link_local, broadcast,
    )  # fmt: skip
    return not any(excluded)


def _validate(form: Format, text: str) -> Optional:
    problems = form.problems(text)
    return Optional(tuple(problems)) if problems else NONE


_LINK_LOCAL_MULTICAST: Final = {4: ipaddress.ip_network("224.0.0.0/24"), 6: ipaddress.ip_network("ff02::/16")}
KUBERNETES_FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "quantity": guarded("quantity", str)(quantity),
    "isQuantity": guarded("isQuantity", str)(_parses(quantity)),
    "sign": guarded("sign", Quantity)(lambda amount: (amount.nano > 0) - (amount.nano < 0)),
    "isGreaterThan": _comparison("isGreaterThan", lambda order: order == 1),
    "isLessThan": _comparison("isLessThan", lambda order: order == -1),
    "compareTo": _comparison("compareTo", lambda order: order),
    "asApproximateFloat": guarded("asApproximateFloat", Quantity)(Quantity.approximate_float),
    "asInteger": guarded("asInteger", Quantity)(_as_integer),
    "isInteger": guarded("isInteger", Quantity)(lambda amount: amount.integer() is not None),
    "add": _summed("add", Quantity.add),
    "sub": _summed("sub", Quantity.sub),
    "semver": guarded("semver", str, bool)(_semver),
    "isSemver": guarded("isSemver", str, bool)(_parses(_semver)),
    "major": guarded("major", Semver)(lambda version: version.major),
    "minor": guarded("minor", Semver)(lambda version: version.minor),
    "patch": guarded("patch", Semver)(lambda version: version.patch),
    "matches": _matches,
    "find": guarded("find", str, str)(_find),
    "findAll": guarded("findAll", str, str, int)(_find_all),
    "ip": guarded("ip", str)(parse_ip),
    ".ip": guarded("ip", Network)(lambda value: Address(value.interface.ip)),
    "isIP": guarded("isIP", str)(_parses(parse_ip)),
    "ip.isCanonical": guarded("ip.isCanonical", str)(lambda text: str(parse_ip(text).address) == text),
    "family": guarded("family", Address)(lambda value: value.address.version),
    "isUnspecified": guarded("isUnspecified", Address)(lambda value: value.address.is_unspecified),
    "isLoopback": guarded("isLoopback", Address)(lambda value: value.address.is_loopback),
    "isLinkLocalMulticast": guarded("isLinkLocalMulticast", Address)(
        lambda value: value.address in _LINK_LOCAL_MULTICAST[value.address.version]
    ),
    "isLinkLocalUnicast": guarded("isLinkLocalUnicast", Address)(lambda value: value.address.is_link_local),
    "isGlobalUnicast": guarded("isGlobalUnicast", Address)(lambda value: _global_unicast(value.address)),
    "cidr": guarded("cidr", str)(parse_cidr),
    "isCIDR": guarded("isCIDR", str)(_parses(parse_cidr)),
    "containsIP": guarded("containsIP", Network)(_contains_ip),
    "containsCIDR": guarded("containsCIDR", Network)(_contains_cidr),
    "prefixLength": guarded("prefixLength", Network)(lambda value: value.interface.network.prefixlen),
    "masked": guarded("masked", Network)(
        lambda value: Network(ipaddress.ip_interface(str(value.interface.network)))
    ),
    "url": guarded("url", str)(parse_url),
    "isURL": guarded("isURL", str)(_parses(parse_url)),
    "getScheme": guarded("getScheme", Url)(lambda url: url.scheme),
    "getHost": guarded("getHost", Url)(lambda url: url.host),
    "getHostname": guarded("getHostname", Url)(lambda url: url.hostname),
    "getPort": guarded("getPort", Url)(lambda url: url.port),
    "getEscapedPath": guarded("getEscapedPath", Url)(lambda url: url.path),
    "getQuery": guarded("getQuery", Url)(Url.values),
    "validate": guarded("validate", Format, str)(_validate),
    "format.named": guarded("format.named", str)(
        lambda name: Optional(FORMATS[name]) if name in FORMATS else NONE
    ),
    **{f"format.{named}": (lambda form=form: form) for named, form in FORMATS.items()},
}


_SPECIAL_DOUBLES: Final = ("NaN", "Infinity", "-Infinity")
"""Texts that the clauses for doubles accept."""
_DEFAULT_PRECISION: Final = 6
_SUPERSCRIPTS: Final = str.maketrans("0123456789+-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻")
_TEXTS: Final = frozenset({
    "string", "bool", "bytes", "int", "uint", "double", "map", "list", "type", "duration", "timestamp",
    "null",
})  # fmt: skip
_HEX: Final = (
    "only integers, byte buffers, and strings can be formatted as hex",
    frozenset({"int", "uint", "bytes", "string"}),
)
_ALLOWED: Final[dict[str, tuple[str, frozenset[str]]]] = {
    "s": (
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, "
        "durations, and timestamps",
        _TEXTS,
    ),
    "d": ("decimal clause can only be used on integers", frozenset({"int", "uint"})),
    "f": ("fixed-point clause can only be used on doubles", frozenset({"double"})),
    "e": ("scientific clause can only be used on doubles", frozenset({"double"})),
    "b": ("only integers and bools can be formatted as binary", frozenset({"int", "uint", "bool"})),
    "x": _HEX,
    "X": _HEX,
    "o": ("octal clause can only be used on integers", frozenset({"int", "uint"})),
}
"""The types that each clause can format, and the error for other types."""
_FULL_NAMES: Final = {
    "any": "google.protobuf.Any",
    "duration": "google.protobuf.Duration",
    "timestamp": "google.protobuf.Timestamp",
    "null": "null_type",
}
_KINDS: Final = {full: short for short, full in _FULL_NAMES.items()}


@dataclass(frozen=True, slots=True)
class FormatProblem:
    expr: Expr | None
    """The argument that does not fit; None for a problem of the call."""
    message: str


def check_format(text: str, args: ListExpr, type_of: Callable[[Expr], Type]) -> FormatProblem | None:
    """The first problem of a literal format string with the static types of its arguments."""
    used = 0
    try:
        for _, clause, _ in _clauses(text, len(args.elements)):
            if not clause:
                continue
            problem = _misfit(clause, args.elements[used], type_of)
            if problem is not None:
                return problem
            used += 1
    except EvaluationError as error:
        return FormatProblem(None, str(error))
    if used < len(args.elements):
        return FormatProblem(
            None, f"too many arguments supplied to string.format (expected {used}, got {len(args.elements)})"
        )
    return None


def _misfit(clause: str, arg: Expr, type_of: Callable[[Expr], Type]) -> FormatProblem | None:
    message, kinds = _ALLOWED[clause]
    found = type_of(arg)
    allowed = kinds | {"string"} if clause in "fe" else kinds
    if found.kind not in allowed and found != types.DYN:
        name = _FULL_NAMES.get(found.kind, found.name)
        return FormatProblem(arg, f"error during formatting: {message}, was given {name}")
    parts: list[Expr] = []
    if clause == "s" and isinstance(arg, ListExpr):
        parts = arg.elements
    elif clause == "s" and isinstance(arg, MapExpr):
        parts = [part for entry in arg.entries for part in (entry.key, entry.value)]
    return next(filter(None, (_misfit(clause, part, type_of) for part in parts)), None)


def format_string(text: str, args: tuple[Value, ...]) -> str:
    """The text with its clauses filled.

    Raises:
        EvaluationError: a clause does not fit its argument.
    """
    parts: list[str] = []
    remaining = iter(args)
    for literal, clause, precision in _clauses(text, len(args)):
        parts.append(literal)
        if clause:
            parts.append(_fill(clause, precision, next(remaining)))
    return "".join(parts)


def _clauses(text: str, count: int) -> Iterator[tuple[str, str, int]]:
    """Literal text followed by a clause, which is empty if there is none, and its precision.

    Raises:
        EvaluationError: there are fewer arguments than clauses, or something is no clause.
    """
    used = 0
    while (at := text.find("%")) >= 0:
        literal, rest = text[:at], text[at + 1 :]
        if rest.startswith("%"):
            yield literal + "%", "", 0
            text = rest[1:]
            continue
        if used >= count:
            raise EvaluationError(f"index {used} out of range")
        if not rest:
            raise EvaluationError("unexpected end of string")
        used += 1
        precision, rest = _precision(rest)
        if rest[0] not in _ALLOWED:
            # Upstream shows the first byte as a character.
            raise _no_clause(f'unrecognized formatting clause "{chr(rest.encode()[0])}"')
        yield literal, rest[0], precision
        text = rest[1:]
    yield text, "", 0


def _precision(text: str) -> tuple[int, str]:
    """The precision before a clause, and what follows it."""
    if not text.startswith("."):
        return _DEFAULT_PRECISION, text
    rest = text[1:].lstrip("0123456789")
    digits = text[1 : len(text) - len(rest)]
    if not rest:
        raise _no_clause("error while parsing precision: could not find end of precision specifier")
    problem = "" if digits else "invalid syntax"
    if digits and int(digits) > MAX_INT:
        problem = "value out of range"
    if problem:
        raise _no_clause(
            "error while parsing precision: error while converting precision to integer: "
            f'strconv.Atoi: parsing "{digits}": {problem}'
        )
    return int(digits), rest


def _no_clause(problem: str) -> EvaluationError:
    return EvaluationError(f"could not parse formatting clause: {problem}")


def _fill(clause: str, precision: int, value: Value) -> str:
    name = type_name(value)
    message, kinds = _ALLOWED[clause]
    if clause in "fe" and value in _SPECIAL_DOUBLES:
        return _double(clause, precision, float(value))
    if _KINDS.get(name, name) not in kinds:
        raise EvaluationError(f"error during formatting: {message}, was given {name}")
    if clause == "s":
        return _text(value)
    if clause in "fe":
        return _double(clause, precision, value)
    if clause in "xX" and isinstance(value, str | bytes):
        digits = (value.encode() if isinstance(value, str) else value).hex()
        return digits.upper() if clause == "X" else digits
    return f"{int(value):{clause}}"


def _double(clause: str, precision: int, value: float) -> str:
    """A double in the notation of American English. For `e` the precision is a width."""
    if math.isnan(value) or math.isinf(value):
        text = "NaN" if math.isnan(value) else "∞" if value > 0 else "-∞"
    elif clause == "f":
        return f"{value:,.{precision}f}"
    else:
        mantissa, _, exponent = f"{value:.{_DEFAULT_PRECISION}e}".partition("e")
        text = f"{mantissa}×10{exponent.removeprefix('+').translate(_SUPERSCRIPTS)}"
    return text.rjust(precision) if clause == "e" else text


def _text(value: Value) -> str:
    match value:
        case None:
            return "null"
        case tuple():
            return f"[{', '.join(map(_nested, value))}]"
        case dict():
            entries = sorted((_nested_key(key), _nested(each)) for key, each in value.items())
            return "{" + ", ".join(f"{key}:{each}" for key, each in entries) + "}"
        case TypeValue():
            return value.name
    try:
        return to_string(value)
    except EvaluationError as error:
        raise EvaluationError(
            f'error during formatting: could not convert argument "{error}" to string'
        ) from error


def _nested_key(key: Value) -> str:
    if not isinstance(key, str | int):
        raise EvaluationError(
            f"error during formatting: no formatting function for map key of type {type_name(key)}"
        )
    return _nested(key)


def _nested(value: Value) -> str:
    """A part of a list or map, written as in an expression."""
    name = type_name(value)
    if _KINDS.get(name, name) not in _TEXTS:
        raise EvaluationError(f"error during formatting: no formatting function for {name}")
    match value:
        case float():
            special = math.isnan(value) or math.isinf(value)
            return f'"{go_double(value)}"' if special else f"{value:.{_DEFAULT_PRECISION}f}"
        case str():
            return go_quoted(value)
        case bytes():
            return f"b{go_quoted(_text(value))}"
        case Timestamp():
            return f'timestamp("{_text(value)}")'
        case Duration():
            return f'duration("{_text(value)}")'
        case _:
            return _text(value)
