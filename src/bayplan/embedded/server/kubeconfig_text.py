"""Changes a few entries of a kubeconfig and leaves the rest of the file as it is, comments included.

kubectl parses the file, changes it and writes it again: comments and order are lost. Here only the lines
of the changed entries are replaced. If that is not possible (a file in flow style, for example), the whole
file is written again, with all of its fields. In both cases the new text is parsed and compared before it is
written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from bayplan.api.documents import parse_documents
from bayplan.errors import DecodeError

SECTIONS: Final = ("clusters", "users", "contexts")
CURRENT: Final = "current-context"

_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Config = dict[str, Any]
_Change = tuple[int, int, list[str]]
"""First line, end, and the new lines."""


def changed_text(text: str, before: Config, after: Config) -> str:
    """The text of `before`, changed so that it parses as `after`."""
    for candidate in _candidates(text, before, after):
        if _says(candidate, after):
            return candidate
    raise AssertionError("JSON says what it is made of")


def _candidates(text: str, before: Config, after: Config) -> Iterator[str]:
    if not text.lstrip().startswith("{"):
        lines = _changed_lines(text, before, after)
        if lines is not None:
            yield lines
        yield _dumped(after)
    yield json.dumps(after, indent=2, ensure_ascii=False) + "\n"


def _says(text: str, wanted: Config) -> bool:
    try:
        return [document.content for document in parse_documents(text.encode())] == [wanted]
    except DecodeError:
        return False


def _changed_lines(text: str, before: Config, after: Config) -> str | None:
    """None if lines of the text cannot be changed one by one."""
    root = yaml.compose(text, Loader=_Loader)  # no deeper than what `before` was read from, so not too deep
    if root is None:
        return text + _dumped(after)
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        return None
    if text and not text.endswith("\n"):
        text += "\n"
    lines = re.split(r"(?<=\n)", text)
    changes: list[_Change] = []
    there = {key.value: (key, value) for key, value in root.value}
    for name in (*SECTIONS, CURRENT):
        if before.get(name) == after.get(name):
            continue
        if name not in there:
            changes.append((len(lines), len(lines), [_dumped({name: after[name]})]))
            continue
        key, value = there[name]
        first, last = key.start_mark.line, _last_line(value)
        if name in SECTIONS and isinstance(value, yaml.SequenceNode) and value.value and not value.flow_style:
            changes += _item_changes(value, before[name], after[name])
            if after[name]:
                continue
        changes = [change for change in changes if not first <= change[0] <= last + 1]
        changes.append((first, last + 1, [_dumped({name: after[name]})]))
    for start, end, new in sorted(changes, key=lambda change: change[:2], reverse=True):
        lines[start:end] = new
    return "".join(lines)


def _item_changes(section: yaml.SequenceNode, before: list[Any], after: list[Any]) -> Iterator[_Change]:
    """Removes items that are not wanted any more, and adds new ones at the end."""
    for node, item in zip(section.value, before, strict=True):
        if item not in after:
            yield node.start_mark.line, _last_line(node) + 1, []
    added = [item for item in after if item not in before]
    if added:
        end = _last_line(section.value[-1]) + 1
        indent = " " * section.start_mark.column
        yield end, end, [indent + line for line in _dumped(added).splitlines(keepends=True)]


def _last_line(node: yaml.Node) -> int:
    """The last line of a value; the parser returns only where the next one begins."""
    if isinstance(node, yaml.CollectionNode) and node.value and not node.flow_style:
        child = node.value[-1]
        return _last_line(child[1] if isinstance(node, yaml.MappingNode) else child)
    mark = node.end_mark
    return int(mark.line if mark.column or mark.line == node.start_mark.line else mark.line - 1)


def _dumped(value: object) -> str:
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=1_000_000)
    return text
