"""Leader election in virtual time, with everything that can go wrong on the way to the lease."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar

import pytest
from msgspec.structs import replace

from bayplan.api.cluster_api import Lease, LeaseSpec
from bayplan.client.leader_election import ElectionSettings, LeaderElection, make_identity
from bayplan.errors import APIError, ConfigError, ConflictError, ServerError, UnknownOutcomeError
from bayplan.metrics.instruments import Gauge
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.simulate.virtual_time import DEFAULT_EPOCH, current_loop, run_virtual

from .candidates import SETTINGS, Candidate, Leases, lease_of, put_lease

T = TypeVar("T")

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def live(act: Callable[[MemoryStore], Awaitable[T]]) -> T:
    """The result of a life around an empty store."""

    async def main() -> T:
        return await act(MemoryStore(clock=current_loop().wall_time))

    return run_virtual(main())


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(DEFAULT_EPOCH + seconds, UTC)


def held_by(name: str, *, seconds: int = 15, renewed: datetime = LONG_AGO) -> LeaseSpec:
    return LeaseSpec(
        holder_identity=name,
        lease_duration_seconds=seconds,
        acquire_time=LONG_AGO,
        renew_time=renewed,
        lease_transitions=4,
    )


# What is written


def test_the_first_makes_the_lease() -> None:
    async def life(store: MemoryStore) -> LeaseSpec:
        Candidate(store, "a")
        await asyncio.sleep(0.1)
        return lease_of(store)

    assert live(life) == LeaseSpec(
        holder_identity="a",
        lease_duration_seconds=15,
        acquire_time=at(0),
        renew_time=at(0),
        lease_transitions=0,
    )


def test_a_leader_renews_every_two_seconds_and_stays_leader_since_it_became_it() -> None:
    async def life(store: MemoryStore) -> tuple[LeaseSpec, list[tuple[float, str]]]:
        candidate = Candidate(store, "a")
        await asyncio.sleep(6.5)
        return lease_of(store), candidate.leases.requests

    lease, requests = live(life)
    assert lease == LeaseSpec(
        holder_identity="a",
        lease_duration_seconds=15,
        acquire_time=at(0),
        renew_time=at(6),
        lease_transitions=0,
    )
    # The first renewal follows at once, as upstream.
    assert requests == [(0, "get"), (0, "create"), (0, "update"), (2, "update"), (4, "update"), (6, "update")]


@pytest.mark.parametrize(
    ("lease", "earliest", "latest"),
    [
        pytest.param(held_by(""), 0, 0, id="a lease that was released is taken at once"),
        pytest.param(
            held_by("z"), 15, 19.4, id="its times are of another clock: it is valid for as long as seen"
        ),
        pytest.param(held_by("z", renewed=at(1e6)), 15, 19.4, id="also where they lie in the future"),
        pytest.param(held_by("z", seconds=40), 40, 44.4, id="its own duration counts"),
        pytest.param(LeaseSpec(), 0, 0, id="an empty lease has no holder"),
        pytest.param(held_by("a"), 0, 0, id="one's own lease from before is taken up"),
    ],
)
def test_a_lease_that_is_not_renewed_is_taken_over(lease: LeaseSpec, earliest: float, latest: float) -> None:
    async def life(store: MemoryStore) -> tuple[float, LeaseSpec]:
        put_lease(store, lease)
        candidate = Candidate(store, "a")
        await asyncio.sleep(60)
        return candidate.led[0], lease_of(store)

    when, taken = live(life)
    assert earliest <= when <= latest
    own = lease.holder_identity == "a"
    assert taken.holder_identity == "a"
    assert taken.lease_transitions == (4 if own else (lease.lease_transitions or 0) + 1)
    assert taken.acquire_time == (LONG_AGO if own else at(when))


def test_a_standby_reads_the_lease_every_two_to_four_and_a_half_seconds() -> None:
    async def life(store: MemoryStore) -> list[float]:
        Candidate(store, "a")
        standby = Candidate(store, "b")
        await asyncio.sleep(200)
        return [when for when, _ in standby.leases.requests]

    times = live(life)
    waits = [after - before for before, after in itertools.pairwise(times[1:])]
    assert min(waits) >= 2
    assert max(waits) <= 4.4
    assert len({round(wait, 3) for wait in waits}) > 10


# Losing it


async def _rejected(verb: str) -> None:
    raise ServerError("etcdserver: leader changed", 500)


async def _hangs(verb: str) -> None:
    await asyncio.sleep(5)
    raise UnknownOutcomeError("no answer")


async def _never(verb: str) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("trouble", "seconds", "lost"),
    [
        pytest.param(_rejected, 9, False, id="errors for less than the deadline are survived"),
        pytest.param(_rejected, 30, True, id="errors for longer are not"),
        pytest.param(_hangs, 5, False, id="requests without an answer are given up and made again"),
        pytest.param(_never, 30, True, id="nor does a request that hangs keep the deadline from passing"),
    ],
)
def test_a_leader_that_cannot_renew_for_ten_seconds_is_none(
    trouble: Callable[[str], Awaitable[None]], seconds: float, lost: bool
) -> None:
    async def life(store: MemoryStore) -> float | None:
        candidate = Candidate(store, "a")
        await asyncio.sleep(5)
        candidate.leases.interfere = trouble
        await asyncio.sleep(seconds)
        candidate.leases.interfere = None
        await asyncio.sleep(60)
        return candidate.lost_at

    lost_at = live(life)
    # The renewal at 6 s is the first that fails, and the release is tried for another ten.
    assert lost_at is None if not lost else lost_at is not None and 16 <= lost_at <= 26


def test_after_a_conflict_the_lease_is_read_again() -> None:
    """A write to the lease, of a label perhaps: it is read again and renewed."""

    async def life(store: MemoryStore) -> tuple[float | None, str | None, bool]:
        candidate = Candidate(store, "a")
        await asyncio.sleep(5)
        lease = store.get(Lease, SETTINGS.name, SETTINGS.namespace)
        store.update(Lease(metadata=lease.metadata, spec=held_by("a", renewed=at(5))))
        await asyncio.sleep(5)
        return candidate.lost_at, lease_of(store).holder_identity, candidate.election.may_write()

    assert live(life) == (None, "a", True)


def test_a_lease_that_was_deleted_is_made_again() -> None:
    async def life(store: MemoryStore) -> tuple[str | None, bool]:
        candidate = Candidate(store, "a")
        await asyncio.sleep(5)
        store.delete(Lease, SETTINGS.name, SETTINGS.namespace)
        await asyncio.sleep(5)
        return lease_of(store).holder_identity, candidate.election.may_write()

    assert live(life) == ("a", True)


# Giving it back


@pytest.mark.parametrize("conflicts", [1, 5, None], ids=["once", "several times", "always"])
def test_a_release_is_repeated_on_conflict(conflicts: int | None, caplog: pytest.LogCaptureFixture) -> None:
    """Another client writes to the lease between reading and writing, until renewDeadline."""

    async def life(store: MemoryStore) -> tuple[bool, str | None, float]:
        left = conflicts

        async def write(verb: str) -> None:
            nonlocal left
            if verb == "update" and is_releasing and left != 0:
                left = None if left is None else left - 1
                lease = store.get(Lease, SETTINGS.name, SETTINGS.namespace)
                changed = replace(lease.spec, lease_transitions=(lease.spec.lease_transitions or 0) + 1)
                store.update(Lease(metadata=lease.metadata, spec=changed))

        is_releasing = False
        candidate = Candidate(store, "a", write)
        await asyncio.sleep(5)
        started = asyncio.get_running_loop().time()
        is_releasing = True
        worked = await candidate.election.release()
        return worked, lease_of(store).holder_identity, asyncio.get_running_loop().time() - started

    worked, holder, seconds = live(life)
    if conflicts is None:
        assert (worked, holder, seconds) == (False, "a", SETTINGS.renew_deadline)
        assert "cannot release lease" in caplog.text
    else:
        assert (worked, holder) == (True, "")
        assert seconds < 1


def test_a_leader_that_stops_hands_over() -> None:
    async def life(store: MemoryStore) -> tuple[LeaseSpec, float, LeaseSpec]:
        first = Candidate(store, "a")
        await asyncio.sleep(5)
        second = Candidate(store, "b")
        await asyncio.sleep(5)
        await first.stop()
        released = lease_of(store)
        await asyncio.sleep(10)
        return released, second.led[0], lease_of(store)

    released, taken_at, taken = live(life)
    assert released == LeaseSpec(
        holder_identity="",
        lease_duration_seconds=1,
        acquire_time=at(10),
        renew_time=at(10),
        lease_transitions=0,
    )
    assert 10 <= taken_at <= 14.4
    assert (taken.holder_identity, taken.lease_transitions) == ("b", 1)


def test_a_standby_that_stops_leaves_the_lease_alone() -> None:
    async def life(store: MemoryStore) -> tuple[int, int]:
        Candidate(store, "a")
        standby = Candidate(store, "b")
        await asyncio.sleep(5)
        before = len(standby.leases.requests)
        await standby.stop()
        return before, len(standby.leases.requests)

    before, after = live(life)
    assert before == after > 0


def test_a_process_that_lost_the_lease_does_not_take_it_from_the_new_leader() -> None:
    """Upstream compares with what it saw last, and would."""

    async def life(store: MemoryStore) -> str | None:
        late = Candidate(store, "a")
        await asyncio.sleep(5)
        await late.kill()
        Candidate(store, "b")
        await asyncio.sleep(30)
        assert late.election.leader == "a"
        await late.election.release()
        return lease_of(store).holder_identity

    assert live(life) == "b"


def test_a_renewal_that_was_given_up_and_comes_through_does_not_keep_the_lease() -> None:
    """It was sent when the process was stopped, and arrives between reading and giving back."""

    async def life(store: MemoryStore) -> str | None:
        candidate = Candidate(store, "a")
        await asyncio.sleep(5)
        written = False

        async def renewal_arrives(verb: str) -> None:
            nonlocal written
            if verb == "get, answered" and not written:
                written = True
                lease = store.get(Lease, SETTINGS.name, SETTINGS.namespace)
                store.update(Lease(metadata=lease.metadata, spec=held_by("a", renewed=at(5))))

        candidate.leases.interfere = renewal_arrives
        await candidate.stop()
        assert written
        return lease_of(store).holder_identity

    assert live(life) == ""


@pytest.mark.parametrize("trouble", [_rejected, _never], ids=["is rejected", "hangs"])
def test_a_release_that_does_not_work_ends_all_the_same(
    trouble: Callable[[str], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    async def life(store: MemoryStore) -> tuple[float, bool]:
        candidate = Candidate(store, "a")
        await asyncio.sleep(5)
        candidate.leases.interfere = trouble
        await candidate.stop()
        return asyncio.get_running_loop().time(), candidate.election.may_write()

    ended, may_write = live(life)
    assert ended <= 5 + SETTINGS.renew_deadline
    assert not may_write
    assert "cannot release lease kube-system/kube-scheduler" in caplog.text


# Who may write (that no other process does: http/test_leases.py)


def test_a_lease_counts_from_when_it_was_requested() -> None:
    """Not from the response: another process may have seen the lease before the response arrived."""

    async def slowly(verb: str) -> None:
        await asyncio.sleep(4 if verb == "create, answered" else 0)

    async def life(store: MemoryStore) -> tuple[bool, bool]:
        loop = current_loop()
        leases = Leases(store, slowly)
        election = LeaderElection(leases, SETTINGS, "a", now=loop.wall_time, clock=loop.time)
        await election.acquire()
        await asyncio.sleep(10)
        before = election.may_write()
        await asyncio.sleep(1)
        return before, election.may_write()

    assert live(life) == (True, False)


def test_a_process_that_finds_another_leader_writes_no_more() -> None:
    """Even before its own lease has run out, as when the lease was edited by hand."""

    async def life(store: MemoryStore) -> tuple[bool, str, float | None]:
        candidate = Candidate(store, "a")
        await asyncio.sleep(5)
        lease = store.get(Lease, SETTINGS.name, SETTINGS.namespace)
        store.update(Lease(metadata=lease.metadata, spec=held_by("z", seconds=60, renewed=at(5))))
        await asyncio.sleep(2)
        answer = candidate.election.may_write()
        await asyncio.sleep(20)
        return answer, candidate.election.leader, candidate.lost_at

    may_write, leader, lost_at = live(life)
    assert (may_write, leader) == (False, "z")
    assert lost_at == 16


@pytest.mark.parametrize("seed", range(12))
def test_never_may_two_write(seed: int) -> None:
    """Whatever is rejected, lost or slow, whichever process dies: one leader at a time, one before long."""
    rng = random.Random(seed)

    async def trouble(verb: str) -> None:
        await asyncio.sleep(rng.choice((0, 0.01, 0.5, 3)))
        if rng.random() < 0.3:
            raise rng.choice((ServerError("500"), UnknownOutcomeError("lost"), ConflictError("409")))

    async def life(store: MemoryStore) -> tuple[int, int]:
        candidates = [Candidate(store, f"c{number}", trouble) for number in range(3)]
        most = leaders = 0
        for second in range(1200):
            await asyncio.sleep(0.5)
            writing = sum(candidate.election.may_write() for candidate in candidates)
            most, leaders = max(most, writing), leaders + writing
            if second % 100 == 99:
                victim = rng.randrange(3)
                await rng.choice((candidates[victim].kill, candidates[victim].stop))()
                candidates[victim] = Candidate(store, f"c{victim}-{second}", trouble)
            for index, candidate in enumerate(candidates):
                if candidate.lost_at is not None:  # the process ended, and another is started
                    candidates[index] = Candidate(store, f"c{index}-{second}", trouble)
        return most, leaders

    most, leaders = live(life)
    assert most == 1
    assert leaders > 300


# What is seen of it


def test_a_leader_past_its_lease_is_unhealthy() -> None:
    async def life(store: MemoryStore) -> list[str | None]:
        loop = current_loop()
        election = LeaderElection(MemoryCluster(store), SETTINGS, "a", now=loop.wall_time, clock=loop.time)
        seen = [election.why_unhealthy()]
        await election.acquire()
        for seconds in (15, 20, 1):
            await asyncio.sleep(seconds)
            seen.append(election.why_unhealthy())
        return seen

    assert live(life) == [
        None,
        None,
        None,
        "failed election to renew leadership on lease kube-scheduler",
    ]


def test_the_gauge_shows_the_leader() -> None:
    async def life(store: MemoryStore) -> list[float]:
        loop, gauge = current_loop(), Gauge()
        gauge.set(7)
        election = LeaderElection(
            MemoryCluster(store), SETTINGS, "a", status=gauge, now=loop.wall_time, clock=loop.time
        )
        seen = [gauge.value]
        await election.acquire()
        seen.append(gauge.value)
        await election.release()
        return [*seen, gauge.value]

    assert live(life) == [0, 1, 0]


def test_the_same_trouble_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    async def forbidden(verb: str) -> None:
        raise APIError('leases.coordination.k8s.io "kube-scheduler" is forbidden', 403)

    async def life(store: MemoryStore) -> None:
        candidate = Candidate(store, "a", forbidden)
        await asyncio.sleep(60)
        candidate.leases.interfere = None
        await asyncio.sleep(10)

    with caplog.at_level("INFO"):
        live(life)
    assert caplog.text.count("is forbidden") == 1
    assert "can be written again" in caplog.text


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        pytest.param(
            ElectionSettings(10, 10, 2), "leaseDuration must be greater than renewDeadline", id="lease"
        ),
        pytest.param(
            ElectionSettings(15, 10, 9),
            "renewDeadline must be greater than retryPeriod*JitterFactor",
            id="retry",
        ),
        pytest.param(ElectionSettings(15, 10, 0), "retryPeriod must be greater than zero", id="zero"),
    ],
)
def test_settings_under_which_no_process_could_lead_are_rejected(
    settings: ElectionSettings, problem: str
) -> None:
    with pytest.raises(ConfigError) as rejected:
        LeaderElection(MemoryCluster(MemoryStore()), settings, "a")
    assert str(rejected.value) == f"couldn't create leader elector: {problem}"


def test_no_two_processes_are_the_same() -> None:
    first, second = make_identity(), make_identity()
    assert first != second
    assert first.rpartition("_")[0] == second.rpartition("_")[0] != ""
