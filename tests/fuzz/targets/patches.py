"""Patches of the four kinds that an API server takes, from an object that they are for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from bayplan.api.meta import Content
from tests.fuzz.mutation import TEXTS, Mutator

OPERATIONS: Final = ("add", "remove", "replace", "move", "copy", "test", "", "frobnicate")
DIRECTIVES: Final = ("replace", "delete", "merge", "x")


def json_patch(item: Content, mutator: Mutator) -> bytes:
    rng = mutator.rng
    pointers = [*_pointers(item), "", "/", "/metadata/labels/~", "/spec/-", "/spec/containers/-", "/a/-2"]
    operations = []
    for _ in range(rng.choice((1, 2, 5, 30))):
        operation: Content = {"op": rng.choice(OPERATIONS), "path": rng.choice(pointers)}
        if rng.random() < 0.8:
            operation["value"] = mutator.value()
        if operation["op"] in ("move", "copy") or rng.random() < 0.1:
            operation["from"] = rng.choice(pointers)
        operations.append(operation)
    return _encoded(mutator.document(operations) if rng.random() < 0.3 else operations, mutator)


def merge_patch(item: Content, mutator: Mutator) -> bytes:
    return _encoded(_part(mutator.document(item), mutator), mutator)


def strategic_patch(item: Content, mutator: Mutator) -> bytes:
    rng = mutator.rng
    patch = _part(mutator.document(item), mutator)
    for holder in _objects(patch):
        if rng.random() < 0.15:
            holder["$patch"] = rng.choice(DIRECTIVES)
        if rng.random() < 0.1:
            holder["$retainKeys"] = rng.choice((list(holder), [1], "x"))
        for name in list(holder):
            if rng.random() < 0.1:
                order = holder[name] if isinstance(holder[name], list) else rng.sample(TEXTS, 3)
                prefix = rng.choice(("$setElementOrder/", "$deleteFromPrimitiveList/", "$unknown/"))
                holder[prefix + name] = json.loads(json.dumps(order))
    return _encoded(patch, mutator)


def apply_patch(item: Content, mutator: Mutator) -> bytes:
    changed = mutator.document(item)
    if isinstance(changed, dict) and mutator.rng.random() < 0.8:
        changed |= {"apiVersion": item["apiVersion"], "kind": item["kind"]}
    return mutator.encode([changed])


PATCHES: Final[tuple[tuple[str, Callable[[Content, Mutator], bytes]], ...]] = (
    ("application/json-patch+json", json_patch),
    ("application/merge-patch+json", merge_patch),
    ("application/strategic-merge-patch+json", strategic_patch),
    ("application/apply-patch+yaml", apply_patch),
)


def _part(document: Any, mutator: Mutator) -> Any:
    """Some fields of an object, as a patch would have them."""
    if not isinstance(document, dict):
        return document
    kept = {name: value for name, value in document.items() if mutator.rng.random() < 0.6}
    return kept or document


def _encoded(patch: Any, mutator: Mutator) -> bytes:
    data = json.dumps(patch).encode()
    return mutator.damage(data) if mutator.rng.random() < 0.05 else data


def _pointers(document: Any, place: str = "") -> list[str]:
    children = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    found = [place] if place else []
    for key, value in children:
        found += _pointers(value, f"{place}/{str(key).replace('~', '~0').replace('/', '~1')}")
    return found


def _objects(document: Any) -> list[Content]:
    found = [document] if isinstance(document, dict) else []
    inner = document.values() if isinstance(document, dict) else document
    for value in inner if isinstance(document, dict | list) else ():
        found += _objects(value)
    return found
