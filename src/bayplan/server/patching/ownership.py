"""Who said what: the fields of an object by the managers that set them (metadata.managedFields).

A set of fields is a set of paths. A step is `f:NAME` for a field or the key of a map, `k:{"name":"c"}` for an
entry of a list that is a map, `v:TEXT` for a value of a list that is a set, and `.` for the entry itself.
Lists and maps that are atomic are one field.

Fields are tracked from the first server-side apply on: an object that nobody applied has no managedFields.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from bayplan.server.schema.types import ANYTHING, Field, Type

Content = dict[str, Any]
Path = tuple[str, ...]
Paths = frozenset[Path]

ITSELF: Final = "."
APPLY: Final = "Apply"
UPDATE: Final = "Update"

_KEY_DEFAULTS: Final = {"protocol": "TCP"}
"""Fields that tell entries of a list apart, and may be left out."""
_NOT_OWNED: Final = frozenset(
    {
        ("f:apiVersion",), ("f:kind",), ("f:metadata", "f:name"), ("f:metadata", "f:namespace"),
        ("f:metadata", "f:uid"), ("f:metadata", "f:resourceVersion"), ("f:metadata", "f:generation"),
        ("f:metadata", "f:creationTimestamp"), ("f:metadata", "f:managedFields"),
        ("f:metadata", "f:deletionTimestamp"), ("f:metadata", "f:deletionGracePeriodSeconds"),
        ("f:metadata", "f:generateName"), ("f:metadata", "f:selfLink"),
    }
)  # fmt: skip


def paths_of(content: Content, of: Type) -> Paths:
    """The fields that an object sets."""
    found = _paths(content, Field(of), ())
    return frozenset(path for path in found if path[:2] not in _NOT_OWNED and path[:1] not in _NOT_OWNED)


def _paths(content: Any, field: Field, at: Path) -> Iterator[Path]:
    of = field.type
    if field.atomic or of.atomic:
        yield at
    elif isinstance(content, dict) and (of.is_struct or of.name == "map") and content:
        for name, part in content.items():
            yield from _paths(part, field_of(of, name), (*at, f"f:{name}"))
    elif isinstance(content, list) and field.keys and content:
        inner = Field(of.items or ANYTHING)
        for item in content:
            step = (*at, key_step(item, field.keys))
            yield (*step, ITSELF)
            yield from (path for path in _paths(item, inner, step) if path != step)
    elif isinstance(content, list) and field.is_set and content:
        for item in content:
            yield (*at, f"v:{json.dumps(item)}")
    else:
        yield at


def field_of(of: Type, name: str) -> Field:
    """What is known of a field of a struct, or of an entry of a map."""
    if of.fields is not None:
        return of.fields.get(name) or Field(ANYTHING)
    return Field(of.items or ANYTHING)


def key_step(item: Any, keys: Iterable[str]) -> str:
    filled = {**_KEY_DEFAULTS, **item} if isinstance(item, dict) else {}
    given = {key: filled[key] for key in sorted(keys) if key in filled}
    return f"k:{json.dumps(given, separators=(',', ':'))}"


# As they stand in an object


def nested(paths: Iterable[Path]) -> Content:
    """Paths in the form of fieldsV1."""
    root: Content = {}
    for path in sorted(paths):
        level = root
        for step in path:
            level = level.setdefault(step, {})
    return root


def flattened(fields: Any, at: Path = ()) -> Iterator[Path]:
    """The paths in fieldsV1."""
    if not isinstance(fields, dict):
        return
    for step, inner in fields.items():
        if inner:
            yield from flattened(inner, (*at, step))
        else:
            yield (*at, step)


def shown(path: Path) -> str:
    """A path as messages show it: `.spec.containers[name="c"].image`."""
    text = ""
    for step in path:
        kind, _, rest = step.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            inside = ",".join(f"{key}={json.dumps(part)}" for key, part in json.loads(rest).items())
            text += f"[{inside}]"
        elif kind == "v":
            text += f"[={rest}]"
    return text


def part_at(content: Any, path: Path) -> Any:
    """What stands at a path; None where there is nothing."""
    for step in path:
        if step == ITSELF:
            return True
        kind, _, rest = step.partition(":")
        if kind == "f":
            content = content.get(rest) if isinstance(content, dict) else None
        elif isinstance(content, list):
            wanted = json.loads(rest)
            content = next((item for item in content if _is(item, kind, wanted)), None)
        if content is None:
            return None
    return content


def _is(item: Any, kind: str, wanted: Any) -> bool:
    if kind == "v":
        return bool(item == wanted)
    if not isinstance(item, dict):
        return False
    return all(item.get(key, _KEY_DEFAULTS.get(key)) == part for key, part in wanted.items())


def without(content: Any, path: Path) -> Any:
    """The content without what stands at a path; maps and lists that it empties go with it."""
    step, *rest = path
    kind, _, name = step.partition(":")
    if kind == "f":
        if not isinstance(content, dict) or name not in content:
            return content
        if not rest:
            return {key: part for key, part in content.items() if key != name}
        inner = without(content[name], tuple(rest))
        if inner in ({}, []) and content[name] not in ({}, []):
            return {key: part for key, part in content.items() if key != name}
        return {**content, name: inner}
    if not isinstance(content, list):
        return content
    wanted = json.loads(name)
    if not rest or rest == [ITSELF]:
        return [item for item in content if not _is(item, kind, wanted)]
    return [without(item, tuple(rest)) if _is(item, kind, wanted) else item for item in content]


# Managers


def managers_of(content: Content) -> list[Content]:
    return [dict(entry) for entry in content["metadata"].get("managedFields") or () if entry]


def entry_paths(entry: Content) -> Paths:
    return frozenset(flattened(entry.get("fieldsV1")))


def make_entry(
    manager: str, operation: str, api_version: str, now: str, paths: Paths, subresource: str = ""
) -> Content:
    entry = {
        "manager": manager,
        "operation": operation,
        "apiVersion": api_version,
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": nested(paths),
    }
    return {**entry, "subresource": subresource} if subresource else entry


def track_update(content: Content, old: Content, of: Type, manager: str, now: str, subresource: str) -> None:
    """Gives the fields that an update changed to the one who changed them."""
    entries = managers_of(old)
    if not entries:
        content["metadata"].pop("managedFields", None)
        return
    before, after = paths_of(old, of), paths_of(content, of)
    changed = {path for path in after if part_at(content, path) != part_at(old, path)}
    gone = before - after
    kept = []
    mine: set[Path] = set(changed)
    for entry in entries:
        paths = entry_paths(entry)
        is_mine = (entry.get("manager"), entry.get("operation"), entry.get("subresource", "")) == (
            manager, UPDATE, subresource,
        )  # fmt: skip
        left = paths - changed - gone
        if is_mine:
            mine |= left
        elif left:
            kept.append({**entry, "fieldsV1": nested(left)} if left != paths else entry)
    if mine:
        kept.append(make_entry(manager, UPDATE, content["apiVersion"], now, frozenset(mine), subresource))
    content["metadata"]["managedFields"] = kept
