"""What is noted of a sampled attempt, and its spans in the encoding of OTLP.

Attempts with the same extension points and results have the same spans, except for ids, times, and the
attributes of the first one. So the bytes of the others are a template with gaps (`SpanTemplate`), made once
for each such shape. For a batch the templates are repeated as the rows of an array, and each gap is filled as
a column. The official protobuf classes take about seven times as long; the tests decode these bytes with
them.

https://github.com/open-telemetry/opentelemetry-proto: trace.proto, common.proto
"""

from __future__ import annotations

import random
import re
import socket
import time
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import ClassVar, Final, NamedTuple

import numpy as np

from bayplan import __version__
from bayplan.api.pod import Pod
from bayplan.framework.points import Point
from bayplan.framework.status import Code
from bayplan.runtime.observed import AttemptTimer
from bayplan.scheduling_queue.queued import QueuedPod

MAX_NOTES: Final = 64
"""Plugins and extension points noted for one attempt; more are counted only."""
PLUGIN_THRESHOLD_SECONDS: Final = 0.001
MAX_TEXT: Final = 256
"""Length of an attribute; names and messages come from users."""
MAX_MESSAGE_BYTES: Final = 3 << 20
"""A message ends with the attempt that exceeds this: gRPC receivers accept 4 MiB by default."""
TRACEPARENT: Final = "tracing.k8s.io/traceparent"
"""The annotation of KEP-5915 with the trace in which the pod was created. Traces link to it; whether an
attempt is sampled does not depend on it, because everybody who creates pods can write it."""

_TRACEPARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_MAX_SHAPES: Final = 256
_SUCCESS: Final = Code.SUCCESS
_BIND: Final = Point.BIND
_QUEUED, _STARTED, _DECIDED, _ENDED, _NOTED = range(5)
"""Indices of the times of an attempt. From the last one on there are begin and end of each note."""


class GroupIds(NamedTuple):
    """The trace and the first span of the attempt of a group, 64 bits each."""

    trace_high: int
    trace_low: int
    span: int


class AttemptTrace(AttemptTimer):
    """The timer of a sampled attempt, and all that its spans are made of: no decision is kept until it is
    sent. Times are those of `time.perf_counter`."""

    __slots__ = (
        "_since",
        "attempt",
        "cycle_notes",
        "failure",
        "group",
        "node_name",
        "notes",
        "omitted",
        "pod",
        "result",
        "times",
        "waited_for",
    )

    for_metrics: ClassVar[bool] = False
    clock = staticmethod(time.perf_counter)
    context: ClassVar = SimpleNamespace(trace_flags=SimpleNamespace(sampled=True))
    """What the batch processor of the SDK reads of a span."""
    is_group: ClassVar[bool] = False

    def __init__(self, info: QueuedPod, started: float, waited: float) -> None:
        self.pod = info.pod
        self.attempt = info.attempts
        queued = started - waited if waited > 0 else started
        self.times = [queued, started, started, started]
        self._since = started
        self.notes: list[Note] = []
        self.omitted = 0
        """Notes."""
        self.waited_for: tuple[str, ...] = ()
        """Permit plugins."""
        self.group: GroupIds | None = None
        """Of the group itself, or of which the pod is a member."""

    def decided(self, result: str, node_name: str = "") -> None:
        """The scheduling cycle has ended, with a node or without.

        Args:
            result: as `scheduler_schedule_attempts_total` counts it.
        """
        self.times[_DECIDED] = time.perf_counter()
        self.result = result
        self.node_name = node_name
        self.cycle_notes = len(self.notes)

    def ended(self, failure: str) -> None:
        """The attempt has ended: the pod is bound, or it has failed."""
        self.times[_ENDED] = time.perf_counter()
        self.failure = failure

    def start(self) -> None:
        self._since = time.perf_counter()

    def passed(self, point: str, code: Code = _SUCCESS) -> None:
        begin, self._since = self._since, time.perf_counter()
        if len(self.notes) < MAX_NOTES:
            self.notes.append(("", point, code))
            self.times += (begin, self._since)
        else:
            self.omitted += 1

    def ran(self, point: str, code: Code, begin: float, end: float) -> None:
        self._note("", point, code, begin, end)

    def took(self, plugin: str, point: str, code: Code, seconds: float, rows: int = 0) -> None:
        # Bind has no spans of plugins: one of them binds, and takes all the time.
        if seconds >= PLUGIN_THRESHOLD_SECONDS and point != _BIND:
            now = time.perf_counter()
            self._note(plugin, point, code, now - seconds, now)

    def _note(self, plugin: str, point: str, code: Code, begin: float, end: float) -> None:
        if len(self.notes) < MAX_NOTES:
            self.notes.append((plugin, point, code))
            self.times += (begin, end)
        else:
            self.omitted += 1

    @property
    def shape(self) -> Shape:
        return (
            self.is_group,
            self.group is not None and not self.is_group,
            self.node_name != "",
            self.failure != "",
            self.cycle_notes,
            self.waited_for,
            tuple(self.notes),
        )


class GroupTrace(AttemptTrace):
    """That of a group. Its pod is the first member."""

    __slots__ = ("attributes",)

    is_group: ClassVar[bool] = True
    attributes: tuple[tuple[str, str | int], ...]
    """Of its first span."""


Note = tuple[str, str, Code]
"""Plugin ("" for the whole extension point), extension point, result."""
Shape = tuple[bool, bool, bool, bool, int, tuple[str, ...], tuple[Note, ...]]
"""What the spans of an attempt depend on, besides ids, times, and the attributes of the first one: whether it
is that of a group, of a member, has a binding, has failed; the notes before the decision; the Permit plugins
for which it waited; all notes."""


# Encoding


@lru_cache(4096)
def _varint(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _message(field: int, content: bytes) -> bytes:
    """A field that is a string, bytes or a message."""
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _fixed32(field: int, value: int) -> bytes:
    return _varint(field << 3 | 5) + value.to_bytes(4, "little")


def _bytes(text: str) -> bytes:
    return text[:MAX_TEXT].encode(errors="replace")


@cache
def _text_head(field: int, key: str, length: int) -> bytes:
    """The bytes of an attribute before its text, which has this length."""
    value_head = b"\x0a" + _varint(length)
    before = _message(1, key.encode()) + b"\x12" + _varint(len(value_head) + length) + value_head
    return _varint(field << 3 | 2) + _varint(len(before) + length) + before


def _attribute(key: str, value: str | int, field: int = 9) -> bytes:
    """A KeyValue; in a span it is field 9, in a resource field 1."""
    if isinstance(value, int):
        return _message(field, _message(1, key.encode()) + _message(2, _number(3, value)))
    text = _bytes(value)
    return _text_head(field, key, len(text)) + text


_KIND_INTERNAL: Final = _number(6, 1)
_HAS_IS_REMOTE, _IS_REMOTE = 0x100, 0x200
"""Flags of a span and a link: that it is known whether the parent is remote, and that it is."""
_FLAGS: Final = _fixed32(16, _HAS_IS_REMOTE)
_ERROR: Final = _number(3, 2)
"""The code of a Status."""


class _Span:
    """The bytes of one span, and their gaps."""

    def __init__(
        self, name: str, begin: int, end: int, own: int, parent: int | None, more: bytes = b""
    ) -> None:
        """Id and parent are columns of `SpanTemplate`, begin and end are times."""
        self.content = bytearray()
        self.gaps: list[Gap] = []
        self._add(b"\x0a\x10", _TRACE_HIGH)
        self._add(b"", _TRACE_LOW)
        self._add(b"\x12\x08", own)
        if parent is not None:
            self._add(b"\x22\x08", parent)
        self.content += _message(5, _bytes(name)) + _KIND_INTERNAL + _FLAGS
        self._add(b"\x39", begin, is_time=True)
        self._add(b"\x41", end, is_time=True)
        self.content += more

    def _add(self, head: bytes, column: int, *, is_time: bool = False) -> None:
        self.content += head
        self.gaps.append((len(self.content), column, is_time))
        self.content += bytes(8)


Gap = tuple[int, int, bool]
"""Eight bytes for an id, half a trace id, or a time: offset, column, and whether it is a column of times."""
_TRACE_HIGH, _TRACE_LOW, _OUTER, _FIRST = range(4)
"""Columns of ids. The third is that of the span of a member's group. After that of the attempt's first span
come those of the others."""


class SpanTemplate:
    """The bytes of all spans of one shape, without the attributes of the first one, and their gaps."""

    def __init__(self, shape: Shape) -> None:
        is_group, is_member, binds, failed, cycle_notes, waited_for, notes = shape
        first = _Span(
            "Schedule group" if is_group else "Schedule pod",
            _QUEUED,
            _ENDED,
            _FIRST,
            _OUTER if is_member else None,
        )
        self.first_bytes = len(first.content)
        """Length of the first span."""
        self._template = bytes(first.content)
        self._gaps = first.gaps
        self._columns = _FIRST + 1
        if not is_group:
            self._add("Queue", _FIRST, _QUEUED, _STARTED)
        cycle = binding = _FIRST
        if not is_member:
            # The cycle of a member is that of its group.
            name = "Group cycle" if is_group else "Scheduling cycle"
            cycle = binding = self._add(name, _FIRST, _STARTED, _DECIDED)
        if binds:
            more = _message(15, _ERROR) if failed else b""
            if waited_for:
                names = b"".join(_message(1, _message(1, _bytes(name))) for name in waited_for)
                more += _message(
                    9, _message(1, b"scheduler.permit.plugins") + _message(2, _message(5, names))
                )
            binding = self._add("Binding cycle", _FIRST, _DECIDED, _ENDED, more)
        # A plugin is noted before its point, whose id is needed first.
        points: dict[str, int] = {}
        for number, (plugin, point, code) in reversed(tuple(enumerate(notes))):
            above = cycle if number < cycle_notes else binding
            begin = _NOTED + 2 * number
            more = _attribute("scheduler.status", code.name)
            if plugin:
                more += _attribute("scheduler.extension_point", point)
                self._add(plugin, points.get(point, above), begin, begin + 1, more)
            else:
                points[point] = self._add(point, above, begin, begin + 1, more)

    def _add(self, name: str, parent: int, begin: int, end: int, more: bytes = b"") -> int:
        """Adds a span below another. The column of its id."""
        own = self._columns
        span = _Span(name, begin, end, own, parent, more)
        head = b"\x12" + _varint(len(span.content))
        start = len(self._template) + len(head)
        self._gaps += [(start + offset, column, is_time) for offset, column, is_time in span.gaps]
        self._template += head + span.content
        self._columns += 1
        return own

    def fill(self, attempts: Sequence[AttemptTrace], rng: random.Random, offset: int) -> memoryview:
        """The bytes of these attempts, which have this shape, one after the other.

        `offset` is added to the times, in nanoseconds.
        """
        count, length = len(attempts), len(self._template)
        ids = np.frombuffer(rng.randbytes(8 * self._columns * count), "<u8").reshape(-1, count)
        # An id must not be 0.
        ids = np.maximum(ids, 1)
        if attempts[0].group is not None:
            given = np.array([one.group for one in attempts], "<u8").T
            ids[_TRACE_HIGH], ids[_TRACE_LOW] = given[0], given[1]
            ids[_FIRST if attempts[0].is_group else _OUTER] = given[2]
        seconds = np.array([one.times for one in attempts]).T
        times = (seconds * 1e9).astype("<i8") + offset
        rows = bytearray(self._template) * count
        for at, column, is_time in self._gaps:
            filled = times if is_time else ids
            np.ndarray(count, filled.dtype, rows, at, (length,))[:] = filled[column]
        return memoryview(rows)

    def __len__(self) -> int:
        """Of one attempt, in bytes, without the attributes of the first span."""
        return len(self._template)


class SpanEncoder:
    """Encodes attempts as messages of OTLP (ExportTraceServiceRequest)."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._offset = time.time_ns() - time.perf_counter_ns()
        """Of the clock of the attempts to the time of day."""
        self._template = lru_cache(_MAX_SHAPES)(SpanTemplate)
        self._common = lru_cache(_MAX_SHAPES)(_common_attributes)
        resource = {
            "service.name": "bayplan",
            "service.version": __version__,
            "service.instance.id": socket.gethostname(),
        }
        self._resource = _message(1, b"".join(_attribute(key, text, 1) for key, text in resource.items()))
        self._scope = _message(1, _message(1, b"bayplan") + _message(2, __version__.encode()))

    def messages(self, attempts: Sequence[AttemptTrace]) -> Iterator[bytes]:
        """The messages for a batch: usually one."""
        shapes: dict[Shape, list[AttemptTrace]] = {}
        for one in attempts:
            shapes.setdefault(one.shape, []).append(one)
        parts: list[bytes | memoryview] = []
        size = 0
        for shape, alike in shapes.items():
            template = self._template(shape)
            filled = template.fill(alike, self._rng, self._offset)
            first, length, begin = template.first_bytes, len(template), 0
            for one in alike:
                own, middle, end = self._first_span(one), begin + first, begin + length
                head = b"\x12" + _varint(first + len(own))
                parts += (head, filled[begin:middle], own, filled[middle:end])
                begin, size = end, size + len(head) + len(own) + length
                if size > MAX_MESSAGE_BYTES:
                    yield self._request(parts, size)
                    parts, size = [], 0
        if parts:
            yield self._request(parts, size)

    def _request(self, spans: Sequence[bytes | memoryview], size: int) -> bytes:
        """The message with these bytes of spans, `size` in all. They are copied only once."""
        scope = b"\x12" + _varint(len(self._scope) + size) + self._scope
        head = b"\x0a" + _varint(len(self._resource) + len(scope) + size) + self._resource
        return b"".join((head, scope, *spans))

    def _first_span(self, one: AttemptTrace) -> bytes:
        """Attributes, status and link of the first span."""
        if isinstance(one, GroupTrace):
            made = b"".join([_attribute(key, value) for key, value in one.attributes])
        else:
            pod = one.pod
            name, uid = _bytes(pod.metadata.name), _bytes(pod.metadata.uid)
            made = b"".join(
                (
                    self._common(pod.metadata.namespace, pod.spec.scheduler_name, one.result, one.attempt),
                    _text_head(9, "k8s.pod.name", len(name)),
                    name,
                    _text_head(9, "k8s.pod.uid", len(uid)),
                    uid,
                )
            )
            if one.node_name:
                made += _attribute("k8s.node.name", one.node_name)
            if pod.metadata.annotations:
                made += _link(pod)
        if one.omitted:
            made += _attribute("scheduler.omitted_spans", one.omitted)
        if one.failure:
            made += _message(15, _message(2, _bytes(one.failure)) + _ERROR)
        return made


def _common_attributes(namespace: str, profile: str, result: str, attempt: int) -> bytes:
    """The attributes that many pods share."""
    return (
        _attribute("k8s.namespace.name", namespace)
        + _attribute("scheduler.profile", profile)
        + _attribute("scheduler.result", result)
        + _attribute("scheduler.attempt", attempt)
    )


def _link(pod: Pod) -> bytes:
    """The link to the trace of the pod's annotation; nothing without a valid one."""
    text = pod.metadata.annotations.get(TRACEPARENT)
    found = None if text is None else _TRACEPARENT.fullmatch(text)
    if found is None:
        return b""
    trace, span, flags = (bytes.fromhex(part) for part in found.groups())
    if not any(trace) or not any(span):
        return b""
    remote = _HAS_IS_REMOTE | _IS_REMOTE | flags[0]
    return _message(13, _message(1, trace) + _message(2, span) + _fixed32(6, remote))
