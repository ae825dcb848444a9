"""Options of all commands that evaluate a cluster: where it comes from, and the scheduler's settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Final, TypeVar

import click

from bayplan.answers.sources.loading import SourceOptions
from bayplan.cli.options import SchedulerOptions, comparing_scheduler_options, scheduler_options

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_OPTIONS: Final = (
    click.option(
        "-f",
        "--filename",
        "files",
        multiple=True,
        metavar="FILE",
        help="The cluster: a YAML or JSON file of API objects (kubectl get … -o yaml), a snapshot, a "
        "directory, or - for standard input. Can be repeated; all of them are one cluster.",
    ),
    click.option(
        "--kubeconfig",
        default="",
        metavar="FILE",
        help="Read the live cluster of this kubeconfig; nothing is written. "
        "[default without -f: $KUBECONFIG or ~/.kube/config]",
    ),
    click.option("--context", default="", metavar="NAME", help="The context of the kubeconfig to use."),
)

_NO_DEFAULT: Final = (
    _OPTIONS[0],
    click.option(
        "--kubeconfig",
        default="",
        metavar="FILE",
        help="Read the live cluster of this kubeconfig; nothing is written.",
    ),
    _OPTIONS[2],
)
"""For commands that need no cluster besides what they are given: a kubeconfig is read only if it is named."""

_BOTH: Final = "a cluster comes from -f or from --kubeconfig and --context, not from both"


def source_options(command: CommandT) -> CommandT:
    """Adds the options to a command, which gets them as one `SourceOptions` named `source`."""
    return _with_options(command, _OPTIONS)


def optional_source_options(command: CommandT) -> CommandT:
    """The same for a command that works without a cluster, too."""
    return _with_options(command, _NO_DEFAULT)


def comparing_source_options(command: CommandT) -> CommandT:
    """The same for a command that also gets all versions that are given, as `releases`."""
    return _with_options(command, _OPTIONS, comparing_scheduler_options)


def _with_options(
    command: CommandT,
    options: Sequence[Callable[[Any], Any]],
    scheduler_options: Callable[[Any], Any] = scheduler_options,
) -> CommandT:

    @wraps(command)
    def with_source(
        *args: Any,
        files: tuple[str, ...],
        kubeconfig: str,
        context: str,
        scheduler: SchedulerOptions,
        **others: Any,
    ) -> Any:
        if files and (kubeconfig or context):
            raise click.UsageError(_BOTH)
        source = SourceOptions(
            files,
            kubeconfig,
            context,
            scheduler.config_file,
            tuple(scheduler.plugin_specs),
            scheduler.own_flags,
            scheduler.release,
        )
        return command(*args, source=source, **others)

    decorated: Any = scheduler_options(with_source)
    for option in reversed(options):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]
