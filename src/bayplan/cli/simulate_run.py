"""`bayplan simulate run`: runs a scenario and prints or writes the result.

`bayplan.simulate.scenarios` reads the scenario and simulates.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.answers.sources.loading import SourceOptions, load_cluster, load_settings, with_settings
from bayplan.cli.encoding import echo_utf8
from bayplan.cli.output import make_console
from bayplan.cli.plugin_failures import raise_failures, traceback_option
from bayplan.cli.source_options import optional_source_options
from bayplan.simulate.scenarios.csv_files import write_csv
from bayplan.simulate.scenarios.figures import Figures
from bayplan.simulate.scenarios.html.page import make_page
from bayplan.simulate.scenarios.reading import read_scenario
from bayplan.simulate.scenarios.result import make_result
from bayplan.simulate.scenarios.run import simulate
from bayplan.simulate.scenarios.tables import duration, print_result
from bayplan.simulate.scenarios.times import seconds


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


@click.command()
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
    with _Bar(loaded.duration if until is None else until) as bar:
        finished = simulate(
            loaded,
            config=cluster.config,
            plugins=cluster.plugins,
            release=cluster.release,
            seed=seed,
            until=until,
            notes=[warning.message for warning in cluster.warnings],
            progress=bar.update,
        )
    result = make_result(finished)
    if csv_target is not None:
        write_csv(csv_target, finished, result)
    if report is not None:
        report.write_bytes(make_page(result).encode("utf-8", "replace"))
    if output == "json":
        echo_utf8(msgspec.json.encode(result))
    else:
        print_result(make_console(), result)
    raise_failures(finished.failures, with_traceback=traceback)


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
