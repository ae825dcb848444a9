"""`bayplan simulate`: runs the real scheduler in virtual time and reports what it did.

Each subcommand has a module of its own and is added here.
"""

from __future__ import annotations

import csv
import io
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from bayplan.answers.sources.groups import with_groups
from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.answers.sources.loading import SourceOptions, load_cluster, load_settings, with_settings
from bayplan.cli.errors import raise_failures, traceback_option
from bayplan.cli.options import optional_source_options
from bayplan.cli.output import make_console
from bayplan.cli.terminal import echo_json
from bayplan.config import Decision, default_config
from bayplan.errors import InputError
from bayplan.simulate.scenarios.figures import Figures
from bayplan.simulate.scenarios.inputs import seconds
from bayplan.simulate.scenarios.output import duration, print_result, write_csv
from bayplan.simulate.scenarios.reading import LoadedScenario, read_scenario
from bayplan.simulate.scenarios.report import make_page
from bayplan.simulate.scenarios.result import Result as ScenarioResult
from bayplan.simulate.scenarios.result import make_result
from bayplan.simulate.scenarios.run import Companion, Finished
from bayplan.simulate.scenarios.run import simulate as run_scenario

if TYPE_CHECKING:
    from bayplan.simulate.openb.experiment import Curves, Result


@click.group()
def simulate() -> None:
    """Simulate hours or days of a cluster in virtual time, with the real scheduler and plugins."""


class _DurationType(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions
    name = "duration"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            found = seconds(value)
        except ValueError:
            found = 0.0
        if found <= 0:
            self.fail(f"{value!r} is not a duration such as 90m or 24h", param, ctx)
        return found


@simulate.command()
@click.argument("scenario", type=click.Path(path_type=Path), metavar="SCENARIO")
@click.option(
    "--seed", type=int, metavar="N", help="Seed of all random numbers. Default: the scenario's, or 0."
)
@click.option(
    "--until", type=_DurationType(), metavar="DURATION", help="Simulate only this long, such as 90m or 24h."
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Tables, or one JSON object with all time series.",
)
@click.option(
    "--csv",
    "csv_target",
    type=click.Path(path_type=Path),
    metavar="DIR|FILE.csv",
    help="Write the samples to FILE.csv, or samples, pods, workloads and reasons to a directory.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.html",
    help="Write a report with charts: one HTML file that needs no network.",
)
@click.option(
    "--deschedule",
    metavar="FILE",
    help="Run the scenario without descheduling, with descheduler's evictions by this DeschedulerPolicy, and "
    "with the moves of `bayplan run --deschedule FILE`, and compare them.",
)
@traceback_option
@optional_source_options
def run(
    scenario: Path,
    source: SourceOptions,
    seed: int | None,
    until: float | None,
    output: str,
    csv_target: Path | None,
    report: Path | None,
    deschedule: str | None,
    traceback: bool,
) -> None:
    """Run SCENARIO in virtual time and report utilisation, queues, waiting times and preemptions.

    The scheduler is the real one, with the given configuration and plugins. Equal inputs and seeds give
    equal results. Exit status: 2 invalid input or a plugin failed, otherwise 0.
    """
    if report is not None and report.suffix not in (".html", ".htm"):
        # An existing file is replaced, so a mistyped name must not be that of a scenario.
        raise click.UsageError(f"--report: the name should end in .html, not {report.name!r}")
    if source.files or source.kubeconfig or source.context:
        cluster = load_cluster(source)
    else:
        settings = load_settings(source.config_file, source.plugin_specs, source.own_flags, source.release)
        cluster = with_settings(LoadedCluster("", ()), settings)
    loaded = read_scenario(scenario, cluster.objects)
    if loaded.has_groups:
        cluster = with_groups(cluster)

    def simulated(companion: Companion | None = None) -> Finished:
        with _Bar(loaded.duration if until is None else until) as bar:
            return run_scenario(
                loaded,
                config=cluster.config,
                plugins=cluster.plugins,
                release=cluster.release,
                seed=seed,
                until=until,
                notes=[warning.message for warning in cluster.warnings],
                progress=bar.update,
                companion=companion,
            )

    if deschedule is None:
        finished = simulated()
        result = make_result(finished)
    else:
        finished, result = _with_and_without(loaded, cluster, deschedule, simulated)
    if csv_target is not None:
        write_csv(csv_target, finished, result)
    if report is not None:
        report.write_bytes(make_page(result).encode("utf-8", "replace"))
    if output == "json":
        echo_json(msgspec.json.encode(result))
    else:
        print_result(make_console(), result)
    raise_failures(finished.failures, with_traceback=traceback)


def _with_and_without(
    loaded: LoadedScenario,
    cluster: LoadedCluster,
    policy: str,
    simulated: Callable[[Companion], Finished],
) -> tuple[Finished, ScenarioResult]:
    """The simulation with the configured way to decide, and its result beside those of the others."""
    # Imported here: the other simulations need nothing of it.
    from bayplan.cli.deschedule import read_descheduler
    from bayplan.deschedule.simulating import SimulatedDescheduling

    config = cluster.config or default_config(release=cluster.release)
    settings = config.bayplan.deschedule
    descheduler = read_descheduler(loaded.objects, policy)
    others = [one for one in Decision if one is not settings.decision]
    runs = []
    for decision in (None, *others, settings.decision):
        companion = SimulatedDescheduling(descheduler, settings, config, cluster.plugins, decision)
        finished = simulated(companion)
        runs.append(companion.result(finished.figures))
    result = make_result(finished)
    notes = [*result.notes, *companion.notes()]
    return finished, msgspec.structs.replace(result, notes=notes, descheduling=runs)


class _Bar:
    """A progress bar on standard error, only on a terminal."""

    def __init__(self, until: float) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("", total=until)

    def __enter__(self) -> _Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def update(self, time: float, figures: Figures) -> None:
        text = f"{duration(time):>6}  {figures.running:,} running, {figures.waiting:,} waiting"
        self._bar.update(self._task, completed=time, description=text)


POLICIES = ("Random", "DotProd", "GpuClustering", "GpuPacking", "BestFit", "FGD")


@simulate.command()
@click.option(
    "--trace",
    "trace_directory",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="A directory with openb_node_list_gpu_node.csv and openb_pod_list_default.csv.",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice(POLICIES),
    default=("FGD",),
    show_default=True,
    help="How the node is chosen. Can be repeated.",
)
@click.option(
    "--seed",
    "seeds",
    multiple=True,
    type=click.IntRange(min=0),
    default=(42,),
    show_default=True,
    help="For the order of pods and nodes, and the policy Random. Can be repeated.",
)
@click.option(
    "--orders",
    "orders_directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="A directory with arrivals.csv and node_ranks.csv; the seed then chooses the column.",
)
@click.option(
    "-o", "--output", type=click.Choice(["json", "table"]), help="Default: table on a terminal, else json."
)
@click.option("--csv", "csv_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the curves.")
@click.option(
    "--plot", "plot_file", type=click.Path(dir_okay=False, path_type=Path), help="Write a plot (SVG)."
)
def openb(
    trace_directory: Path,
    policies: Sequence[str],
    seeds: Sequence[int],
    orders_directory: Path | None,
    output: str | None,
    csv_file: Path | None,
    plot_file: Path | None,
) -> None:
    """Schedule the pods of the openb trace with a GPU-sharing policy until 130 % of the GPUs are requested.

    With -o json, prints one JSON object for each run.
    """
    for file, option, suffix in ((csv_file, "--csv", ".csv"), (plot_file, "--plot", ".svg")):
        if file is not None and file.suffix != suffix:
            raise click.UsageError(f"{option}: the name should end in {suffix}, not {file.name!r}")
    for file in (csv_file, plot_file):
        # Known before the run rather than after it.
        if file is not None and not file.parent.is_dir():
            raise InputError("its directory does not exist", source=str(file))
    from bayplan.simulate.openb.experiment import run
    from bayplan.simulate.openb.trace import read_orders, read_trace, seeded_orders

    trace = read_trace(trace_directory)
    as_json = output == "json" or (output is None and not sys.stdout.isatty())
    runs: list[tuple[Result, Curves]] = []
    for seed in dict.fromkeys(seeds):
        orders = (
            seeded_orders(trace, seed)
            if orders_directory is None
            else read_orders(orders_directory, trace, seed)
        )
        for policy in dict.fromkeys(policies):
            show = _progress(f"{policy}, seed {seed}")
            try:
                runs.append(run(trace, orders, policy, seed, show))
            finally:
                show(0, 0)
            if as_json:
                echo_json(msgspec.json.encode(runs[-1][0]))
    if not as_json:
        _print_table([result for result, _ in runs])
    if csv_file is not None:
        csv_file.write_text(_csv(runs), encoding="utf-8")
    if plot_file is not None:
        plot_file.write_text(_plot(runs), encoding="utf-8")


def _progress(label: str) -> Callable[[int, int], None]:
    """One line on standard error that is overwritten, if that is a terminal."""
    stream = sys.stderr

    def show(done: int, total: int) -> None:
        if stream.isatty():
            text = f"{label}: {done:,} of {total:,} pods" if total else ""
            stream.write(f"\r\x1b[2K{text}")
            stream.flush()

    return show


def _print_table(results: Sequence[Result]) -> None:
    from rich.table import Table

    table = Table(box=None)
    table.add_column("policy")
    headings = ("seed", "pods", "failed", "GPU at 100 %", "GPU at 130 %", "fragmented", "seconds")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for policy in dict.fromkeys(result.policy for result in results):
        mine = [result for result in results if result.policy == policy]
        for result in mine:
            table.add_row(
                policy,
                str(result.seed),
                f"{result.pods:,}",
                f"{result.failed_pods:,}",
                _percent(result.alloc_at_100),
                _percent(result.alloc_at_130),
                _percent(result.frag_at_130),
                f"{result.seconds:.1f}",
            )
        final = [result.alloc_at_130 for result in mine if result.alloc_at_130 is not None]
        if len(final) > 1:
            mean, deviation = statistics.mean(final), statistics.stdev(final)
            table.add_row(policy, "mean", "", "", "", f"{mean:.2f} ±{deviation:.2f}", "", "")
    make_console().print(table)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _csv(runs: Sequence[tuple[Result, Curves]]) -> str:
    from bayplan.simulate.openb.experiment import Point

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("policy", "seed", *Point._fields))
    for result, curves in runs:
        writer.writerows((result.policy, result.seed, *point) for point in curves.points())
    return text.getvalue()


def _plot(runs: Sequence[tuple[Result, Curves]]) -> str:
    """For each policy the mean over its seeds."""
    from bayplan.simulate.openb.experiment import allocation_plot

    found: dict[str, dict[int, list[float]]] = {}
    for result, curves in runs:
        by_percent = found.setdefault(result.policy, {})
        for point in curves.points():
            by_percent.setdefault(point.arrived_percent, []).append(point.alloc_percent)
    return allocation_plot(
        {
            policy: [(percent, statistics.mean(values)) for percent, values in sorted(by_percent.items())]
            for policy, by_percent in found.items()
        }
    )
