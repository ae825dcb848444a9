"""Field ownership: the fields of an object by manager (metadata.managedFields).

A set of fields is a set of paths. A step is `f:NAME` for a field or the key of a map, `k:{"name":"c"}` for an
entry of a list that is a map, `v:TEXT` for a value of a list that is a set, and `.` for the entry itself.
Lists and maps that are atomic are one field.

Fields are tracked from the first server-side apply on: an object that was never applied has no managedFields.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Final

import msgspec

from bayplan.api.meta import Content
from bayplan.embedded.server.schema.types import ANYTHING, Field, Type

Path = tuple[str, ...]
Paths = frozenset[Path]

ITSELF: Final = "."
_END: Final = ""
"""Marks the end of a path in a tree of paths; no step is empty."""
APPLY: Final = "Apply"
UPDATE: Final = "Update"

_KEY_DEFAULTS: Final = {"protocol": "TCP"}
"""Key fields of lists that may be absent."""
_METADATA: Final[Path] = ("f:metadata",)
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
    return _owned(_paths(content, Field(of), ()))


def _owned(paths: Iterable[Path]) -> Paths:
    """Paths without fields that no manager owns: the owner of all of `metadata` could remove the name."""
    return frozenset(
        path
        for path in paths
        if path != _METADATA and path[:2] not in _NOT_OWNED and path[:1] not in _NOT_OWNED
    )


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
    """The type of a field of a struct, or of an entry of a map."""
    if of.fields is not None:
        return of.fields.get(name) or Field(ANYTHING)
    return Field(of.items or ANYTHING)


def key_step(item: Any, keys: Iterable[str]) -> str:
    filled = {**_KEY_DEFAULTS, **item} if isinstance(item, dict) else {}
    given = {key: filled[key] for key in sorted(keys) if key in filled}
    return f"k:{json.dumps(given, separators=(',', ':'))}"


# fieldsV1


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


class PartFinder:
    """Finds the values at paths of one value. Entries of a list are looked up, not searched one by one."""

    def __init__(self, content: Any) -> None:
        self._content = content
        self._indexes: dict[tuple[int, str, Path], dict[str, Any]] = {}

    def find(self, path: Path) -> Any:
        """The value at a path; None if there is none."""
        content = self._content
        for step in path:
            if step == ITSELF:
                return True
            kind, _, rest = step.partition(":")
            if kind == "f":
                content = content.get(rest) if isinstance(content, dict) else None
            elif isinstance(content, list):
                content = self._entry(content, kind, rest)
            if content is None:
                return None
        return content

    def _entry(self, items: list[Any], kind: str, rest: str) -> Any:
        keys = _keys_of(kind, rest)
        index = self._indexes.get((id(items), kind, keys))
        if index is None:
            index = {}
            for item in items:
                index.setdefault(_entry_text(item, kind, keys), item)
            self._indexes[id(items), kind, keys] = index
        return index.get(_canonical(rest))


def without(content: Any, paths: Iterable[Path]) -> Any:
    """The content without the values at paths; maps and lists that become empty are removed."""
    tree: Content = {}
    for path in paths:
        level = tree
        for step in path[:-1] if path[-1] == ITSELF else path:
            level = level.setdefault(step, {})
        level[_END] = {}
    return _pruned(content, tree)


def _pruned(content: Any, tree: Content) -> Any:
    if isinstance(content, dict):
        result = {}
        for name, part in content.items():
            inner_tree = tree.get(f"f:{name}")
            if inner_tree is None:
                result[name] = part
            elif _END not in inner_tree:
                inner = _pruned(part, inner_tree)
                if inner not in ({}, []) or part in ({}, []):
                    result[name] = inner
        return result
    if not isinstance(content, list):
        return content
    wanted: dict[tuple[str, Path], dict[str, Content]] = {}
    for step, inner_tree in tree.items():
        kind, _, rest = step.partition(":")
        if kind in ("k", "v"):
            wanted.setdefault((kind, _keys_of(kind, rest)), {})[_canonical(rest)] = inner_tree
    kept = []
    for item in content:
        trees = [
            found
            for (kind, keys), by_text in wanted.items()
            if (found := by_text.get(_entry_text(item, kind, keys))) is not None
        ]
        if not any(_END in found for found in trees):
            for found in trees:
                item = _pruned(item, found)
            kept.append(item)
    return kept


def _keys_of(kind: str, rest: str) -> Path:
    """The keys of an entry of a list; none for a value of a set."""
    return tuple(sorted(json.loads(rest))) if kind == "k" else ()


def _entry_text(item: Any, kind: str, keys: Path) -> str:
    """The key of an entry as text."""
    if kind == "v":
        return _canonical_value(item)
    if not isinstance(item, dict):
        return ""
    return _canonical_value({key: item.get(key, _KEY_DEFAULTS.get(key)) for key in keys})


def _canonical(text: str) -> str:
    return _canonical_value(json.loads(text))


def _canonical_value(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


# Managers


def managers_of(content: Content) -> list[Content]:
    return [dict(entry) for entry in content["metadata"].get("managedFields") or () if entry]


def entry_paths(entry: Content) -> Paths:
    return _owned(flattened(entry.get("fieldsV1")))


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
    """Makes `manager` the owner of the fields that an update changed."""
    entries = managers_of(old)
    if not entries:
        content["metadata"].pop("managedFields", None)
        return
    before, after = paths_of(old, of), paths_of(content, of)
    new_part, old_part = PartFinder(content).find, PartFinder(old).find
    changed = {path for path in after if new_part(path) != old_part(path)}
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


_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def identity(value: Any) -> Hashable:
    """Equal for values that are the same JSON, and usable as a key. In Python, 1 and true are equal, too."""
    return value if isinstance(value, str) else _encode_sorted(value)
