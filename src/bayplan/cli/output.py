"""Output of commands that answer questions: tables, JSON or YAML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import click
import msgspec
import yaml
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from bayplan.answers.explain.tables import number as number
from bayplan.answers.explain.tables import print_part
from bayplan.answers.sources.warnings import Warning
from bayplan.api.meta import OWN_API_VERSION
from bayplan.cli.terminal import echo_utf8

PLAIN_WIDTH: Final = 120
"""Columns of tables where output is not a terminal."""
TABLE, JSON, YAML = "table", "json", "yaml"
MAX_WARNINGS: Final = 8

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice([TABLE, JSON, YAML]),
    default=TABLE,
    show_default=True,
    help="Tables for people; JSON or YAML with everything, for programs.",
)


def make_console(plain_width: int = PLAIN_WIDTH) -> Console:
    """A console as wide as the terminal; of fixed width where output is not a terminal."""
    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(width=plain_width, highlight=False, markup=False)


def print_document(kind: str, content: dict[str, Any], output: str) -> None:
    """Prints a result as one JSON or YAML document, of a kind that docs/versions.md lists."""
    document = {"apiVersion": OWN_API_VERSION, "kind": kind, **content}
    if output == YAML:
        plain = msgspec.json.decode(msgspec.json.encode(document))
        echo_utf8(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), newline=False)
    else:
        echo_utf8(msgspec.json.format(msgspec.json.encode(document), indent=2))


def print_table(
    console: Console, columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()
) -> None:
    """A table without lines, indented by two spaces."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="none")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    print_part(console, Padding(table, (0, 0, 0, 2), expand=False))


def print_warnings(console: Console, warnings: Sequence[Warning]) -> None:
    """What the result rests on."""
    pods_by_message: dict[str, list[str]] = {}
    for one in warnings:
        pods_by_message.setdefault(one.message, []).extend([one.pod] if one.pod else [])
    for message, pods in list(pods_by_message.items())[:MAX_WARNINGS]:
        more = f" and {len(pods) - 1:,} more" if len(pods) > 1 else ""
        console.print(f"warning: {f'{pods[0]}{more}: ' if pods else ''}{message}", soft_wrap=True)
    left = len(pods_by_message) - MAX_WARNINGS
    if left > 0:
        console.print(f"… and {number(left, 'more warning')}; -o json has all of them")
