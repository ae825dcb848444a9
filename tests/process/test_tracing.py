"""Traces reach a real OTLP receiver, over gRPC and over HTTP."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as messages
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from bayplan.api.groups import GangSchedulingPolicy, PodGroup, PodGroupSchedulingPolicy, PodGroupSpec
from bayplan.api.meta import ObjectMeta
from bayplan.api.pod import Pod
from bayplan.api.releases import V1_37
from bayplan.errors import ConfigError
from bayplan.framework.status import Code
from bayplan.plugin import CycleState, NodeInfo, NodePlugin
from bayplan.process import otlp, spans, tracing
from bayplan.process.spans import TRACEPARENT, AttemptTrace, SpanEncoder
from bayplan.process.tracing import Tracing, TracingConfiguration, load_tracing
from bayplan.scheduler.cycle import Decision
from bayplan.scheduler.group_dialects import with_group
from bayplan.scheduler.loop import Scheduler
from bayplan.scheduler.observers import Observers
from bayplan.scheduling_queue.queued import QueuedPod
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.testing import make_node, make_pod

CREATED_IN = f"00-{'a' * 32}-{'b' * 16}-01"
ALL = 1_000_000


class Receiver(service.TraceServiceServicer):
    """Stores what it receives."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.headers: dict[str, str] = {}

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802
        if context is not None:
            self.headers |= dict(context.invocation_metadata())
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.spans += scope.spans
        return messages.ExportTraceServiceResponse()


@contextmanager
def over_grpc() -> Iterator[tuple[str, Receiver]]:
    receiver = Receiver()
    server = grpc.server(futures.ThreadPoolExecutor(2))
    service.add_TraceServiceServicer_to_server(receiver, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}", receiver
    finally:
        server.stop(None).wait()


@contextmanager
def over_http() -> Iterator[tuple[str, Receiver]]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.headers |= {name.lower(): value for name, value in self.headers.items()}
            receiver.Export(messages.ExportTraceServiceRequest.FromString(body), None)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: it would write to the standard error of the tests."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def schedule(
    config: TracingConfiguration,
    pods: list[Pod],
    plugins: tuple[type[NodePlugin], ...] = (),
    groups: Sequence[PodGroup] = (),
) -> None:
    """Schedules the pods on one node of 4 CPUs, traced, until all are bound or unschedulable."""

    async def run() -> None:
        store = MemoryStore()
        traces = Tracing(config, tracing.make_processor(config), random.Random(0))
        seen: set[str] = set()

        def decided(decision: Decision) -> None:
            seen.add(decision.pod.name)
            traces.decided(decision)

        scheduler = Scheduler(
            MemoryCluster(store),
            plugins=plugins,
            release=V1_37.with_gates(V1_37.gates | {"GenericWorkload"}) if groups else V1_37,
            observers=Observers(decided=decided, progressed=traces.progressed),
        )
        traces.observe(scheduler)
        running = asyncio.ensure_future(scheduler.run())
        store.create(make_node("n", cpu="4"))
        for group in groups:
            store.create(group)
        for pod in pods:
            store.create(pod)
        async with asyncio.timeout(60):
            while len(seen) < len(pods):
                await asyncio.sleep(0)
            await scheduler.drain_bindings(60)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await asyncio.to_thread(traces.close)

    asyncio.run(run())


@pytest.mark.parametrize("receiving", [over_grpc, over_http])
def test_an_attempt_is_a_trace(receiving: Any) -> None:
    with receiving() as (endpoint, receiver):
        schedule(
            TracingConfiguration(endpoint, ALL),
            [make_pod("web", cpu="1", annotations={TRACEPARENT: CREATED_IN})],
        )
    by_name = {span.name: span for span in receiver.spans}
    root, cycle, binding = by_name["Schedule pod"], by_name["Scheduling cycle"], by_name["Binding cycle"]
    attributes = {item.key: item.value.string_value or item.value.int_value for item in root.attributes}
    assert attributes["k8s.pod.name"] == "web"
    assert (attributes["k8s.node.name"], attributes["scheduler.result"], attributes["scheduler.attempt"]) == (
        "n",
        "scheduled",
        1,
    )
    (link,) = root.links
    assert (link.trace_id.hex(), link.span_id.hex()) == ("a" * 32, "b" * 16)
    parents = {name: span.parent_span_id for name, span in by_name.items()}
    assert (
        parents["Queue"]
        == parents["Scheduling cycle"]
        == parents["Binding cycle"]
        == by_name["Schedule pod"].span_id
    )
    assert parents["PreFilter"] == parents["Filter"] == cycle.span_id
    assert parents["Bind"] == binding.span_id
    assert len({span.trace_id for span in receiver.spans}) == 1
    assert all(
        root.start_time_unix_nano
        <= span.start_time_unix_nano
        <= span.end_time_unix_nano
        <= root.end_time_unix_nano
        for span in receiver.spans
    )


@pytest.mark.parametrize("receiving", [over_grpc, over_http])
def test_headers_for_the_receiver_are_in_the_environment(
    receiving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20abc, x-team = platform")
    with receiving() as (endpoint, receiver):
        schedule(TracingConfiguration(endpoint, ALL), [make_pod("web")])
    assert receiver.headers["authorization"] == "Bearer abc"
    assert receiver.headers["x-team"] == "platform"


def test_the_message_of_an_unschedulable_pod_is_its_status() -> None:
    with over_grpc() as (endpoint, receiver):
        schedule(TracingConfiguration(endpoint, ALL), [make_pod("big", cpu="100")])
    (root,) = (span for span in receiver.spans if span.name == "Schedule pod")
    assert root.status.message.startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert {span.name for span in receiver.spans} >= {"Filter", "PostFilter"}
    assert "Binding cycle" not in {span.name for span in receiver.spans}


class Slow(NodePlugin):
    """Takes as long as a plugin has to take to get a span of its own."""

    def filter_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> None:
        threading.Event().wait(2 * spans.PLUGIN_THRESHOLD_SECONDS)


def test_only_slow_plugins_have_spans() -> None:
    with over_grpc() as (endpoint, receiver):
        schedule(TracingConfiguration(endpoint, ALL), [make_pod("web")], (Slow,))
    points = {span.span_id: span.name for span in receiver.spans}
    slow = [span for span in receiver.spans if span.name == "Slow"]
    assert [points[span.parent_span_id] for span in slow] == ["Filter"]
    assert "NodeName" not in points.values()


def test_nothing_is_sent_if_nothing_is_sampled() -> None:
    """Not even for a pod whose annotation says that its creation was sampled."""
    with over_grpc() as (endpoint, receiver):
        schedule(TracingConfiguration(endpoint, 0), [make_pod("web", annotations={TRACEPARENT: CREATED_IN})])
    assert receiver.spans == []


@pytest.mark.parametrize(("rate", "made"), [(0, False), (5, True)])
def test_without_sampling_nothing_is_connected(tmp_path: Path, rate: int, made: bool) -> None:
    file = tmp_path / "tracing.yaml"
    file.write_text(f"{HEAD}samplingRatePerMillion: {rate}\n")
    traces = tracing.make_tracing(str(file))
    assert (traces is not None) is made
    if traces is not None:
        traces.close()


@pytest.mark.parametrize("receiving", [over_grpc, over_http])
def test_a_receiver_that_is_gone_does_not_stop_scheduling(
    receiving: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with receiving() as (endpoint, _):
        pass
    schedule(TracingConfiguration(endpoint, ALL), [make_pod(f"p{i}") for i in range(5)])
    assert "Traces are dropped: " in caplog.text
    assert "refused" in caplog.text


def test_dropping_is_logged_when_it_begins_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    answers = iter((OSError("gone"), OSError("gone"), None, None))

    def send(request: object) -> None:
        if (error := next(answers)) is not None:
            raise error

    exporter = otlp.AttemptExporter(SpanEncoder(random.Random(0)), send, lambda: None)
    full = [full_attempt()] * 3
    assert [exporter.export(full).name for _ in range(4)] == ["FAILURE", "FAILURE", "SUCCESS", "SUCCESS"]
    assert [record.getMessage() for record in caplog.records] == [
        "Traces are dropped: gone",
        "Traces are received again; those of 6 attempts were dropped",
    ]


def trace_of(pod: Pod, started: float = 1.0) -> AttemptTrace:
    """An attempt of a pod that waited for a second."""
    return AttemptTrace(QueuedPod(pod, pod.key, 0.0, 0), started, 1.0)


def full_attempt() -> AttemptTrace:
    """As many spans and as long texts as an attempt may have."""
    pod = make_pod("é" * 300, namespace="é" * 300, annotations={TRACEPARENT: CREATED_IN})
    made = trace_of(pod)
    for number in range(spans.MAX_NOTES):
        made.took(f"{number}-{'p' * 300}", "Filter", Code.SUCCESS, 1.0)
    made.decided("error", "n" * 300)
    made.waited_for = ("é" * 300,)
    made.ended("é" * 300)
    return made


def decoded(messages_of_otlp: Iterable[bytes]) -> Receiver:
    """As the official classes read it."""
    receiver = Receiver()
    for message in messages_of_otlp:
        receiver.Export(messages.ExportTraceServiceRequest.FromString(message), None)
    return receiver


def test_messages_of_grpc_do_not_exceed_what_receivers_accept() -> None:
    """4 MiB by default."""
    made = list(SpanEncoder(random.Random(0)).messages([full_attempt()] * otlp.BATCH_SIZE))
    assert max(map(len, made)) < 4 << 20
    assert len(decoded(made).spans) == otlp.BATCH_SIZE * (4 + spans.MAX_NOTES)


def test_attempts_of_a_batch_have_ids_of_their_own() -> None:
    """Also if they have the same shape, and so the same bytes except for ids and times."""
    attempts = []
    for number in range(3):
        one = trace_of(make_pod(f"p{number}"), number + 1.0)
        one.passed("Filter")
        one.decided("unschedulable")
        one.ended("")
        attempts.append(one)
    found = decoded(SpanEncoder(random.Random(0)).messages(attempts)).spans
    assert len({span.span_id for span in found}) == len(found) == 12
    traces = {span.trace_id for span in found}
    assert len(traces) == 3
    for trace in traces:
        root, *below = (span for span in found if span.trace_id == trace)
        assert [span.name for span in below] == ["Queue", "Scheduling cycle", "Filter"]
        assert [span.parent_span_id for span in below] == [root.span_id, root.span_id, below[1].span_id]
        assert below[0].end_time_unix_nano - below[0].start_time_unix_nano == 1_000_000_000


@pytest.mark.parametrize(
    "text", ["", "00-0-0-00", f"01-{'a' * 32}-{'b' * 16}-01", f"00-{'0' * 32}-{'b' * 16}-01"]
)
def test_invalid_annotations_are_ignored(text: str) -> None:
    one = trace_of(make_pod("p", annotations={TRACEPARENT: text}))
    one.decided("scheduled", "n")
    one.ended("")
    (root, *_) = decoded(SpanEncoder(random.Random(0)).messages([one])).spans
    assert not root.links


HEAD = "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: TracingConfiguration\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(HEAD, TracingConfiguration("localhost:4317", 0), id="defaults"),
        pytest.param(
            HEAD + "endpoint: collector:4317\nsamplingRatePerMillion: 100\n",
            TracingConfiguration("collector:4317", 100),
            id="values",
        ),
    ],
)
def test_configuration_is_read(tmp_path: Path, text: str, expected: TracingConfiguration) -> None:
    file = tmp_path / "tracing.yaml"
    file.write_text(text)
    assert load_tracing(str(file)) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("kind: Pod\napiVersion: v1\n", 'got kind "Pod"', id="another kind"),
        pytest.param("- 1", "is not a TracingConfiguration", id="a list"),
        pytest.param("a: [", "cannot read", id="not YAML"),
        pytest.param(HEAD + "samplingRate: 1\n", 'unknown field "samplingRate"', id="misspelled"),
        pytest.param(HEAD + "samplingRatePerMillion: -1\n", "must be positive", id="negative"),
        pytest.param(HEAD + "samplingRatePerMillion: 1000001\n", "one million", id="too many"),
        pytest.param(HEAD + "endpoint: ftp://x\n", "expected host:port", id="unknown protocol"),
    ],
)
def test_invalid_configurations_say_why(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "tracing.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_tracing(str(file))


@pytest.mark.parametrize(
    ("cpu", "result", "count"),
    [pytest.param("1", "scheduled", 3, id="fits"), pytest.param("3", "unschedulable", 1, id="does not fit")],
)
def test_the_attempt_of_a_group_is_one_trace(cpu: str, result: str, count: int) -> None:
    """The group's cycle with its points, and a span for each member below that of the group."""
    spec = PodGroupSpec(scheduling_policy=PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=3)))
    group = PodGroup(metadata=ObjectMeta(name="train", namespace="default", uid="g"), spec=spec)
    pods = [with_group(make_pod(f"train-{number}", cpu=cpu), "train") for number in range(3)]
    with over_grpc() as (endpoint, receiver):
        schedule(TracingConfiguration(endpoint, ALL), pods, groups=[group])
    (root,) = (span for span in receiver.spans if span.name == "Schedule group")
    attributes = {item.key: item.value.string_value or item.value.int_value for item in root.attributes}
    assert (attributes["scheduler.group"], attributes["scheduler.group.members"]) == ("train", 3)
    assert (attributes["scheduler.result"], attributes["scheduler.group.feasible"]) == (result, count)
    assert {span.trace_id for span in receiver.spans} == {root.trace_id}
    members = [span for span in receiver.spans if span.name == "Schedule pod"]
    assert [span.parent_span_id for span in members] == [root.span_id] * 3
    (cycle,) = (span for span in receiver.spans if span.name == "Group cycle")
    assert "Filter" in {span.name for span in receiver.spans if span.parent_span_id == cycle.span_id}
    bound = [span for span in receiver.spans if span.name == "Binding cycle"]
    assert len(bound) == (3 if result == "scheduled" else 0)
