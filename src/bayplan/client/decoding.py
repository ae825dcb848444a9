"""From the API server's JSON to records, without dictionaries in between.

Lists and watches are decoded in one go. What does not fit (mostly a null that means "absent": Go writes
`"drivers": null` for an empty list) is taken apart and decoded object by object, without its nulls; an object
that cannot be read at all is logged and left out, and never takes others with it.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

import msgspec

from bayplan.api.meta import Object, ObjectMeta
from bayplan.client.refusals import Status, error_of
from bayplan.errors import APIError
from bayplan.framework.cluster_api import Change, ObjectT, WatchEvent

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"

_CHANGES: Final = {change.value: change for change in Change}
_ERROR: Final = "ERROR"

T = TypeVar("T")

_log = logging.getLogger(__name__)


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, Generic[T], frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: list[T] | None = None


class _Frame(msgspec.Struct, Generic[T], frozen=True, gc=False):
    type: str
    object: T


class _Named(msgspec.Struct, frozen=True):
    """As much of an object as is needed to speak of it."""

    metadata: ObjectMeta = ObjectMeta()


class Page(NamedTuple, Generic[ObjectT]):
    """What one request for a list brought."""

    items: list[ObjectT]
    resource_version: str
    continue_: str
    """Where the list goes on; empty where it does not."""


class Frames(NamedTuple, Generic[ObjectT]):
    """What a piece of a watch says: events, and then perhaps why it ends."""

    events: list[WatchEvent[ObjectT]]
    error: APIError | None


@cache
def _decoder(shape: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(shape)


def decode_page(kind: type[ObjectT], data: bytes | bytearray) -> Page[ObjectT]:
    """One page of a list.

    Raises:
        APIError: it is no list.
    """
    try:
        page = _decoder(cast(Any, _List)[kind]).decode(data)
        return Page(page.items or [], page.metadata.resource_version, page.metadata.continue_)
    except msgspec.ValidationError:
        pass
    except msgspec.DecodeError as error:
        raise _not_json(error) from error
    try:
        raw = _decoder(_List[msgspec.Raw]).decode(data)
    except msgspec.ValidationError as error:
        raise APIError(f"the answer is no list of {kind.__name__}: {error}") from error
    items = [item for part in raw.items or () if (item := _readable(kind, part)) is not None]
    return Page(items, raw.metadata.resource_version, raw.metadata.continue_)


def decode_object(kind: type[ObjectT], data: bytes) -> ObjectT:
    """One object.

    Raises:
        APIError: it is none of this kind.
    """
    try:
        return cast(ObjectT, _decoder(kind).decode(data))
    except msgspec.ValidationError:
        pass
    except msgspec.DecodeError as error:
        raise _not_json(error) from error
    try:
        return msgspec.convert(without_nulls(msgspec.json.decode(data)), kind)
    except msgspec.ValidationError as error:
        raise APIError(f"the answer is no {kind.__name__}: {error}") from error


def decode_frames(kind: type[ObjectT], lines: bytes) -> Frames[ObjectT]:
    """Whole lines of a watch. After an error nothing follows; what came before it counts."""
    try:
        frames = _decoder(cast(Any, _Frame)[kind]).decode_lines(lines)
    except msgspec.DecodeError:
        return _one_by_one(kind, lines)
    events: list[WatchEvent[ObjectT]] = []
    for frame in frames:
        change = _CHANGES.get(frame.type)
        if change is None:
            return _one_by_one(kind, lines)
        item = frame.object
        version = item.metadata.resource_version
        if not version:
            return _one_by_one(kind, lines)
        events.append(WatchEvent(change, item, version))
    return Frames(events, None)


def _one_by_one(kind: type[ObjectT], lines: bytes) -> Frames[ObjectT]:
    events: list[WatchEvent[ObjectT]] = []
    for line in lines.splitlines():
        if not line.strip():
            continue
        try:
            frame = _decoder(_Frame[msgspec.Raw]).decode(line)
            if frame.type == _ERROR:
                return Frames(events, error_of(_decoder(Status).decode(frame.object)))
            change = _CHANGES.get(frame.type)
            if change is None:
                _log.warning("watch of %s: unknown event %r is left out", kind.__name__, frame.type)
                continue
            event = _event(kind, change, frame.object)
            if not event.resource_version:
                # Whoever went on from there would go on from anywhere.
                _log.error("watch of %s: %s without resourceVersion is left out", kind.__name__, frame.type)
                continue
            events.append(event)
        except msgspec.DecodeError as error:
            return Frames(events, _not_json(error))
    return Frames(events, None)


def _event(kind: type[ObjectT], change: Change, raw: msgspec.Raw) -> WatchEvent[ObjectT]:
    item = _readable(kind, raw)
    if item is not None:
        return WatchEvent(change, item, item.metadata.resource_version)
    meta = _metadata(raw)
    if change is Change.DELETED:
        # Whoever has the object knows it as it was; without a uid this is taken for no newer version of it.
        known = ObjectMeta(name=meta.name, namespace=meta.namespace)
        return WatchEvent(change, kind(metadata=known), meta.resource_version)
    return WatchEvent(Change.BOOKMARK, None, meta.resource_version)


def _readable(kind: type[ObjectT], raw: msgspec.Raw) -> ObjectT | None:
    """The object, or None where it cannot be read; then it has been logged."""
    try:
        return cast(ObjectT, _decoder(kind).decode(raw))
    except msgspec.ValidationError:
        pass
    try:
        return msgspec.convert(without_nulls(msgspec.json.decode(raw)), kind)
    except msgspec.ValidationError as error:
        key = Object(metadata=_metadata(raw)).key
        _log.error("%s %s cannot be read and is left out: %s", kind.__name__, key, error)
        return None


def _metadata(raw: msgspec.Raw) -> ObjectMeta:
    """Name and version of an object, as far as they can be read."""
    try:
        meta: ObjectMeta = _decoder(_Named).decode(raw).metadata
        return meta
    except msgspec.ValidationError:
        found = msgspec.json.decode(raw)
    inner = found.get("metadata") if isinstance(found, dict) else None
    known = inner if isinstance(inner, dict) else {}
    name, namespace, version = (str(known.get(key) or "") for key in ("name", "namespace", "resourceVersion"))
    return ObjectMeta(name=name, namespace=namespace, resource_version=version)


def without_nulls(raw: Any) -> Any:
    """The same without fields that are null: in the API that means that they are absent."""
    if isinstance(raw, dict):
        return {key: without_nulls(value) for key, value in raw.items() if value is not None}
    if isinstance(raw, list):
        return [without_nulls(value) for value in raw if value is not None]
    return raw


def _not_json(error: msgspec.DecodeError) -> APIError:
    return APIError(f"the answer is no JSON: {error}")
