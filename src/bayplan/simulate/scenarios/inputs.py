"""What the parts of a scenario stand for: times, nodes, and the rows of traces.

Every workload has a random generator of its own, seeded with the simulation's seed and the workload's name:
a workload that is added or removed does not change the random numbers of the others.

Traces are CSV files with a row for each pod. `csv` is bayplan's own format: `arrival` and optionally
`runtime` in seconds, `count`, `priority`, and a column for each resource (`cpu`, `memory`, or a name with a
slash). `openb` is the pod list of Alibaba's openb trace, whose pods request GPUs, or parts of one, by
annotations (`plugins/library/gpu_sharing`).

`schema.py` has the fields of the file, `reading.py` checks them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Final

from bayplan.api.check import check_object
from bayplan.api.defaults import with_defaults
from bayplan.api.meta import Condition, ObjectMeta, ResourceList
from bayplan.api.node import Node, NodeSpec, NodeStatus
from bayplan.api.quantity import parse_quantity
from bayplan.errors import DecodeError, InputError, QuantityError
from bayplan.framework.args import Duration
from bayplan.plugins.library.gpu_sharing.request import GPU_COUNT, GPU_MILLI, GPU_MODEL
from bayplan.simulate.openb.trace import Row, pod_of, read_table
from bayplan.simulate.scenarios.schema import Arrivals, Distribution, NodeGroup, Rate

# Times

Draw = Callable[[random.Random], float]
"""Draws a number of seconds."""


def generator(seed: int, *names: str) -> random.Random:
    """The generator for what has this name. Strings seed the same generator in every process."""
    return random.Random("/".join((str(seed), *names)))


def seconds(text: str) -> float:
    """A duration in seconds; ValueError if it is not one, or negative."""
    duration = Duration.parse(text)
    if duration.nanoseconds < 0:
        raise ValueError(f"{text!r} is negative")
    return duration.seconds


def drawing(times: str | Distribution) -> Draw:
    """Draws from a distribution that `reading.py` has checked."""
    if isinstance(times, str):
        return _always(seconds(times))
    if times.fixed is not None:
        return _always(seconds(times.fixed))
    if times.exponential is not None:
        mean = seconds(times.exponential)
        return lambda rng: rng.expovariate(1 / mean) if mean else 0.0
    if times.uniform is not None:
        low, high = seconds(times.uniform.min), seconds(times.uniform.max)
        return lambda rng: rng.uniform(low, high)
    assert times.lognormal is not None, "exactly one field is set"
    mu, sigma = math.log(seconds(times.lognormal.median)), times.lognormal.sigma
    return lambda rng: rng.lognormvariate(mu, sigma)


def _always(amount: float) -> Draw:
    return lambda rng: amount


def interval(rate: Rate) -> float:
    """Seconds between two arrivals, or their mean."""
    if rate.every is not None:
        return seconds(rate.every)
    assert rate.per_hour is not None, "one of the two is set"
    return 3600 / rate.per_hour


def arrival_times(arrivals: Arrivals, rng: random.Random, until: float) -> Iterator[float]:
    """When the workload arrives, in order; without traces, which have times of their own.

    The first arrival at a constant rate is at `start`; the first of a Poisson process is random.
    """
    start = seconds(arrivals.start)
    end = until if arrivals.end is None else min(seconds(arrivals.end), until)
    times: Iterator[float]
    if arrivals.constant is not None:
        times = _constant(start, interval(arrivals.constant))
    elif arrivals.poisson is not None:
        times = _poisson(start, interval(arrivals.poisson), rng)
    elif arrivals.at is not None:
        times = iter(sorted(map(seconds, arrivals.at)))
    else:
        times = iter((start,))
    for number, time in enumerate(times):
        if time >= end or (arrivals.count is not None and number >= arrivals.count):
            return
        yield time


def _constant(start: float, every: float) -> Iterator[float]:
    number = 0
    while True:
        yield start + number * every
        number += 1


def _poisson(start: float, mean: float, rng: random.Random) -> Iterator[float]:
    time = start
    while True:
        time += rng.expovariate(1 / mean)
        yield time


# Nodes

DEFAULT_ALLOCATABLE: Final[ResourceList] = {"cpu": "8", "memory": "32Gi", "pods": "110"}
HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
READY: Final = Condition(type="Ready", status="True")


def make_node(group: NodeGroup, number: int) -> Node:
    """The node of this number, as its kubelet would register it.

    Raises:
        InputError: a quantity, label or taint is malformed.
    """
    name = f"{group.name}-{number}"
    labels = {HOSTNAME: name}
    if group.zones:
        labels[ZONE] = group.zones[number % len(group.zones)]
    allocatable = {**DEFAULT_ALLOCATABLE, **group.allocatable}
    node = Node(
        metadata=ObjectMeta(name=name, labels={**labels, **group.labels}),
        spec=NodeSpec(taints=group.taints),
        status=NodeStatus(allocatable=allocatable, capacity=allocatable, conditions=(READY,)),
    )
    check_object(node)
    (made,) = with_defaults([node])
    assert isinstance(made, Node)
    return made


# Traces

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
