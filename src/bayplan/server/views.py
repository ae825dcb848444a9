"""Objects that are served in more than one form, and stored in one.

Events are served by the core group, and by events.k8s.io with other names for the same fields; they are
stored in the core form. Custom resources may have several versions, which differ in nothing but their name.
"""

from __future__ import annotations

from typing import Any, Final

from bayplan.server.kinds import NEW_EVENTS, Resource

_CORE_NAMES: Final = {
    "deprecatedCount": "count",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedSource": "source",
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
}
_NEW_NAMES: Final = {core: new for new, core in _CORE_NAMES.items()}


def to_storage(resource: Resource, content: dict[str, Any]) -> dict[str, Any]:
    """An object as it is stored."""
    if resource.stored_as is None:
        return content
    return _renamed(content, _CORE_NAMES if resource == NEW_EVENTS else {}, resource.stored_as)


def from_storage(resource: Resource, content: dict[str, Any]) -> dict[str, Any]:
    """A stored object as its resource shows it."""
    if resource.stored_as is None:
        return content
    return _renamed(content, _NEW_NAMES if resource == NEW_EVENTS else {}, resource)


def stored_field(resource: Resource, path: str) -> str:
    """Where a field that a selector names stands in the stored form."""
    first, dot, rest = path.partition(".")
    return f"{_CORE_NAMES.get(first, first)}{dot}{rest}" if resource == NEW_EVENTS else path


def _renamed(content: dict[str, Any], names: dict[str, str], resource: Resource) -> dict[str, Any]:
    renamed = {names.get(field, field): part for field, part in content.items()}
    return {**renamed, "apiVersion": resource.api_version, "kind": resource.kind}
