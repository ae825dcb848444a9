"""`bayplan bench`: runs benchmark workloads and prints the measurements.

`bayplan.bench` contains the workloads and the measuring code. With several workloads each runs in a process
of its own, so that peak memory is measured per workload and no workload warms up for the next.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence

import click
import msgspec
from rich.console import Console
from rich.table import Table

from bayplan.bench.errors import BenchError
from bayplan.bench.measurement import CORE_TITLE, WHOLE_TITLE, Measurement, make_table
from bayplan.bench.runner import Sizes, measure, progress_on
from bayplan.bench.workload import Workload
from bayplan.bench.workloads import WORKLOADS, find_workload
from bayplan.cli.encoding import echo
from bayplan.cli.options import release_option
from bayplan.releases import DEFAULT_RELEASE, Release

PLAIN_WIDTH = 150
"""Columns of a table that is written to a file or pipe; wide enough for every line."""


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--core",
    is_flag=True,
    help="Measure only decisions: from the decoded pod to the assumed pod, without queue and binding.",
)
@click.option("--nodes", type=click.IntRange(min=1), help="Number of nodes.")
@click.option(
    "--init-pods", type=click.IntRange(min=0), help="Total number of pods scheduled before the measurement."
)
@click.option("--pods", type=click.IntRange(min=1), help="Pods to measure.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line instead of a table.")
@click.option("--list", "list_only", is_flag=True, help="List the workloads and their sizes; run nothing.")
@click.option("--profile", is_flag=True, help="Write a profile to standard error. Slows the run down.")
@release_option
@click.pass_context
def bench(
    ctx: click.Context,
    names: tuple[str, ...],
    core: bool,
    nodes: int | None,
    init_pods: int | None,
    pods: int | None,
    as_json: bool,
    list_only: bool,
    profile: bool,
    release: Release | None,
) -> None:
    """Measure the speed of scheduling for the named workloads, or for all.

    Most workloads and sizes are those of Kubernetes' scheduler_perf for 5,000 nodes.
    """
    workloads = [find_workload(name) for name in names] or [
        workload for workload in WORKLOADS if not (core and workload.needs_scheduler)
    ]
    if list_only:
        _print_list(workloads, as_json)
        return
    sizes = [
        Sizes(
            nodes=nodes or workload.nodes,
            init_pods=workload.init_pods if init_pods is None else init_pods,
            pods=pods or workload.pods,
        )
        for workload in workloads
    ]
    release = release or DEFAULT_RELEASE
    if len(workloads) == 1:
        results = iter([_run_here(workloads[0], sizes[0], core, profile, release)])
    else:
        results = _run_apart(ctx, workloads, sizes, core, profile, release)
    if as_json:
        for result in results:
            echo(result.as_json())
        return
    finished: list[Measurement] = []
    try:
        finished.extend(results)
    finally:
        if finished:
            _print(make_table(finished, CORE_TITLE if core else WHOLE_TITLE))


def _run_here(workload: Workload, sizes: Sizes, core: bool, profile: bool, release: Release) -> Measurement:
    from bayplan.bench.core import make_core
    from bayplan.bench.whole import measure_whole

    progress = progress_on(sys.stderr, workload.name)
    stream = sys.stderr if profile else None
    try:
        if core:
            return measure(workload, make_core(release), sizes, progress=progress, profile=stream)
        return measure_whole(workload, sizes, progress=progress, profile=stream, release=release)
    finally:
        progress("", 0, 0)


def _run_apart(
    ctx: click.Context,
    workloads: Sequence[Workload],
    sizes: Sequence[Sizes],
    core: bool,
    profile: bool,
    release: Release,
) -> Iterator[Measurement]:
    """Runs each workload in a process of its own; a failure is printed by that process and ends the run."""
    for workload, size in zip(workloads, sizes, strict=True):
        command = [sys.executable, "-m", "bayplan.cli.main", "bench", workload.name, "--json"]
        if core:
            command.append("--core")
        command += ["--nodes", str(size.nodes), "--init-pods", str(size.init_pods), "--pods", str(size.pods)]
        command += ["--emulated-version", release.version]
        if profile:
            command.append("--profile")
        ended = subprocess.run(command, stdout=subprocess.PIPE, check=False)
        if ended.returncode < 0:
            raise BenchError(f"{workload.name}: the process was ended by signal {-ended.returncode}")
        if ended.returncode > 0:
            ctx.exit(ended.returncode)
        yield msgspec.json.decode(ended.stdout, type=Measurement)


def _print_list(workloads: Sequence[Workload], as_json: bool) -> None:
    if as_json:
        for workload in workloads:
            sizes = {"nodes": workload.nodes, "init_pods": workload.init_pods, "pods": workload.pods}
            line = {"workload": workload.name, **sizes, "summary": workload.summary}
            echo(msgspec.json.encode(line).decode())
        return
    table = Table(box=None)
    table.add_column("workload", overflow="fold")
    for heading in ("nodes", "init", "pods"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("what is scheduled")
    for workload in workloads:
        counts = (f"{count:,}" for count in (workload.nodes, workload.init_pods, workload.pods))
        table.add_row(workload.name, *counts, workload.summary)
    _print(table)


def _print(table: Table) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    console.print(table)
