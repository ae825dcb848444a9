"""Deletes events an hour after they were last seen.

In kube-apiserver etcd does this. Here a controller checks every few minutes, which is enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import ClassVar, Final

import msgspec

from bayplan.embedded.controllers.cluster import Cluster, ObjectChange, names_of
from bayplan.embedded.controllers.controller import Controller, KeyMapper
from bayplan.embedded.server.documents import Document
from bayplan.embedded.server.kinds import EVENTS, NAMESPACES, Resource

KEPT_SECONDS: Final = 3600.0
_PERIOD_SECONDS: Final = 300.0
_MAX_CHECKED: Final = 200
"""Events checked per call; the rest follow in the next one, so that other tasks run."""


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

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._unchecked: list[str] = []
        """Keys of the events that are left to check in this period."""

    def watches(self) -> dict[Resource, KeyMapper]:
        return {NAMESPACES: self._start}

    def _start(self, change: ObjectChange) -> Iterable[str]:
        """The first namespace starts it; a reconcile for each further one does no harm."""
        return ("",) if change.before is None else ()

    def reconcile(self, key: str) -> float | None:
        oldest = self.api.time() - KEPT_SECONDS
        if not self._unchecked:
            self._unchecked = [document.key for document in self.api.documents(EVENTS)]
        some, self._unchecked = self._unchecked[:_MAX_CHECKED], self._unchecked[_MAX_CHECKED:]
        for event in some:
            document = self.api.store.find(EVENTS, event)
            if document is not None and last_seen(document) < oldest:
                self.api.delete(EVENTS, *names_of(event))
        return 0.0 if self._unchecked else _PERIOD_SECONDS


def last_seen(document: Document) -> float:
    event = _decode(document.body)
    series = event.series.last_observed_time if event.series is not None else None
    times = (series, event.last_timestamp, event.event_time, event.metadata.creation_timestamp)
    return max(time.timestamp() for time in times if time is not None)
