"""Lease (coordination.k8s.io/v1): the current leader, and when its lease expires."""

from __future__ import annotations

from bayplan.api.meta import (
    Int32,
    Object,
    ObjectMeta,
    Record,
    Time,
)


class LeaseMeta(ObjectMeta, frozen=True):
    """Leases are written whole, so the changes of others have to be kept."""

    finalizers: tuple[str, ...] = ()


class LeaseSpec(Record, frozen=True):
    """None is absent. An empty holder and zero transitions are written explicitly, as upstream does."""

    holder_identity: str | None = None
    lease_duration_seconds: Int32 | None = None
    acquire_time: Time | None = None
    renew_time: Time | None = None
    lease_transitions: Int32 | None = None


class Lease(Object, frozen=True):
    metadata: LeaseMeta = LeaseMeta()
    spec: LeaseSpec = LeaseSpec()
