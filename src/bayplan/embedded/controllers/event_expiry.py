"""Deletes events an hour after they were last change.

In kube-apiserver etcd does this. Here a controller checks every few minutes, which is enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import ClassVar, Final

import msgspec

from bayplan.embedded.controllers.cluster import ObjectChange, names_of
from bayplan.embedded.controllers.controller import Controller, KeyMapper
from bayplan.embedded.server.documents import Document
from bayplan.embedded.server.kinds import EVENTS, NAMESPACES, Resource
from bayplan.errors import NotFoundError

KEPT_SECONDS: Final = 3600.0
_PERIOD_SECONDS: Final = 300.0
_MAX_DELETED: Final = 500
"""Events deleted per call; the rest follow in the next one, so that other tasks run."""


class _Metadata(msgspec.Struct, rename="camel"):
    creation_timestamp: datetime


class _Series(msgspec.Struct, rename="camel"):
    last_observed_time: datetime | None = None


class _Event(msgspec.Struct, rename="camel"):
    """When an event was seen: which of these says so depends on who wrote it."""

    metadata: _Metadata
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    series: _Series | None = None


_decode = msgspec.json.Decoder(_Event).decode


class EventExpiry(Controller):
    """Deletes old events. It has one key, for all of them."""

    name: ClassVar = "event-expiry"

    def watches(self) -> dict[Resource, KeyMapper]:
        return {NAMESPACES: self._start}

    def _start(self, change: ObjectChange) -> Iterable[str]:
        """The first namespace starts it; a reconcile for each further one does no harm."""
        return ("",) if change.before is None else ()

    def reconcile(self, key: str) -> float | None:
        oldest = self.api.time() - KEPT_SECONDS
        old = [document.key for document in self.api.documents(EVENTS) if last_seen(document) < oldest]
        for event in old[:_MAX_DELETED]:
            with suppress(NotFoundError):
                self.api.delete(EVENTS, *names_of(event))
        return _PERIOD_SECONDS if len(old) <= _MAX_DELETED else 0.0


def last_seen(document: Document) -> float:
    event = _decode(document.body)
    series = event.series.last_observed_time if event.series is not None else None
    times = (series, event.last_timestamp, event.event_time, event.metadata.creation_timestamp)
    return max(time.timestamp() for time in times if time is not None)
