"""The syntax of names and labels: label keys, label values and DNS names.

Each check returns a list of errors, empty if the text is valid, because configuration validation reports all
of them. The texts are those of Kubernetes: users search for them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

LABEL_NAME_MAX: Final = 63
"""Bytes in the name part of a label key, and in a label value."""
DNS_LABEL_MAX: Final = 63
DNS_SUBDOMAIN_MAX: Final = 253

_LABEL_NAME: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE: Final = f"({_LABEL_NAME})?"
_DNS_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_SUBDOMAIN: Final = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"

_is_label_name = re.compile(_LABEL_NAME, re.ASCII).fullmatch
_is_label_value = re.compile(_LABEL_VALUE, re.ASCII).fullmatch
_is_dns_label = re.compile(_DNS_LABEL, re.ASCII).fullmatch
_is_dns_subdomain = re.compile(_DNS_SUBDOMAIN, re.ASCII).fullmatch

_LABEL_NAME_RULE: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_LABEL_NAME}')"
)
_LABEL_VALUE_RULE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
    f"for validation is '{_LABEL_VALUE}')"
)
_DNS_LABEL_RULE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    f"'{_DNS_LABEL}')"
)
_DNS_SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    f"'{_DNS_SUBDOMAIN}')"
)
_EMPTY: Final = "must be non-empty"


def label_key_problems(key: str) -> list[str]:
    """The errors of a label key: `name` or `dns.prefix/name`."""
    return list(_label_key_problems(key))


def label_value_problems(value: str) -> list[str]:
    """The errors of a label value; the empty value is valid."""
    return list(_label_value_problems(value))


def qualified_name_problems(name: str) -> list[str]:
    """The errors of a qualified name (a resource, a plugin argument): the same form as a label key."""
    return label_key_problems(name)


def dns_label_problems(name: str) -> list[str]:
    """The errors of a DNS label, the form of a namespace's name."""
    problems = _too_long(name, DNS_LABEL_MAX, "characters")
    if not _is_dns_label(name):
        problems.append("must not contain dots" if _is_dns_subdomain(name) else _DNS_LABEL_RULE)
    return problems


def dns_subdomain_problems(name: str) -> list[str]:
    """The errors of a DNS subdomain, the form of most objects' names."""
    return _subdomain_problems(name, "characters")


def _subdomain_problems(name: str, unit: str) -> list[str]:
    problems = _too_long(name, DNS_SUBDOMAIN_MAX, unit)
    if not _is_dns_subdomain(name):
        problems.append(_DNS_SUBDOMAIN_RULE)
    return problems


def path_segment_problems(name: str) -> list[str]:
    """The errors of a name that only has to fit into a path, such as those of roles."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{character}'" for character in "/%" if character in name]


@lru_cache(maxsize=16384)
def _label_key_problems(key: str) -> tuple[str, ...]:
    # Cached, as is the next: a cluster's selectors repeat a handful of keys and values.
    problems: list[str] = []
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return (
            f"a valid label key {_LABEL_NAME_RULE} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')",
        )
    if slash:
        on_prefix = _subdomain_problems(prefix, "bytes") if prefix else [_EMPTY]
        problems += [f"prefix part {problem}" for problem in on_prefix]
    if not name:
        problems.append(f"name part {_EMPTY}")
    problems += [f"name part {problem}" for problem in _too_long(name, LABEL_NAME_MAX)]
    if not _is_label_name(name):
        problems.append(f"name part {_LABEL_NAME_RULE}")
    return tuple(problems)


@lru_cache(maxsize=16384)
def _label_value_problems(value: str) -> tuple[str, ...]:
    problems = _too_long(value, LABEL_NAME_MAX)
    if not _is_label_value(value):
        problems.append(_LABEL_VALUE_RULE)
    return tuple(problems)


def _too_long(text: str, limit: int, unit: str = "bytes") -> list[str]:
    """Kubernetes counts bytes everywhere, and calls them characters in the texts about DNS names."""
    return [f"must be no more than {limit} {unit}"] if len(text.encode()) > limit else []
