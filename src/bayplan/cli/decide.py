"""`bayplan decide`: where would these pods go on this cluster, and why?

Thin: `bayplan.explain` reads the files and explains, here it is printed, for people or for programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import click
import msgspec
from rich.console import Console

from bayplan.api.meta import DEFAULT_NAMESPACE
from bayplan.api.pod import Pod
from bayplan.cli.encoding import echo_utf8
from bayplan.cli.errors import did_you_mean
from bayplan.cli.options import plugin_option
from bayplan.config import KubeSchedulerConfiguration, build_profiles, load_config
from bayplan.errors import ConfigError, InputError
from bayplan.explain.case import Case
from bayplan.explain.dump_warnings import Dump, Warning, extenders_not_asked
from bayplan.explain.explanation import explain
from bayplan.explain.files import STDIN, read_cases
from bayplan.explain.scenario import as_json
from bayplan.explain.tables import Judged, print_tables
from bayplan.framework.plugin_api import Plugin
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.plugin_sources import catalog_with, load_plugin

JSON: Final = "json"
TABLE: Final = "table"
PLAIN_WIDTH: Final = 120
"""Columns of tables that go to a file or pipe."""
MOST_DETAILS: Final = 10
"""Pods of one cluster that are shown in full; the others get a line each, unless they are asked for."""
MOST_HELD_BACK: Final = 10
"""Pods of which it is said that they wait for something else."""
MOST_LISTED: Final = 20
"""Pods that are listed where an unknown one was asked for."""

_TWO_READERS: Final = "standard input can be read only once: FILE and --config cannot both be -"


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--pod",
    "wanted",
    multiple=True,
    metavar="NAMESPACE/NAME",
    help="Only this pod; may be given several times.",
)
@click.option(
    "--output",
    type=click.Choice([JSON, TABLE]),
    help="One JSON object a line, or tables. Without it: tables on a terminal, JSON elsewhere.",
)
@click.option(
    "--config", "config_file", metavar="FILE", help="A scheduler configuration, as kube-scheduler reads it."
)
@plugin_option
def decide(
    files: tuple[str, ...],
    wanted: tuple[str, ...],
    output: str | None,
    config_file: str | None,
    plugin_specs: tuple[str, ...],
) -> None:
    """Say for every pod that waits where it would go, and why; or why it would go nowhere.

    FILE is a cluster: a YAML or JSON file as `kubectl get … -o yaml` writes it, or a directory of them. Or it
    holds scenarios (.jsonl, .json). Either may be compressed (.gz); - is standard input. Each FILE is a
    cluster of its own, and each pod is judged alone: nothing is carried out.
    """
    if files.count(STDIN) + (config_file == STDIN) > 1:
        raise click.UsageError(_TWO_READERS)
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH, highlight=False, markup=False)
    if output is None:
        output = TABLE if console.is_terminal else JSON
    plugins = [load_plugin(spec) for spec in plugin_specs]
    config = _config(config_file, plugins)
    choice = Choice(wanted)
    is_first = True
    for case, core, pods in _questions(files, config, plugins, choice):
        if output == JSON:
            echo_utf8(_json_line(case, core, pods, config))
            continue
        if not is_first:
            console.print()
        is_first = False
        details = MOST_DETAILS if not wanted else len(pods)
        _print_tables(console, case, core, pods, details, _warnings(case, config))
    choice.require_all_found()


class Choice:
    """The pods that the user asked for, and which of them were found."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self.wanted = {name if "/" in name else f"{DEFAULT_NAMESPACE}/{name}": None for name in wanted}
        self._found: set[str] = set()
        self._there: dict[str, None] = {}
        self._not_waiting: dict[str, str] = {}

    def among(self, pods: Sequence[Pod], case: Case, core: SchedulingCore) -> list[Pod]:
        """Those of the pods that were asked for: all, where none was named."""
        if not self.wanted:
            return list(pods)
        self._there.update((pod.key, None) for pod in pods)
        chosen = [pod for pod in pods if pod.key in self.wanted]
        self._found.update(pod.key for pod in chosen)
        if len(self._found) < len(self.wanted):
            self._not_waiting.update(case.not_waiting(core))
        return chosen

    def require_all_found(self) -> None:
        """Raises InputError where a pod was asked for that nobody knows, or that does not wait."""
        for name in self.wanted:
            if name not in self._found:
                raise InputError(self._what_about(name), object_key=f"Pod {name}")

    def _what_about(self, name: str) -> str:
        if name in self._not_waiting:
            return f"it is skipped: {self._not_waiting[name]}"
        if not self._there:
            return "there is no such pod, and no other one waits for a node"
        shown = list(self._there)[:MOST_LISTED]
        left = len(self._there) - len(shown)
        more = f" and {left} more" if left else ""
        hint = did_you_mean(name, self._there) if left else ""
        return f"there is no such pod.{hint} Waiting are: {', '.join(shown)}{more}"


def _config(file: str | None, plugins: Sequence[type[Plugin]]) -> KubeSchedulerConfiguration | None:
    if file is None:
        return None
    catalog = catalog_with(plugins)
    config = load_config(file, catalog)
    try:
        build_profiles(config, catalog)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    return config


def _questions(
    files: Sequence[str],
    config: KubeSchedulerConfiguration | None,
    plugins: Sequence[type[Plugin]],
    choice: Choice,
) -> Iterator[tuple[Case, SchedulingCore, list[Pod]]]:
    """Each cluster with the pods to judge on it; without clusters that have none of those asked for."""
    for file in files:
        for case in read_cases(file):
            core = case.core(config, plugins=plugins)
            pods = choice.among(case.waiting(core), case, core)
            if pods or not choice.wanted:
                yield case, core, pods


def _judged(case: Case, core: SchedulingCore, pods: Sequence[Pod]) -> Iterator[Judged]:
    dump = Dump(case.objects)
    for pod in pods:
        framework = core.frameworks[pod.spec.scheduler_name]
        explanation = explain(framework, pod)
        yield Judged(pod, core.cluster, explanation, dump.warnings_of(pod, framework.profile, explanation))


def _warnings(case: Case, config: KubeSchedulerConfiguration | None) -> list[Warning]:
    """Those that concern all pods of a case."""
    used = config or case.config
    return [extenders_not_asked()] if used is not None and used.extenders else []


def _json_line(
    case: Case, core: SchedulingCore, pods: Sequence[Pod], config: KubeSchedulerConfiguration | None
) -> bytes:
    judged = list(_judged(case, core, pods))
    warnings = [*_warnings(case, config), *(warning for one in judged for warning in one.warnings)]
    skipped = case.held_back(core).items()
    return msgspec.json.encode(
        {
            "name": case.name,
            "warnings": [warning.as_json() for warning in warnings],
            "skipped": [{"pod": key, "reason": reason} for key, reason in skipped],
            "results": [as_json(one.explanation) for one in judged],
        }
    )


def _print_tables(
    console: Console,
    case: Case,
    core: SchedulingCore,
    pods: Sequence[Pod],
    details: int,
    warnings: Sequence[Warning],
) -> None:
    counts = ", ".join(
        (
            _number(case.node_count, "node"),
            f"{_number(case.running_count, 'pod')} on {'it' if case.node_count == 1 else 'them'}",
            f"{len(case.waiting(core)):,} waiting",
        )
    )
    heading = f"{case.name or case.place}: {counts}"
    print_tables(console, heading, list(_judged(case, core, pods)), details, warnings)
    held_back = list(case.held_back(core).items())
    if held_back:
        console.print()
    for key, why in held_back[:MOST_HELD_BACK]:
        console.print(f"{key} skipped: {why}", soft_wrap=True)
    if len(held_back) > MOST_HELD_BACK:
        console.print(f"… and {len(held_back) - MOST_HELD_BACK:,} more pods skipped")


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
