"""The result of a simulation as tables for a terminal, and as CSV files."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bayplan.simulate.scenarios.result import (
    QUEUES,
    Descheduling,
    QueueResult,
    Result,
    Waiting,
    WorkloadResult,
)
from bayplan.simulate.scenarios.run import Finished

MAX_REASONS = 10
"""Reasons shown on a terminal; JSON, CSV and the report have more."""


def print_result(console: Console, result: Result) -> None:
    """Prints all tables; names of users are never interpreted as markup."""
    pods, scheduling, nodes = result.pods, result.scheduling, result.nodes
    console.print(
        f"{result.scenario}: {duration(result.duration)} simulated, seed {result.seed}; "
        f"decided as Kubernetes {result.emulated_version}",
        soft_wrap=True,
    )
    console.print()
    outcomes = ", ".join(f"{count:,} {name}" for name, count in pods.outcomes.items())
    _print_pairs(
        console,
        [
            ("pods", f"{pods.initial:,} initial + {pods.arrived:,} arrived"),
            ("", f"= {pods.waiting:,} waiting + {pods.running:,} running + {pods.finished:,} finished"),
            ("finished", outcomes or "none"),
            (
                "attempts",
                f"{scheduling.attempts:,}, of which {scheduling.failed_attempts:,} failed"
                + (f", {scheduling.errors:,} of these with an error" if scheduling.errors else ""),
            ),
            ("preemptions", f"{scheduling.preemptions:,}; victims: {scheduling.victims:,}"),
            (
                "nodes",
                f"{nodes.start:,} at the start, {nodes.end:,} at the end; failures: {nodes.failures:,}",
            ),
        ],
    )
    console.print()
    if result.descheduling:
        console.print(_descheduling(result.descheduling))
        console.print()
    console.print(_shares(result))
    console.print()
    console.print(_queues(result))
    console.print()
    console.print(_workloads(result))
    console.print()
    if result.capacity_queues:
        console.print(_capacity_queues(result))
        console.print(f"  fairness     {fairness(result)}", soft_wrap=True)
        console.print()
    console.print(_reasons(result))
    console.print()
    for note in result.notes:
        console.print(f"note: {note}", soft_wrap=True)
    console.print(f"placements {result.placements_digest[:16]}")


def _print_pairs(console: Console, pairs: Iterable[tuple[str, str]]) -> None:
    for name, text in pairs:
        console.print(f"  {name:<12} {text}", soft_wrap=True)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(f"  {columns[0]}", overflow="fold")
    for column in columns[1:]:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _shares(result: Result) -> Table:
    table = _table("resource", "used, mean", "used, max", "fragmented, mean", "fragmented, max")
    for resource, used in result.utilisation.items():
        lost = result.fragmentation.get(resource)
        shares = (used.mean, used.max, *((lost.mean, lost.max) if lost is not None else ()))
        table.add_row(Text(f"  {resource}"), *map(percent, shares))
    return table


def _descheduling(runs: Sequence[Descheduling]) -> Table:
    table = _table("descheduling", *(run_title(one) for one in runs))
    for name, values in descheduling_rows(runs):
        table.add_row(f"  {name}", *values)
    return table


def run_title(run: Descheduling) -> str:
    """Who evicts pods in a run."""
    return {"none": "without", "upstream": "descheduler", "scheduler": "bayplan"}[run.decision]


def descheduling_rows(runs: Sequence[Descheduling]) -> list[tuple[str, list[str]]]:
    """The figures by which runs with and without descheduling are compared: a value for each run."""
    evictions = [one for one in runs if one.evictions]

    def counts(name: str) -> list[str]:
        return [f"{getattr(one, name):,}" if one in evictions else "-" for one in runs]

    return [
        ("pods that the policy would evict, mean", [f"{one.candidates.mean:,.1f}" for one in runs]),
        ("the same, at the end", [f"{one.candidates_at_end:,}" for one in runs]),
        ("evictions", [f"{one.evictions:,}" for one in runs]),
        ("replacements on another node", counts("other_node")),
        ("replacements back on the same node", counts("same_node")),
        ("replacements without a node", counts("no_node")),
        ("time that evicted pods had run", [duration(one.lost_seconds) for one in runs]),
        ("CPU requested on the fullest node, mean", [percent(one.fullest_node.mean) for one in runs]),
        ("nodes without pods, mean", [f"{one.empty_nodes.mean:,.1f}" for one in runs]),
        ("waiting time, 99th percentile", [_times(one.waiting_time)[2] for one in runs]),
        ("pods waiting at the end", [f"{one.waiting_at_end:,}" for one in runs]),
    ]


def _queues(result: Result) -> Table:
    table = _table("queue", "mean", "max")
    for name in QUEUES:
        summary = result.queue[name]
        table.add_row(f"  {queue_title(name)}", f"{summary.mean:,.1f}", f"{summary.max:,.0f}")
    return table


def _workloads(result: Result) -> Table:
    table = _table("workload", "arrived", "scheduled", "waiting", "wait p50", "p90", "p99", "max")
    for one in result.workloads:
        counts = (f"{count:,}" for count in (one.arrived, one.scheduled, one.waiting))
        table.add_row(Text(f"  {one.name}"), *counts, *_times(one.waiting_time))
    total = result.waiting_time
    pods = result.pods
    counts = (f"{count:,}" for count in (pods.initial + pods.arrived, total.pods, pods.waiting))
    table.add_row("  all", *counts, *_times(total))
    return table


def _capacity_queues(result: Result) -> Table:
    table = _table("capacity queue", "arrived", "waiting", "wait p50", "p90", "p99", "max", *SHARE_HEADS)
    for one in result.capacity_queues:
        counts = (f"{count:,}" for count in (one.arrived, one.waiting))
        table.add_row(Text(f"  {one.queue}"), *counts, *_times(one.waiting_time), *share_cells(one))
    return table


SHARE_HEADS: Final = ("share, mean", "max", "competing")


def share_cells(queue: QueueResult) -> tuple[str, ...]:
    """For the columns of `SHARE_HEADS`."""
    competing = queue.share_while_competing
    shown = "-" if competing is None else f"{competing:.2f}"
    return (f"{queue.share.mean:.2f}", f"{queue.share.max:.2f}", shown)


def fairness(result: Result) -> str:
    found = result.fairness
    if found is None:
        return "not measured: at no time did two queues compete"
    time = percent(found.samples / len(result.series.times))
    return f"{found.mean:.2f} mean, {found.min:.2f} min, while queues compete ({time} of the time)"


def _times(waiting: Waiting) -> tuple[str, ...]:
    if not waiting.pods:
        return ("-", "-", "-", "-")
    return tuple(map(duration, (waiting.p50, waiting.p90, waiting.p99, waiting.max)))


def _reasons(result: Result) -> Table:
    table = _table("reason for waiting", "pod hours", "attempts")
    for one in result.reasons[:MAX_REASONS]:
        text = f"  {one.plugin}: {one.reason}" if one.plugin else f"  {one.reason}"
        table.add_row(Text(text), f"{one.pod_seconds / 3600:,.2f}", f"{one.attempts:,}")
    if not result.reasons:
        table.add_row("  none: every pod was scheduled when it arrived", "", "")
    if len(result.reasons) > MAX_REASONS:
        table.add_row(f"  … and {len(result.reasons) - MAX_REASONS} more", "", "")
    return table


def queue_title(name: str) -> str:
    return {"waiting": "all waiting pods", "at_permit": "waiting at Permit"}.get(name, name)


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def duration(seconds: float) -> str:
    """`0s`, `3.2s`, `1m05s`, `2h03m`, `1d04h`: two units are enough to read."""
    if seconds < 60:
        text = f"{seconds:.1f}".removesuffix(".0")
        return f"{text}s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


CSV_SUFFIX: Final = ".csv"
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def write_csv(target: Path, finished: Finished, result: Result) -> list[Path]:
    """Writes the samples to `target` if it ends in `.csv`, else each table into a file of that directory."""
    if target.suffix == CSV_SUFFIX:
        _write(target, *_samples(result))
        return [target]
    target.mkdir(parents=True, exist_ok=True)
    tables = {
        "samples": _samples(result),
        "pods": _pods(finished),
        "workloads": _workload_rows(result),
        "reasons": _reason_rows(result),
        **({"queues": _queue_rows(result)} if result.capacity_queues else {}),
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
        **{f"share {name}": values for name, values in series.shares.items()},
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


_COUNTS: Final = ("arrived", "scheduled", "waiting", "running", "finished")
_WAITS: Final = ("mean", "p50", "p90", "p95", "p99", "max")


def _workload_rows(result: Result) -> _Table:
    return ("workload", *_COUNTS, *_WAITS), ((one.name, *_figures(one)) for one in result.workloads)


def _queue_rows(result: Result) -> _Table:
    return ("queue", *_COUNTS, *_WAITS, "share", "maxShare", "shareWhileCompeting"), (
        (one.queue, *_figures(one), one.share.mean, one.share.max, one.share_while_competing)
        for one in result.capacity_queues
    )


def _figures(one: WorkloadResult | QueueResult) -> tuple[float, ...]:
    counts, times = (getattr(one, name) for name in _COUNTS), one.waiting_time
    return (*counts, *(getattr(times, name) for name in _WAITS))


def _reason_rows(result: Result) -> _Table:
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
