"""Strategic merge patches: merge patches that know which lists are maps by some key.

Where `fields.txt` names a merge key, entries of a list are merged with those that have the same key, and
others are kept. Directives in a patch say otherwise:

    $patch: replace | delete | merge     in a map or an entry of a list
    $deleteFromPrimitiveList/NAME        values that go from a list of plain values
    $setElementOrder/NAME                the order of the entries afterwards
    $retainKeys                          the fields of a union that stay

Entries are found by their keys, never by comparing each with each: lists may have tens of thousands of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Final

from bayplan.embedded.server.patching.identity import identity
from bayplan.embedded.server.patching.plain import Patch
from bayplan.embedded.server.schema.types import ANYTHING, Field, Type
from bayplan.embedded.server.statuses import bad_request

Content = dict[str, Any]

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
