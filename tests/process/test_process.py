"""A scheduler as a process: what it does from its start to its end, seen from outside."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from bayplan.api.cluster_api import Event
from bayplan.api.kinds import KINDS
from bayplan.errors import APIError
from bayplan.simulate.memory.store import MemoryStore
from bayplan.testing.builders import make_node, make_pod
from tests.client.http.api_server import ApiServer, ReceivedRequest, error_response, serving

from .running import ALONE, SECRET, bound, kubeconfig, play, scheduling, started, until


def notes(store: MemoryStore) -> list[str]:
    return [event.note for event in store.list(Event)]


def cluster(pods: int = 1) -> MemoryStore:
    store = MemoryStore()
    store.create(make_node("n", cpu="100", memory="100Gi"))
    for i in range(pods):
        store.create(make_pod(f"p{i}"))
    return store


def test_it_schedules_and_reports(tmp_path: Path) -> None:
    """Pods get their node, and an event reports it; the token is sent to the server and to no other."""
    store = cluster(20)
    server = ApiServer(store)

    async def main() -> str:
        async with scheduling(server, tmp_path, *ALONE, "-v=10", tls=True) as run:
            await until(lambda: len(bound(store)) == 20 and len(notes(store)) == 20, run)
            store.create(make_pod("late"))
            await until(lambda: "late" in bound(store), run)
            return run.log

    log = play(main())
    assert "Successfully assigned default/p0 to n" in notes(store)
    assert '"Event occurred" object="default/p0" type="Normal" reason="Scheduled"' in log
    assert '"Starting Kubernetes Scheduler" version="v1.3' in log
    assert {received.headers["Authorization"] for received in server.received} == {f"Bearer {SECRET}"}
    assert SECRET not in log


def test_every_line_of_a_json_log_is_an_object(tmp_path: Path) -> None:
    """From the first line to the last, errors and messages about single pods included."""
    store = cluster()

    async def main() -> list[str]:
        async with scheduling(ApiServer(store), tmp_path, *ALONE, "-v=10", "--logging-format=json") as run:
            await until(lambda: len(notes(store)) == 1, run)
            run.signal()
            await run.end()
        return run.lines

    lines = [json.loads(line) for line in play(main())]
    assert all({"ts", "caller", "msg"} <= line.keys() for line in lines)
    event = next(line for line in lines if line["msg"] == "Event occurred")
    assert (event["v"], event["object"], event["reason"]) == (2, "default/p0", "Scheduled")
    assert (lines[-1]["msg"], lines[-1]["err"]) == ("command failed", "finished without leader elect")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_bindings_under_way_finish(tmp_path: Path, number: signal.Signals) -> None:
    """The one that was sent is waited for, its event is written, and no other is begun."""
    store = cluster(1)

    async def main() -> tuple[int, str]:
        under_way, go_on = asyncio.Event(), asyncio.Event()

        async def slowly(received: ReceivedRequest) -> None:
            if received.path.endswith("/binding"):
                under_way.set()
                await go_on.wait()

        async with scheduling(ApiServer(store, interfere=slowly), tmp_path, *ALONE) as run:
            await under_way.wait()
            run.signal(number)
            await run.wait_for_log("Received a signal to stop")
            store.create(make_pod("too-late"))
            go_on.set()
            return await run.end(), run.log

    status, log = play(main())
    assert bound(store) == {"p0": "n"}
    assert notes(store) == ["Successfully assigned default/p0 to n"]
    assert status == 1
    assert '"command failed" err="finished without leader elect"' in log


def test_a_signal_does_not_wait_for_an_extender(tmp_path: Path) -> None:
    """A decision that still waits for a response had no effect."""
    store = cluster()

    async def main() -> int:
        requested = asyncio.Event()

        async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            requested.set()
            await reader.read()
            writer.close()

        extender = await asyncio.start_server(never, "127.0.0.1", 0)
        port = extender.sockets[0].getsockname()[1]
        server = ApiServer(store)
        async with extender, serving(server):
            config = tmp_path / "config.yaml"
            config.write_text(
                "apiVersion: kubescheduler.config.k8s.io/v1\n"
                "kind: KubeSchedulerConfiguration\n"
                f"clientConnection: {{kubeconfig: {kubeconfig(tmp_path, server.access.server)}}}\n"
                f'extenders: [{{urlPrefix: "http://127.0.0.1:{port}", filterVerb: f, httpTimeout: 1h}}]\n'
            )
            async with started(f"--config={config}", "--secure-port=0") as run:
                await requested.wait()
                run.signal()
                return await run.end()

    assert play(main()) == 0
    assert bound(store) == {}


def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    async def main() -> int:
        under_way = asyncio.Event()

        async def never(received: ReceivedRequest) -> None:
            if received.path.endswith("/binding"):
                under_way.set()
                await asyncio.Event().wait()

        async with scheduling(ApiServer(cluster(), interfere=never), tmp_path, *ALONE) as run:
            await under_way.wait()
            run.signal()
            await run.wait_for_log("Received a signal to stop")
            assert run.process.returncode is None
            run.signal()
            return await run.end()

    assert play(main()) == 1


def test_a_signal_while_nothing_is_known_yet_ends_it(tmp_path: Path) -> None:
    async def main() -> int:
        requested = asyncio.Event()

        async def never(received: ReceivedRequest) -> None:
            requested.set()
            await asyncio.sleep(60)

        async with scheduling(ApiServer(cluster(), interfere=never), tmp_path, *ALONE) as run:
            await requested.wait()
            run.signal()
            return await run.end()

    assert play(main()) == 1


def test_a_signal_logs_a_dump_of_cache_and_queue(tmp_path: Path) -> None:
    store = cluster()
    store.create(make_pod("huge", requests={"cpu": "900"}))

    async def main() -> str:
        async with scheduling(ApiServer(store), tmp_path, *ALONE) as run:
            await until(lambda: len(notes(store)) == 2, run)
            run.signal(signal.SIGUSR2)
            await run.wait_for_log("Dump of scheduling queue")
            return run.log

    log = play(main())
    assert '"Cache and API server agree" nodes=1 pods=1 assumed=0' in log
    assert "n: 1 of 110 pods, cpu 0m of 100000m, memory 0 of 107374182400" in log
    assert 'summary="activeQ:0; backoffQ:0; unschedulablePods:1" pods=["default/huge"]' in log


def test_a_custom_kind_that_is_not_installed_does_not_delay_others(tmp_path: Path) -> None:
    """Coscheduling watches PodGroups; without their definition there are none."""
    store = cluster()
    served = KINDS.names - {"PodGroup"}

    async def main() -> str:
        plugin = "--plugin=bayplan.plugins.library.coscheduling:Coscheduling"
        async with scheduling(ApiServer(store, served=served), tmp_path, *ALONE, plugin) as run:
            await until(lambda: "p0" in bound(store), run)
            return await run.wait_for_log("the API server does not serve PodGroup, continuing without it")

    assert "does not serve podgroups of scheduling.x-k8s.io/v1alpha1" in play(main())


REJECTIONS = [
    pytest.param(
        APIError("Unauthorized", code=401),
        "cannot list or watch Pod, trying again: Unauthorized",
        id="an expired token",
    ),
    pytest.param(
        APIError(
            'pods is forbidden: User "me" cannot list resource "pods" in API group "" at the cluster scope',
            code=403,
        ),
        "cannot list or watch Pod, trying again: pods is forbidden",
        id="a missing role",
    ),
    pytest.param(
        APIError("the server could not find the requested resource", code=404),
        "the API server does not serve pods of v1",
        id="a kind that is not there",
    ),
]


@pytest.mark.parametrize(("error", "message"), REJECTIONS)
def test_what_the_server_rejects_is_reported_and_tried_again(
    tmp_path: Path, error: APIError, message: str
) -> None:
    store = cluster()

    async def main() -> str:
        rejecting = True

        async def reject(received: ReceivedRequest) -> object:
            return error_response(error) if rejecting and received.path.endswith("/api/v1/pods") else None

        server = ApiServer(store, interfere=reject)  # type: ignore[arg-type]  # what error_response() makes
        async with scheduling(server, tmp_path, *ALONE) as run:
            line = await run.wait_for_log(message)
            assert bound(store) == {}
            rejecting = False
            await until(lambda: "p0" in bound(store), run)
            return line

    assert play(main()).startswith("W")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        pytest.param([], "Waiting for the version of the API server", id="which may have any version"),
        pytest.param(["--emulated-version=1.36"], "cannot list or watch Node", id="as one version"),
    ],
)
def test_a_server_that_cannot_be_reached_is_reported_and_tried_again(flags: list[str], message: str) -> None:
    async def main() -> str:
        async with started("--master=http://127.0.0.1:1", *ALONE, *flags) as run:
            line = await run.wait_for_log(message)
            assert run.process.returncode is None
            return line

    assert "dial tcp 127.0.0.1:1: connect: connection refused" in play(main())
