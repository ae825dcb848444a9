"""The selectable fields of an object, as text, for field selectors.

A real server compares with typed objects, in which a field that the JSON leaves out has the zero of its type:
`spec.unschedulable=false` finds nodes that do not mention it. So does this, from the types in `fields.txt`.
The fields of custom resources have no such zero: where one is absent, its text is empty.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from bayplan.embedded.server.kinds import EVENTS, JOBS, PODS, Resource
from bayplan.embedded.server.schema.types import Type, type_of

_ZEROS: Final = {"boolean": "false", "int32": "0", "int64": "0"}
_ELSEWHERE: Final = {
    (EVENTS, "source"): ("source.component", "reportingComponent"),
    (JOBS, "status.successful"): ("status.succeeded",),
    (PODS, "status.podIPs"): (),
}
"""Selectors whose name is not the path of the field: the first of these fields that exists counts."""


def field_texts(resource: Resource, content: dict[str, Any]) -> dict[str, str]:
    """The text of each selectable field. The object is in its stored form."""
    texts = {}
    for name in resource.stored_fields:
        paths = _ELSEWHERE.get((resource.storage, name), (name,))
        found = (_text_at(content, path) for path in paths)
        texts[name] = next((text for text in found if text), "")
        if not texts[name] and resource.schema is None:
            texts[name] = _zero(resource.storage, paths)
    return texts


def _text_at(content: dict[str, Any], path: str) -> str:
    found: Any = content
    for step in path.split("."):
        if not isinstance(found, dict):
            return ""
        found = found.get(step)
    if isinstance(found, bool):
        return "true" if found else "false"
    return "" if found is None else str(found)


@cache
def _zero(stored: Resource, paths: tuple[str, ...]) -> str:
    """The value of an absent field."""
    found: Type | None = type_of(stored)
    for step in paths[0].split(".") if paths else [""]:
        field = ((found and found.fields) or {}).get(step)
        found = field.type if field is not None else None
    return _ZEROS.get(found.name, "") if found is not None else ""
