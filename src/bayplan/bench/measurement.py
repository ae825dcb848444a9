"""The result of a benchmark as one flat record: the line of JSON, and the row of the table."""

from __future__ import annotations

import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from rich.table import Table


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One workload at one size. Times are microseconds; field names are those of the JSON line."""

    workload: str
    nodes: int
    init_pods: int
    pods: int
    """Pods measured. Background pods are not among them, but their time is in all the figures."""
    pods_per_s: float
    cpu_us_per_pod: float
    """CPU time of the process over all measured attempts, divided by `pods`."""
    p50_us: float
    p99_us: float
    """Percentiles over pods, from the first attempt to the last one where it takes several."""
    rows_per_pod: float
    """Node rows evaluated for each pod; `nodes` where nothing is reused."""
    peak_rss_mb: float
    """The peak memory of the process, set-up included."""
    scheduled: int
    unscheduled: int
    """Pods, background ones included, that found a node and that did not."""
    evicted: int
    kubernetes_version: str = ""
    """The version whose rules were measured; empty if it is unknown."""

    def as_json(self) -> str:
        return msgspec.json.encode(self).decode()


def percentile(ordered: Sequence[int], percent: float) -> float:
    """Nearest-rank percentile of values in ascending order, 0 if there are none."""
    if not ordered:
        return 0.0
    rank = max(1, -(-len(ordered) * percent // 100))
    return float(ordered[int(rank) - 1])


def peak_rss_mb() -> float:
    """The high-water mark of this process's memory, in MiB.

    On Linux it is read from /proc: getrusage would also count the process that started this one, up to
    the moment it became bayplan.
    """
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return round(int(line.split()[1]) / 1024, 1)
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1024 * 1024 if sys.platform == "darwin" else 1024), 1)


CORE_TITLE: Final = "decision core, one pod after the other"
WHOLE_TITLE: Final = "the whole way of a pod: created, queued, decided, bound, confirmed"


def make_table(measurements: Sequence[Measurement], title: str = CORE_TITLE) -> Table:
    """The measurements as a table: one row per workload."""
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("workload", overflow="fold")
    for heading in ("nodes", "init", "pods", "placed", "pods/s", "CPU µs", "p50 µs", "p99 µs", "rows", "MiB"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in measurements:
        table.add_row(
            one.workload,
            f"{one.nodes:,}",
            f"{one.init_pods:,}",
            f"{one.pods:,}",
            f"{one.scheduled:,}",
            f"{one.pods_per_s:,.0f}",
            f"{one.cpu_us_per_pod:,.1f}",
            f"{one.p50_us:,.1f}",
            f"{one.p99_us:,.1f}",
            f"{one.rows_per_pod:,.1f}",
            f"{one.peak_rss_mb:,.0f}",
        )
    return table
