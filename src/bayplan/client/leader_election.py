"""Leader election: one of several schedulers is active, and the Lease says which.

    acquire ─► attempt ── fails: again in 2 to 4.4 s ──┐      attempt, as long as it is ours and valid:
                  ▲ └─────────────────────────────────┘        1. PUT what we wrote last (its version guards)
                  │ works                                      or that failed:
    hold ────► attempt, at once and then every 2 s             2. GET; none there: POST
                  │ fails: again every 2 s, for 10 s           3. held by another and valid: fails
                  ▼                                            4. PUT
    lost: released if it can be, LeadershipLostError

Clocks of different machines are never compared: the times in a lease are by its holder's clock, and are
ignored. The lease of another is valid if *we* have seen a change recently (`KnownLease`); one that has not
changed for its duration is free. Ours is valid by the time when we began to write it (`may_write`): others
cannot have seen it earlier, so they wait at least as long. `requests.py` checks `may_write` right before each
write.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

from msgspec.structs import replace

from bayplan.api.cluster_api import Event, Lease, LeaseMeta, LeaseSpec, ObjectT
from bayplan.api.meta import Object, ObjectMeta, ObjectReference
from bayplan.client.api_errors import OnceLogger, explained
from bayplan.client.http import KubernetesCluster
from bayplan.client.requests import Connections
from bayplan.errors import APIError, BayplanError, ConfigError, ConflictError, NotFoundError
from bayplan.metrics.instruments import Gauge

JITTER: Final = 1.2
"""How much longer than retryPeriod a standby may wait, as a fraction; spreads standbys."""
TOLERATED_SECONDS: Final = 20.0
"""How long after its lease has expired a leader that neither renews it nor stops is unhealthy."""
RELEASE_RETRY_SECONDS: Final = 0.05
LOST: Final = "Leaderelection lost"

_log = logging.getLogger(__name__)


class LeadershipLostError(BayplanError):
    """The lease could not be renewed: another candidate may be the leader now, so this process must end."""


class Leases(Protocol):
    """Where the lease is stored: the part of a `ClusterAPI` that is used here.

    Over HTTP it is a client of its own (`lease_client`), so that nothing else delays a renewal.
    """

    async def get(self, kind: type[ObjectT], name: str, namespace: str = "") -> ObjectT: ...
    async def create(self, item: Object) -> Object: ...
    async def update(self, item: Object) -> Object: ...


@dataclass(frozen=True, slots=True)
class ElectionSettings:
    """`leaderElection` of the configuration, in seconds."""

    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    namespace: str = "kube-system"
    name: str = "kube-scheduler"

    @property
    def request_seconds(self) -> float:
        """Timeout of a request about the lease, so that there is time for another."""
        return max(1.0, self.renew_deadline / 2)

    def check(self) -> None:
        """Raises:
        ConfigError: no candidate could lead with these.
        """
        problem = ""
        if self.lease_duration <= self.renew_deadline:
            problem = "leaseDuration must be greater than renewDeadline"
        elif self.renew_deadline <= self.retry_period * JITTER:
            problem = "renewDeadline must be greater than retryPeriod*JitterFactor"
        elif self.lease_duration <= 0:
            problem = "leaseDuration must be greater than zero"
        elif self.renew_deadline <= 0:
            problem = "renewDeadline must be greater than zero"
        elif self.retry_period <= 0:
            problem = "retryPeriod must be greater than zero"
        if problem:
            raise ConfigError(f"couldn't create leader elector: {problem}")


def make_identity() -> str:
    """The identity of a candidate: unique to this process."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


def lease_client(connections: Connections, settings: ElectionSettings) -> KubernetesCluster:
    """A client only for the lease: connections and User-Agent of its own, and no rate limit.

    However many writes are queued, a renewal does not wait for them.
    """
    return KubernetesCluster(
        connections, qps=-1, component="leader-election", request_seconds=settings.request_seconds
    )


class LeaderElection:
    """A candidate.

    Args:
        leases: where the lease is stored.
        settings: `leaderElection` of the configuration.
        identity: of this candidate (`make_identity`).
        component: the reporting component of events; the first profile's name.
        events: gets an event when we become leader, unless it is None.
        status: set to 1 while we lead (leader_election_master_status).
        now: seconds since the epoch, for the times in the lease.
        clock: monotonic seconds, for durations. Not the loop's clock: in some loops it does not advance
            during a step, in the middle of which the process may be paused.
        rng: for the time that a standby waits.
    """

    def __init__(
        self,
        leases: Leases,
        settings: ElectionSettings,
        identity: str,
        *,
        component: str = "default-scheduler",
        events: LeaseEvents | None = None,
        status: Gauge | None = None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        settings.check()
        self.settings = settings
        self.identity = identity
        self._leases = leases
        self._component = component
        self._events = events
        self._status = status or Gauge()
        self._now = now
        self._clock = clock
        self._rng = rng or random.Random()
        self._problems = OnceLogger(_log)
        self._name = f"{settings.namespace}/{settings.name}"
        self._known = KnownLease(settings.name, settings.namespace, clock)
        self._written_at = (float("-inf"), float("-inf"))
        """When we began to write the currently valid lease, by both clocks."""
        self._event_tasks: set[asyncio.Task[None]] = set()
        self._status.set(0)

    # The leader

    @property
    def leader(self) -> str:
        """The identity of the leader as last known; empty if there is none."""
        return self._known.holder

    @property
    def is_leader(self) -> bool:
        """Whether the lease was ours when we last saw it. `may_write` tells whether it is still valid."""
        return self.leader == self.identity

    def may_write(self) -> bool:
        """Whether no other candidate can have become leader meanwhile.

        Both clocks are checked, because the monotonic one may not advance while a machine is suspended.
        """
        clock, wall = self._written_at
        seconds = self._seconds
        return self.is_leader and self._clock() - clock < seconds and self._now() - wall < seconds

    def why_unhealthy(self, tolerated_seconds: float = TOLERATED_SECONDS) -> str | None:
        """The problem of a leader whose lease expired a while ago without being noticed; else None."""
        late = self._clock() - self._known.observed_at > self.settings.lease_duration + tolerated_seconds
        if not (self.is_leader and late):
            return None
        return f"failed election to renew leadership on lease {self.settings.name}"

    # Becoming and staying leader

    async def acquire(self) -> None:
        """Waits until we lead. Cancelling does not change the lease."""
        _log.info("attempting to acquire leader lease %s...", self._name)
        logged_leader = ""
        while not await self._attempt():
            if self.leader not in ("", logged_leader):
                logged_leader = self.leader
                _log.info("standing by: %s is the leader", logged_leader)
            await asyncio.sleep(self.settings.retry_period * (1 + JITTER * self._rng.random()))
        _log.info("successfully acquired lease %s", self._name)
        self._status.set(1)
        self._write_event("became leader")

    async def hold(self) -> None:
        """Renews the lease until it is lost. Cancel it when the work is done, and then call `release`.

        Raises:
            LeadershipLostError: we no longer lead; the lease has been released if that was possible.
        """
        while await self._renew():
            await asyncio.sleep(self.settings.retry_period)
        self._status.set(0)
        _log.error("failed to renew lease %s within %g s", self._name, self.settings.renew_deadline)
        await self.release()
        raise LeadershipLostError(LOST)

    async def release(self) -> bool:
        """Releases the lease, so that another candidate can acquire it at once. False if that failed.

        `may_write` is False from the beginning. Does nothing if we do not lead.
        """
        self._status.set(0)
        self._written_at = (float("-inf"), float("-inf"))
        if not self.is_leader:
            return True
        try:
            async with asyncio.timeout(self.settings.renew_deadline):
                while not await self._try_release():
                    await asyncio.sleep(RELEASE_RETRY_SECONDS)
        except (APIError, TimeoutError) as error:
            _log.warning("cannot release lease %s: %s", self._name, error or "no response in time")
            return False
        return True

    async def _try_release(self) -> bool:
        """False if the lease was changed meanwhile, perhaps by an abandoned renewal of our own."""
        lease = await self._get()
        if lease.spec.holder_identity != self.identity:
            # Upstream uses the lease as it last saw it, and may so remove a new leader.
            self._known.was_read(lease)
            return True
        moment = self._moment()
        record = LeaseSpec(
            holder_identity="",
            lease_duration_seconds=1,
            acquire_time=moment,
            renew_time=moment,
            lease_transitions=self._known.record.lease_transitions,
        )
        try:
            await self._put(record, lease)
        except ConflictError:
            return False
        _log.info("released lease %s", self._name)
        return True

    async def _renew(self) -> bool:
        """Tries at once and then every retryPeriod, until it succeeds or renewDeadline has passed."""
        loop, period = asyncio.get_running_loop(), self.settings.retry_period
        next_try = loop.time() + period
        try:
            async with asyncio.timeout(self.settings.renew_deadline):
                while not await self._attempt():
                    await asyncio.sleep(max(next_try - loop.time(), 0.0))
                    next_try = max(next_try + period, loop.time())
        except TimeoutError:
            return False
        return True

    async def _attempt(self) -> bool:
        """Tries once to become or stay leader."""
        began = (self._clock(), self._now())
        moment = self._moment()
        record = LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=self._seconds,
            acquire_time=moment,
            renew_time=moment,
            lease_transitions=0,
        )
        if self.is_leader and self._known.is_valid:
            try:
                await self._put(self._continued(record), self._known.lease)
            except APIError as error:
                _log.info("cannot renew lease %s at once, reading it first: %s", self._name, error)
            else:
                return self._succeeded(began)
        try:
            try:
                lease = await self._get()
            except NotFoundError:
                await self._post(record)
                return self._succeeded(began)
            self._known.was_read(lease)
            if self.is_leader:
                record = self._continued(record)
            elif self.leader and self._known.is_valid:
                self._problems.resolved(f"lease {self._name} can be read again")
                return False
            else:
                record = replace(record, lease_transitions=(self._known.record.lease_transitions or 0) + 1)
            await self._put(record, lease)
        except APIError as error:
            self._problems.log(f"cannot acquire or renew lease {self._name}: {explained(error)}")
            return False
        return self._succeeded(began)

    def _continued(self, record: LeaseSpec) -> LeaseSpec:
        """The same lease, renewed: acquireTime stays."""
        known = self._known.record
        return replace(record, acquire_time=known.acquire_time, lease_transitions=known.lease_transitions)

    def _succeeded(self, began: tuple[float, float]) -> bool:
        self._written_at = began
        self._problems.resolved(f"lease {self._name} can be written again")
        return True

    @property
    def _seconds(self) -> int:
        """leaseDuration as written: whole seconds."""
        return int(self.settings.lease_duration)

    def _moment(self) -> datetime:
        return datetime.fromtimestamp(self._now(), UTC)

    # Requests

    async def _get(self) -> Lease:
        return await self._leases.get(Lease, self.settings.name, self.settings.namespace)

    async def _post(self, record: LeaseSpec) -> None:
        meta = LeaseMeta(name=self.settings.name, namespace=self.settings.namespace)
        self._written(record, await self._leases.create(Lease(metadata=meta, spec=record)))

    async def _put(self, record: LeaseSpec, lease: Lease) -> None:
        self._written(record, await self._leases.update(replace(lease, spec=record)))

    def _written(self, record: LeaseSpec, answer: Object) -> None:
        assert isinstance(answer, Lease)
        self._known.was_written(record, answer)

    def _write_event(self, what: str) -> None:
        """Writes an event about the lease in the background. As upstream, there is none when we stop leading,
        because the process would end before it is written."""
        if self._events is None:
            return
        event = lease_event(self._known.lease, f"{self.identity} {what}", self._component, self._now())
        task = asyncio.ensure_future(write_event(self._events, event))
        self._event_tasks.add(task)
        task.add_done_callback(self._event_tasks.discard)


# The lease as one candidate knows it


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


# Events


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
