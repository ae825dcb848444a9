"""Writes the manual page `bayplan.1` from the commands and their options.

    python tools/man.py [FILE]      default: standard output

It says what `--help` says, in one page. `make release` puts it into `dist/`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from bayplan import __version__
from bayplan.cli.errors import ExitStatus
from bayplan.cli.main import COMMANDS, application

_STATUSES: Final = {
    ExitStatus.OK: "yes, or the command did what it was asked to do",
    ExitStatus.NO: "no: something does not fit, a check failed, or a replay differs",
    ExitStatus.FAILED: "the input is invalid, or the command or a plugin failed",
    ExitStatus.NOT_JUDGED: "not everything could be judged: the output names what was left out",
    ExitStatus.INTERRUPTED: "Ctrl-C",
    ExitStatus.BROKEN_PIPE: "the reader of standard output closed the pipe",
}


def manual_page() -> str:
    """The page in the language of man(7)."""
    lines = [
        f'.TH BAYPLAN 1 "" "bayplan {__version__}" "User Commands"',
        ".SH NAME",
        "bayplan \\- a Kubernetes scheduler that explains its decisions",
        ".SH SYNOPSIS",
        ".B bayplan",
        ".I COMMAND",
        "[\\fIOPTION\\fR]...",
        ".SH DESCRIPTION",
        *_paragraphs(application.help or ""),
        ".SH COMMANDS",
    ]
    for name in sorted(COMMANDS):
        lines += _command(COMMANDS[name].load(), f"bayplan {name}")
    lines += [
        ".SH EXIT STATUS",
        "Of every command except \\fBbayplan run\\fR, which has those of kube\\-scheduler:",
    ]
    for status, meaning in _STATUSES.items():
        lines += [".TP", f".B {int(status)}", _text(meaning)]
    lines += [
        ".SH FILES",
        ".TP",
        ".I ~/.kube/config",
        "The kubeconfig of commands that read a live cluster, unless $KUBECONFIG or",
        "\\fB\\-\\-kubeconfig\\fR names another.",
    ]
    return "\n".join(lines) + "\n"


def _command(command: click.Command, path: str) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f'.SS "{_text(path)}"'
    yield f"\\fB{_text(path)}\\fR {_text(usage)}"
    yield ".PP"
    yield from _paragraphs(command.help or command.short_help or "")
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and record[1] and "--help" not in record[0]:
            yield from (".TP", f"\\fB{_text(record[0])}\\fR", _text(record[1]))
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from _command(below, f"{path} {name}")


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text.replace("\b", "").strip())):
        if number:
            yield ".PP"
        yield _text(" ".join(paragraph.split()))


def _text(text: str) -> str:
    """Text in which nothing is a request or an escape of roff."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...").replace('"', "\\(dq")
    return f"\\&{escaped}" if escaped[:1] in {".", "'"} else escaped


def main() -> int:
    page = manual_page()
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(page, encoding="utf-8")
    else:
        print(page, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
