"""Sends finished attempts by OTLP, in the thread of the SDK's batch processor.

The processor of the official SDK collects attempts and hands them over in batches; `spans.py` encodes them.
Only `tracing.py` imports this, and only if attempts are sampled.
"""

from __future__ import annotations

import logging
import os
import random
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import grpc
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from bayplan import __version__
from bayplan.process.spans import SpanEncoder

HEADERS: Final = "OTEL_EXPORTER_OTLP_HEADERS"
"""The environment variable of OpenTelemetry with headers for the receiver: `name=value,name=value`."""
TIMEOUT_SECONDS: Final = 10.0
QUEUE_SIZE: Final = 2048
BATCH_SIZE: Final = 512
EXPORT: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_log = logging.getLogger(__name__)


class AttemptExporter(SpanExporter):
    """Sends batches. What the receiver does not accept is dropped, without a second try: it would delay the
    next batches, and the end of the process. The log says when that begins and when it is over."""

    def __init__(
        self, encoder: SpanEncoder, send: Callable[[bytes], object], close: Callable[[], None]
    ) -> None:
        self._encoder = encoder
        self._send = send
        self._close = close
        self._dropped = 0
        """Attempts, since the receiver accepted a batch."""

    def export(self, spans: Sequence[Any]) -> SpanExportResult:
        try:
            for message in self._encoder.messages(spans):
                self._send(message)
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
    encoder = SpanEncoder(rng)
    if endpoint.startswith(("http://", "https://")):
        exporter = AttemptExporter(encoder, _over_http(endpoint, headers), lambda: None)
    else:
        channel = grpc.insecure_channel(endpoint)
        # Without serializers it takes and returns bytes.
        call = channel.unary_unary(EXPORT)
        metadata = [(name.lower(), value) for name, value in headers.items()]
        send = partial(call, timeout=TIMEOUT_SECONDS, metadata=metadata)
        exporter = AttemptExporter(encoder, send, channel.close)
    return BatchSpanProcessor(exporter, max_queue_size=QUEUE_SIZE, max_export_batch_size=BATCH_SIZE)


def _over_http(url: str, headers: Mapping[str, str]) -> Callable[[bytes], None]:
    sent = {"Content-Type": "application/x-protobuf", "User-Agent": f"bayplan/{__version__}", **headers}

    def send(message: bytes) -> None:
        made = urllib.request.Request(url, message, sent, method="POST")
        with urllib.request.urlopen(made, timeout=TIMEOUT_SECONDS) as response:
            response.read()

    return send


def _headers(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {name.strip(): urllib.parse.unquote(value.strip()) for name, _, value in pairs}
