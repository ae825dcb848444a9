"""JSON patches, merge patches and strategic merge patches.

A `Patch` is a function from an object to the object it should become. A small patch can cause much work: 22
`copy` operations double a list 22 times. The limits are those of kube-apiserver: 10,000 operations, and
copies of 3 MiB in all.

Strategic merge patches know which lists are maps by some key. Where `fields.txt` names a merge key, entries
of a list are merged with those that have the same key, and others are kept. Directives in a patch say
otherwise:

    $patch: replace | delete | merge     in a map or an entry of a list
    $deleteFromPrimitiveList/NAME        values that are removed from a list of plain values
    $setElementOrder/NAME                the order of the entries afterwards
    $retainKeys                          the fields of a union that stay

Entries are found by their keys, never by comparing each with each: lists may have tens of thousands of them.
Server-side apply is in `apply.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final

import msgspec

from bayplan.api.documents import merged
from bayplan.api.meta import Content
from bayplan.api.yaml_reader import check_depth, copied
from bayplan.embedded.server.patching.ownership import identity
from bayplan.embedded.server.schema.types import ANYTHING, Field, Type
from bayplan.embedded.server.sizes import MAX_NAME_CHARACTERS
from bayplan.embedded.server.statuses import StatusError, bad_request, too_large
from bayplan.errors import DecodeError

Patch = Callable[[Content], Content]

MAX_OPERATIONS: Final = 10_000
MAX_COPIED_BYTES: Final = 3 * 1024 * 1024
MAX_SHIFTED: Final = 50_000_000
"""Entries of lists that make room for others or close gaps, in all operations of a patch. Not a limit of
kube-apiserver: 10,000 insertions at the head of a list of a million entries would take it a minute, too."""

_INDEX: Final = re.compile(r"[+-]?[0-9]{1,18}")


def merge_patch(patch: Content) -> Patch:
    """RFC 7396: fields of the patch are set, null removes a field, lists are replaced."""
    return lambda content: merged(content, patch)


def json_patch(operations: Any) -> Patch:
    """RFC 6902: a list of operations, all of which take effect, or none."""
    if not isinstance(operations, list):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        )
    if len(operations) > MAX_OPERATIONS:
        raise too_large(
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        )
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise bad_request("error decoding patch: every operation needs a path")

    def apply(content: Content) -> Content:
        result: Any = copied(content)
        work = _Work()
        try:
            for operation in operations:
                result = _applied(result, operation, work)
            check_depth(result)
        except (LookupError, TypeError, ValueError, RecursionError, DecodeError) as error:
            raise _unfit() from error
        if not isinstance(result, dict):
            raise _unfit()
        return result

    return apply


def _unfit() -> StatusError:
    message = "the server rejected our request due to an error in our request"
    return StatusError(message, 422, reason="Invalid", details={})


class _Work:
    """The cost of the operations of a patch so far.

    Raises:
        ValueError: it is too much.
    """

    def __init__(self) -> None:
        self._copied = 0
        self._shifted = 0

    def copy(self, part: Any) -> Any:
        text = msgspec.json.encode(part)
        self._copied += len(text)
        if self._copied > MAX_COPIED_BYTES:
            raise ValueError("the copies are too large")
        return msgspec.json.decode(text)

    def shift(self, entries: int) -> None:
        self._shifted += entries
        if self._shifted > MAX_SHIFTED:
            raise ValueError("lists are too long for so many changes")


def _applied(content: Any, operation: Content, work: _Work) -> Any:
    path = _steps(operation["path"])
    match operation.get("op"):
        case "add":
            return _add(content, path, copied(operation["value"]), work)
        case "remove":
            return _remove(content, path, work)
        case "replace":
            _at(content, path)
            return _replace(content, path, copied(operation["value"]))
        case "move":
            source = _steps(operation["from"])
            moved = _at(content, source)
            return _add(_remove(content, source, work), path, moved, work)
        case "copy":
            return _add(content, path, work.copy(_at(content, _steps(operation["from"]))), work)
        case "test":
            if identity(_at(content, path)) != identity(operation.get("value")):
                raise ValueError("the test fails")
            return content
        case _:
            raise ValueError("no such operation")


def _steps(pointer: Any) -> list[str]:
    if pointer == "":
        return []
    if not isinstance(pointer, str) or not pointer.startswith("/"):
        raise ValueError("a pointer begins with /")
    steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer[1:].split("/")]
    if max(map(len, steps)) > MAX_NAME_CHARACTERS:
        raise ValueError("a name is too long")
    return steps


def _at(content: Any, path: list[str]) -> Any:
    for step in path:
        content = content[_index(step, len(content))] if isinstance(content, list) else content[step]
    return content


def _index(step: str, length: int) -> int:
    """An index below `length`. As in kube-apiserver, a negative one counts from the end, with -1 the last."""
    if _INDEX.fullmatch(step) is None:
        raise ValueError("not an index of a list")
    index = int(step)
    if not -length <= index < length:
        raise IndexError(step)
    return index % length


def _add(content: Any, path: list[str], part: Any, work: _Work) -> Any:
    if not path:
        return part
    parent = _at(content, path[:-1])
    if isinstance(parent, list):
        if path[-1] == "-":
            parent.append(part)
        else:
            index = _index(path[-1], len(parent) + 1)
            work.shift(len(parent) - index)
            parent.insert(index, part)
    else:
        parent[path[-1]] = part
    return content


def _replace(content: Any, path: list[str], part: Any) -> Any:
    if not path:
        return part
    parent = _at(content, path[:-1])
    parent[_index(path[-1], len(parent)) if isinstance(parent, list) else path[-1]] = part
    return content


def _remove(content: Any, path: list[str], work: _Work) -> Any:
    if not path:
        return None
    parent = _at(content, path[:-1])
    if isinstance(parent, list):
        index = _index(path[-1], len(parent))
        work.shift(len(parent) - index)
        del parent[index]
    else:
        del parent[path[-1]]
    return content


_DIRECTIVE: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_DELETE_FROM: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"
_PLAIN: Final = Field(ANYTHING)
_DELETED: Final = object()


def strategic_merge_patch(patch: Content, of: Type) -> Patch:
    return lambda content: _merged_map(content, patch, of)


def _merged_map(content: Any, patch: Content, of: Type) -> Any:
    directive = patch.get(_DIRECTIVE)
    rest = {key: part for key, part in patch.items() if key != _DIRECTIVE}
    for key, part in rest.items():
        if key.startswith((_RETAIN, _DELETE_FROM, _ORDER)) and not isinstance(part, list):
            raise bad_request(f"unable to apply the patch: {key} is not a list")
    if directive == "replace":
        return rest
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"Unknown patch type found: {directive}")
    result = dict(content) if isinstance(content, dict) else {}
    if _RETAIN in rest:
        keep = {key for key in rest.pop(_RETAIN) if isinstance(key, str)}
        result = {key: part for key, part in result.items() if key in keep}
    for key, part in rest.items():
        if key.startswith(_DELETE_FROM):
            name = key.removeprefix(_DELETE_FROM)
            gone = {identity(item) for item in part}
            result[name] = [item for item in _list_of(result.get(name)) if identity(item) not in gone]
        elif not key.startswith(_ORDER):
            _merge_field(result, key, part, _field_of(of, key), rest.get(_ORDER + key))
    for key, order in rest.items():
        name = key.removeprefix(_ORDER)
        if key != name and name not in rest and isinstance(result.get(name), list):
            result[name] = _ordered(result[name], order, _field_of(of, name), result[name])
    return result


def _field_of(of: Type, key: str) -> Field:
    if of.fields is not None:
        return of.fields.get(key, _PLAIN)
    return Field(of.items) if of.name == "map" and of.items is not None else _PLAIN


def _merge_field(result: Content, key: str, part: Any, field: Field, order: Any) -> None:
    if part is None:
        result.pop(key, None)
    elif isinstance(part, dict):
        known = result.get(key)
        merged = _merged_map(known, part, field.type)
        if part.get(_DIRECTIVE) == "delete":
            result.pop(key, None)
        else:
            result[key] = merged
    elif isinstance(part, list) and field.merges:
        known = _list_of(result.get(key))
        merged = _merged_list(known, part, field)
        result[key] = _ordered(merged, order, field, known) if order is not None else merged
    else:
        result[key] = part


def _merged_list(items: list[Any], patch: list[Any], field: Field) -> list[Any]:
    key = field.merge_key
    if not key:
        known = {identity(item) for item in items}
        return [*items, *(item for item in patch if identity(item) not in known)]
    item_type = field.type.items or ANYTHING
    for item in patch:
        if not isinstance(item, dict):
            raise bad_request(f"cannot merge {item!r} into a list of objects with the key {key}")
    if any(item.get(_DIRECTIVE) == "replace" for item in patch):
        return [
            {name: part for name, part in item.items() if name != _DIRECTIVE}
            for item in patch
            if not (item.get(_DIRECTIVE) == "replace" and len(item) == 1)
        ]
    result = list(items)
    places: dict[Hashable, list[int]] = {}
    for index, item in enumerate(items):
        if isinstance(item, dict):
            places.setdefault(identity(item.get(key)), []).append(index)
    order = []
    for item in patch:
        if key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        name = identity(item[key])
        if item.get(_DIRECTIVE) == "delete":
            for index in places.pop(name, ()):
                result[index] = _DELETED
            continue
        order.append({key: item[key]})
        if name in places:
            index = places[name][0]
            result[index] = _merged_map(result[index], item, item_type)
        else:
            places[name] = [len(result)]
            result.append(_merged_map({}, item, item_type))
    return _ordered([item for item in result if item is not _DELETED], order, field, items)


def _ordered(items: list[Any], order: list[Any], field: Field, before: list[Any]) -> list[Any]:
    """The items of the patch in its order, the others in theirs; `before` is the old list.

    When they are merged, old items keep their relative positions, and new ones come first.
    """
    key = field.merge_key

    def name_of(item: Any) -> Hashable:
        return identity(item.get(key) if key and isinstance(item, dict) else item)

    wanted = _places(name_of(item) for item in order)
    old = _places(name_of(item) for item in before)
    named = sorted(
        (item for item in items if name_of(item) in wanted), key=lambda item: wanted[name_of(item)]
    )
    others = [item for item in items if name_of(item) not in wanted]
    result: list[Any] = []
    at = 0
    for item in named:
        mine = old.get(name_of(item), -1)
        while at < len(others) and 0 <= old.get(name_of(others[at]), -1) < mine:
            result.append(others[at])
            at += 1
        result.append(item)
    return [*result, *others[at:]]


def _places(names: Iterable[Hashable]) -> dict[Hashable, int]:
    """The first index of each name."""
    places: dict[Hashable, int] = {}
    for place, name in enumerate(names):
        places.setdefault(name, place)
    return places


def _list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
