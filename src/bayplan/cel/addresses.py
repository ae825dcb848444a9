"""IP addresses and networks in expressions, with the texts of Go's parser for malformed ones."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import ClassVar, Final

from bayplan.cel.errors import NO_SUCH_OVERLOAD, EvaluationError
from bayplan.cel.values import Comparable, Value, go_quoted

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface
_Problem = tuple[str, str]
"""What is wrong, and the rest of the text from there on, if the message shows it."""

_GROUPS: Final = 8
_HEX_DIGITS: Final = re.compile(r"[0-9a-fA-F]*", re.ASCII)
_FIRST_MARK: Final = re.compile(r"[.:%]")
_CONVERSION: Final = "parse error during conversion from string: "


@dataclass(frozen=True, slots=True, eq=False)
class Address(Comparable):
    TYPE_NAME: ClassVar = "net.IP"
    address: IpAddress

    def equals(self, other: Value) -> bool:
        if not isinstance(other, Address):
            raise EvaluationError(NO_SUCH_OVERLOAD)
        return self.address == other.address


@dataclass(frozen=True, slots=True, eq=False)
class Network(Comparable):
    TYPE_NAME: ClassVar = "net.CIDR"
    interface: _Interface

    def equals(self, other: Value) -> bool:
        if not isinstance(other, Network):
            raise EvaluationError(NO_SUCH_OVERLOAD)
        return self.interface == other.interface


def parse_ip(text: str) -> Address:
    """The address in a text.

    Raises:
        EvaluationError: there is none, or it has a zone or is an IPv4 address in the form of IPv6.
    """
    problem = address_problem(text)
    if problem is not None:
        raise EvaluationError(f"IP Address {go_quoted(text)} {_CONVERSION}{problem}")
    if "%" in text:
        raise EvaluationError(f"IP address {go_quoted(text)} with zone value is not allowed")
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise EvaluationError(f"IPv4-mapped IPv6 address {go_quoted(text)} is not allowed")
    return Address(address)


def parse_cidr(text: str) -> Network:
    """The network in a text such as `10.0.0.0/8`.

    Raises:
        EvaluationError: there is none, or it is an IPv4 network in the form of IPv6.
    """
    problem = _prefix_problem(text)
    if problem is not None:
        prefix = f"network address {_CONVERSION}netip.ParsePrefix({go_quoted(text)}): "
        raise EvaluationError(f"network address {_CONVERSION}{prefix}{problem}")
    interface = ipaddress.ip_interface(text)
    if isinstance(interface, ipaddress.IPv6Interface) and interface.ip.ipv4_mapped is not None:
        mapped = f"IPv4-mapped IPv6 address {go_quoted(text)} is not allowed"
        raise EvaluationError(f"network address {_CONVERSION}{mapped}")
    return Network(interface)


def _prefix_problem(text: str) -> str | None:
    host, slash, length = text.rpartition("/")
    if not slash:
        return "no '/'"
    problem = address_problem(host)
    if problem is not None:
        return problem
    if "%" in host:
        return "IPv6 zones cannot be present in a prefix"
    if not (length.isascii() and length.isdigit()) or (len(length) > 1 and length[0] == "0"):
        return f"bad bits after slash: {go_quoted(length)}"
    return "prefix length out of range" if int(length) > (128 if ":" in host else 32) else None


def address_problem(text: str) -> str | None:
    """Why Go's netip.ParseAddr rejects a text, None if it does not."""
    mark = _FIRST_MARK.search(text)
    found: _Problem | None
    match mark[0] if mark else "":
        case ".":
            found = _ipv4_problem(text)
        case ":":
            found = _ipv6_problem(text)
        case "%":
            found = "missing IPv6 address", ""
        case _:
            found = "unable to parse IP", ""
    if found is None:
        return None
    message, rest = found
    return f"ParseAddr({go_quoted(text)}): {message}" + (f" (at {go_quoted(rest)})" if rest else "")


def _ipv4_problem(text: str) -> _Problem | None:
    fields, digits = 0, ""
    for at, char in enumerate(text):
        if char == ".":
            if not digits or at == len(text) - 1:
                return "IPv4 field must have at least one digit", text[at:]
            if fields == 3:
                return "IPv4 address too long", ""
            fields, digits = fields + 1, ""
        elif char not in "0123456789":
            return "unexpected character", text[at:]
        elif digits == "0":
            return "IPv4 field has octet with leading zero", ""
        else:
            digits += char
            if int(digits) > 255:
                return "IPv4 field has value >255", ""
    return None if fields == 3 else ("IPv4 address too short", "")


def _ipv6_problem(text: str) -> _Problem | None:
    rest, percent, zone = text.partition("%")
    if percent and not zone:
        return "zone must be a non-empty string", ""
    groups = 0
    has_ellipsis = rest.startswith("::")
    if has_ellipsis:
        rest = rest[2:]
        if not rest:
            return None
    while groups < _GROUPS:
        found = _HEX_DIGITS.match(rest)
        count = found.end() if found else 0
        if count > 4:
            return "each group must have 4 or less digits", rest
        if count == 0:
            return "each colon-separated field must have at least one digit", rest
        if rest[count : count + 1] == ".":
            if not has_ellipsis and groups != _GROUPS - 2:
                return "embedded IPv4 address must replace the final 2 fields of the address", rest
            if groups > _GROUPS - 2:
                return "too many hex fields to fit an embedded IPv4 at the end of the address", rest
            problem = _ipv4_problem(rest)
            if problem is not None:
                return problem
            groups, rest = groups + 2, ""
            break
        groups, rest = groups + 1, rest[count:]
        if not rest:
            break
        if rest[0] != ":":
            return "unexpected character, want colon", rest
        if len(rest) == 1:
            return "colon must be followed by more characters", rest
        rest = rest[1:]
        if rest[0] == ":":
            if has_ellipsis:
                return "multiple :: in address", rest
            has_ellipsis, rest = True, rest[1:]
            if not rest:
                break
    if rest:
        return "trailing garbage after address", rest
    if groups < _GROUPS:
        return None if has_ellipsis else ("address string too short", "")
    return ("the :: must expand to at least one field of zeros", "") if has_ellipsis else None
