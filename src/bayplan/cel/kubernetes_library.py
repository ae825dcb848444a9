"""Functions that Kubernetes adds to CEL: quantities, versions, regular expressions, addresses, URLs and
formats.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any, Final

from bayplan.api.patterns import PatternError, compile_pattern
from bayplan.cel.addresses import Address, IpAddress, Network, parse_cidr, parse_ip
from bayplan.cel.errors import NO_SUCH_OVERLOAD, EvaluationError, no_such_overload
from bayplan.cel.formats import FORMATS, Format
from bayplan.cel.quantity import Quantity, from_int, quantity
from bayplan.cel.semver import Semver, normalized_semver, semver
from bayplan.cel.urls import Url, parse_url
from bayplan.cel.values import NONE, Optional, Value, type_name, unsupported


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


def address_text(value: Value) -> str | None:
    """The text of an address or network, None for any other value."""
    if isinstance(value, Address):
        return str(value.address)
    return str(value.interface) if isinstance(value, Network) else None


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
    **{f"format.{name}": (lambda form=form: form) for name, form in FORMATS.items()},
}
