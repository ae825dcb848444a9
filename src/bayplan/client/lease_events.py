"""Events about leases: a candidate became leader."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Protocol

from bayplan.api.event import Event
from bayplan.api.lease import Lease
from bayplan.api.meta import ObjectMeta, ObjectReference
from bayplan.errors import APIError

_log = logging.getLogger(__name__)


class LeaseEvents(Protocol):
    """The sink of these events (`EventWriter`)."""

    async def create_core_event(self, event: Event) -> None: ...


def lease_event(lease: Lease, note: str, component: str, now: float) -> Event:
    return Event(
        metadata=ObjectMeta(name=f"{lease.name}.{int(now * 1e9):x}", namespace=lease.namespace),
        event_time=datetime.fromtimestamp(now, UTC),
        reporting_controller=component,
        reason="LeaderElection",
        regarding=ObjectReference(
            kind="Lease",
            namespace=lease.namespace,
            name=lease.name,
            uid=lease.uid,
            api_version="coordination.k8s.io/v1",
            resource_version=lease.metadata.resource_version,
        ),
        note=note,
        type="Normal",
    )


async def write_event(events: LeaseEvents, event: Event) -> None:
    """Writes the event. Errors are only logged, because nothing waits for it."""
    try:
        await events.create_core_event(event)
    except APIError as error:
        _log.warning("cannot write event %r: %s", event.note, error)
