"""Lease (coordination.k8s.io/v1): who leads, and until when others have to believe it."""

from __future__ import annotations

from datetime import datetime

from bayplan.api.meta import Object, ObjectMeta, Record


class LeaseMeta(ObjectMeta, frozen=True):
    """Leases are written back whole, so what others put here has to stay."""

    finalizers: tuple[str, ...] = ()


class LeaseSpec(Record, frozen=True):
    """None is absent. An empty holder and no transition are said in so many words, as upstream does."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int | None = None


class Lease(Object, frozen=True):
    metadata: LeaseMeta = LeaseMeta()
    spec: LeaseSpec = LeaseSpec()
