"""Decodes the API server's JSON into records, without dictionaries in between.

Lists and watches are decoded at once. What does not fit (usually a null that means "absent") is split and
decoded object by object (`api/reading.py`): an object that can be read only in part becomes `Unreadable`, and
does not affect others.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

import msgspec

from bayplan.api.cluster_api import Change, ObjectT, WatchEvent
from bayplan.api.meta import Object
from bayplan.api.reading import Unreadable, read_object
from bayplan.client.api_errors import Status, error_of
from bayplan.errors import APIError

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


class Page(NamedTuple, Generic[ObjectT]):
    """The result of one list request."""

    items: list[ObjectT]
    resource_version: str
    continue_: str
    """Where the list continues; empty at its end."""


DECODE_ERRORS: Final = (msgspec.DecodeError, RecursionError)
"""What decoders raise for a response that is not JSON, or nested too deeply."""


class Frames(NamedTuple, Generic[ObjectT]):
    """A chunk of a watch: events, and then perhaps the error that ends it."""

    events: list[WatchEvent[ObjectT]]
    error: APIError | None


@cache
def _decoder(shape: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(shape)


@cache
def _frame_decoder(kind: type[Object]) -> msgspec.json.Decoder[Any]:
    """Every watch event needs it, and subscripting a type takes longer than looking it up."""
    return msgspec.json.Decoder(cast(Any, _Frame)[kind])


def decode_page(kind: type[ObjectT], data: bytes | bytearray) -> Page[ObjectT]:
    """One page of a list.

    Raises:
        APIError: it is not a list.
    """
    try:
        page = _decoder(cast(Any, _List)[kind]).decode(data)
        if all(item.metadata.name for item in page.items or ()):
            return Page(page.items or [], page.metadata.resource_version, page.metadata.continue_)
    except msgspec.ValidationError:
        pass
    except DECODE_ERRORS as error:
        raise _not_json(error) from error
    try:
        raw = _decoder(_List[msgspec.Raw]).decode(data)
    except msgspec.ValidationError as error:
        raise APIError(f"the response is not a list of {kind.__name__}: {error}") from error
    except msgspec.DecodeError as error:
        # The first decoder stops at the first value that does not fit; invalid JSON may follow it.
        raise _not_json(error) from error
    items = [item for part in raw.items or () if (item := _read(kind, part)) is not None]
    return Page(items, raw.metadata.resource_version, raw.metadata.continue_)


def decode_object(kind: type[ObjectT], data: bytes) -> ObjectT:
    """One object.

    Raises:
        APIError: it is not an object of this kind.
    """
    try:
        item = read_object(kind, data)
    except msgspec.ValidationError as error:
        raise APIError(f"the response is not a {kind.__name__}: {error}") from error
    except DECODE_ERRORS as error:
        raise _not_json(error) from error
    if isinstance(item, Unreadable):
        raise APIError(f"the response is not a {kind.__name__}: {item.fields[0]}: {item.problem}")
    return item


def decode_frames(kind: type[ObjectT], lines: bytes) -> Frames[ObjectT]:
    """Whole lines of a watch. Nothing follows an error; the events before it are valid."""
    try:
        frames = _frame_decoder(kind).decode_lines(lines)
    except DECODE_ERRORS:
        return _one_by_one(kind, lines)
    events: list[WatchEvent[ObjectT]] = []
    for frame in frames:
        change = _CHANGES.get(frame.type)
        if change is None:
            return _one_by_one(kind, lines)
        item = frame.object
        version = item.metadata.resource_version
        if not version or (not item.metadata.name and change is not Change.BOOKMARK):
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
                _log.warning("watch of %s: ignoring unknown event %r", kind.__name__, frame.type)
                continue
            event = _event(kind, change, frame.object)
            if event is None:
                continue
            if not event.resource_version:
                # The next watch could not continue from it.
                _log.error(
                    "watch of %s: ignoring %s event without resourceVersion", kind.__name__, frame.type
                )
                continue
            events.append(event)
        except DECODE_ERRORS as error:
            return Frames(events, _not_json(error))
    return Frames(events, None)


def _event(kind: type[ObjectT], change: Change, raw: msgspec.Raw) -> WatchEvent[ObjectT] | None:
    """None if it is ignored."""
    item = _read(kind, raw, is_named=change is not Change.BOOKMARK)
    if item is None:
        return None
    return WatchEvent(change, item, item.metadata.resource_version)


def _read(kind: type[ObjectT], raw: msgspec.Raw, *, is_named: bool = True) -> ObjectT | None:
    """The object, or an `Unreadable` in its place; None for what is not an object, which is logged.

    Without a name it is not an object of the cluster: no pod could be bound to such a node.
    """
    try:
        item = read_object(kind, raw)
    except DECODE_ERRORS as error:
        _log.error("ignoring something that is not a %s: %s", kind.__name__, error)
        return None
    if is_named and not item.name:
        why = f": {item.fields[0]}: {item.problem}" if isinstance(item, Unreadable) else ""
        _log.error("ignoring a %s without a name%s", kind.__name__, why)
        return None
    return cast(ObjectT, item)


def _not_json(error: Exception) -> APIError:
    return APIError(f"the response is not JSON: {error}")
