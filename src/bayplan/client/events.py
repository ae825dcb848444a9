"""Writes events, in an API version that the server supports.

events.k8s.io/v1 if the server has it when the first event is written, else core/v1 for the life of the
process. They have a client of their own (a rate limit and a User-Agent), as upstream: a backlog of events
must not delay bindings. `bayplan.scheduler.recorder` writes through `create_event` and `patch_event`.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from typing import Any, Final

import msgspec

from bayplan.api.event import Event
from bayplan.api.kinds import KINDS, Kind
from bayplan.client import bodies
from bayplan.client.requests import STRATEGIC_MERGE_PATCH, Requests
from bayplan.errors import APIError

_CORE_EVENTS: Final = Kind(Event, "events")

_log = logging.getLogger(__name__)


class EventWriter:
    """Writes events through a client of the API server."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._discovery: asyncio.Task[bool] | None = None

    async def create_event(self, event: Event) -> None:
        if await self._is_served():
            # Repeating it is safe: the second time the name already exists.
            await self._requests.send(
                "POST", KINDS.of(Event).collection(event.namespace), bodies.whole(event)
            )
        else:
            await self.create_core_event(event)

    async def create_core_event(self, event: Event) -> None:
        """In core/v1, whatever the server supports: events about leases have always used it."""
        await self._requests.send(
            "POST", _CORE_EVENTS.collection(event.namespace), bodies.encode(_core_event(event))
        )

    async def patch_event(self, event: Event) -> None:
        """Writes only the event's series."""
        series = event.series
        assert series is not None, "an event that was not repeated is created"
        if await self._is_served():
            resource, body = KINDS.of(Event), bodies.encode({"series": series})
        else:
            last = series.last_observed_time
            change = {"count": series.count, "lastTimestamp": _second(last), "message": event.note}
            resource, body = _CORE_EVENTS, bodies.encode(change)
        path = resource.item(event.name, event.namespace)
        await self._requests.send("PATCH", path, body, content_type=STRATEGIC_MERGE_PATCH)

    async def _is_served(self) -> bool:
        """Whether events.k8s.io/v1 is served. Requested once; concurrent writers share the response."""
        if self._discovery is None:
            self._discovery = asyncio.ensure_future(self._discover())
        if self._discovery.done():
            return self._discovery.result()
        return await asyncio.shield(self._discovery)

    async def _discover(self) -> bool:
        try:
            await self._requests.send("GET", KINDS.of(Event).root)
        except APIError as error:
            _log.info("writing core/v1 events because events.k8s.io/v1 is not available: %s", error)
            return False
        return True


def _core_event(event: Event) -> dict[str, Any]:
    at = _second(event.event_time)
    regarding = event.regarding
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": msgspec.to_builtins(event.metadata),
        "involvedObject": {} if regarding is None else msgspec.to_builtins(regarding),
        "reason": event.reason,
        "message": event.note,
        "type": event.type,
        "source": {"component": event.reporting_controller},
        "reportingComponent": event.reporting_controller,
        "reportingInstance": "",
        "firstTimestamp": at,
        "lastTimestamp": at if event.series is None else _second(event.series.last_observed_time),
        "count": 1 if event.series is None else event.series.count,
    }


def _second(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.replace(microsecond=0)
