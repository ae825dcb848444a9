"""Arrivals from traces: CSV files with a row for each pod.

`csv` is bayplan's own format: `arrival` and optionally `runtime` in seconds, `count`, `priority`, and a
column for each resource (`cpu`, `memory`, or a name with a slash). `openb` is the pod list of Alibaba's openb
trace, whose pods request GPUs, or parts of one, by annotations (`plugins/gpu_sharing`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Final

from bayplan.api.quantity import parse_quantity
from bayplan.errors import DecodeError, InputError, QuantityError
from bayplan.plugins.library.gpu_sharing.request import GPU_COUNT, GPU_MILLI, GPU_MODEL
from bayplan.simulate.openb.trace import Row, pod_of, read_table

MAX_COUNT: Final = 100_000
MAX_SECONDS: Final = 1e12

_PLAIN: Final = ("arrival", "runtime", "count", "priority")
_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
_OPENB: Final = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec")
_OPENB_TIMES: Final = ("creation_time", "deletion_time", "scheduled_time")


@dataclass(frozen=True, slots=True)
class TraceRow:
    """Pods that arrive together."""

    arrival: float
    """Seconds after the start."""
    run_seconds: float | None
    """None: they run until the end."""
    requests: tuple[tuple[str, str], ...] = ()
    """Replace the requests of the template's first container."""
    count: int = 1
    priority: int | None = None
    annotations: tuple[tuple[str, str], ...] = ()


def read_trace(path: Path, format_name: str) -> tuple[TraceRow, ...]:
    """The rows of a trace in the order of arrival.

    Raises:
        InputError: it is missing or malformed; the error names line and column.
    """
    if format_name == "openb":
        rows = [_openb(row) for row in read_table(path, (*_OPENB, *_OPENB_TIMES))]
        first = min((row.arrival for row in rows), default=0.0)
        rows = [replace(row, arrival=row.arrival - first) for row in rows]
    else:
        rows = _csv_rows(path)
    if not rows:
        raise DecodeError("it has no rows", source=str(path))
    return tuple(sorted(rows, key=lambda row: row.arrival))


def _csv_rows(path: Path) -> list[TraceRow]:
    table = read_table(path, ("arrival",))
    first = next(table, None)
    if first is None:
        return []
    resources = [name for name in first.cells if name in _RESOURCES or "/" in name]
    unknown = [name for name in first.cells if name not in _PLAIN and name not in resources]
    if unknown:
        known = ", ".join((*_PLAIN, *_RESOURCES))
        problem = f"unknown column; known are {known} and resources such as nvidia.com/gpu"
        raise InputError(problem, source=str(path), line=1, field=unknown[0])
    return [_plain(row, resources) for row in chain((first,), table)]


def _plain(row: Row, resources: Sequence[str]) -> TraceRow:
    def optional(column: str, read: Callable[[Row, str], float]) -> float | None:
        return read(row, column) if row.cells.get(column) else None

    count = optional("count", lambda row, column: _number(row, column, 1, MAX_COUNT))
    priority = optional("priority", lambda row, column: _number(row, column, -(2**31), 10**9))
    return TraceRow(
        _number(row, "arrival"),
        optional("runtime", _number),
        tuple((name, _quantity(row, name)) for name in resources if row.cells[name]),
        1 if count is None else int(count),
        None if priority is None else int(priority),
    )


def _openb(row: Row) -> TraceRow:
    pod = pod_of(row)
    created, ended = _number(row, "creation_time"), _number(row, "deletion_time")
    started = _number(row, "scheduled_time") if row.cells["scheduled_time"] else created
    annotations: list[tuple[str, str]] = []
    if pod.gpus:
        annotations += [(GPU_COUNT, str(pod.gpus)), (GPU_MILLI, str(pod.gpu_milli))]
        if pod.gpu_spec:
            annotations.append((GPU_MODEL, pod.gpu_spec))
    requests = (("cpu", f"{pod.cpu_milli}m"), ("memory", f"{pod.memory_mib}Mi"))
    return TraceRow(created, max(ended - started, 0.0), requests, annotations=tuple(annotations))


def _number(row: Row, column: str, low: float = 0, high: float = MAX_SECONDS) -> float:
    text = row.cells[column]
    try:
        number = float(text)
    except ValueError:
        raise row.problem(column, f"{text[:40]!r} is not a number") from None
    if not low <= number <= high:
        raise row.problem(column, f"{text[:40]} is not between {low:g} and {high:g}")
    return number


def _quantity(row: Row, column: str) -> str:
    text = row.cells[column]
    try:
        parse_quantity(text)
    except QuantityError as error:
        raise row.problem(column, error.problem) from None
    return text
