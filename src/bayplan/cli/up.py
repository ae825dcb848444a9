"""`bayplan up`: a cluster on this machine, with nothing installed.

`bayplan.embedded.up` implements the cluster and its display; this module parses options and starts it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
import webbrowser
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console

from bayplan.answers.sources.loading import default_kubeconfig
from bayplan.api.documents import Document
from bayplan.api.kinds import KINDS
from bayplan.api.releases import DEFAULT_RELEASE
from bayplan.cli.options import SchedulerOptions, scheduler_options
from bayplan.cli.output import SafeConsole
from bayplan.cli.page_link import PageLink, allow_writes_option, link_file_option
from bayplan.cli.terminal import SafeFormatter, echo
from bayplan.client.access import Access
from bayplan.client.http import KubernetesCluster, read_version
from bayplan.client.kubeconfig import load_access
from bayplan.client.requests import MERGE_PATCH
from bayplan.config import parse_feature_gates
from bayplan.embedded.kubelets import DEFAULT_JOB_RUN_SECONDS, DEFAULT_STOP_SECONDS
from bayplan.embedded.kubelets.nodes import DOWN
from bayplan.embedded.server.http.discovery import EMBEDDED_SUFFIX
from bayplan.embedded.up.cluster import KubeconfigFile, LocalCluster, LocalSettings
from bayplan.embedded.up.manifests import Snapshot, read_manifests_or_snapshots
from bayplan.embedded.up.report import Outcomes
from bayplan.embedded.up.screen import LogLines, PlainLines, Screen, heading, hints
from bayplan.embedded.up.watched_files import WatchedDevices, WatchedPlugins
from bayplan.errors import InputError
from bayplan.scheduler.plugin_sources import plugin_file
from bayplan.scheduler.tasks import cancel_all, first_to_end
from bayplan.ui.serving import PageOfCluster, recording

KUBECONFIG: Final = "bayplan.kubeconfig"
ALWAYS, AUTO, NEVER = "always", "auto", "never"
PRINT_SECONDS: Final = 0.1
DEFAULT_NODES: Final = 3
MAX_NODES: Final = 100_000
"""Twenty times as many as Kubernetes supports; more would fill the memory before the first pod."""


@click.command()
@click.option(
    "--nodes",
    type=click.IntRange(min=0, max=MAX_NODES),
    default=None,
    help="Number of simulated nodes to create. [default: 3; none if a snapshot is restored]",
)
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    metavar="FILE",
    help="Objects to create: a YAML or JSON file, a directory, or - for standard input; or a snapshot, whose "
    "objects are restored with their uids, nodes and status. Can be repeated; "
    "each is applied when the cluster is idle after the one before.",
)
@scheduler_options
@click.option(
    "--reload",
    is_flag=True,
    help="Load the files of --plugin again when they change. If a new version does not load, the old one "
    "stays.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path(KUBECONFIG),
    show_default=True,
    help="The kubeconfig to add the cluster to. A new one is readable by its owner only.",
)
@click.option(
    "--name",
    metavar="NAME",
    help="Name of the cluster in the kubeconfig: of its context, cluster and user. "
    "[default: bayplan, or bayplan-2 and so on while that one is running]",
)
@click.option(
    "--use-context",
    is_flag=True,
    help="Make it the current context of the kubeconfig, even if the file has another one.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Port of the API server on loopback; 0 chooses a free one.",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Store the cluster in this directory. Without it, the cluster exists only in memory.",
)
@click.option(
    "--stop-seconds",
    type=click.FloatRange(min=0),
    default=DEFAULT_STOP_SECONDS,
    show_default=True,
    help="Seconds that simulated containers take to stop when their pod is deleted, up to its grace period.",
)
@click.option(
    "--job-run-time",
    type=click.FloatRange(min=0),
    default=DEFAULT_JOB_RUN_SECONDS,
    show_default=True,
    help="Seconds after which simulated containers of Jobs end.",
)
@click.option(
    "--salvage",
    is_flag=True,
    help="If the data directory is damaged, keep the objects that are whole and set the damaged files aside.",
)
@click.option(
    "--devices",
    "device_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Devices of the nodes, which simulated DRA drivers publish as ResourceSlices (docs/devices.md). "
    "The file is read again when it changes.",
)
@click.option(
    "--authorization-mode",
    type=click.Choice(["AlwaysAllow", "RBAC"]),
    default="AlwaysAllow",
    show_default=True,
    help="AlwaysAllow: every user with a token may do everything; RBAC: as Roles and their bindings say.",
)
@click.option(
    "--feature-gates",
    multiple=True,
    metavar="NAME=BOOL,...",
    help="Feature gates of the scheduler and of this API server, e.g. GenericWorkload=true for pod groups. "
    "A real API server has to have them on, too.",
)
@click.option("--open", "opens", is_flag=True, help="Open the page of the cluster in a browser.")
@link_file_option
@allow_writes_option
@click.option(
    "--record",
    "record_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Record the cluster in this file, for bayplan ui --recording (docs/ui.md).",
)
@click.option("--no-scheduler", is_flag=True, help="Do not start a scheduler; run your own.")
@click.option(
    "--exit-when-idle",
    type=click.Choice([ALWAYS, AUTO, NEVER]),
    default=NEVER,
    show_default=True,
    help="Exit once every pod is scheduled or unschedulable and nothing else is in progress; auto: only if "
    "standard input or output is not a terminal.",
)
def up(
    nodes: int | None,
    files: tuple[str, ...],
    scheduler: SchedulerOptions,
    reload: bool,
    kubeconfig: Path,
    name: str | None,
    use_context: bool,
    port: int,
    data_dir: Path | None,
    stop_seconds: float,
    job_run_time: float,
    salvage: bool,
    device_file: Path | None,
    authorization_mode: str,
    feature_gates: tuple[str, ...],
    no_scheduler: bool,
    exit_when_idle: str,
    opens: bool,
    link_file: Path | None,
    allow_writes: bool,
    record_file: Path | None,
) -> None:
    """Start a cluster in this process: API server, controllers, simulated nodes and a scheduler.

    kubectl and other clients on this machine can use it with the kubeconfig. It runs until Ctrl-C.
    """
    if salvage and data_dir is None:
        raise click.UsageError("--salvage needs --data-dir")
    manifests = read_manifests_or_snapshots(files)
    snapshots = [one for one in manifests if isinstance(one, Snapshot)]
    release = scheduler.release or next((one.release for one in snapshots), DEFAULT_RELEASE)
    release = release.with_gates(parse_feature_gates(feature_gates, release)) if feature_gates else release
    scheduler = replace(scheduler, release=release)
    config, plugins = scheduler.load()
    watched = _watched(scheduler) if reload else None
    page = PageOfCluster()
    settings = LocalSettings(
        plain=page.plain,
        nodes=(0 if snapshots else DEFAULT_NODES) if nodes is None else nodes,
        port=port,
        data_dir=data_dir,
        salvages=salvage,
        release=release,
        config=config,
        plugins=plugins,
        schedules=not no_scheduler,
        rbac=authorization_mode == "RBAC",
        stop_seconds=stop_seconds,
        job_run_seconds=job_run_time,
        storage_class=not snapshots,
        reload=watched,
        devices=None if device_file is None else WatchedDevices(device_file),
    )
    access = KubeconfigFile(kubeconfig, name, use_context=use_context)
    access.check()
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    exits = exit_when_idle == ALWAYS or (exit_when_idle == AUTO and not is_terminal)
    console = SafeConsole(highlight=False, markup=False)
    shows = console.is_terminal and not console.is_dumb_terminal and not exits
    log = LogLines() if shows and sys.stderr.isatty() else None
    handler = logging.StreamHandler() if log is None else log
    handler.setFormatter(SafeFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    try:
        asyncio.run(
            _run(
                settings,
                manifests,
                access,
                console,
                log,
                page,
                link_file,
                record_file,
                exits=exits,
                shows=shows,
                opens=opens,
                writes=allow_writes,
            )
        )
    finally:
        for line in log.kept if log is not None else ():
            echo(line, err=True)


def _watched(scheduler: SchedulerOptions) -> WatchedPlugins:
    files = [file for spec in scheduler.plugin_specs if (file := plugin_file(spec)) is not None]
    if not files:
        raise click.UsageError("--reload needs --plugin path/to/file.py:Class")
    return WatchedPlugins(files, partial(scheduler.load, fresh=True))


async def _run(
    settings: LocalSettings,
    manifests: list[list[Document] | Snapshot],
    access: KubeconfigFile,
    console: Console,
    log: LogLines | None,
    page: PageOfCluster,
    link_file: Path | None,
    record_file: Path | None,
    *,
    exits: bool,
    shows: bool,
    opens: bool,
    writes: bool,
) -> None:
    plain = PlainLines()
    outcomes = Outcomes(None if shows else plain.add)
    everything = [
        document for documents in manifests if isinstance(documents, list) for document in documents
    ]
    async with AsyncExitStack() as stack:
        cluster = await _start(stack, LocalCluster(settings, outcomes, everything), settings.port)
        shown = await stack.enter_async_context(access.of(cluster))
        stop = stop_on_signals()
        hub = page.attach(cluster, settings, shown.partition(" --context ")[2] or "bayplan", writes=writes)
        stack.push_async_callback(hub.close)
        if record_file is not None:
            writing = recording(hub, record_file, release=settings.release.version, name="bayplan up")
            await stack.enter_async_context(writing)
        link = PageLink(page.link, link_file)
        screen = Screen(console, cluster, outcomes, shown, log, page=link.shown)
        parts: list[Coroutine[Any, Any, object]] = [
            cluster.failure(),
            _live(cluster, manifests, exits=exits),
            stop.wait(),
            screen.run() if shows else _print(plain),
        ]
        if not shows:
            echo(*heading(cluster, shown), *(() if exits else hints(cluster, shown, link.shown())))
            page.access.on_login = lambda: plain.note(f"page for another browser: {link.shown()}")
        if opens:
            webbrowser.open(page.link())
        await _first(parts)
        echo(*plain.take(), *(() if shows else ("",)), *screen.summary())


async def _start(stack: AsyncExitStack, cluster: LocalCluster, port: int) -> LocalCluster:
    try:
        return await stack.enter_async_context(cluster)
    except OSError as error:
        if error.filename is not None:
            raise
        raise InputError(f"cannot listen on port {port}: {error.strerror or error}") from None


async def _print(plain: PlainLines) -> None:
    """Prints lines as they come, until cancelled."""
    while True:
        await asyncio.sleep(PRINT_SECONDS)
        lines = plain.take(time.time() - PRINT_SECONDS)
        if lines:
            echo(*lines)


async def _live(cluster: LocalCluster, manifests: list[list[Document] | Snapshot], *, exits: bool) -> None:
    """Applies the manifests one after the other; returns only if the cluster exits when idle."""
    for number, documents in enumerate(manifests):
        if number:
            await cluster.idle()
        await cluster.apply(documents)
    if exits:
        await cluster.idle()
        return
    await asyncio.Event().wait()


async def _first(parts: Sequence[Coroutine[Any, Any, object]]) -> None:
    """Waits until one of them has ended and cancels the others."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        await first_to_end(tasks)
    finally:
        await cancel_all(tasks)


def stop_on_signals() -> asyncio.Event:
    """Set when the process is asked to end."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


_kubeconfig_option = click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="The kubeconfig that `bayplan up` wrote. [default: $KUBECONFIG, or ./bayplan.kubeconfig]",
)
_context_option = click.option(
    "--context", default="", metavar="NAME", help="The context to use. Default: the file's current context."
)
_NOT_EMBEDDED: Final = (
    "{server} is not a cluster of `bayplan up` (it runs {version}): its nodes are not simulated"
)
_names: Final = click.argument("names", metavar="NAME...", nargs=-1, required=True)


@click.group()
def node() -> None:
    """Make simulated nodes fail and recover."""


@node.command("down")
@_names
@_kubeconfig_option
@_context_option
def node_down(names: tuple[str, ...], kubeconfig: str | None, context: str) -> None:
    """Stop the heartbeats of nodes; their pods are evicted after tolerationSeconds."""
    asyncio.run(_annotate(_access(kubeconfig, context), names, "true"))


@node.command("up")
@_names
@_kubeconfig_option
@_context_option
def node_up(names: tuple[str, ...], kubeconfig: str | None, context: str) -> None:
    """Resume the heartbeats of nodes."""
    asyncio.run(_annotate(_access(kubeconfig, context), names, None))


def _access(kubeconfig: str | None, context: str) -> Access:
    """The cluster of the file that was named, of `$KUBECONFIG`, or of the file that `bayplan up` writes."""
    if not kubeconfig and not os.environ.get("KUBECONFIG") and Path(KUBECONFIG).is_file():
        kubeconfig = KUBECONFIG
    return load_access(kubeconfig or default_kubeconfig(context=context), context=context)


async def _annotate(access: Access, names: tuple[str, ...], value: str | None) -> None:
    body: dict[str, Any] = {"metadata": {"annotations": {DOWN: value}}}
    async with KubernetesCluster(access, component="bayplan") as cluster:
        version = (await read_version(cluster.requests)).git_version
        if not version.endswith(EMBEDDED_SUFFIX):
            raise InputError(_NOT_EMBEDDED.format(server=access.server, version=version))
        for name in names:
            path = KINDS["Node"].item(name)
            await cluster.requests.send("PATCH", path, json.dumps(body).encode(), content_type=MERGE_PATCH)
            echo(f"node {name} is {'up' if value is None else 'down'}")
