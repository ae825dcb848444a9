"""What a running scheduler shows over HTTPS."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bayplan.answers.sources.live import queue_target, read_pages
from bayplan.cli.support_bundle import PAGES
from bayplan.client.access import Access
from bayplan.errors import APIError, ConfigError
from bayplan.metrics import families
from bayplan.net.tls import TLSSettings
from bayplan.process.command_line import parse
from bayplan.process.endpoints import without
from bayplan.process.serving.settings import NamedCertificate, authorization_settings, serving_settings
from bayplan.simulate.memory.store import MemoryStore
from bayplan.testing.builders import make_node, make_pod
from tests.client.http.api_server import ApiServer, ReceivedRequest
from tests.deploy.manifests import REPLACE, SECOND, pod_spec, the
from tools.monitoring import metric_names

from .running import Run, bound, play, scheduling, until

OPEN = "--authorization-always-allow-paths=/*"
"""Without authentication, which tests/process/serving has."""

Get = Callable[..., Awaitable[tuple[int, str]]]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def cluster() -> MemoryStore:
    store = MemoryStore()
    store.create(make_node("n", cpu="100", memory="100Gi"))
    store.create(make_pod("p", requests={"cpu": "2"}))
    return store


def with_scheduler(
    tmp_path: Path, act: Callable[[Get, Run, MemoryStore], Awaitable[Any]], *flags: str, server: Any = None
) -> Any:
    """The result of a function that gets a client of a running scheduler."""
    store = cluster()
    port = free_port()

    async def main() -> Any:
        where = (f"--secure-port={port}", "--bind-address=127.0.0.1")
        async with (
            scheduling(server or ApiServer(store), tmp_path, *where, *flags) as run,
            aiohttp.ClientSession(f"https://127.0.0.1:{port}") as session,
        ):
            trusting = ssl.create_default_context()
            trusting.check_hostname = False
            trusting.verify_mode = ssl.CERT_NONE

            async def get(path: str, method: str = "GET", **more: Any) -> tuple[int, str]:
                async with session.request(method, path, ssl=trusting, **more) as answer:
                    return answer.status, await answer.text()

            await run.wait_for_log(f"Serving securely on 127.0.0.1:{port}")
            return await act(get, run, store)

    return play(main())


def test_everything_is_there(tmp_path: Path) -> None:
    async def act(get: Get, run: Run, store: MemoryStore) -> dict[str, tuple[int, str]]:
        await until(lambda: "p" in bound(store), run)
        await asyncio.sleep(0.1)
        paths = ("/readyz?verbose", "/metrics", "/metrics/resources", "/configz", "/flagz", "/statusz", "/no")
        return {path: await get(path) for path in paths}

    flags = ("--leader-elect-resource-name=mine", "-v=3", OPEN, "--disabled-metrics=process_open_fds")
    answers = with_scheduler(tmp_path, act, *flags)
    assert {path: status for path, (status, _) in answers.items() if status != 200} == {"/no": 404}
    ready = ["[+]leaderElection ok", "[+]shutdown ok", "[+]sched-handler-sync ok", "readyz check passed"]
    assert answers["/readyz?verbose"][1].splitlines() == ready
    metrics = answers["/metrics"][1]
    scheduled = 'scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 1'
    assert scheduled in metrics
    assert 'leader_election_master_status{name="kube-scheduler"} 1' in metrics
    assert 'kubernetes_feature_enabled{name="GangScheduling",stage="ALPHA"} 0' in metrics
    assert 'git_version="v1.36.4"' in metrics
    assert 'rest_client_requests_total{code="201",host="127.0.0.1:' in metrics
    assert "process_open_fds" not in metrics
    # What the dashboard and the alerts read. Metrics with labels appear with their first value.
    declared = {spec.name for spec in families.SCHEDULER_SPECS}
    assert {name for name in metric_names() - declared if f"# TYPE {name} " not in metrics} == set()
    assert (
        'kube_pod_resource_request{namespace="default",node="n",pod="p"' in answers["/metrics/resources"][1]
    )
    config = json.loads(answers["/configz"][1])["componentconfig"]
    assert config["leaderElection"]["resourceName"] == "mine"
    assert "leader-elect-resource-name=mine" in answers["/flagz"][1]


def test_a_support_bundle_reads_its_pages(tmp_path: Path) -> None:
    async def act(get: Get, run: Run, store: MemoryStore) -> dict[str, bytes | APIError]:
        await until(lambda: "p" in bound(store), run)
        line = await run.wait_for_log("Serving securely on 127.0.0.1:")
        port = re.findall(r"127\.0\.0\.1:(\d+)", line)[0]
        access = Access(f"https://127.0.0.1:{port}", tls=TLSSettings(insecure=True))
        return await read_pages(access, [*PAGES, queue_target("default/p")])

    pages = with_scheduler(tmp_path, act, "--leader-elect=false", OPEN)
    content = {target: page for target, page in pages.items() if isinstance(page, bytes)}
    assert set(content) == set(pages)
    assert b"scheduler_schedule_attempts_total" in content["/metrics"]
    assert json.loads(content["/queue?pod=default/p"])["state"] == "Absent"


def test_the_position_of_a_pod_in_the_queue(tmp_path: Path) -> None:
    async def act(get: Get, run: Run, store: MemoryStore) -> list[tuple[int, str]]:
        store.create(make_pod("huge", requests={"cpu": "1000"}))
        while "NodeResourcesFit" not in (await get("/queue?pod=default/huge"))[1]:
            await asyncio.sleep(0.02)
        paths = ("/queue?pod=default/huge", "/queue?pod=default/none", "/queue", "/queue?pod=a/b/c")
        return [await get(path) for path in paths]

    huge, absent, *wrong = with_scheduler(tmp_path, act, "--leader-elect=false", OPEN)
    found = json.loads(huge[1])
    assert found.pop("secondsSinceLastAttempt") >= 0
    assert found == {
        "pod": "default/huge",
        "state": "unschedulable",
        "attempts": 1,
        "plugins": ["NodeResourcesFit"],
    }
    assert json.loads(absent[1]) == {"pod": "default/none", "state": "Absent"}
    assert wrong == [(400, "pass ?pod=NAMESPACE/NAME\n")] * 2


def test_the_queue_is_only_for_authorized_users(tmp_path: Path) -> None:
    """Names of pods are not public."""

    async def act(get: Get, run: Run, store: MemoryStore) -> int:
        return (await get("/queue?pod=default/p"))[0]

    assert with_scheduler(tmp_path, act, "--leader-elect=false") == 403


def test_it_is_ready_when_everything_is_known_and_alive_before(tmp_path: Path) -> None:
    """A probe sees a start that takes long, and so does not end it."""
    known = False

    async def slowly(received: ReceivedRequest) -> None:
        while received.path == "/api/v1/nodes" and not known:
            await asyncio.sleep(0.01)

    async def act(get: Get, run: Run, store: MemoryStore) -> list[tuple[int, str]]:
        nonlocal known
        answers = [await get("/livez"), await get("/readyz"), await get("/healthz")]
        known = True
        while (await get("/readyz"))[0] != 200:
            await asyncio.sleep(0.02)
        return answers

    server = ApiServer(cluster(), interfere=slowly)
    alive, ready, healthy = with_scheduler(tmp_path, act, "--leader-elect=false", server=server)
    assert alive == (200, "ok")
    assert ready == (
        500,
        "[+]shutdown ok\n[-]sched-handler-sync failed: reason withheld\nreadyz check failed\n",
    )
    assert healthy == (200, "ok")


def test_verbosity_changes_while_it_runs(tmp_path: Path) -> None:
    async def act(get: Get, run: Run, store: MemoryStore) -> tuple[int, str]:
        await until(lambda: "p" in bound(store), run)
        answer = await get("/debug/flags/v", "PUT", data=b"2")
        store.create(make_pod("q"))
        await run.wait_for_log('"Event occurred" object="default/q"')
        return answer

    assert with_scheduler(tmp_path, act, OPEN) == (200, "successfully set klog.logging.verbosity to 2\n")


def test_anonymous_users_see_probes_only(tmp_path: Path) -> None:
    async def act(get: Get, run: Run, store: MemoryStore) -> list[int]:
        return [(await get(path))[0] for path in ("/livez", "/metrics", "/configz", "/debug/flags/v")]

    assert with_scheduler(tmp_path, act) == [200, 403, 403, 403]


def test_a_port_that_is_taken_is_reported(tmp_path: Path) -> None:
    async def main() -> tuple[int, str]:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            where = (f"--secure-port={port}", "--bind-address=127.0.0.1")
            async with scheduling(server, tmp_path, *where) as run:
                return await run.end(), run.lines[-1]

    server = ApiServer(cluster())
    status, last = play(main())
    assert status == 1
    assert server.of("GET", "/pods") == [], "nothing is read or scheduled first"
    assert "failed to listen on 127.0.0.1:" in last
    assert "address already in use" in last


@pytest.mark.parametrize(
    "flag",
    ["--tls-sni-cert-key={file},{file}", "--client-ca-file={file}", "--authentication-kubeconfig={file}"],
)
def test_an_invalid_file_ends_it_before_anything_is_scheduled(tmp_path: Path, flag: str) -> None:
    """Without such a file, endpoints are created after the first pods may have been scheduled."""
    store = cluster()
    invalid = tmp_path / "invalid"
    invalid.write_text("no certificate")

    async def main() -> int:
        where = (f"--secure-port={free_port()}", "--bind-address=127.0.0.1", "--leader-elect=false")
        async with scheduling(ApiServer(store), tmp_path, *where, flag.format(file=invalid)) as run:
            return await run.end()

    assert play(main()) == 1
    assert bound(store) == {}


@pytest.mark.parametrize(
    ("kind", "place"),
    [pytest.param("Deployment", SECOND, id="second"), pytest.param("Pod", REPLACE, id="replacing")],
)
def test_probes_of_the_manifests_are_answered(tmp_path: Path, kind: str, place: Path) -> None:
    (container,) = pod_spec(the(kind, place))["containers"]
    probes = [container[name]["httpGet"]["path"] for name in container if name.endswith("Probe")]

    async def act(get: Get, run: Run, store: MemoryStore) -> set[tuple[int, str]]:
        await until(lambda: "p" in bound(store), run)
        return {await get(path) for path in probes}

    assert len(probes) == 3
    assert with_scheduler(tmp_path, act) == {(200, "ok")}


def test_flags_reach_the_server() -> None:
    flags = parse(
        [
            "--bind-address=127.0.0.1",
            "--tls-cert-file=a.crt",
            "--tls-private-key-file=a.key",
            "--tls-sni-cert-key=b.crt,b.key:*.example,example",
            "--tls-sni-cert-key=c.crt,c.key",
            "--tls-min-version=VersionTLS13",
            "--authorization-always-allow-paths=/metrics",
            "--authorization-webhook-cache-authorized-ttl=1m",
        ],
        "x",
    )
    settings = serving_settings(flags)
    assert (settings.bind_address, settings.cert_file, settings.key_file) == ("127.0.0.1", "a.crt", "a.key")
    assert settings.named_certificates == (
        NamedCertificate("b.crt", "b.key", ("*.example", "example")),
        NamedCertificate("c.crt", "c.key"),
    )
    assert settings.min_version == "VersionTLS13"
    allowed = authorization_settings(flags)
    assert (allowed.open_paths, allowed.allowed_seconds, allowed.denied_seconds) == (
        ("/metrics",),
        60.0,
        10.0,
    )


@pytest.mark.parametrize(
    "flag",
    [
        pytest.param("--tls-cert-file=a.crt", id="a certificate without a key"),
        pytest.param("--tls-private-key-file=a.key", id="a key without a certificate"),
    ],
)
def test_half_a_certificate_is_rejected(flag: str) -> None:
    with pytest.raises(ConfigError, match="missing filename for serving cert"):
        serving_settings(parse([flag], "x"))


def test_metrics_that_are_disabled_are_gone_with_all_their_lines() -> None:
    text = b"# HELP a x\n# TYPE a histogram\na_bucket 1\na_sum 2\n# HELP b y\n# TYPE b gauge\nb 3\n"
    assert without(text, ["a", "c"]) == b"# HELP b y\n# TYPE b gauge\nb 3\n"
    assert without(text, []) == text
