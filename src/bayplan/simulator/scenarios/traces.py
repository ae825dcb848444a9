"""Arrivals from traces: CSV files with a row for each pod.

`csv` is bayplan's own format: `arrival` and optionally `runtime` in seconds, `count`, `priority`, and a
column for each resource (`cpu`, `memory`, or a name with a slash). `openb` is the pod list of Alibaba's openb
trace (https://github.com/alibaba/clusterdata, cluster-trace-gpu-v2023).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bayplan.api.input_files import read_file
from bayplan.api.meta import ResourceList
from bayplan.api.quantity import parse_quantity
from bayplan.errors import DecodeError, QuantityError

GPU: Final = "nvidia.com/gpu"
MAX_COUNT: Final = 100_000

_PLAIN: Final = ("arrival", "runtime", "count", "priority")
_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
_OPENB: Final = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "creation_time", "deletion_time")


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

    def resource_list(self) -> ResourceList:
        return dict(self.requests)


def read_trace(path: Path, format_name: str) -> tuple[tuple[TraceRow, ...], list[str]]:
    """The rows of a trace in the order of arrival, and what it says that is not simulated.

    Raises:
        DecodeError: it is missing or malformed; the error names line and column.
    """
    try:
        text = read_file(path).decode("utf-8-sig")
    except OSError as error:
        raise DecodeError(error.strerror or str(error), source=str(path)) from error
    except UnicodeDecodeError as error:
        raise DecodeError("it is not UTF-8 text", source=str(path)) from error
    reader = csv.DictReader(io.StringIO(text, newline=""))
    columns = [name.strip() for name in reader.fieldnames or ()]
    reader.fieldnames = columns
    try:
        read = _openb(columns) if format_name == "openb" else _csv(columns)
    except DecodeError as error:
        raise error.at(source=str(path), line=1) from None
    rows = []
    try:
        for values in reader:
            try:
                if None in values or None in values.values():
                    raise _ValueError("", f"expected {len(columns)} columns")
                rows.append(read(values))
            except _ValueError as error:
                raise DecodeError(
                    error.problem, source=str(path), line=reader.line_num, field=error.column
                ) from None
    except csv.Error as error:
        raise DecodeError(f"it is not CSV: {error}", source=str(path), line=reader.line_num) from None
    if not rows:
        raise DecodeError("it has no rows", source=str(path))
    notes = []
    if format_name == "openb":
        rows, notes = _from_first(rows), _openb_notes(text)
    rows.sort(key=lambda row: row.arrival)
    return tuple(rows), notes


class _ValueError(Exception):
    def __init__(self, column: str, problem: str) -> None:
        super().__init__(problem)
        self.column = column
        self.problem = problem


def _csv(columns: Sequence[str]) -> Callable[[Mapping[str, str]], TraceRow]:
    resources = [name for name in columns if name in _RESOURCES or "/" in name]
    unknown = [name for name in columns if name not in _PLAIN and name not in resources]
    if "arrival" not in columns:
        raise DecodeError("there is no column arrival")
    if unknown:
        known = ", ".join((*_PLAIN, *_RESOURCES))
        raise DecodeError(f"unknown column {unknown[0]!r}; known are {known} and resources such as {GPU}")

    def read(values: Mapping[str, str]) -> TraceRow:
        requests = tuple((name, _quantity(values, name)) for name in resources if values[name].strip())
        return TraceRow(
            _number(values, "arrival"),
            _number(values, "runtime") if values.get("runtime", "").strip() else None,
            requests,
            int(_number(values, "count", low=1, high=MAX_COUNT)) if values.get("count", "").strip() else 1,
            int(_number(values, "priority", low=-(2**31), high=10**9))
            if values.get("priority", "").strip()
            else None,
        )

    return read


def _openb(columns: Sequence[str]) -> Callable[[Mapping[str, str]], TraceRow]:
    missing = [name for name in _OPENB if name not in columns]
    if missing:
        raise DecodeError(f"there is no column {missing[0]}; this is not an openb pod list")

    def read(values: Mapping[str, str]) -> TraceRow:
        created = _number(values, "creation_time")
        ended = _number(values, "deletion_time")
        started = _number(values, "scheduled_time") if values.get("scheduled_time", "").strip() else created
        gpus = int(_number(values, "num_gpu", high=1000))
        requests = [
            ("cpu", f"{int(_number(values, 'cpu_milli'))}m"),
            ("memory", f"{int(_number(values, 'memory_mib'))}Mi"),
        ]
        if gpus:
            requests.append((GPU, str(gpus)))
        return TraceRow(created, max(ended - started, 0.0), tuple(requests))

    return read


def _from_first(rows: Sequence[TraceRow]) -> list[TraceRow]:
    """The same rows with times relative to the first arrival."""
    first = min(row.arrival for row in rows)
    return [
        TraceRow(row.arrival - first, row.run_seconds, row.requests, row.count, row.priority) for row in rows
    ]


def _openb_notes(text: str) -> list[str]:
    shared = models = 0
    for values in csv.DictReader(io.StringIO(text, newline="")):
        shared += values["num_gpu"].strip() == "1" and values["gpu_milli"].strip() not in ("1000", "0", "")
        models += bool((values.get("gpu_spec") or "").strip())
    notes = []
    if shared:
        notes.append(f"{shared:,} pods share a GPU in the trace; here each gets a whole {GPU}")
    if models:
        notes.append(f"{models:,} pods name GPU models (gpu_spec), which are ignored")
    return notes


def _number(values: Mapping[str, str], column: str, *, low: float = 0, high: float = 1e12) -> float:
    text = values[column].strip()
    try:
        number = float(text)
    except ValueError:
        raise _ValueError(column, f"{text!r} is not a number") from None
    if not low <= number <= high:
        raise _ValueError(column, f"{text} is not between {low:g} and {high:g}")
    return number


def _quantity(values: Mapping[str, str], column: str) -> str:
    text = values[column].strip()
    try:
        parse_quantity(text)
    except QuantityError as error:
        raise _ValueError(column, error.problem) from None
    return text
