"""The `bayplan` command: finds the subcommand, runs it, and turns errors into exit statuses.

A subcommand is imported only when it is called: `bayplan --help` and shell completion stay fast,
and `bayplan config` does not import NumPy. The help text is therefore made from the table below.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from bayplan import __version__
from bayplan.cli.errors import ExitStatus, closed_pipes_reported, did_you_mean, report
from bayplan.cli.terminal import tolerate_any_encoding
from bayplan.garbage import no_garbage_collection


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """Where a subcommand lives, and its line in `bayplan --help`."""

    module: str
    attribute: str
    summary: str

    def load(self) -> click.Command:
        with no_garbage_collection():
            command = getattr(importlib.import_module(self.module), self.attribute)
        assert isinstance(command, click.Command), f"{self.module}.{self.attribute} is not a command"
        return command


COMMANDS: Final = {
    "bench": LazyCommand("bayplan.cli.bench", "bench", "Measure the speed of scheduling decisions."),
    "capacity": LazyCommand(
        "bayplan.cli.capacity", "capacity", "Count how many more pods fit, and the nodes they need."
    ),
    "compare": LazyCommand(
        "bayplan.cli.compare", "compare_command", "Compare scheduler configurations on the same cluster."
    ),
    "config": LazyCommand("bayplan.cli.config", "config", "Check or show a scheduler configuration."),
    "decide": LazyCommand(
        "bayplan.cli.decide", "decide", "Explain which nodes pending pods would get, and why."
    ),
    "deschedule": LazyCommand(
        "bayplan.cli.deschedule", "deschedule", "Move pods to where the scheduler would put them now."
    ),
    "explain": LazyCommand(
        "bayplan.cli.explain", "explain", "Explain why a pod is pending or on its node; what a node has."
    ),
    "fleet": LazyCommand(
        "bayplan.cli.fleet", "fleet", "Place workloads in several clusters, and ask what if one goes."
    ),
    "node": LazyCommand("bayplan.cli.up", "node", "Make simulated nodes fail and recover."),
    "plugin": LazyCommand("bayplan.cli.plugin", "plugin", "List and check plugins, and start a new one."),
    "queues": LazyCommand("bayplan.cli.queues", "queues", "Show capacity queues, and check their file."),
    "replay": LazyCommand(
        "bayplan.cli.replay", "replay_runs", "Replay recorded runs of kube-scheduler and compare."
    ),
    "run": LazyCommand("bayplan.cli.run", "command", "Schedule the pods of a Kubernetes cluster."),
    "simulate": LazyCommand(
        "bayplan.cli.simulate", "simulate", "Simulate a cluster's workload in virtual time."
    ),
    "snapshot": LazyCommand(
        "bayplan.cli.snapshot", "snapshot", "Save what scheduling reads of a cluster in a file."
    ),
    "support-bundle": LazyCommand(
        "bayplan.cli.support_bundle", "support_bundle", "Collect what a bug report needs, without secrets."
    ),
    "ui": LazyCommand("bayplan.cli.ui", "ui", "Show a cluster and its scheduler in a browser."),
    "up": LazyCommand("bayplan.cli.up", "up", "Start a cluster on this machine, with nothing installed."),
    "whatif": LazyCommand(
        "bayplan.cli.whatif", "whatif", "Show what would happen if nodes, pods or the configuration changed."
    ),
}


class LazyGroup(click.Group):
    """A group whose commands are those of `COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = COMMANDS.get(cmd_name)
        return lazy.load() if lazy else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"no such command {name!r}.{did_you_mean(name, COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        # `--help` and `--version` print here.
        with closed_pipes_reported():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with closed_pipes_reported():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name].summary) for name in self.list_commands(ctx)])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="bayplan", message="%(prog)s %(version)s")
def application() -> None:
    """A Kubernetes scheduler: kube-scheduler's decisions, explained, and plugins in Python."""


def main(argv: Sequence[str] | None = None, *, prog_name: str = "bayplan") -> int:
    """Run the command line and return its exit status."""
    tolerate_any_encoding()
    try:
        status: Any = application.main(
            args=None if argv is None else list(argv), prog_name=prog_name, standalone_mode=False
        )
        # A closed pipe may raise only here; later it could not be caught.
        sys.stdout.flush()
    except BaseException as error:
        return report(error)
    return status if isinstance(status, int) else ExitStatus.OK


if __name__ == "__main__":
    sys.exit(main())
