"""The kinds that the test server knows: those of the scheduler, and what else it writes."""

from __future__ import annotations

from datetime import datetime

from bayplan.api.decode import KINDS as READ
from bayplan.api.event import Event
from bayplan.api.meta import Object, Record


class LeaseSpec(Record, frozen=True):
    holder_identity: str = ""
    renew_time: datetime | None = None


class Lease(Object, frozen=True):
    spec: LeaseSpec = LeaseSpec()


KINDS: dict[str, type[Object]] = {**READ, "Event": Event, "Lease": Lease}
