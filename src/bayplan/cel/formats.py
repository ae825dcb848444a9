"""Named formats of strings, such as `format.dns1123Label()`, and the texts of what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import ClassVar, Final

from bayplan.api.names import (
    DNS_LABEL_MAX,
    dns_label_problems,
    dns_subdomain_problems,
    label_key_problems,
    label_value_problems,
)
from bayplan.cel.errors import NO_SUCH_OVERLOAD, EvaluationError
from bayplan.cel.urls import uri_problem
from bayplan.cel.values import Comparable, Value


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
