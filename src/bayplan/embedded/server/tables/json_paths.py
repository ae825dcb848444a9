"""The paths of printer columns: `.spec.minMember`, `.status.conditions[?(@.type=="Ready")].status`."""

from __future__ import annotations

import re
from typing import Any, Final

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
