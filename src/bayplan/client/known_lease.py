"""The lease as one candidate knows it: its holder, and when it last changed.

The times in a lease are by its holder's clock and are ignored. A lease that changes has a live holder; one
that has not changed for its duration is free.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from bayplan.api.lease import Lease, LeaseMeta, LeaseSpec


class KnownLease:
    """The lease as it was last read or written. `clock` is monotonic, in seconds."""

    def __init__(self, name: str, namespace: str, clock: Callable[[], float]) -> None:
        self.lease = Lease(metadata=LeaseMeta(name=name, namespace=namespace))
        """With the resourceVersion for the next write."""
        self.record = LeaseSpec()
        """Its contents."""
        self.observed_at = float("-inf")
        """When they last changed, by our clock."""
        self._read: tuple[object, ...] = ()
        """Its contents when it was last read, to the second."""
        self._clock = clock

    @property
    def holder(self) -> str:
        """Empty if it has no holder, or is not known yet."""
        return self.record.holder_identity or ""

    @property
    def is_valid(self) -> bool:
        return self.observed_at + (self.record.lease_duration_seconds or 0) > self._clock()

    def was_read(self, lease: Lease) -> None:
        self.lease = lease
        spec = lease.spec
        read = (
            spec.holder_identity or "",
            spec.lease_duration_seconds or 0,
            _to_the_second(spec.acquire_time),
            _to_the_second(spec.renew_time),
            spec.lease_transitions or 0,
        )
        if read != self._read:
            self._read = read
            self._changed(spec)

    def was_written(self, record: LeaseSpec, answer: Lease) -> None:
        self.lease = answer
        self._changed(record)

    def _changed(self, record: LeaseSpec) -> None:
        self.record = record
        self.observed_at = self._clock()


def _to_the_second(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.replace(microsecond=0)
