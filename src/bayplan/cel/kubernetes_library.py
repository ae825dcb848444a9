"""Functions that Kubernetes adds to CEL: quantities, versions, regular expressions, addresses, URLs and
formats.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final
from urllib.parse import SplitResult, quote, unquote, urlsplit

from bayplan.api.names import (
    dns_label_problems,
    dns_subdomain_problems,
    label_key_problems,
    label_value_problems,
)
from bayplan.api.patterns import PatternError, compile_pattern
from bayplan.cel.errors import NO_SUCH_OVERLOAD, EvaluationError, no_such_overload
from bayplan.cel.quantity import Quantity, from_int, quantity
from bayplan.cel.semver import Semver, normalized_semver, semver
from bayplan.cel.values import NONE, Comparable, Optional, Value, type_name

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Interface | ipaddress.IPv6Interface


@dataclass(frozen=True, slots=True, eq=False)
class Address(Comparable):
    TYPE_NAME: ClassVar = "net.IP"
    address: _Address

    def equals(self, other: Value) -> bool:
        return isinstance(other, Address) and self.address == other.address


@dataclass(frozen=True, slots=True, eq=False)
class Network(Comparable):
    TYPE_NAME: ClassVar = "net.CIDR"
    interface: _Network

    def equals(self, other: Value) -> bool:
        return isinstance(other, Network) and self.interface == other.interface


@dataclass(frozen=True, slots=True, eq=False)
class Url(Comparable):
    TYPE_NAME: ClassVar = "kubernetes.URL"
    parts: SplitResult

    def equals(self, other: Value) -> bool:
        if not isinstance(other, Url):
            raise EvaluationError(NO_SUCH_OVERLOAD)
        return self.parts == other.parts


@dataclass(frozen=True, slots=True, eq=False)
class Format(Comparable):
    TYPE_NAME: ClassVar = "kubernetes.NamedFormat"
    name: str
    regex_size: int
    """What upstream counts for its regular expression when it charges for a validation."""
    problems: Callable[[str], list[str]]

    def equals(self, other: Value) -> bool:
        if not isinstance(other, Format):
            raise EvaluationError(NO_SUCH_OVERLOAD)
        return self.name == other.name


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
        raise EvaluationError(f"{NO_SUCH_OVERLOAD}: matches")
    if type(expression) is not str:
        raise EvaluationError(NO_SUCH_OVERLOAD)
    return pattern(expression).search(text) is not None


def _find(text: str, expression: str) -> str:
    found = pattern(expression).search(text)
    return found[0] if found else ""


def _find_all(text: str, expression: str, limit: int = -1) -> tuple[str, ...]:
    found = tuple(each[0] for each in pattern(expression).finditer(text))
    return found if limit < 0 else found[:limit]


def _ip(text: str) -> Address:
    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        raise EvaluationError(
            f'IP Address "{text}" parse error during conversion from string: {error}'
        ) from error
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            raise EvaluationError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
        if address.scope_id is not None:
            raise EvaluationError(f'IP address "{text}" with zone value is not allowed')
    return Address(address)


def _cidr(text: str) -> Network:
    host, slash, length = text.partition("/")
    if not slash or not (length.isascii() and length.isdigit()):
        raise EvaluationError(f'network address parse error during conversion from string: no "/" in {text}')
    address = _ip(host).address
    try:
        return Network(ipaddress.ip_interface(f"{address}/{length}"))
    except ValueError as error:
        raise EvaluationError(
            f"network address parse error during conversion from string: {error}"
        ) from error


def _contains_ip(network: Network, other: Value) -> bool:
    address = _ip(other).address if type(other) is str else other.address
    return address.version == network.interface.version and address in network.interface.network


def _contains_cidr(network: Network, other: Value) -> bool:
    inner = _cidr(other) if type(other) is str else other
    if inner.interface.version != network.interface.version:
        return False
    outer = network.interface.network
    return inner.interface.ip in outer and inner.interface.network.prefixlen >= outer.prefixlen


def address_text(value: Value) -> str | None:
    """The text of an address or network, None for any other value."""
    if isinstance(value, Address):
        return str(value.address)
    return str(value.interface) if isinstance(value, Network) else None


def _global_unicast(address: _Address) -> bool:
    broadcast = isinstance(address, ipaddress.IPv4Address) and int(address) == 2**32 - 1
    excluded = (
        address.is_unspecified, address.is_loopback, address.is_multicast, address.is_link_local, broadcast,
    )  # fmt: skip
    return not any(excluded)


def _url(text: str) -> Url:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise EvaluationError(
            f'URL parse error during conversion from string: parse "{text}": {error}'
        ) from error
    if not text.startswith("/") and not parts.scheme:
        raise EvaluationError(
            f'URL parse error during conversion from string: parse "{text}": invalid URI for request'
        )
    del port
    return Url(parts)


def _query(url: Url) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for part in filter(None, url.parts.query.split("&")):
        key, _, value = part.partition("=")
        name = unquote(key.replace("+", " "))
        found[name] = (*found.get(name, ()), unquote(value.replace("+", " ")))
    return found


def _host(url: Url) -> str:
    return url.parts.netloc.rpartition("@")[2]


def _hostname(url: Url) -> str:
    host = _host(url)
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _port(url: Url) -> str:
    return str(url.parts.port) if url.parts.port is not None else ""


_UUID: Final = re.compile(
    r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE | re.ASCII
)
_BASE64: Final = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])", re.ASCII)
_DATE_TIME: Final = re.compile(
    _DATE.pattern + r"[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:?\d\d)?", re.ASCII
)
_DNS1035: Final = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)
_DNS1035_PROBLEM: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for "
    "validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)


def _shaped(form: re.Pattern[str], problem: str) -> Callable[[str], list[str]]:
    return lambda text: [] if form.fullmatch(text) else [problem]


def _prefix(problems: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """A name that something will be appended to may end with a dash."""
    return lambda text: problems(text[:-1] + "a" if text.endswith("-") else text)


def _uri_problems(text: str) -> list[str]:
    try:
        _url(text)
    except EvaluationError as error:
        return [str(error).partition("string: ")[2]]
    return []


_dns1035 = _shaped(_DNS1035, _DNS1035_PROBLEM)
FORMATS: Final = {
    "dns1123Label": Format("dns1123Label", 30, dns_label_problems),
    "dns1123Subdomain": Format("dns1123Subdomain", 60, dns_subdomain_problems),
    "dns1035Label": Format("dns1035Label", 30, _dns1035),
    "qualifiedName": Format("qualifiedName", 60, label_key_problems),
    "dns1123LabelPrefix": Format("dns1123LabelPrefix", 30, _prefix(dns_label_problems)),
    "dns1123SubdomainPrefix": Format("dns1123SubdomainPrefix", 60, _prefix(dns_subdomain_problems)),
    "dns1035LabelPrefix": Format("dns1035LabelPrefix", 30, _prefix(_dns1035)),
    "labelValue": Format("labelValue", 40, label_value_problems),
    "uri": Format("uri", 1024, _uri_problems),
    "uuid": Format("uuid", 103, _shaped(_UUID, "does not match the UUID format")),
    "byte": Format("byte", 66, _shaped(_BASE64, "invalid base64")),
    "date": Format("date", 145, _shaped(_DATE, "invalid date")),
    "datetime": Format("datetime", 145, _shaped(_DATE_TIME, "invalid datetime")),
}


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
    "ip": lambda value: Address(value.interface.ip) if type(value) is Network else _ip(value),
    "isIP": guarded("isIP", str)(_parses(_ip)),
    "ip.isCanonical": guarded("ip.isCanonical", str)(lambda text: str(_ip(text).address) == text),
    "family": guarded("family", Address)(lambda value: value.address.version),
    "isUnspecified": guarded("isUnspecified", Address)(lambda value: value.address.is_unspecified),
    "isLoopback": guarded("isLoopback", Address)(lambda value: value.address.is_loopback),
    "isLinkLocalMulticast": guarded("isLinkLocalMulticast", Address)(
        lambda value: value.address in _LINK_LOCAL_MULTICAST[value.address.version]
    ),
    "isLinkLocalUnicast": guarded("isLinkLocalUnicast", Address)(lambda value: value.address.is_link_local),
    "isGlobalUnicast": guarded("isGlobalUnicast", Address)(lambda value: _global_unicast(value.address)),
    "cidr": guarded("cidr", str)(_cidr),
    "isCIDR": guarded("isCIDR", str)(_parses(_cidr)),
    "containsIP": guarded("containsIP", Network)(_contains_ip),
    "containsCIDR": guarded("containsCIDR", Network)(_contains_cidr),
    "prefixLength": guarded("prefixLength", Network)(lambda value: value.interface.network.prefixlen),
    "masked": guarded("masked", Network)(
        lambda value: Network(ipaddress.ip_interface(str(value.interface.network)))
    ),
    "url": guarded("url", str)(_url),
    "isURL": guarded("isURL", str)(_parses(_url)),
    "getScheme": guarded("getScheme", Url)(lambda url: url.parts.scheme),
    "getHost": guarded("getHost", Url)(_host),
    "getHostname": guarded("getHostname", Url)(_hostname),
    "getPort": guarded("getPort", Url)(_port),
    "getEscapedPath": guarded("getEscapedPath", Url)(
        lambda url: quote(unquote(url.parts.path), safe="/:@!$&'()*+,;=~")
    ),
    "getQuery": guarded("getQuery", Url)(_query),
    "validate": guarded("validate", Format, str)(_validate),
    "format.named": guarded("format.named", str)(
        lambda name: Optional(FORMATS[name]) if name in FORMATS else NONE
    ),
    **{f"format.{name}": (lambda form=form: form) for name, form in FORMATS.items()},
}
