"""Event (events.k8s.io/v1): what the scheduler tells people about a pod."""

from __future__ import annotations

from datetime import datetime

from bayplan.api.meta import Object, ObjectReference, Record


class EventSeries(Record, frozen=True):
    """How often an event has been repeated, and when last."""

    count: int = 0
    last_observed_time: datetime | None = None


class Event(Object, frozen=True):
    event_time: datetime | None = None
    series: EventSeries | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
    action: str = ""
    reason: str = ""
    regarding: ObjectReference | None = None
    related: ObjectReference | None = None
    note: str = ""
    type: str = ""
