"""Finished attempts as spans of OTLP, made and sent in the thread of the SDK's batch processor.

The processor of the official SDK collects attempts and hands them over in batches. The messages are made here
with the official protobuf classes: the exporters of the SDK take ten times as long, because they make other
objects for each span first. Only `tracing.py` imports this, and only if attempts are sampled.
"""

from __future__ import annotations

import logging
import os
import random
import socket
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext, TraceFlags

from bayplan import __version__
from bayplan.framework.status import Code

Note = tuple[str, str, Code, float, float]
"""Plugin ("" for the whole extension point), extension point, result, begin, end."""

HEADERS: Final = "OTEL_EXPORTER_OTLP_HEADERS"
"""The environment variable of OpenTelemetry with headers for the receiver: `name=value,name=value`."""
TIMEOUT_SECONDS: Final = 10.0
QUEUE_SIZE: Final = 2048
BATCH_SIZE: Final = 128
"""Attempts in one message: below the 4 MiB that gRPC receivers accept by default, even if all are full."""
MAX_TEXT: Final = 256
"""Length of an attribute; names and messages come from users."""
_HAS_IS_REMOTE, _IS_REMOTE = 0x100, 0x200
"""Flags of a span and a link: that it is known whether the parent is remote, and that it is."""
_INTERNAL: Final = Span.SPAN_KIND_INTERNAL
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class FinishedAttempt:
    """All that the spans of an attempt are made of, so that no decision is kept until it is sent.

    Times are those of `time.perf_counter`.
    """

    name: str
    """Of the first span."""
    cycle: str
    """Of the span of the scheduling cycle; "" for members of a group, whose cycle is that of the group."""
    attributes: Mapping[str, str | int]
    failure: str
    trace_id: int
    span_id: int
    queued: float
    started: float
    decided: float
    end: float
    notes: Sequence[Note]
    parent_id: int = 0
    """The span of the group of which the pod is a member."""
    waits: bool = True
    """Whether the time in the queue has a span."""
    binds: bool = False
    """Whether a node was found."""
    waited_for: Sequence[str] = ()
    link: tuple[int, int, int] | None = None
    """Trace, span and flags of the creation of the pod."""

    context: ClassVar[SpanContext] = SpanContext(1, 1, is_remote=False, trace_flags=TraceFlags(1))
    """What the batch processor reads of a span: that it is sampled."""


def _text(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value[:MAX_TEXT]))


def _attribute(key: str, value: str | int) -> KeyValue:
    if isinstance(value, int):
        return KeyValue(key=key, value=AnyValue(int_value=value))
    return _text(key, value)


@dataclass(slots=True)
class SpanMaker:
    """Makes the spans of attempts."""

    rng: random.Random
    offset: float = field(default_factory=lambda: time.time() - time.perf_counter())
    """Of the clock of the attempts to the time of day."""
    _statuses: dict[Code, KeyValue] = field(
        default_factory=lambda: {code: _text("scheduler.status", code.name) for code in Code}
    )
    _resource: Resource = field(
        default_factory=lambda: Resource(
            attributes=[
                _text("service.name", "bayplan"),
                _text("service.version", __version__),
                _text("service.instance.id", socket.gethostname()),
            ]
        )
    )

    def request(self, attempts: Sequence[FinishedAttempt]) -> ExportTraceServiceRequest:
        """The message for a batch."""
        made = ScopeSpans(scope=InstrumentationScope(name="bayplan", version=__version__))
        for one in attempts:
            self._add(made.spans, one)
        return ExportTraceServiceRequest(
            resource_spans=[ResourceSpans(resource=self._resource, scope_spans=[made])]
        )

    def _add(self, spans: Any, one: FinishedAttempt) -> None:
        """Adds the spans of an attempt, the first one first."""
        trace_id, offset = one.trace_id.to_bytes(16, "big"), self.offset
        failed = (
            Status(code=Status.STATUS_CODE_ERROR, message=one.failure[:MAX_TEXT]) if one.failure else None
        )

        def add(name: str, span_id: bytes, parent: bytes, begin: float, end: float) -> Span:
            span: Span = spans.add(
                name=name,
                trace_id=trace_id,
                span_id=span_id,
                parent_span_id=parent,
                flags=_HAS_IS_REMOTE,
                kind=_INTERNAL,
                start_time_unix_nano=int((begin + offset) * 1e9),
                end_time_unix_nano=int((end + offset) * 1e9),
            )
            return span

        root = one.span_id.to_bytes(8, "big")
        parent = one.parent_id.to_bytes(8, "big") if one.parent_id else b""
        first = add(one.name, root, parent, one.queued, one.end)
        first.attributes.extend([_attribute(key, value) for key, value in one.attributes.items()])
        if one.failure:
            first.status.CopyFrom(failed)
        if one.link is not None:
            linked, span_id, flags = one.link
            first.links.add(
                trace_id=linked.to_bytes(16, "big"),
                span_id=span_id.to_bytes(8, "big"),
                flags=_HAS_IS_REMOTE | _IS_REMOTE | flags,
            )
        if one.waits:
            add("Queue", self._new_id(), root, one.queued, one.started)
        cycle = binding = root
        if one.cycle:
            cycle = binding = self._new_id()
            add(one.cycle, cycle, root, one.started, one.decided)
        if one.binds:
            binding = self._new_id()
            span = add("Binding cycle", binding, root, one.decided, one.end)
            if one.failure:
                span.status.CopyFrom(failed)
            if one.waited_for:
                names = ArrayValue(values=[AnyValue(string_value=name[:MAX_TEXT]) for name in one.waited_for])
                span.attributes.add(key="scheduler.permit.plugins", value=AnyValue(array_value=names))
        # A plugin is noted before its point, so the points are needed first.
        points: dict[str, bytes] = {}
        for plugin, point, code, begin, ended in one.notes:
            if not plugin:
                points[point] = own = self._new_id()
                span = add(point, own, cycle if begin < one.decided else binding, begin, ended)
                span.attributes.append(self._statuses[code])
        for plugin, point, code, begin, ended in one.notes:
            if plugin:
                above = points.get(point, cycle if begin < one.decided else binding)
                span = add(plugin, self._new_id(), above, begin, ended)
                span.attributes.extend([_text("scheduler.extension_point", point), self._statuses[code]])

    def _new_id(self) -> bytes:
        return (self.rng.getrandbits(64) or 1).to_bytes(8, "big")


class AttemptExporter(SpanExporter):
    """Sends batches. What the receiver does not accept is dropped, without a second try: it would delay the
    next batches, and the end of the process. The log says when that begins and when it is over."""

    def __init__(
        self, make: SpanMaker, send: Callable[[ExportTraceServiceRequest], None], close: Callable[[], None]
    ) -> None:
        self._make = make
        self._send = send
        self._close = close
        self._dropped = 0
        """Attempts, since the receiver accepted a batch."""

    def export(self, spans: Sequence[Any]) -> SpanExportResult:
        try:
            self._send(self._make.request(spans))
        except (grpc.RpcError, OSError) as error:
            if not self._dropped:
                reason = error.details() if isinstance(error, grpc.Call) else error
                _log.warning("Traces are dropped: %s", reason)
            self._dropped += len(spans)
            return SpanExportResult.FAILURE
        if self._dropped:
            _log.warning("Traces are received again; those of %d attempts were dropped", self._dropped)
            self._dropped = 0
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self._close()


def make_processor(endpoint: str, rng: random.Random) -> BatchSpanProcessor:
    """Sends attempts in batches: by gRPC or, to an http(s) URL, by HTTP."""
    headers = _headers(os.environ.get(HEADERS, ""))
    make = SpanMaker(rng)
    if endpoint.startswith(("http://", "https://")):
        exporter = AttemptExporter(make, _over_http(endpoint, headers), lambda: None)
    else:
        channel = grpc.insecure_channel(endpoint)
        stub: Any = TraceServiceStub(channel)  # type: ignore[no-untyped-call] # generated code
        metadata = [(name.lower(), value) for name, value in headers.items()]

        def send(request: ExportTraceServiceRequest) -> None:
            stub.Export(request, timeout=TIMEOUT_SECONDS, metadata=metadata)

        exporter = AttemptExporter(make, send, channel.close)
    return BatchSpanProcessor(exporter, max_queue_size=QUEUE_SIZE, max_export_batch_size=BATCH_SIZE)


def _over_http(url: str, headers: Mapping[str, str]) -> Callable[[ExportTraceServiceRequest], None]:
    sent = {"Content-Type": "application/x-protobuf", "User-Agent": f"bayplan/{__version__}", **headers}

    def send(request: ExportTraceServiceRequest) -> None:
        made = urllib.request.Request(url, request.SerializeToString(), sent, method="POST")
        with urllib.request.urlopen(made, timeout=TIMEOUT_SECONDS) as response:
            response.read()

    return send


def _headers(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {name.strip(): urllib.parse.unquote(value.strip()) for name, _, value in pairs}
