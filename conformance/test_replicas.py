"""Two `bayplan run` and one lease: one of them schedules, and the other takes over."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from conformance.harness.admin import Admin
from conformance.harness.control_plane import KUBE_SCHEDULER, ControlPlane
from conformance.harness.objects import node, pod
from conformance.harness.process import Process, wait_until
from conformance.harness.schedulers import configuration, start_bayplan, wait_until_synced

LEASE = {"leaderElect": True, "leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "500ms"}

numbers = itertools.count()


@pytest.fixture(autouse=True)
def clean(plane: ControlPlane) -> None:
    async def main() -> None:
        async with Admin(plane.access()) as admin:
            await admin.clear("Pod", "Node")
            if await admin.find("Lease", "kube-scheduler", "kube-system") is not None:
                await admin.delete("Lease", "kube-scheduler", "kube-system")
            await admin.create(node("n1"))

    asyncio.run(main())


@contextmanager
def replica(plane: ControlPlane, name: str) -> Iterator[Process]:
    """A process that has synced, and leads or waits to lead."""
    with start_bayplan(plane, configuration(plane, leaderElection=LEASE), name=name) as process:
        wait_until_synced(process)
        yield process


def holder(plane: ControlPlane) -> str:
    """The identity of the leader; empty if there is none."""
    path = "jsonpath={.spec.holderIdentity}"
    return plane.kubectl(
        "-n", "kube-system", "get", "lease", "kube-scheduler", "--ignore-not-found", "-o", path
    )


def wait_for_another_leader(plane: ControlPlane, than: str = "") -> str:
    wait_until(lambda: holder(plane) not in ("", than), "there is another leader", every=0.2)
    return holder(plane)


def schedules(plane: ControlPlane) -> bool:
    """A new pod is bound, by either replica."""
    name = f"p{next(numbers)}"

    async def main() -> bool:
        async with Admin(plane.access()) as admin, asyncio.timeout(30):
            await admin.create(pod(name, cpu="10m"))
            while "nodeName" not in (await admin.get("Pod", name, "default"))["spec"]:
                await asyncio.sleep(0.05)
            return True

    return asyncio.run(main())


def transitions(plane: ControlPlane) -> str:
    path = "jsonpath={.spec.leaseTransitions}"
    return plane.kubectl("-n", "kube-system", "get", "lease", "kube-scheduler", "-o", path)


def test_a_leader_that_is_stopped_hands_over(plane: ControlPlane) -> None:
    """It ends well, and its lease is free at once."""
    with replica(plane, "first") as first:
        leader = wait_for_another_leader(plane)
        with replica(plane, "second"):
            assert schedules(plane)
            assert holder(plane) == leader, "the second one waits"
            assert first.stop() == 0
            wait_for_another_leader(plane, than=leader)
            assert schedules(plane)


def test_a_killed_leader_is_replaced_when_its_lease_has_expired(plane: ControlPlane) -> None:
    with replica(plane, "first") as first:
        leader = wait_for_another_leader(plane)
        with replica(plane, "second"):
            first.kill()
            wait_for_another_leader(plane, than=leader)
            assert schedules(plane)


def test_a_leader_that_was_stopped_too_long_has_lost_and_ends(plane: ControlPlane) -> None:
    """It writes nothing while another replica holds the lease, and logs the reason of its exit."""
    with replica(plane, "first") as first:
        leader = wait_for_another_leader(plane)
        with replica(plane, "second"):
            first.signal(signal.SIGSTOP)
            second = wait_for_another_leader(plane, than=leader)
            first.signal(signal.SIGCONT)
            assert (first.wait(), "Leaderelection lost" in first.last_words()) == (1, True)
            assert schedules(plane)
            assert holder(plane) == second


def test_a_standby_that_ends_leaves_the_lease_alone(plane: ControlPlane) -> None:
    with replica(plane, "first"):
        leader = wait_for_another_leader(plane)
        with replica(plane, "second") as second:
            assert second.stop() == 0
        assert (holder(plane), transitions(plane)) == (leader, "0")


def test_no_request_of_all_this_was_rejected(plane: ControlPlane) -> None:
    """With no other roles than kube-scheduler's own, which every cluster has."""
    assert plane.forbidden(KUBE_SCHEDULER) == []
