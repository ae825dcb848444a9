"""The columns of a kind's table, and helpers for common cells: ages, and the paths of printer columns.

A path is `.spec.minMember`, or `.status.conditions[?(@.type=="Ready")].status`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from bayplan.api.go_values import seconds_of
from bayplan.api.meta import Content, LabelSelector
from bayplan.api.selectors import compile_selector
from bayplan.errors import SelectorError

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


_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY


def age(moment: Any, now: float) -> str:
    """How long ago a moment was."""
    since = seconds_of(moment)
    return UNKNOWN if since is None else human_duration(now - since)


def human_duration(seconds: float) -> str:
    """`90s`, `5m30s`, `3h`, `2d4h`: at most two units, rounded as kubectl does."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < 10 * _MINUTE:
        return _two(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _two(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _two(whole, _DAY, "d", _HOUR, "h")
    if whole < 2 * _YEAR:
        return f"{whole // _DAY}d"
    if whole < 8 * _YEAR:
        return _two(whole, _YEAR, "y", _DAY, "d")
    return f"{whole // _YEAR}y"


def _two(whole: int, unit: int, name: str, smaller: int, smaller_name: str) -> str:
    rest = whole % unit // smaller
    return f"{whole // unit}{name}{rest}{smaller_name}" if rest else f"{whole // unit}{name}"


_STEP: Final = re.compile(
    r"""\.?(?:
        \[\?\(@\.(?P<key>[\w.]+)\s*==\s*["'](?P<wanted>[^"']*)["']\)\]
      | \[(?P<index>-?\d+|\*)\]
      | \[["'](?P<quoted>[^"']+)["']\]
      | (?P<name>(?:[\w/-]|\\.)+)
    )""",
    re.VERBOSE,
)


def at_path(content: Any, path: str) -> Any:
    """The value at a path; the first of several, None if there is none."""
    found = [content]
    for step in _STEP.finditer(path):
        found = [inner for each in found for inner in _inside(each, step)]
    return found[0] if found else None


def _inside(content: Any, step: re.Match[str]) -> list[Any]:
    name = step["name"] or step["quoted"]
    if name is not None:
        name = name.replace("\\.", ".")
        return [content[name]] if isinstance(content, dict) and content.get(name) is not None else []
    if not isinstance(content, list):
        return []
    if step["index"] is not None:
        if step["index"] == "*":
            return content
        index = int(step["index"])
        return [content[index]] if -len(content) <= index < len(content) else []
    return [each for each in content if str(at_path(each, step["key"])) == step["wanted"]]
