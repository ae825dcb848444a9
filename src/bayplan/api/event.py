"""Event (events.k8s.io/v1): what the scheduler reports about a pod."""

from __future__ import annotations

from bayplan.api.meta import (
    Int32,
    Object,
    ObjectReference,
    Record,
    Time,
)


class EventSeries(Record, frozen=True):
    """How often an event has been repeated, and when last."""

    count: Int32 = 0
    last_observed_time: Time | None = None


class Event(Object, frozen=True):
    event_time: Time | None = None
    series: EventSeries | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
    action: str = ""
    reason: str = ""
    regarding: ObjectReference | None = None
    related: ObjectReference | None = None
    note: str = ""
    type: str = ""
