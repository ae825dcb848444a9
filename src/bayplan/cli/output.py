"""Output of commands that answer questions: tables, JSON or YAML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import click
import msgspec
import yaml
from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.segment import Segment

from bayplan.answers.explain.tables import make_table, one_line, print_part
from bayplan.answers.explain.tables import number as number
from bayplan.answers.sources.warnings import Warning
from bayplan.api.meta import OWN_API_VERSION
from bayplan.cli.terminal import echo_json, echo_yaml
from bayplan.printable import is_printable, printable_lines

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


class SafeConsole(Console):
    """A console that escapes what text of API objects could do to a terminal, also within tables.

    A string or a Text is one line: no name or message can begin another.
    """

    def on_broken_pipe(self) -> None:
        """The command ends as any other whose reader has gone; rich would exit with 1."""
        raise BrokenPipeError

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*map(one_line, objects), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or is_printable(segment.text):
                yield segment
            else:
                yield Segment(printable_lines(segment.text), segment.style)


def make_console(plain_width: int = PLAIN_WIDTH) -> Console:
    """A console as wide as the terminal; of fixed width where output is not a terminal."""
    console = SafeConsole(highlight=False, markup=False)
    return console if console.is_terminal else SafeConsole(width=plain_width, highlight=False, markup=False)


def print_document(kind: str, content: dict[str, Any], output: str) -> None:
    """Prints a result as one JSON or YAML document, of a kind that docs/versions.md lists."""
    document = {"apiVersion": OWN_API_VERSION, "kind": kind, **content}
    if output == YAML:
        text = msgspec.json.encode(document).decode()
        safe = is_printable(text)  # otherwise YAML escapes everything that is not ASCII
        echo_yaml(yaml.safe_dump(msgspec.json.decode(text), sort_keys=False, allow_unicode=safe))
    else:
        echo_json(msgspec.json.format(msgspec.json.encode(document), indent=2))


def print_table(
    console: Console, columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()
) -> None:
    """A table without lines, indented by two spaces."""
    table = make_table(*(f">{column}" if column in right else column for column in columns))
    table.header_style = "none"
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
