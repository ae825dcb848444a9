"""Conditions and status updates of controllers."""

from __future__ import annotations

from typing import Any

from bayplan.embedded.server.documents import Content
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.objects import ObjectAPI


def find_condition(content: Content, kind: str) -> Content | None:
    conditions = (content.get("status") or {}).get("conditions") or ()
    return next((known for known in conditions if known.get("type") == kind), None)


def has_condition(content: Content, kind: str) -> bool:
    """Whether the condition is there and true."""
    known = find_condition(content, kind)
    return known is not None and known.get("status") == "True"


def with_condition(
    conditions: list[Content] | None, kind: str, status: str, reason: str, message: str, now: str, **more: Any
) -> list[Content]:
    """Conditions with one set; `lastTransitionTime` changes only with the status.

    If status and reason are the same, the old condition stays, whatever the message: a message may contain
    the name of a pod that could not be created, another one in each try, and writing it would cause the next
    try.
    """
    conditions = list(conditions or ())
    known = next((each for each in conditions if each["type"] == kind), None)
    if known is not None and (known.get("status"), known.get("reason")) == (status, reason):
        return conditions
    changed = now
    if known is not None and known.get("status") == status:
        changed = known.get("lastTransitionTime", now)
    new = {
        "type": kind,
        "status": status,
        "lastTransitionTime": changed,
        **more,
        "reason": reason,
        "message": message,
    }
    if known is None:
        return [*conditions, new]
    return [new if each is known else each for each in conditions]


def without_condition(conditions: list[Content] | None, kind: str) -> list[Content]:
    return [each for each in conditions or () if each["type"] != kind]


def counts(**fields: int) -> dict[str, int]:
    """Counts as on the wire: a zero is omitted."""
    return {name: number for name, number in fields.items() if number}


def write_status(api: ObjectAPI, resource: Resource, content: Content, status: Content) -> Content:
    """Sets the status of an object, unless that would change nothing."""
    status = {name: part for name, part in status.items() if part is not None and part != []}
    if status == (content.get("status") or {}):
        return content
    return api.update(resource, {**content, "status": status}, subresource="status")
