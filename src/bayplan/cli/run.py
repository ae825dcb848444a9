"""`bayplan run`: a scheduler for a cluster.

`bayplan.process` implements it. click does not parse the arguments: a command line for kube-scheduler has
the same meaning and the same error texts here (`process/command_line.py`). click only knows the names of
the options.
"""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from bayplan.cli.terminal import echo, echo_text
from bayplan.errors import BayplanError, ConfigError
from bayplan.garbage import leave_out_old_objects, no_garbage_collection
from bayplan.process.command_line import ArgumentError, FlagError, FlagValues, parse, usage, version_text
from bayplan.process.flags import FLAGS, Flag

if TYPE_CHECKING:
    from bayplan.process.process import Companion

PROGRAM: Final = "bayplan run"
COMPANION: Final = "bayplan.deschedule.companion"
FAILED: Final = 1


class FlagsCommand(click.Command):
    """A command that receives its arguments unparsed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params = {"arguments": tuple(args)}
        return []

    def get_help(self, ctx: click.Context) -> str:
        return usage(PROGRAM)


def _option(flag: Flag) -> click.Option:
    letter = [f"-{flag.letter}"] if flag.letter else []
    return click.Option([*letter, f"--{flag.name}"], help=flag.help, is_flag=flag.kind.bare is not None)


def run(arguments: Sequence[str]) -> int:
    """Runs until it is stopped; returns the exit status that kube-scheduler would have."""
    try:
        flags = parse(arguments, PROGRAM)
    except FlagError as error:
        echo_text(usage(PROGRAM, _width()), err=True)
        echo(f"Error: {error}", err=True)
        return FAILED
    except ArgumentError as error:
        echo(f"Error: {error}", err=True)
        return FAILED
    if flags["help"]:
        echo_text(usage(PROGRAM, _width()).removesuffix("\n"))
        return 0
    if flags["version"] != "false":
        try:
            echo(version_text(flags))
        except ConfigError as error:
            echo(f"Error: {error}", err=True)
            return FAILED
        return 0
    return _run(flags)


def _run(flags: FlagValues) -> int:
    # Imported late so that --help and --version start quickly. What is imported stays.
    with no_garbage_collection():
        from bayplan.process import logs
        from bayplan.process.settings import log_settings
        from bayplan.process.starting import start
    leave_out_old_objects()

    try:
        logs.configure(log_settings(flags))
    except BayplanError as error:
        echo(str(error), err=True)
        return FAILED
    if not flags["deschedule"]:
        return start(flags)

    def make_companion() -> Companion:
        # By name, because nothing of what schedules imports what deschedules.
        made: Companion = importlib.import_module(COMPANION).Companion(flags["deschedule"])
        return made

    return start(flags, make_companion)


def _width() -> int:
    return min(shutil.get_terminal_size((100, 24)).columns, 120) if sys.stdout.isatty() else 100


command: Final = FlagsCommand(
    "run",
    callback=run,
    params=[_option(flag) for flag in FLAGS.values()],
    add_help_option=False,
    help="Schedule the pods of a Kubernetes cluster.",
)
