"""`bayplan config`: checks a configuration, or prints it with all defaults.

`bayplan.config` implements it. All files are checked even if one is invalid; the exit status says whether any
was.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.cli.errors import ExitStatus, print_hint
from bayplan.cli.options import SchedulerOptions, plugin_option, release_option
from bayplan.cli.terminal import echo, echo_error, echo_json, echo_yaml
from bayplan.config import completed, default_config, load_config, own_wire, to_yaml
from bayplan.errors import BayplanError, InputError

_FILE = click.Path(path_type=str, allow_dash=True)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The result for one file: its complete configuration, or an error."""

    file: str
    result: dict[str, Any] | None = None
    own: dict[str, Any] | None = None
    """bayplan's own settings, if they are not the defaults."""
    error: BayplanError | None = None

    @property
    def error_line(self) -> str:
        """The error with the file in front, unless it names the file itself."""
        return str(self.error) if isinstance(self.error, InputError) else f"{self.file}: {self.error}"


@click.group()
def config() -> None:
    """Check or show a scheduler configuration."""


@config.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=_FILE)
@release_option
@plugin_option
@click.pass_context
def check(
    ctx: click.Context, files: tuple[str, ...], release: Release | None, plugin_specs: tuple[str, ...]
) -> None:
    """Check whether each FILE is a valid scheduler configuration; - is standard input.

    Checks syntax and values, and for every profile that its plugins exist, implement the extension points at
    which they are enabled, and accept their arguments. The exit status is 2 if a file is invalid.
    """
    failed = False
    release = release or DEFAULT_RELEASE
    for outcome in _outcomes(files, plugin_specs, release):
        failed |= outcome.error is not None
        echo(f"{outcome.file}: ok" if outcome.error is None else outcome.error_line)
        if outcome.error is not None:
            print_hint(outcome.error)
    echo(f"checked as Kubernetes {release}", err=True)
    if failed:
        ctx.exit(ExitStatus.FAILED)


@config.command()
@click.argument("files", metavar="[FILE]...", nargs=-1, type=_FILE)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help='Print one line per file: {"file", "kubernetesVersion", "result" or "error"}.',
)
@release_option
@plugin_option
@click.pass_context
def show(
    ctx: click.Context,
    files: tuple[str, ...],
    as_json: bool,
    release: Release | None,
    plugin_specs: tuple[str, ...],
) -> None:
    """Print each FILE with all defaults; without FILE, the default configuration. - is standard input.

    kube-scheduler writes the same with --write-config-to. The exit status is 2 if a file is invalid.
    """
    release = release or DEFAULT_RELEASE
    defaults = iter([_Outcome("", result=completed(default_config(release=release)))])
    outcomes = _outcomes(files, plugin_specs, release) if files else defaults
    failed = False
    for i, outcome in enumerate(outcomes):
        failed |= outcome.error is not None
        if as_json:
            echo_json(_json_line(outcome, release))
        elif outcome.result is None:
            echo_error(outcome.error_line)
            if outcome.error is not None:
                print_hint(outcome.error)
        else:
            start = "---\n" if i else f"# Kubernetes {release}\n"
            echo_yaml(f"{start}{to_yaml(outcome.result, outcome.own)}")
    if failed:
        ctx.exit(ExitStatus.FAILED)


def _outcomes(files: Iterable[str], plugin_specs: Sequence[str], release: Release) -> Iterator[_Outcome]:
    # Plugin code is imported only for --plugin and installed plugins.
    options = SchedulerOptions(plugin_specs=plugin_specs, release=release)
    catalog = options.catalog(options.available())
    for file in files:
        try:
            config = load_config(file, catalog, release)
            yield _Outcome(file, result=completed(config, catalog), own=own_wire(config.bayplan))
        except BayplanError as error:
            yield _Outcome(file, error=error)


def _json_line(outcome: _Outcome, release: Release) -> str:
    line: dict[str, Any] = {"file": outcome.file, "kubernetesVersion": release.version}
    line |= {"error": str(outcome.error)} if outcome.result is None else {"result": outcome.result}
    line |= {} if outcome.own is None else {"bayplan": outcome.own}
    return json.dumps(line, sort_keys=True, ensure_ascii=False)
