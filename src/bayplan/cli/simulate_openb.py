"""`bayplan simulate openb`: the published comparison of GPU-sharing policies, with bayplan's scheduler."""

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

from bayplan.cli.encoding import echo
from bayplan.cli.output import make_console
from bayplan.errors import InputError

if TYPE_CHECKING:
    from bayplan.simulate.openb.curves import Curves, Result

POLICIES = ("Random", "DotProd", "GpuClustering", "GpuPacking", "BestFit", "FGD")


@click.command("openb")
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
    from bayplan.simulate.openb.orders import read_orders, seeded_orders
    from bayplan.simulate.openb.run import run
    from bayplan.simulate.openb.trace import read_trace

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
                echo(msgspec.json.encode(runs[-1][0]).decode())
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
    from bayplan.simulate.openb.curves import Point

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("policy", "seed", *Point._fields))
    for result, curves in runs:
        writer.writerows((result.policy, result.seed, *point) for point in curves.points())
    return text.getvalue()


def _plot(runs: Sequence[tuple[Result, Curves]]) -> str:
    """For each policy the mean over its seeds."""
    from bayplan.simulate.openb.plot import allocation_plot

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
