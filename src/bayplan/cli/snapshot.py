"""`bayplan snapshot`: saves what scheduling reads of a live cluster."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from bayplan import __version__
from bayplan.answers.sources.loading import SourceOptions, load_cluster
from bayplan.answers.sources.redaction import redacted, without_manifests
from bayplan.answers.sources.snapshot import encode_snapshot, header_of
from bayplan.api.documents import GZIP_SUFFIX
from bayplan.cli.options import source_options
from bayplan.cli.terminal import echo
from bayplan.errors import InputError
from bayplan.files import create_private, write_private

if TYPE_CHECKING:
    from click.decorators import FC

_EXISTS: Final = "the file exists; pass --overwrite to replace it"


overwrite_option: Final = click.option("--overwrite", is_flag=True, help="Replace the file if it exists.")


def target_option(help_text: str) -> Callable[[FC], FC]:
    """The option --to, with the file that a command writes."""
    path = click.Path(dir_okay=False, path_type=Path)
    return click.option("--to", "target", required=True, type=path, metavar="FILE", help=help_text)


@click.command()
@target_option("The file to write; compressed if its name ends in .gz.")
@overwrite_option
@click.option(
    "--redact",
    is_flag=True,
    help="Replace names, labels, annotations and images. Equal ones stay equal, so decisions do not change.",
)
@source_options
def snapshot(source: SourceOptions, target: Path, overwrite: bool, redact: bool) -> None:
    """Save what scheduling reads of a cluster in a file, for explain, whatif, capacity and up.

    The cluster is only read, with one list for each kind. Secrets, ConfigMaps and environment variables are
    never read or saved.
    """
    check_target(target, overwrite=overwrite)
    loaded = load_cluster(source)
    objects = redacted(loaded.objects) if redact else loaded.objects
    header = header_of(loaded, __version__, redacted=redact)
    content = encode_snapshot(map(without_manifests, objects), header)
    if target.suffix == GZIP_SUFFIX:
        content = gzip.compress(content, 6, mtime=0)
    write_target(target, content, overwrite=overwrite)
    for warning in loaded.warnings:
        echo(f"warning: {warning.message}", err=True)
    echo(f"{target}: {loaded.node_count:,} nodes, {loaded.pod_count:,} pods, {len(objects):,} objects in all")


def check_target(target: Path, *, overwrite: bool) -> None:
    """Raises InputError if the file exists and may not be replaced."""
    if target.exists() and not overwrite:
        raise InputError(_EXISTS, source=str(target))


def write_target(target: Path, content: bytes, *, overwrite: bool) -> None:
    """Writes the file as a whole or not at all, readable by its owner only."""
    if overwrite:
        write_private(target, content)
        return
    try:
        create_private(target, content)
    except FileExistsError:
        raise InputError(_EXISTS, source=str(target)) from None
