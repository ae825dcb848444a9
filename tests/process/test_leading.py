"""Several replicas: one schedules, and what becomes of its lease."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from msgspec.structs import replace

from bayplan.api.cluster_api import Lease
from bayplan.errors import NotFoundError, ServerError
from bayplan.simulate.memory.store import MemoryStore
from bayplan.testing.builders import make_node, make_pod
from tests.client.http.api_server import ApiServer, ReceivedRequest, error_response, serving

from .running import bound, kubeconfig, play, scheduling, started, until

QUICK = (
    "--secure-port=0",
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=200ms",
)


def cluster() -> MemoryStore:
    store = MemoryStore()
    store.create(make_node("n", cpu="100", memory="100Gi"))
    store.create(make_pod("first"))
    return store


def holder(store: MemoryStore, name: str = "kube-scheduler") -> str | None:
    """The holder of the lease; None if there is none."""
    try:
        return store.get(Lease, name, "kube-system").spec.holder_identity
    except NotFoundError:
        return None


def test_a_standby_takes_over_from_a_leader_that_was_stopped(tmp_path: Path) -> None:
    """Both end with status 0, the standby takes the lease at once, and nothing is left held."""
    store = cluster()
    server = ApiServer(store)

    async def main() -> tuple[int, int]:
        async with scheduling(server, tmp_path, *QUICK) as leader:
            await until(lambda: "first" in bound(store), leader)
            leading = holder(store)
            config = kubeconfig(tmp_path, server.access.server)
            async with started(f"--kubeconfig={config}", *QUICK) as standby:
                await standby.wait_for_log(f"standing by: {leading} is the leader")
                leader.signal()
                first = await leader.end()
                await until(lambda: holder(store) not in (leading, ""), standby)
                store.create(make_pod("second"))
                await until(lambda: "second" in bound(store), standby)
                standby.signal()
                return first, await standby.end()

    assert play(main()) == (0, 0)
    assert holder(store) == ""


def test_a_standby_that_is_stopped_leaves_the_lease_alone(tmp_path: Path) -> None:
    store = cluster()
    server = ApiServer(store)

    async def main() -> int:
        async with scheduling(server, tmp_path, *QUICK) as leader:
            await until(lambda: bool(holder(store)), leader)
            leading = holder(store)
            config = kubeconfig(tmp_path, server.access.server)
            async with started(f"--kubeconfig={config}", *QUICK) as standby:
                await standby.wait_for_log("standing by")
                standby.signal()
                status = await standby.end()
            assert holder(store) == leading
            return status

    assert play(main()) == 0


def test_a_leader_that_cannot_renew_ends(tmp_path: Path) -> None:
    """With status 1 and kube-scheduler's message, and without another write."""
    store = cluster()

    async def main() -> tuple[int, str]:
        broken = False

        async def reject(received: ReceivedRequest) -> object:
            return (
                error_response(ServerError("etcd is away")) if broken and "/leases" in received.path else None
            )

        server = ApiServer(store, interfere=reject)  # type: ignore[arg-type]  # what error_response() makes
        async with scheduling(server, tmp_path, *QUICK) as run:
            await until(lambda: "first" in bound(store), run)
            broken = True
            return await run.end(), run.lines[-1]

    status, last = play(main())
    assert status == 1
    assert last.startswith("E")
    assert last.endswith('"Leaderelection lost"')


def test_a_leader_that_was_paused_for_too_long_writes_nothing_any_more(tmp_path: Path) -> None:
    """Meanwhile pods were created and another process leads: it sees both at once, its clock comes first."""
    store = cluster()
    server = ApiServer(store)
    quicker = ("--leader-elect-lease-duration=1s", "--leader-elect-renew-deadline=600ms")

    async def main() -> tuple[int, list[str]]:
        async with scheduling(server, tmp_path, *QUICK, *quicker) as run:
            await until(lambda: "first" in bound(store), run)
            run.signal(signal.SIGSTOP)
            await asyncio.sleep(1)
            lease = store.get(Lease, "kube-scheduler", "kube-system")
            other = replace(lease.spec, holder_identity="other", lease_duration_seconds=60)
            store.update(replace(lease, spec=other))
            for number in range(20):
                store.create(make_pod(f"late-{number}"))
            before = len(server.received)
            run.signal(signal.SIGCONT)
            status = await run.end()
            return status, [
                received.path for received in server.received[before:] if received.method != "GET"
            ]

    status, written = play(main())
    # One renewal may be tried with the version that it has, and fails.
    assert [path for path in written if "/leases" not in path] == []
    assert (status, bound(store), holder(store)) == (1, {"first": "n"}, "other")


def test_a_leader_may_delay_reading_the_cluster(tmp_path: Path) -> None:
    """delayCacheUntilActive: nothing is listed before there is a lease."""
    store = cluster()
    config = tmp_path / "config.yaml"

    async def main() -> list[str]:
        server = ApiServer(store)
        async with serving(server):
            access = kubeconfig(tmp_path, server.access.server)
            config.write_text(
                "apiVersion: kubescheduler.config.k8s.io/v1\n"
                "kind: KubeSchedulerConfiguration\n"
                "delayCacheUntilActive: true\n"
                f"clientConnection: {{kubeconfig: {access}}}\n"
            )
            async with started(f"--config={config}", *QUICK) as run:
                await until(lambda: "first" in bound(store), run)
        return [received.path for received in server.received]

    first, *paths = play(main())
    assert first == "/version"
    assert "/leases" in paths[0]
    assert paths.index("/api/v1/nodes") > 0
