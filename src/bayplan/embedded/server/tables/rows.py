"""The columns of a kind's table, and helpers for common cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from bayplan.api.meta import LabelSelector
from bayplan.api.selectors import compile_selector
from bayplan.embedded.server.tables.durations import age
from bayplan.errors import SelectorError

Content = dict[str, Any]
Row = list[Any]

NONE: Final = "<none>"
UNSET: Final = "<unset>"
UNKNOWN: Final = "<unknown>"
ERROR: Final = "<error>"
"""A selector that is invalid, of a kind whose selectors are not checked."""


class Rows(NamedTuple):
    """The columns of a kind, and a function for the cells of an object at a time."""

    columns: list[dict[str, Any]]
    cells: Callable[[Content, float], Row]


def columns(*names: str) -> list[dict[str, Any]]:
    """Column definitions. `Name*` is shown only with `-o wide`, `Name:integer` says its type."""
    made = []
    for text in names:
        name, _, kind = text.partition(":")
        wide = name.endswith("*")
        name = name.removesuffix("*")
        made.append(
            {
                "name": name,
                "type": kind or "string",
                "format": "name" if name in ("Name", "Attacher") else "",
                "description": "",
                "priority": int(wide),
            }
        )
    return made


def name_of(content: Content) -> str:
    return str(content["metadata"]["name"])


def age_of(content: Content, now: float) -> str:
    return age(content["metadata"].get("creationTimestamp"), now)


def name_and_creation(content: Content, now: float) -> Row:
    return [name_of(content), content["metadata"].get("creationTimestamp")]


def joined(texts: Iterable[str], empty: str = NONE) -> str:
    return ",".join(texts) or empty


def selector_text(selector: Any) -> str:
    """A label selector in one line."""
    if not isinstance(selector, dict):
        return NONE
    if "matchLabels" not in selector and "matchExpressions" not in selector and selector:
        return labels_text(selector)
    try:
        text = str(compile_selector(msgspec.convert(selector, LabelSelector)))
    except SelectorError:
        return ERROR
    return {"<everything>": NONE}.get(text, text)


def labels_text(labels: Any) -> str:
    return joined(f"{key}={text}" for key, text in sorted((labels or {}).items()))


def access_modes(modes: Any) -> str:
    short = {
        "ReadWriteOnce": "RWO",
        "ReadOnlyMany": "ROX",
        "ReadWriteMany": "RWX",
        "ReadWriteOncePod": "RWOP",
    }
    return ",".join(short[mode] for mode in short if mode in (modes or ()))
