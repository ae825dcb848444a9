"""URLs in expressions, parsed as Go's net/url parses them, with its texts for malformed ones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final
from urllib.parse import quote, unquote, unquote_to_bytes

from bayplan.cel.addresses import address_problem
from bayplan.cel.errors import NO_SUCH_OVERLOAD, EvaluationError
from bayplan.cel.values import Comparable, Value, go_quoted

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
