"""`bayplan queues`: what capacity queues use, and whether their configuration is valid."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import click

from bayplan.answers.capacity_queues import QueueRow
from bayplan.answers.sources.loading import SourceOptions, load_cluster
from bayplan.answers.volcano_queues import VOLCANO_COLUMNS, VolcanoRow, ask_queues
from bayplan.cli.errors import ExitStatus
from bayplan.cli.options import optional_source_options
from bayplan.cli.output import TABLE, make_console, output_option, print_document, print_table
from bayplan.cli.terminal import echo, echo_yaml
from bayplan.config import QueueDialect, QueuesConfiguration
from bayplan.garbage import no_garbage_collection
from bayplan.printable import printable
from bayplan.queues.amounts import Amounts, rounded
from bayplan.queues.volcano import conf
from bayplan.queues.volcano.crds import CRDS
from bayplan.queues.yunikorn.build import Partition
from bayplan.queues.yunikorn.checks import load
from bayplan.queues.yunikorn.config import QueueConfigError
from bayplan.scheduler.queue_config_map import conf_of_manifest, is_conf, of_manifest

WATCH_SECONDS: Final = 2.0
_COLUMNS: Final = ("queue", "used", "guaranteed", "max", "share", "pending", "applications")


@click.group(invoke_without_command=True)
@click.option(
    "--queues",
    "file",
    metavar="FILE",
    default="",
    help="The queues.yaml. [default: that of the configuration; without one, a queue for each namespace]",
)
@click.option("--watch", is_flag=True, help=f"Print again every {WATCH_SECONDS:g} s until interrupted.")
@output_option
@optional_source_options
@click.pass_context
@no_garbage_collection()
def queues(ctx: click.Context, /, source: SourceOptions, file: str, watch: bool, output: str) -> int:
    """Show the tree of capacity queues: what each uses, is guaranteed and may use at most.

    The cluster comes from files (-f) or is read from an API server. Nothing is changed.
    """
    if ctx.invoked_subcommand is not None:
        return ExitStatus.OK
    while True:
        _show(source, file, output)
        if not watch:
            return ExitStatus.OK
        time.sleep(WATCH_SECONDS)


def _show(source: SourceOptions, file: str, output: str) -> None:
    loaded = load_cluster(source)
    settings = loaded.config.bayplan.queues if loaded.config is not None else None
    settings = settings or QueuesConfiguration()
    if file:
        settings = settings.with_file(file)
    rows = ask_queues(loaded, settings).rows()
    if output != TABLE:
        print_document("CapacityQueues", {"queues": [row.described() for row in rows]}, output)
        return
    columns = VOLCANO_COLUMNS if settings.dialect is QueueDialect.VOLCANO else _COLUMNS
    print_table(make_console(), columns, map(_cells, rows), right=("share", "pending"))


def _cells(row: QueueRow) -> tuple[str, ...]:
    if isinstance(row, VolcanoRow):
        return tuple(map(printable, row.cells()))
    queue = row.queue
    count = f"{queue.running}/{queue.max_groups}" if queue.max_groups else f"{queue.running}"
    return (
        "  " * row.depth + printable(queue.name),
        _amounts(queue.used),
        _amounts(queue.guaranteed),
        _amounts(queue.ceiling),
        f"{row.share:.2f}",
        f"{row.pending:,}",
        count,
    )


def _amounts(amounts: Amounts | None) -> str:
    return ", ".join(
        f"{printable(kind)} {rounded(kind, each)}" for kind, each in sorted((amounts or {}).items())
    )


@queues.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=str))
@click.pass_context
def check(ctx: click.Context, files: tuple[str, ...]) -> None:
    """Check whether each FILE is a valid queues.yaml, with the texts of YuniKorn.

    Includes what YuniKorn would find only when it loads the file. A file with the key `actions` or `tiers` is
    a volcano-scheduler.conf; what bayplan does not use of it is listed. A FILE may also be the manifest of
    the ConfigMap of YuniKorn or Volcano, which has the file as a key. The exit status is 2 if a file is
    invalid.
    """
    failed = False
    for name in files:
        not_used: tuple[str, ...] = ()
        try:
            text = conf_of_manifest(Path(name).read_text(encoding="utf-8"))
            problem, not_used = _problem(text), _not_used(text)
        except OSError as error:
            problem = (error.strerror or "cannot be read").lower()
        except UnicodeDecodeError as error:
            problem = str(error)
        failed |= bool(problem)
        echo(f"{printable(name)}: {printable(problem) if problem else 'ok'}")
        for each in not_used:
            echo(f"  not used: {printable(each)}")
    if failed:
        ctx.exit(ExitStatus.FAILED)


def _not_used(text: str) -> tuple[str, ...]:
    """What a volcano-scheduler.conf names and bayplan does not use."""
    try:
        return conf.load(text).ignored if is_conf(text) else ()
    except conf.ConfError:
        return ()


def _problem(text: str) -> str:
    if is_conf(text):
        try:
            conf.load(text)
        except conf.ConfError as error:
            return str(error)
        return ""
    try:
        for config in load(of_manifest(text)).partitions:
            partition = Partition(config)
            if partition.rules_error:
                return f"{partition.rules_error} (at start every application would be rejected)"
    except QueueConfigError as error:
        return error.problem
    return ""


@queues.command()
def crds() -> None:
    """Print the CustomResourceDefinitions of Volcano's Queue and PodGroup, to try them without Volcano.

    Pipe them to `kubectl apply -f -`. A cluster with Volcano has its own.
    """
    echo_yaml(CRDS)
