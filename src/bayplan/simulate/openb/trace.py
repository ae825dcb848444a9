"""The nodes and pods of a trace, as its CSV files have them, and the order in which pods arrive.

Only the columns that the experiment reads are required; further columns are ignored. Every problem names the
file, the line and the column.

Pods arrive until 130 % of the cluster's GPU has been requested: first every pod of the trace, shuffled, then
copies that are drawn from it. The order of the nodes decides among nodes with equal scores.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from bayplan.api.documents import read_lines
from bayplan.errors import InputError
from bayplan.plugins.library.gpu_sharing.request import DEVICE_MILLI, MAX_DEVICES, models_in

NODES_FILE: Final = "openb_node_list_gpu_node.csv"
PODS_FILE: Final = "openb_pod_list_default.csv"

MAX_ROWS: Final = 1_000_000
MAX_AMOUNT: Final = 10**12


@dataclass(frozen=True, slots=True)
class TraceNode:
    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str

    @property
    def gpu_milli(self) -> int:
        return self.gpus * DEVICE_MILLI


@dataclass(frozen=True, slots=True)
class TracePod:
    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    """Of each device; 0 without devices."""
    gpu_spec: str
    """The models that will do, separated by `|`; empty: all."""

    @property
    def total_milli(self) -> int:
        return self.gpus * self.gpu_milli


@dataclass(frozen=True, slots=True)
class Trace:
    """Nodes and pods, in the order of the files."""

    nodes: tuple[TraceNode, ...]
    pods: tuple[TracePod, ...]

    @property
    def capacity_milli(self) -> int:
        return sum(node.gpu_milli for node in self.nodes)


def read_trace(directory: Path) -> Trace:
    """Reads the two files of a trace.

    Raises:
        InputError: a file is missing or invalid.
    """
    nodes = read_nodes(directory / NODES_FILE)
    pods = _unique(directory / PODS_FILE, "name", _pods(directory / PODS_FILE))
    trace = Trace(tuple(nodes), tuple(pods))
    if not trace.capacity_milli:
        raise InputError("no node has a GPU", source=str(directory / NODES_FILE), field="gpu")
    if not any(pod.gpus for pod in trace.pods):
        raise InputError("no pod requests a GPU", source=str(directory / PODS_FILE), field="num_gpu")
    return trace


def read_nodes(path: Path) -> list[TraceNode]:
    """The nodes of one file.

    Raises:
        InputError: it is missing or invalid.
    """
    return _unique(path, "sn", _nodes(path))


def _nodes(path: Path) -> Iterator[tuple[int, TraceNode]]:
    for row in read_table(path, ("sn", "cpu_milli", "memory_mib", "gpu", "model")):
        yield (
            row.line,
            TraceNode(
                name=row.text("sn"),
                cpu_milli=row.number("cpu_milli"),
                memory_mib=row.number("memory_mib"),
                gpus=row.number("gpu", MAX_DEVICES),
                model=row.cells["model"],
            ),
        )


def _pods(path: Path) -> Iterator[tuple[int, TracePod]]:
    columns = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec")
    for row in read_table(path, columns):
        yield row.line, pod_of(row)


def pod_of(row: Row) -> TracePod:
    """The pod of one line."""
    gpus = row.number("num_gpu", MAX_DEVICES)
    milli = min(row.number("gpu_milli"), DEVICE_MILLI) if gpus else 0
    if gpus and not milli:
        raise row.problem("gpu_milli", f"is 0, but num_gpu is {gpus}")
    if gpus > 1 and milli < DEVICE_MILLI:
        raise row.problem("gpu_milli", f"{milli} of each of {gpus} GPUs: several GPUs must be whole")
    return TracePod(
        name=row.text("name"),
        cpu_milli=row.number("cpu_milli"),
        memory_mib=row.number("memory_mib"),
        gpus=gpus,
        gpu_milli=milli,
        gpu_spec=row.cells["gpu_spec"] if gpus and models_in(row.cells["gpu_spec"]) else "",
    )


NamedT = TypeVar("NamedT", TraceNode, TracePod)


def _unique(path: Path, column: str, items: Iterator[tuple[int, NamedT]]) -> list[NamedT]:
    lines: dict[str, int] = {}
    found = []
    for line, item in items:
        first = lines.setdefault(item.name, line)
        if first != line:
            problem = f"{item.name!r} is in line {first}, too"
            raise InputError(problem, source=str(path), line=line, field=column)
        found.append(item)
    return found


# CSV


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table."""

    source: str
    line: int
    cells: Mapping[str, str]

    def text(self, column: str) -> str:
        value = self.cells[column]
        if not value:
            raise self.problem(column, "is empty")
        return value

    def number(self, column: str, highest: int = MAX_AMOUNT) -> int:
        text = self.cells[column]
        if not (text.isascii() and text.isdigit()):
            raise self.problem(column, f"{text[:40]!r} is not a whole number")
        if len(text) > 18 or int(text) > highest:
            raise self.problem(column, f"{text[:40]} is greater than {highest}")
        return int(text)

    def problem(self, column: str, text: str) -> InputError:
        return InputError(text, source=self.source, line=self.line, field=column)


def read_table(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    """The lines of a CSV file that has these columns, and perhaps others.

    Raises:
        InputError: the file cannot be read, lacks a column, or has a malformed line.
    """
    source, names = str(path), None
    try:
        for line, content in read_lines(path):
            cells = _cells(source, line, content)
            if names is None:
                names = cells
                missing = [name for name in columns if name not in names]
                if missing:
                    raise InputError("the column is missing", source=source, line=line, field=missing[0])
                continue
            if line > MAX_ROWS:
                raise InputError(f"has more than {MAX_ROWS:,} lines", source=source)
            if len(cells) != len(names):
                problem = f"has {len(cells)} columns, the header has {len(names)}"
                raise InputError(problem, source=source, line=line)
            yield Row(source, line, dict(zip(names, cells, strict=True)))
    except OSError as error:
        raise InputError((error.strerror or "cannot be read").lower(), source=source) from None
    if names is None:
        raise InputError("is empty", source=source)


def _cells(source: str, line: int, content: bytes) -> list[str]:
    try:
        text = content.decode().removeprefix("\ufeff").rstrip("\r\n")
        rows = list(csv.reader([text], strict=True))
    except UnicodeDecodeError:
        raise InputError("is not UTF-8", source=source, line=line) from None
    except csv.Error as error:
        raise InputError(f"is not CSV: {error}", source=source, line=line) from None
    return [cell.strip() for cell in rows[0]] if rows else []


# Orders

ARRIVALS_FILE: Final = "arrivals.csv"
RANKS_FILE: Final = "node_ranks.csv"

TARGET_PERCENT: Final = 130
MAX_ARRIVALS: Final = 1_000_000
_DRAWS: Final = 4096


@dataclass(frozen=True, slots=True)
class Orders:
    """Indexes into the pods and nodes of a trace."""

    arrivals: Sequence[int]
    nodes: Sequence[int]


def seeded_orders(trace: Trace, seed: int) -> Orders:
    """Orders that follow from the seed alone.

    Raises:
        InputError: the requests are so small that there would be too many arrivals.
    """
    rng = np.random.default_rng(seed)
    pods = trace.pods
    by_name = sorted(range(len(pods)), key=lambda index: pods[index].name)
    arrivals = [by_name[place] for place in rng.permutation(len(pods)).tolist()]
    target = trace.capacity_milli * TARGET_PERCENT // 100
    requested = sum(pod.total_milli for pod in pods)
    while requested > target:
        requested -= pods[arrivals.pop(int(rng.integers(len(arrivals))))].total_milli
    if len(arrivals) == len(pods):
        _append_copies(trace, arrivals, requested, target, rng, by_name)
    by_node_name = sorted(range(len(trace.nodes)), key=lambda index: trace.nodes[index].name)
    nodes = [by_node_name[place] for place in rng.permutation(len(trace.nodes)).tolist()]
    return Orders(arrivals, nodes)


def _append_copies(
    trace: Trace,
    arrivals: list[int],
    requested: int,
    target: int,
    rng: np.random.Generator,
    by_name: Sequence[int],
) -> None:
    """Appends copies of pods. The published rule compares with one device of the drawn pod, not with all."""
    while True:
        for draw in rng.integers(len(by_name), size=_DRAWS).tolist():
            index = by_name[draw]
            pod = trace.pods[index]
            if requested + pod.gpu_milli > target:
                return
            arrivals.append(index)
            requested += pod.total_milli
        if len(arrivals) > MAX_ARRIVALS:
            raise InputError(
                f"more than {MAX_ARRIVALS:,} pods would arrive: their GPU requests are too small"
            )


def read_orders(directory: Path, trace: Trace, seed: int) -> Orders:
    """The orders in the columns `seed<number>` of two files: row numbers of pods, and ranks of nodes.

    Raises:
        InputError: a file is missing or invalid, or does not fit the trace.
    """
    column = f"seed{seed}"
    arrivals, ranks = directory / ARRIVALS_FILE, directory / RANKS_FILE
    # Columns may differ in length: the shorter ones end with empty cells.
    rows = [row for row in read_table(arrivals, (column,)) if row.cells[column]]
    found = [row.number(column, len(trace.pods) - 1) for row in rows]
    by_rank: dict[int, Row] = {}
    nodes = [0] * len(trace.nodes)
    count = 0
    for index, row in enumerate(read_table(ranks, (column,))):
        if index >= len(nodes):
            raise row.problem(column, f"the trace has only {len(nodes)} nodes")
        rank = row.number(column, len(nodes) - 1)
        if by_rank.setdefault(rank, row) is not row:
            raise row.problem(column, f"rank {rank} is in line {by_rank[rank].line}, too")
        nodes[rank] = index
        count += 1
    if count != len(nodes):
        raise InputError(f"has {count} ranks for {len(nodes)} nodes", source=str(ranks), field=column)
    return Orders(found, nodes)
