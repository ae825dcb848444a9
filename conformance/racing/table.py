"""Results as a table: kube-scheduler and bayplan side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table

from conformance.racing.heat import Result

THEIRS, OURS = "kube-scheduler", "bayplan"


def make_table(title: str, results: Sequence[Result]) -> Table:
    """One row a course: both values of each measure, and how they compare."""
    table = Table(title=title, title_justify="left")
    table.add_column("workload")
    table.add_column("nodes", justify="right")
    for measure in ("pods/s", "CPU µs a pod", "memory MB", "start s"):
        table.add_column(measure, justify="right")
    for course in dict.fromkeys(result.course for result in results):
        of_course = {result.scheduler: result for result in results if result.course == course}
        pairs = (
            _pair(of_course, "pods_per_s", more_is_better=True),
            _pair(of_course, "cpu_us_per_pod"),
            _pair(of_course, "memory_mb"),
            _pair(of_course, "start_s"),
        )
        table.add_row(course.workload, f"{course.nodes:,}", *pairs)
    return table


def _pair(results: dict[str, Result], measure: str, *, more_is_better: bool = False) -> str:
    values = [results[name].as_json()[measure] if name in results else None for name in (THEIRS, OURS)]
    shown = " → ".join("–" if value is None else f"{value:,}" for value in values)
    theirs, ours = values
    if not theirs or not ours:
        return shown
    factor = ours / theirs if more_is_better else theirs / ours
    return f"{shown}  ({factor:.1f}×)"


def incomplete(results: Iterable[Result]) -> list[str]:
    """The heats that did not finish: they are not results."""
    return [
        f"{result.scheduler} bound {result.bound} of {result.course.pods} pods of {result.course.name}"
        for result in results
        if result.bound != result.course.pods
    ]
