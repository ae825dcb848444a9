"""`bayplan decide`: which nodes would these pods get on this cluster, and why?

`bayplan.answers.explain` reads the files and explains; this module prints the result as tables or as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import click
import msgspec
from rich.console import Console

from bayplan.answers.explain.explanation import explain
from bayplan.answers.explain.group_answer import GroupAnswer
from bayplan.answers.explain.groups import GroupQuestions
from bayplan.answers.explain.printing import print_group_parts
from bayplan.answers.explain.report import as_json, pod_allocations
from bayplan.answers.explain.tables import EvaluatedPod, print_tables
from bayplan.answers.sources.files import STDIN, read_clusters
from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.answers.sources.loading import SchedulerSettings, extender_warnings, with_settings
from bayplan.answers.sources.warnings import MissingObjects, Warning
from bayplan.api.meta import DEFAULT_NAMESPACE
from bayplan.api.pod import Pod
from bayplan.api.releases import RELEASES, Release
from bayplan.cli.compare import print_comparison
from bayplan.cli.errors import ExitStatus, FailedPlugins, did_you_mean, traceback_option
from bayplan.cli.options import ReleaseType, SchedulerOptions, scheduler_options
from bayplan.cli.output import JSON, TABLE, make_console
from bayplan.cli.terminal import echo_json
from bayplan.errors import InputError
from bayplan.scheduler.core import SchedulingCore
from bayplan.state.groups import group_key

MAX_DETAILS: Final = 10
"""Pods of one cluster that are shown in full; the others get one line each, unless --pod names them."""
MAX_SKIPPED: Final = 10
"""Skipped pods that are listed with the reason."""
MAX_LISTED: Final = 20
"""Pending pods that are listed if --pod names an unknown one."""

_TWO_READERS: Final = "standard input can be read only once: FILE and --config cannot both be -"

_NOT_BOTH: Final = "--allocations cannot be combined with --compare-version"
_ONLY_JSON: Final = "--allocations prints JSON; it cannot be combined with --output table"


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--pod",
    "wanted",
    multiple=True,
    metavar="NAMESPACE/NAME",
    help="Show only this pod. Can be repeated.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice([JSON, TABLE]),
    help="One JSON object per line, or tables. Default: tables on a terminal, otherwise JSON.",
)
@click.option(
    "--allocations",
    is_flag=True,
    help="Print only the devices that ResourceClaims would get on each node: one JSON list per cluster.",
)
@traceback_option
@click.option(
    "--compare-version",
    "compared",
    type=ReleaseType(),
    metavar="|".join(RELEASES),
    help="Show only the pods that this Kubernetes version would decide differently, and the rules behind it.",
)
@scheduler_options
def decide(
    files: tuple[str, ...],
    wanted: tuple[str, ...],
    output: str | None,
    allocations: bool,
    traceback: bool,
    compared: Release | None,
    scheduler: SchedulerOptions,
) -> int:
    """Explain for each pending pod which node it would get and why, or why it is unschedulable.

    FILE is a cluster: a YAML or JSON file as written by `kubectl get … -o yaml`, or a directory of them.
    It can also contain scenarios (.jsonl, .json). Files may be compressed (.gz); - is standard input.
    Each FILE is a separate cluster, and each pod is evaluated alone, or with its pod group. No cluster is
    changed.
    """
    if files.count(STDIN) + (scheduler.config_file == STDIN) > 1:
        raise click.UsageError(_TWO_READERS)
    if allocations and output == TABLE:
        raise click.UsageError(_ONLY_JSON)
    console = make_console()
    if output is None:
        output = TABLE if console.is_terminal else JSON
    settings = scheduler.settings()
    if compared is not None:
        if allocations:
            raise click.UsageError(_NOT_BOTH)
        print_comparison(files, settings, compared, wanted, console if output == TABLE else None)
        return ExitStatus.OK
    choice = Choice(wanted)
    failed = FailedPlugins(traceback)
    is_first, left_out = True, False
    for case, core, pods in _cases(files, settings, choice):
        left_out |= not wanted and bool(case.of_other_schedulers(core))
        if allocations:
            found = [pod_allocations(core.frameworks[pod.spec.scheduler_name], pod) for pod in pods]
            echo_json(msgspec.json.encode(found))
            continue
        if output == JSON:
            echo_json(_json_line(case, core, pods, failed))
            continue
        if not is_first:
            console.print()
        is_first = False
        details = MAX_DETAILS if not wanted else len(pods)
        _print_tables(console, case, core, pods, details, failed)
    failed.raise_any()
    choice.require_all_found()
    return ExitStatus.NOT_JUDGED if left_out else ExitStatus.OK


class Choice:
    """The pods that --pod names, and which of them were found."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self.wanted = {name if "/" in name else f"{DEFAULT_NAMESPACE}/{name}": None for name in wanted}
        self._found: set[str] = set()
        self._there: dict[str, None] = {}
        self._not_pending: dict[str, str] = {}

    def among(self, pods: Sequence[Pod], case: LoadedCluster, core: SchedulingCore) -> list[Pod]:
        """Those of the pods that --pod names; all if it names none."""
        if not self.wanted:
            return list(pods)
        self._there.update((pod.key, None) for pod in pods)
        chosen = [pod for pod in pods if pod.key in self.wanted]
        self._found.update(pod.key for pod in chosen)
        if len(self._found) < len(self.wanted):
            self._not_pending.update(case.not_pending(core))
        return chosen

    def require_all_found(self) -> None:
        """Raises InputError if a named pod does not exist or is not pending."""
        for name in self.wanted:
            if name not in self._found:
                raise InputError(self._why_missing(name), object_key=f"Pod {name}")

    def _why_missing(self, name: str) -> str:
        if name in self._not_pending:
            return f"it is skipped: {self._not_pending[name]}"
        if not self._there:
            return "there is no such pod, and no other pod is pending"
        shown = list(self._there)[:MAX_LISTED]
        left = len(self._there) - len(shown)
        more = f" and {left} more" if left else ""
        hint = did_you_mean(name, self._there) if left else ""
        return f"there is no such pod.{hint} Pending pods: {', '.join(shown)}{more}"


def _cases(
    files: Sequence[str], settings: SchedulerSettings, choice: Choice
) -> Iterator[tuple[LoadedCluster, SchedulingCore, list[Pod]]]:
    """Each cluster with the pods to evaluate on it; without clusters that have none of the named pods."""
    for file in files:
        for read in read_clusters(file, settings.release):
            case = with_settings(read, settings)
            core = case.core()
            pods = choice.among(case.pending(core), case, core)
            if pods or not choice.wanted:
                yield case, core, pods


def _evaluated(
    case: LoadedCluster, core: SchedulingCore, pods: Sequence[Pod], failed: FailedPlugins
) -> Iterator[EvaluatedPod]:
    missing = MissingObjects(case.objects, case.listed)
    for pod in pods:
        if _is_member(core, pod):
            continue  # it is decided with its group
        framework = core.frameworks[pod.spec.scheduler_name]
        explanation = explain(framework, pod)
        failed.add(explanation)
        warnings = missing.of_pod(
            pod, framework.profile, preempts=explanation.has_candidates, runs_permit=True
        )
        yield EvaluatedPod(pod, framework, explanation, warnings)


def _is_member(core: SchedulingCore, pod: Pod) -> bool:
    return core.cluster.groups is not None and group_key(pod) is not None


def _groups(case: LoadedCluster, core: SchedulingCore, pods: Sequence[Pod]) -> list[GroupAnswer]:
    """The groups of these pods, each decided as a whole on the cluster as it is."""
    keys = dict.fromkeys(key for pod in pods if _is_member(core, pod) and (key := group_key(pod)) is not None)
    if not keys:
        return []
    questions = GroupQuestions(case, core)
    # Groups of one composite group have the same answer.
    answers = {answer.key: answer for answer in map(questions.answer, keys)}
    return list(answers.values())


def _warnings(case: LoadedCluster) -> list[Warning]:
    """Warnings that concern all pods of a cluster; a scenario's own configuration can have extenders, too."""
    return list(dict.fromkeys((*case.warnings, *extender_warnings(case.config))))


def _json_line(
    case: LoadedCluster, core: SchedulingCore, pods: Sequence[Pod], failed: FailedPlugins
) -> bytes:
    evaluated = list(_evaluated(case, core, pods, failed))
    groups = [answer.as_json() | {"assumption": answer.assumption} for answer in _groups(case, core, pods)]
    warnings = [*_warnings(case), *(warning for one in evaluated for warning in one.warnings)]
    skipped = case.skipped(core).items()
    return msgspec.json.encode(
        {
            "name": case.name,
            "kubernetesVersion": core.release.version,
            "warnings": [warning.as_json() for warning in warnings],
            "skipped": [{"pod": key, "reason": reason} for key, reason in skipped],
            "results": [as_json(one.explanation) for one in evaluated],
            **({"groups": groups} if groups else {}),
        }
    )


def _print_tables(
    console: Console,
    case: LoadedCluster,
    core: SchedulingCore,
    pods: Sequence[Pod],
    details: int,
    failed: FailedPlugins,
) -> None:
    counts = ", ".join(
        (
            _number(case.node_count, "node"),
            f"{_number(case.assigned_count, 'assigned pod')}",
            f"{len(case.pending(core)):,} pending",
        )
    )
    heading = f"{case.name or case.place}: {counts}; decided as Kubernetes {core.release}"
    print_tables(console, heading, list(_evaluated(case, core, pods, failed)), details, _warnings(case))
    for answer in _groups(case, core, pods):
        print_group_parts(console, answer)
    skipped = list(case.skipped(core).items())
    if skipped:
        console.print()
    for key, reason in skipped[:MAX_SKIPPED]:
        console.print(f"{key} skipped: {reason}", soft_wrap=True)
    if len(skipped) > MAX_SKIPPED:
        console.print(f"… and {len(skipped) - MAX_SKIPPED:,} more pods skipped")


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
