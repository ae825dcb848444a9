"""`bayplan ui`: the page for a cluster, a file, a simulation or a recording."""

from __future__ import annotations

import asyncio
import time
import webbrowser
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bayplan.answers.sources.live import list_cluster, read_kinds
from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.answers.sources.loading import (
    SourceOptions,
    default_kubeconfig,
    load_cluster,
    load_settings,
    with_settings,
)
from bayplan.cli.options import source_options
from bayplan.cli.page_link import PageLink, allow_writes_option, link_file_option
from bayplan.cli.terminal import echo
from bayplan.cli.up import stop_on_signals
from bayplan.client.access import Access
from bayplan.client.kubeconfig import load_access
from bayplan.ui.serving import Address, link_of, listen, live_hub, recording
from bayplan.ui.sources import from_loaded, from_recording, from_scenario, subject_of
from bayplan.ui.writing import Writer

if TYPE_CHECKING:
    from bayplan.ui.hub import Hub
    from bayplan.ui.questions import Subject


@click.command("ui")
@click.option(
    "--scenario",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Simulate this scenario (docs/simulate.md) and show it from beginning to end.",
)
@click.option(
    "--recording",
    "recording_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Show a recording of --record.",
)
@click.option(
    "--record",
    "record_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Record the live cluster in this file, gzipped if its name ends in .gz (docs/ui.md).",
)
@click.option("--address", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="0: any free one.")
@click.option(
    "--host-name", "names", multiple=True, metavar="NAME", help="A name browsers use for the address."
)
@click.option("--tls-cert-file", default="", metavar="FILE", help="Certificate; needed beyond loopback.")
@click.option("--tls-private-key-file", default="", metavar="FILE", help="Key of the certificate.")
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@link_file_option
@allow_writes_option
@source_options
def ui(
    source: SourceOptions,
    scenario: Path | None,
    recording_file: Path | None,
    record_file: Path | None,
    address: str,
    port: int,
    names: tuple[str, ...],
    tls_cert_file: str,
    tls_private_key_file: str,
    opens: bool,
    link_file: Path | None,
    allow_writes: bool,
) -> None:
    """Show a cluster and its scheduler in a browser; nothing is written without --allow-writes.

    Without options it shows the cluster of the kubeconfig, live, whichever scheduler it has. -f shows a dump
    or a snapshot, --scenario a simulation, --recording what was recorded. It runs until Ctrl-C.
    """
    given = [bool(source.files or source.kubeconfig or source.context), bool(scenario), bool(recording_file)]
    if sum(given) > 1:
        raise click.UsageError("pass one of -f or --kubeconfig, --scenario and --recording")
    at = Address(address, port, tls_cert_file, tls_private_key_file, names)
    at.tls()
    subject, hub, cluster = _subject(source, scenario, recording_file)
    if record_file is not None and subject.kind != "live":
        raise click.UsageError("--record needs a live cluster")
    if allow_writes and cluster is None:
        raise click.UsageError("--allow-writes needs a live cluster")
    writer = Writer(cluster) if allow_writes and cluster is not None else None
    asyncio.run(_serve(subject, hub, at, record_file, link_file, writer, opens=opens))


def _subject(
    source: SourceOptions, scenario: Path | None, recording_file: Path | None
) -> tuple[Subject, Hub, Access | None]:
    """What is shown; with the access to the cluster if it is live."""
    if scenario is None and recording_file is None and source.files:
        return *from_loaded(load_cluster(source), time.time), None
    settings = load_settings(source.config_file, source.plugin_specs, source.own_flags, source.release)
    empty = with_settings(LoadedCluster("", ()), settings)
    kinds = [kind.record for kind in read_kinds([k for plugin in settings.plugins for k in plugin.kinds])]
    if scenario is not None:
        return *from_scenario(scenario, empty, kinds), None
    if recording_file is not None:
        return *from_recording(recording_file, empty), None
    access = load_access(
        source.kubeconfig or default_kubeconfig(context=source.context), context=source.context
    )
    # Listed once to learn what this user may read; the page watches only that.
    plugin_kinds = [kind for plugin in settings.plugins for kind in plugin.kinds]
    queues = None if settings.config is None else settings.config.bayplan.queues
    listing = list_cluster(access, plugin_kinds, config_map="" if queues is None else queues.config_map)
    loaded = LoadedCluster(
        source.context or access.server,
        (),
        listed=listing.listed,
        server_version=listing.server_version,
        release=listing.release,
        queues_texts=listing.queues_texts,
        warnings=listing.warnings,
    )
    subject = subject_of(with_settings(loaded, settings), "live")
    watched = [kind for kind in kinds if kind.__name__ in listing.listed]
    return subject, live_hub(access, watched, subject), access


async def _serve(
    subject: Subject,
    hub: Hub,
    at: Address,
    record_file: Path | None,
    link_file: Path | None,
    writer: Writer | None,
    *,
    opens: bool,
) -> None:
    async with listen(subject, hub, at, writer) as page, AsyncExitStack() as stack:
        if record_file is not None:
            writing = recording(hub, record_file, release=subject.release.version, name=subject.name)
            await stack.enter_async_context(writing)
        link = PageLink(lambda: link_of(page, at), link_file)
        echo(f"● {subject.name}: open {link.shown()}", "  The link works once. Ctrl-C ends it.")
        page.access.on_login = lambda: echo(f"  for another browser: {link.shown()}")
        if opens:
            webbrowser.open(link.make())
        await stop_on_signals().wait()
