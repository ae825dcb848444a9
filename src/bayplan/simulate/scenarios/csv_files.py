"""The result of a simulation as CSV: samples alone in one file, or everything in a directory."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from bayplan.simulate.scenarios.result import Result
from bayplan.simulate.scenarios.run import Finished

CSV_SUFFIX: Final = ".csv"
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def write_csv(target: Path, finished: Finished, result: Result) -> list[Path]:
    """Writes `target` (samples) if it ends in `.csv`, else four files into the directory `target`."""
    if target.suffix == CSV_SUFFIX:
        _write(target, *_samples(result))
        return [target]
    target.mkdir(parents=True, exist_ok=True)
    tables = {
        "samples": _samples(result),
        "pods": _pods(finished),
        "workloads": _workloads(result),
        "reasons": _reasons(result),
    }
    written = []
    for name, (header, rows) in tables.items():
        path = target / f"{name}{CSV_SUFFIX}"
        _write(path, header, rows)
        written.append(path)
    return written


_Table = tuple[Sequence[str], Iterable[Sequence[object]]]


def _samples(result: Result) -> _Table:
    series = result.series
    columns: dict[str, Sequence[object]] = {
        "time": series.times,
        "nodes": series.nodes,
        "readyNodes": series.ready_nodes,
        "running": series.running,
        "waiting": series.waiting,
        "active": series.active,
        "backoff": series.backoff,
        "unschedulable": series.unschedulable,
        "gated": series.gated,
        "atPermit": series.at_permit,
        **{f"utilisation {name}": values for name, values in series.utilisation.items()},
        **{f"fragmentation {name}": values for name, values in series.fragmentation.items()},
    }
    return list(columns), zip(*columns.values(), strict=True)


def _pods(finished: Finished) -> _Table:
    header = ("namespace", "name", "workload", "arrived", "scheduled", "ended", "outcome", "node", "attempts")
    return header, (
        (
            pod.namespace,
            pod.name,
            pod.workload,
            round(pod.arrived, 6),
            "" if pod.scheduled is None else round(pod.scheduled, 6),
            "" if pod.ended is None else round(pod.ended, 6),
            "" if pod.ended is None or pod.outcome is None else pod.outcome.value,
            pod.node_name,
            pod.attempts,
        )
        for pod in finished.figures.pods
    )


def _workloads(result: Result) -> _Table:
    counts = ("workload", "arrived", "scheduled", "waiting", "running", "finished")
    return (*counts, "mean", "p50", "p90", "p95", "p99", "max"), (
        (
            *(one.name, one.arrived, one.scheduled, one.waiting, one.running, one.finished),
            *(times.mean, times.p50, times.p90, times.p95, times.p99, times.max),
        )
        for one in result.workloads
        for times in (one.waiting_time,)
    )


def _reasons(result: Result) -> _Table:
    return ("plugin", "reason", "podSeconds", "attempts"), (
        (one.plugin, one.reason, one.pod_seconds, one.attempts) for one in result.reasons
    )


def _write(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(map(_cells, rows))


def _cells(row: Sequence[object]) -> list[object]:
    """A text that a spreadsheet would run as a formula gets a quote in front."""
    return [f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell for cell in row]
