"""Measured usage: the metrics API, and Prometheus over HTTP."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, cast

import pytest

from bayplan.deschedule.args import KUBERNETES_METRICS, PROMETHEUS
from bayplan.deschedule.eviction import EvictionEvent
from bayplan.deschedule.live import UsageReader, event_of, eviction_of
from bayplan.deschedule.policy import Policy, parse_policy
from bayplan.deschedule.prometheus import account_token, queries_of, result_of, run_queries, secret_token
from bayplan.deschedule.usage import MeasuredUsage, QueryResult, UsageError
from bayplan.errors import APIError
from bayplan.testing.builders import make_pod
from tests.deschedule.situations import NOW, descheduler

HEAD = {"apiVersion": "descheduler/v1alpha2"}
VECTOR = {"resultType": "vector", "result": [{"metric": {"instance": "a"}, "value": [1.0, "0.29"]}]}


class Answers(BaseHTTPRequestHandler):
    """Answers queries by their text, and keeps the credentials."""

    seen: list[str] = []

    def do_GET(self) -> None:
        self.seen.append(str(self.headers["Authorization"]))
        if "forbidden" in self.path:
            self.send_error(403)
            return
        content: Any = {"status": "success", "data": VECTOR}
        if "broken" in self.path:
            content = {"status": "error", "error": "parse error"}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged."""


@pytest.fixture
def prometheus() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_queries_are_sent_with_the_token(prometheus: str) -> None:
    results = run_queries(prometheus, ["load", "broken", "forbidden"], "secret")
    assert Answers.seen[-1] == "Bearer secret"
    assert results["load"] == QueryResult("vector", (({"instance": "a"}, 0.29),))
    assert results["broken"].error == "parse error"
    assert results["forbidden"].error == "client error: 403"


def test_a_server_that_is_not_there_is_an_error() -> None:
    assert "refused" in run_queries("http://127.0.0.1:9", ["load"], "t")["load"].error
    assert run_queries("ftp://host", ["load"], "t")["load"].error == "unsupported protocol scheme 'ftp'"


def test_the_percentage_of_a_sample_is_truncated() -> None:
    usage = MeasuredUsage(queries={"load": QueryResult("vector", (({"instance": "a"}, 0.29),))})
    assert usage.node_usage(PROMETHEUS, "load", ["a"]) == {"a": {"MetricResource": int(0.29 * 100)}}


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (QueryResult(error="down"), "unable to capture prometheus metrics: down"),
        (QueryResult("scalar"), 'expected query results to be of type "vector", got "scalar" instead'),
        (QueryResult("vector", (({}, 0.5),)), "the collected metrics sample is missing 'instance' key"),
        (QueryResult("vector"), "unable to find metric entry for a"),
        (
            QueryResult("vector", (({"instance": "a"}, float("nan")),)),
            'the collected metrics sample for "a" has value NaN outside of <0; 1> interval',
        ),
        (
            QueryResult("vector", (({"instance": "a"}, float("inf")),)),
            'the collected metrics sample for "a" has value +Inf outside of <0; 1> interval',
        ),
    ],
)
def test_unusable_results_are_errors_of_upstream(result: QueryResult, error: str) -> None:
    with pytest.raises(UsageError) as raised:
        MeasuredUsage(queries={"load": result}).node_usage(PROMETHEUS, "load", ["a"])
    assert str(raised.value) == error


@pytest.mark.parametrize("answer", [{}, [], {"status": "error"}, {"status": "success", "data": {}}])
def test_other_answers_have_no_samples(answer: Any) -> None:
    assert result_of(answer).samples == ()


def test_tokens_come_from_the_secret_or_the_account(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    assert (account_token(tmp_path), account_token(tmp_path / "none")) == ("abc", "")
    encoded = base64.b64encode(b"xyz").decode()
    assert secret_token({"data": {"prometheusAuthToken": encoded}}) == "xyz"
    assert [secret_token({}), secret_token({"data": {"prometheusAuthToken": "%"}})] == ["", ""]


def test_the_queries_of_a_policy_are_found() -> None:
    args = {
        "thresholds": {"MetricResource": 20},
        "targetThresholds": {"MetricResource": 50},
        "metricsUtilization": {"source": "Prometheus", "prometheus": {"query": "load"}},
    }
    assert queries_of(descheduler({"LowNodeUtilization": args}).policy) == ["load"]


def test_node_usage_is_smoothed() -> None:
    usage = MeasuredUsage(has_kubernetes_metrics=True)
    for cpu in ("1", "2"):
        usage.collect([{"metadata": {"name": "a"}, "usage": {"cpu": cpu, "memory": "1Gi"}}])
    assert usage.node_usage(KUBERNETES_METRICS, "", ["a"])["a"] == {"cpu": 1100, "memory": 2**30}


class Reads:
    """In place of requests to the API server: what a GET returns, by path."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    async def send(self, method: str, target: str) -> bytes:
        for end, answer in self.answers.items():
            if method == "GET" and target.endswith(f"/{end}"):
                return json.dumps(answer).encode()
        raise APIError(f"{target}: not found", code=404)


def read(policy: Policy, usage: MeasuredUsage, **answers: Any) -> None:
    asyncio.run(UsageReader(cast("Any", Reads(**answers))).read(usage, policy))


def test_the_metrics_api_is_read_for_each_cycle(caplog: pytest.LogCaptureFixture) -> None:
    """If it does not respond, the previous values are used, and the log says so."""
    policy = parse_policy(
        json.dumps({**HEAD, "metricsProviders": [{"source": KUBERNETES_METRICS}]}), "p", lambda _: None
    )
    nodes = {"items": [{"metadata": {"name": "a"}, "usage": {"cpu": "1", "memory": "1Gi"}}]}
    containers = [{"usage": {"cpu": "100m", "memory": "1Mi"}}, {"usage": {"cpu": "50m", "memory": "1Mi"}}]
    pods = {"items": [{"metadata": {"name": "p", "namespace": "n"}, "containers": containers}]}
    usage = MeasuredUsage()
    read(policy, usage, nodes=nodes, pods=pods)
    assert usage.node_usage(KUBERNETES_METRICS, "", ["a"])["a"]["cpu"] == 1000
    assert usage.pod_usage(KUBERNETES_METRICS, "n", "p") == {"cpu": 150, "memory": 2**21}
    read(policy, usage)
    assert usage.node_usage(KUBERNETES_METRICS, "", ["a"])["a"]["cpu"] == 1000
    assert "the metrics API cannot be read" in caplog.text


def test_the_token_for_prometheus_is_read_from_its_secret(
    prometheus: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the token there are no queries, as upstream."""
    secret = {"namespace": "monitoring", "name": "token"}
    server = {"url": prometheus, "authToken": {"secretReference": secret}}
    args = {
        "thresholds": {"MetricResource": 20},
        "targetThresholds": {"MetricResource": 50},
        "metricsUtilization": {"source": PROMETHEUS, "prometheus": {"query": "load"}},
    }
    profile = {"name": "p", "pluginConfig": [{"name": "LowNodeUtilization", "args": args}]}
    providers = [{"source": PROMETHEUS, "prometheus": server}]
    content = json.dumps({**HEAD, "profiles": [profile], "metricsProviders": providers})
    policy, usage = parse_policy(content, "p", lambda _: None), MeasuredUsage()
    read(policy, usage, token={"data": {"prometheusAuthToken": base64.b64encode(b"xyz").decode()}})
    assert Answers.seen[-1] == "Bearer xyz"
    assert usage.node_usage(PROMETHEUS, "load", ["a"]) == {"a": {"MetricResource": 28}}
    read(policy, usage)
    assert not usage.has(PROMETHEUS)
    assert "the token for Prometheus cannot be read" in caplog.text


def test_evictions_and_events_have_the_form_of_upstream() -> None:
    pod = make_pod("p", node="a", uid="u")
    body = eviction_of(pod, "triggered by p/S: why", 5)
    assert body["deleteOptions"] == {"preconditions": {"uid": "u"}, "gracePeriodSeconds": 5}
    assert body["metadata"]["annotations"]["requested-by"] == "sigs.k8s.io/descheduler"
    event = event_of(EvictionEvent(pod, "Normal", "PodLifeTime", "note"), NOW)
    assert (event.reporting_controller, event.action) == ("sigs.k8s.io.descheduler", "Descheduled")
    assert event.regarding is not None
    assert event.regarding.uid == "u"
