"""IP addresses, networks and URLs in expressions, and the named formats of strings (`format.dns1123Label()`).

They are parsed as Go's net/netip and net/url parse them, with the texts that users see when one is malformed.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import ClassVar, Final
from urllib.parse import quote, unquote, unquote_to_bytes

from bayplan.api.names import (
    DNS_LABEL_MAX,
    dns_label_problems,
    dns_subdomain_problems,
    label_key_problems,
    label_value_problems,
)
from bayplan.cel.values import NO_SUCH_OVERLOAD, Comparable, EvaluationError, Value, go_quoted

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


_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.ASCII | re.DOTALL)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.ASCII | re.DOTALL)
_NOT_IN_HOST: Final = re.compile(
    r"""%(?!25)[0-7][0-9A-Fa-f]|[^\w.~!$&'()*+,;=:\[\]<>"%\x80-\U0010ffff-]""", re.ASCII
)
_NOT_IN_USER: Final = re.compile(r"[^\w.:~!$&'()*+,;=%@-]", re.ASCII)
_ENCODED_PATH: Final = re.compile(r"[\w.~!$&'()*+,;=:@/\[\]%-]*", re.ASCII)
_PORT: Final = re.compile(r":[0-9]*|", re.ASCII)
_PATH_SAFE: Final = "$&+,/:;=@-_.~"


@dataclass(frozen=True, slots=True, eq=False)
class Url(Comparable):
    TYPE_NAME: ClassVar = "kubernetes.URL"
    scheme: str
    opaque: str
    user: str
    host: str
    """With the port, if there is one."""
    path: str
    """With its escapes."""
    query: str | None
    fragment: str

    def equals(self, other: Value) -> bool:
        if not isinstance(other, Url):
            raise EvaluationError(NO_SUCH_OVERLOAD)
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    @property
    def hostname(self) -> str:
        host = self.host.removesuffix(f":{self.port}") if _port(self.host) is not None else self.host
        return host[1:-1] if host.startswith("[") and host.endswith("]") else host

    @property
    def port(self) -> str:
        return _port(self.host) or ""

    def values(self) -> dict[str, tuple[str, ...]]:
        """The values of the query by name; what cannot be decoded is left out."""
        found: dict[str, tuple[str, ...]] = {}
        for part in filter(None, (self.query or "").split("&")):
            if ";" in part or _BAD_ESCAPE.search(part):
                continue
            key, _, value = part.replace("+", " ").partition("=")
            found[unquote(key)] = (*found.get(unquote(key), ()), unquote(value))
        return found


def parse_url(text: str) -> Url:
    """The URL in a text: it has a scheme, or a path from the root.

    Raises:
        EvaluationError: there is none.
    """
    problem = uri_problem(text)
    if problem is not None:
        raise EvaluationError(f"URL parse error during conversion from string: {problem}")
    body, _, fragment = text.partition("#")
    if _BAD_ESCAPE.search(fragment):
        problem = _escape_problem(fragment)
        raise EvaluationError(
            f"URL parse error during conversion from string: parse {go_quoted(text)}: {problem}"
        )
    scheme, rest = _split_scheme(body)
    rest, mark, query = rest.partition("?")
    opaque = user = host = ""
    if scheme and not rest.startswith("/"):
        opaque, rest = rest, ""
    elif rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority, slash, path = rest[2:].partition("/")
        user, _, host = authority.rpartition("@")
        host, rest = unquote(host), slash + path
    return Url(scheme, opaque, user, host, _escaped_path(rest), query if mark else None, fragment)


def uri_problem(text: str) -> str | None:
    """Why Go's url.ParseRequestURI rejects a text, None if it does not."""
    problem = _problem(text)
    return None if problem is None else f"parse {go_quoted(text)}: {problem}"


def _problem(text: str) -> str | None:
    if _CONTROL.search(text):
        return "net/url: invalid control character in URL"
    if not text:
        return "empty url"
    if text == "*":
        return None
    if text.startswith(":"):
        return "missing protocol scheme"
    scheme, rest = _split_scheme(text)
    rest = rest.partition("?")[0]
    if not rest.startswith("/"):
        return None if scheme else "invalid URI for request"
    if scheme and rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        problem = _authority_problem(scheme, authority)
        if problem is not None:
            return problem
        rest = slash + path
    return _escape_problem(rest)


def _split_scheme(text: str) -> tuple[str, str]:
    found = _SCHEME.fullmatch(text)
    return (found[1].lower(), found[2]) if found else ("", text)


def _authority_problem(scheme: str, authority: str) -> str | None:
    user, at, host = authority.rpartition("@")
    problem = _host_problem(scheme, host)
    if problem is None and at:
        return "net/url: invalid userinfo" if _NOT_IN_USER.search(user) else _escape_problem(user)
    return problem


def _host_problem(scheme: str, host: str) -> str | None:
    bracket = host.rfind("[")
    if bracket > 0:
        return "invalid IP-literal"
    if bracket == 0:
        inside, closing, port = host[1:].rpartition("]")
        if not closing:
            return "missing ']' in host"
        if not _PORT.fullmatch(port):
            return f"invalid port {go_quoted(port)} after host"
        problem = _name_problem(inside) or address_problem(unquote(inside))
        if problem is not None:
            return problem if problem.startswith("invalid") else f"invalid host: {problem}"
        return None if ":" in inside else "invalid IP-literal"
    if ":" in host:
        at = host.index(":") if scheme in ("http", "https") else host.rindex(":")
        if not _PORT.fullmatch(host[at:]):
            return f"invalid port {go_quoted(host[at:])} after host"
    return _name_problem(host)


def _name_problem(host: str) -> str | None:
    wrong, escape = _NOT_IN_HOST.search(host), _BAD_ESCAPE.search(host)
    if wrong is None or (escape is not None and escape.start() < wrong.start()):
        return _escape_problem(host)
    if wrong[0].startswith("%"):
        return f"invalid URL escape {go_quoted(wrong[0])}"
    return f"invalid character {go_quoted(wrong[0])} in host name"


def _escape_problem(text: str) -> str | None:
    found = _BAD_ESCAPE.search(text)
    return None if found is None else f"invalid URL escape {go_quoted(found[0])}"


def _escaped_path(path: str) -> str:
    return path if _ENCODED_PATH.fullmatch(path) else quote(unquote_to_bytes(path), safe=_PATH_SAFE)


def _port(host: str) -> str | None:
    """The digits after the last colon; None if that is no port."""
    at = host.rfind(":")
    return host[at + 1 :] if at >= 0 and _PORT.fullmatch(host[at:]) else None


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


_UUID: Final = re.compile(
    r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE | re.ASCII
)
_BASE64: Final = re.compile(
    r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})", re.ASCII
)
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_TIME: Final = re.compile(
    r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:.[0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})", re.ASCII
)
_DNS1035: Final = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)
_DNS1035_PROBLEM: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for "
    "validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)

_TOO_LONG: Final = f"must be no more than {DNS_LABEL_MAX} characters"


def _unless(holds: Callable[[str], object], problem: str) -> Callable[[str], list[str]]:
    return lambda text: [] if holds(text) else [problem]


def _prefix(problems: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """A name that something will be appended to may end with a dash. Upstream replaces the byte before it,
    too."""

    def masked(text: str) -> str:
        return (text.encode()[:-2] + b"a").decode(errors="replace")

    return lambda text: problems(masked(text) if len(text) > 1 and text.endswith("-") else text)


def _dns1035_problems(text: str) -> list[str]:
    problems = [] if len(text.encode()) <= DNS_LABEL_MAX else [_TOO_LONG]
    return problems if _DNS1035.fullmatch(text) else [*problems, _DNS1035_PROBLEM]


def _uri_problems(text: str) -> list[str]:
    problem = uri_problem(text)
    return [] if problem is None else [problem]


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return text.startswith("0000-")
    return True


def _is_date_time(text: str) -> bool:
    day, _, time = text.lower().partition("t")
    return _is_date(day) and _TIME.fullmatch(time.partition("t")[0]) is not None


FORMATS: Final = {
    each.name: each
    for each in (
        Format("dns1123Label", 30, dns_label_problems),
        Format("dns1123Subdomain", 60, dns_subdomain_problems),
        Format("dns1035Label", 30, _dns1035_problems),
        Format("qualifiedName", 60, label_key_problems),
        Format("dns1123LabelPrefix", 30, _prefix(dns_label_problems)),
        Format("dns1123SubdomainPrefix", 60, _prefix(dns_subdomain_problems)),
        Format("dns1035LabelPrefix", 30, _prefix(_dns1035_problems)),
        Format("labelValue", 40, label_value_problems),
        Format("uri", 1103, _uri_problems),
        Format("uuid", 70, _unless(_UUID.fullmatch, "does not match the UUID format")),
        Format("byte", 84, _unless(_BASE64.fullmatch, "invalid base64")),
        Format("date", 71, _unless(_is_date, "invalid date")),
        Format("datetime", 71, _unless(_is_date_time, "invalid datetime")),
    )
}


def address_text(value: Value) -> str | None:
    """The text of an address or network, None for any other value."""
    if isinstance(value, Address):
        return str(value.address)
    return str(value.interface) if isinstance(value, Network) else None
