"""Strategic merge patches: merge patches that know which lists are maps by some key.

Where `fields.txt` names a merge key, entries of a list are merged with those that have the same key, and
others are kept. Directives in a patch say otherwise:

    $patch: replace | delete | merge     in a map or an entry of a list
    $deleteFromPrimitiveList/NAME        values that go from a list of plain values
    $setElementOrder/NAME                the order in which entries stand afterwards
    $retainKeys                          the fields of a union that stay
"""

from __future__ import annotations

from typing import Any, Final

from bayplan.server.patching.plain import Patch
from bayplan.server.schema.types import ANYTHING, Field, Type
from bayplan.server.statuses import bad_request

Content = dict[str, Any]

_DIRECTIVE: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_DELETE_FROM: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"
_PLAIN: Final = Field(ANYTHING)


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
        keep = {*rest.pop(_RETAIN)}
        result = {key: part for key, part in result.items() if key in keep}
    for key, part in rest.items():
        if key.startswith(_DELETE_FROM):
            name = key.removeprefix(_DELETE_FROM)
            result[name] = [item for item in result.get(name) or () if item not in part]
        elif not key.startswith(_ORDER):
            _merge_field(result, key, part, _field_of(of, key), rest.get(_ORDER + key))
    for key, order in rest.items():
        if key.startswith(_ORDER) and (name := key.removeprefix(_ORDER)) in result and name not in rest:
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
        merged = _merged_list(result.get(key) or [], part, field)
        known = result.get(key) or []
        result[key] = _ordered(merged, order, field, known) if order is not None else merged
    else:
        result[key] = part


def _merged_list(items: list[Any], patch: list[Any], field: Field) -> list[Any]:
    key = field.merge_key
    if not key:
        return [*items, *(item for item in patch if item not in items)]
    item_type = field.type.items or ANYTHING
    if any(isinstance(item, dict) and item.get(_DIRECTIVE) == "replace" for item in patch):
        return [
            {name: part for name, part in item.items() if name != _DIRECTIVE}
            for item in patch
            if not (isinstance(item, dict) and item.get(_DIRECTIVE) == "replace" and len(item) == 1)
        ]
    result = list(items)
    order = []
    for item in patch:
        if not isinstance(item, dict):
            raise bad_request(f"cannot merge {item!r} into a list of objects with the key {key}")
        if key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        index = next(
            (i for i, known in enumerate(result) if isinstance(known, dict) and known.get(key) == item[key]),
            None,
        )
        if item.get(_DIRECTIVE) == "delete":
            result = [k for k in result if not (isinstance(k, dict) and k.get(key) == item[key])]
            continue
        order.append({key: item[key]})
        if index is None:
            result.append(_merged_map({}, item, item_type))
        else:
            result[index] = _merged_map(result[index], item, item_type)
    return _ordered(result, order, field, items)


def _ordered(items: list[Any], order: list[Any], field: Field, before: list[Any]) -> list[Any]:
    """The items that the patch names in its order, the others in theirs; `before` is the list as it was.

    Where the two meet, an item that was there before goes by its old place, a new one comes first.
    """
    key = field.merge_key

    def identity(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, dict) else item

    wanted = [identity(item) for item in order]
    old = [identity(item) for item in before]
    named = sorted((i for i in items if identity(i) in wanted), key=lambda item: wanted.index(identity(item)))
    others = [item for item in items if identity(item) not in wanted]
    result: list[Any] = []
    while named and others:
        mine, theirs = identity(named[0]), identity(others[0])
        is_behind = mine in old and theirs in old and old.index(theirs) < old.index(mine)
        result.append(others.pop(0) if is_behind else named.pop(0))
    return [*result, *named, *others]
