"""The kinds that the test server knows: those of the scheduler, and what else it writes."""

from __future__ import annotations

from bayplan.api.decode import KINDS as READ
from bayplan.api.event import Event
from bayplan.api.lease import Lease
from bayplan.api.meta import Object

KINDS: dict[str, type[Object]] = {**READ, "Event": Event, "Lease": Lease}
