"""What each path shows."""

from __future__ import annotations

import gzip
import json
import logging
from typing import Any

import pytest
import yaml

from bayplan.process.serving.pages import HealthCheck

from .secure_server import OPEN, Client, Response, get, make_routes, with_server

WELL = HealthCheck("sched-handler-sync")
ILL = HealthCheck("shutdown", lambda: "process is shutting down")


def healthy(*checks: HealthCheck) -> dict[str, Any]:
    return {"routes": make_routes(readyz=checks)}


@pytest.mark.parametrize(
    ("path", "checks", "status", "text"),
    [
        pytest.param("/readyz", [WELL], 200, "ok", id="all is well"),
        pytest.param(
            "/readyz?verbose",
            [WELL, HealthCheck("ping")],
            200,
            "[+]sched-handler-sync ok\n[+]ping ok\nreadyz check passed\n",
            id="all is well, one by one",
        ),
        pytest.param(
            "/readyz",
            [WELL, ILL],
            500,
            "[+]sched-handler-sync ok\n[-]shutdown failed: reason withheld\nreadyz check failed\n",
            id="one is not, and the reason is not for every user",
        ),
        pytest.param("/readyz?exclude=shutdown", [WELL, ILL], 200, "ok", id="it is left out"),
        pytest.param(
            "/readyz?verbose&exclude=shutdown&exclude=nonsense",
            [WELL, ILL],
            200,
            "[+]sched-handler-sync ok\n[+]shutdown excluded: ok\n"
            'warn: some health checks cannot be excluded: no matches for "nonsense"\nreadyz check passed\n',
            id="what cannot be left out is reported",
        ),
        pytest.param("/readyz/sched-handler-sync", [WELL, ILL], 200, "ok", id="one alone"),
        pytest.param(
            "/readyz/shutdown",
            [WELL, ILL],
            500,
            "internal server error: process is shutting down\n",
            id="one alone has the reason",
        ),
        pytest.param("/readyz/ping", [WELL], 404, "404 page not found\n", id="a check that is not there"),
        pytest.param("/livez", [], 200, "ok", id="another path has checks of its own"),
        pytest.param("/healthz/ping", [], 200, "ok", id="without any check there is a ping"),
        pytest.param("/", [], 404, "404 page not found\n", id="nothing at the root"),
    ],
)
def test_probes(path: str, checks: list[HealthCheck], status: int, text: str) -> None:
    answer = get(path, **healthy(*checks))
    assert (answer.status, answer.text) == (status, text)


def test_the_reason_of_a_failed_probe_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "bayplan.process.serving"):
        get("/readyz", **healthy(ILL))
    assert "readyz check failed: shutdown: process is shutting down" in caplog.messages


def test_a_check_that_raises_is_reported_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def raising() -> str:
        raise ArithmeticError("division by zero")

    async def act(client: Client) -> list[int]:
        return [(await client.request(path)).status for path in ("/readyz", "/livez")]

    assert with_server(act, routes=make_routes(readyz=[HealthCheck("raising", raising)])) == [500, 200]
    assert "GET /readyz failed" in caplog.messages


def test_how_checks_came_out_can_be_scraped() -> None:
    async def act(client: Client) -> str:
        for path in ("/readyz", "/readyz", "/livez"):
            await client.request(path)
        return (await client.request("/metrics/slis", headers={"Accept-Encoding": "identity"})).text

    lines = with_server(act, authorization=OPEN, **healthy(ILL)).splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        'kubernetes_healthcheck{name="ping",type="livez"} 1',
        'kubernetes_healthcheck{name="shutdown",type="readyz"} 0',
        'kubernetes_healthchecks_total{name="ping",status="success",type="livez"} 1',
        'kubernetes_healthchecks_total{name="shutdown",status="error",type="readyz"} 2',
    ]


def test_metrics_are_shown_and_reset() -> None:
    values = {"up": 1}
    routes = make_routes(
        metrics=lambda: f"up {values['up']}\n".encode(), reset_metrics=lambda: values.update(up=0)
    )

    async def act(client: Client) -> list[Response]:
        return [await client.request("/metrics", method) for method in ("GET", "DELETE", "GET")]

    first, reset, after = with_server(act, routes=routes, authorization=OPEN)
    assert (first.text, reset.text, after.text) == ("up 1\n", "metrics reset\n", "up 0\n")
    assert first.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert first.headers["Cache-Control"] == "no-cache, private"


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        pytest.param([b"a 1\n", b"b 2\n"], "a 1\nb 2\n", id="in pieces"),
        pytest.param([], "", id="nothing while another one leads"),
    ],
)
def test_resources_of_pods(pieces: list[bytes], text: str) -> None:
    answer = get("/metrics/resources", routes=make_routes(resources=lambda: pieces))
    assert (answer.status, answer.text) == (200, text)


def test_a_large_page_is_compressed_for_clients_that_accept_it() -> None:
    page = b"up 1\n" * 1000
    answer = get("/metrics", routes=make_routes(metrics=lambda: page), headers={"Accept-Encoding": "gzip"})
    assert answer.headers["Content-Encoding"] == "gzip"
    assert (answer.text.encode(), len(gzip.compress(page)) < 100) == (page, True)


def test_the_configuration() -> None:
    answer = get("/configz")
    assert json.loads(answer.text) == {"componentconfig": {"kind": "KubeSchedulerConfiguration"}}


STATUSZ = "application/json;v=v1beta1;g=config.k8s.io;as=Statusz"
FLAGZ = "application/yaml;v=v1beta1;g=config.k8s.io;as=Flagz"


@pytest.mark.parametrize("accept", [None, "*/*", "text/plain", "text/html, text/plain;q=0.5"])
def test_pages_for_people(accept: str | None) -> None:
    headers = {} if accept is None else {"Accept": accept}
    lines = get("/flagz", headers=headers).text.splitlines()
    assert (lines[:2], lines[2].split(":")[0]) == (["", "kube-scheduler flagz"], "Warning")
    assert lines[4:] == ["config=/etc/config.yaml", "v=2"]
    status = get("/statusz", headers=headers).text.splitlines()
    assert status[1] == "kube-scheduler statusz"
    assert status[4:9] == [
        "Started: Sun Sep  9 01:46:40 UTC 2001",
        "Up: 1 hr 02 min 03 sec",
        "Go version: python3",
        "Binary version: 1.37.1",
        "Emulation version: 1.37",
    ]


def test_pages_for_programs() -> None:
    status = json.loads(get("/statusz", headers={"Accept": STATUSZ}).text)
    paths = status.pop("paths")
    assert status == {
        "kind": "Statusz",
        "apiVersion": "config.k8s.io/v1beta1",
        "metadata": {"name": "kube-scheduler"},
        "startTime": "2001-09-09T01:46:40Z",
        "uptimeSeconds": 3723,
        "goVersion": "python3",
        "binaryVersion": "1.37.1",
        "emulationVersion": "1.37",
    }
    assert {"/metrics", "/healthz", "/livez", "/readyz", "/configz", "/statusz", "/flagz"} <= set(paths)
    flags = yaml.safe_load(get("/flagz", headers={"Accept": FLAGZ}).text)
    assert flags["flags"] == {"config": "/etc/config.yaml", "v": "2"}


@pytest.mark.parametrize(
    "accept", ["text/html", "application/json", FLAGZ, "application/json;v=v1;g=config.k8s.io;as=Statusz"]
)
def test_other_forms_of_pages_are_rejected(accept: str) -> None:
    answer = get("/statusz", headers={"Accept": accept})
    status = json.loads(answer.text)
    assert (answer.status, status["reason"], status["message"]) == (
        406,
        "NotAcceptable",
        "only the following media types are accepted: application/json, application/yaml, text/plain",
    )


@pytest.mark.parametrize(
    ("method", "body", "status", "text", "level"),
    [
        pytest.param("PUT", "4", 200, "successfully set klog.logging.verbosity to 4", 4, id="it is set"),
        pytest.param("PUT", "much", 400, "strconv.ParseUint: parsing", 0, id="not a number"),
        pytest.param("GET", "", 406, "unsupported http method", 0, id="it cannot be read"),
    ],
)
def test_how_much_is_logged(method: str, body: str, status: int, text: str, level: int) -> None:
    levels = [0]
    answer = get("/debug/flags/v", method, body=body, routes=make_routes(set_verbosity=levels.append))
    assert (answer.status, answer.text[: len(text)], levels[-1]) == (status, text, level)


def test_without_profiling_there_is_no_debugging() -> None:
    assert get("/debug/flags/v", "PUT", body="4").status == 404
