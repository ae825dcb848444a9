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
from rich.table import Table

from bayplan.api.releases import DEFAULT_RELEASE
from bayplan.bench.against import Comparison, bench_command, can_count_instructions, checkout, compare
from bayplan.bench.against import make_table as comparison_table
from bayplan.bench.runner import (
    CORE_TITLE,
    WHOLE_TITLE,
    BenchError,
    Measurement,
    Sizes,
    make_table,
    measure,
    progress_on,
)
from bayplan.bench.workload import Workload
from bayplan.bench.workloads import WORKLOADS, find_workload
from bayplan.cli.options import SchedulerOptions, scheduler_options
from bayplan.cli.output import make_console
from bayplan.cli.terminal import echo_json

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
@click.option(
    "--by-plugin",
    is_flag=True,
    help="Show the calls, rows and time of each plugin and extension point, with --core.",
)
@click.option(
    "--against",
    metavar="COMMIT",
    help="Compare this code with another commit of its repository: CPU time, and instructions with valgrind.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="With --against: runs on each side; with 0 only instructions are counted.",
)
@scheduler_options
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
    by_plugin: bool,
    against: str | None,
    rounds: int,
    scheduler: SchedulerOptions,
) -> None:
    """Measure the speed of scheduling for the named workloads, or for all.

    Most workloads and sizes are those of Kubernetes' scheduler_perf for 5,000 nodes.
    """
    core = core or by_plugin
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
    if against is not None:
        if by_plugin or profile:
            raise click.UsageError("--against cannot be combined with --by-plugin and --profile")
        options = [*(["--core"] if core else []), *scheduler.arguments()]
        _compare(against, rounds, workloads, sizes, options, as_json)
        return
    if by_plugin:
        for workload, size in zip(workloads, sizes, strict=True):
            _by_plugin(workload, size, scheduler, as_json)
        return
    if len(workloads) == 1:
        results = iter([_run_here(workloads[0], sizes[0], core, profile, scheduler)])
    else:
        results = _run_apart(ctx, workloads, sizes, core, profile, scheduler)
    if as_json:
        for result in results:
            echo_json(result.as_json())
        return
    finished: list[Measurement] = []
    try:
        finished.extend(results)
    finally:
        if finished:
            title = CORE_TITLE if core else WHOLE_TITLE
            _print(make_table(finished, f"{title}; as Kubernetes {scheduler.release or DEFAULT_RELEASE}"))


def _compare(
    commit: str,
    rounds: int,
    workloads: Sequence[Workload],
    sizes: Sequence[Sizes],
    options: Sequence[str],
    as_json: bool,
) -> None:
    """Measures the workloads here and at a commit, and prints both."""
    if not rounds and not can_count_instructions():
        raise BenchError("without rounds there is nothing to measure: valgrind is not installed")
    finished: list[Comparison] = []
    with checkout(commit) as other:
        try:
            for result in compare(
                [(workload.name, size) for workload, size in zip(workloads, sizes, strict=True)],
                other,
                options,
                rounds=rounds,
                progress=progress_on(sys.stderr, f"against {other[0]}"),
            ):
                finished.append(result)
                if as_json:
                    echo_json(result.as_json())
        finally:
            if finished and not as_json:
                _print(comparison_table(finished, other[0]))


def _by_plugin(workload: Workload, sizes: Sizes, scheduler: SchedulerOptions, as_json: bool) -> None:
    """Measures the decisions of one workload with all calls of plugins counted, and prints the costs."""
    from bayplan.bench.by_plugin import cost_lines, count_calls
    from bayplan.bench.runner import MeasuredCore
    from bayplan.plugins import BUILTIN_PLUGINS
    from bayplan.scheduler.core import SchedulingCore

    config, plugins = scheduler.load()
    release = scheduler.release or DEFAULT_RELEASE
    core = SchedulingCore(config, plugins=(*BUILTIN_PLUGINS, *plugins), release=release)
    frameworks = list(core.frameworks.values())
    counting = count_calls(frameworks)
    progress = progress_on(sys.stderr, workload.name)
    measured = measure(workload, MeasuredCore(core), sizes, progress=progress, on_start=counting.reset)
    instances = [plugin for framework in frameworks for plugin in framework.profile.all_plugins()]
    lines = cost_lines(counting, instances, sizes.nodes, sizes.pods)
    if as_json:
        for line in lines:
            echo_json(msgspec.json.encode({"workload": workload.name, **msgspec.to_builtins(line)}))
        return
    cpu = f"{measured.cpu_us_per_pod:,.0f} µs of CPU time per pod, counting included"
    title = f"{workload.name}, {sizes.nodes:,} nodes: {cpu}; as Kubernetes {release}"
    table = Table(box=None, title=title, title_justify="left")
    for heading in ("plugin", "point"):
        table.add_column(heading, no_wrap=True)
    for heading in ("calls/pod", "rows/pod", "µs/pod", "cached"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("hint", overflow="fold")
    for line in lines:
        cached = "–" if line.cached is None else f"{line.cached:.1%}"
        numbers = (
            f"{line.calls_per_pod:.3g}",
            f"{line.rows_per_pod:,.1f}",
            f"{line.us_per_pod:,.1f}",
            cached,
        )
        table.add_row(line.plugin, line.point, *numbers, line.hint)
    _print(table)


def _run_here(
    workload: Workload, sizes: Sizes, core: bool, profile: bool, scheduler: SchedulerOptions
) -> Measurement:
    from bayplan.bench.runner import make_core
    from bayplan.bench.whole import measure_whole

    config, plugins = scheduler.load()
    release = scheduler.release or DEFAULT_RELEASE
    progress = progress_on(sys.stderr, workload.name)
    stream = sys.stderr if profile else None
    try:
        if core:
            made = make_core(release, config, plugins)
            measured = measure(workload, made, sizes, progress=progress, profile=stream)
        else:
            measured = measure_whole(
                workload,
                sizes,
                progress=progress,
                profile=stream,
                release=release,
                config=config,
                plugins=plugins,
            )
    finally:
        progress("", 0, 0)
    return msgspec.structs.replace(measured, kubernetes_version=release.version)


def _run_apart(
    ctx: click.Context,
    workloads: Sequence[Workload],
    sizes: Sequence[Sizes],
    core: bool,
    profile: bool,
    scheduler: SchedulerOptions,
) -> Iterator[Measurement]:
    """Runs each workload in a process of its own; a failure is printed by that process and ends the run."""
    for workload, size in zip(workloads, sizes, strict=True):
        options = ["--core"] * core + ["--profile"] * profile + scheduler.arguments()
        ended = subprocess.run(
            bench_command(workload.name, size, options), stdout=subprocess.PIPE, check=False
        )
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
            echo_json(msgspec.json.encode(line))
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
    make_console(PLAIN_WIDTH).print(table)
