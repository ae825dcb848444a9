"""What an upgrade of Kubernetes would change for pending pods: `bayplan compare` with two versions, and
`bayplan decide --compare-version`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import click
import msgspec
from rich.console import Console

from bayplan.answers.explain.upgrade import KINDS, LoadAs, PodDifference, UpgradeReport, compare_releases
from bayplan.answers.sources.files import read_clusters
from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.answers.sources.loading import SchedulerSettings, SourceOptions, as_release, load_releases
from bayplan.answers.whatif import Cluster
from bayplan.api.meta import DEFAULT_NAMESPACE, Object
from bayplan.api.releases import Release
from bayplan.cli.changes import Changes
from bayplan.cli.encoding import echo_utf8
from bayplan.cli.output import TABLE, make_console, print_document, print_warnings

MAX_DIFFERENCES: Final = 20
"""Pods that are shown in full on a terminal."""


def compare_versions(
    source: SourceOptions, releases: Sequence[Release], add: Sequence[str], output: str
) -> None:
    """Prints what changes for the pending pods, and those of `--add`, from one version to the other."""
    if len({release.version for release in releases}) != len(releases) or len(releases) > 2:
        raise click.UsageError("--emulated-version: give two different versions")
    older, newer = sorted(releases, key=lambda release: release.minor)
    load = load_releases(source)
    if add:
        cluster = Cluster.from_loaded(load(older))
        changes = Changes(cluster, source)
        for value in add:
            changes.add(value)
        load = partial(_with_objects, load, tuple(cluster.objects))
    report = compare_releases(load, older, newer)
    warnings = load(newer).warnings
    if output != TABLE:
        content = {**report.as_json(), "warnings": [warning.as_json() for warning in warnings]}
        print_document("UpgradeReport", content, output)
        return
    console = make_console()
    for line in text_lines(report, MAX_DIFFERENCES):
        console.print(line, soft_wrap=True)
    if warnings:
        console.print()
        print_warnings(console, warnings)


def _with_objects(load: LoadAs, objects: tuple[Object, ...], release: Release) -> LoadedCluster:
    return replace(load(release), objects=objects, pods=None)


def print_comparison(
    files: Sequence[str],
    settings: SchedulerSettings,
    compared: Release,
    wanted: Sequence[str],
    console: Console | None,
) -> None:
    """Prints the differences for each cluster: as text on the console, or as JSON without one."""
    only = {name if "/" in name else f"{DEFAULT_NAMESPACE}/{name}" for name in wanted}
    for file in files:
        for read in read_clusters(file, settings.release):
            release = settings.release or read.release
            if release.version == compared.version:
                raise click.UsageError(
                    f"{read.place} is decided as {release}: choose another version with --compare-version, "
                    "or with --emulated-version"
                )
            older, newer = sorted((compared, release), key=lambda one: one.minor)
            report = compare_releases(partial(as_release, read, settings), older, newer, only=only)
            if console is None:
                echo_utf8(msgspec.json.encode(report.as_json()))
            else:
                for line in text_lines(report):
                    console.print(line, soft_wrap=True)


def text_lines(report: UpgradeReport, max_pods: int | None = None) -> Iterator[str]:
    """The report for a terminal: pods with other decisions first, then those with other messages."""
    count = len(report.differences)
    pods = f"{report.pods:,} pending pod{'' if report.pods == 1 else 's'}"
    yield f"{report.name}: Kubernetes {report.old} → {report.new}: {pods}, {count:,} decided differently"
    numbers = Counter(kind for difference in report.differences for kind in difference.kinds)
    if count > 1:
        yield f"  {', '.join(f'{kind}: {numbers[kind]:,}' for kind in KINDS if numbers[kind])}"
    ordered = sorted(report.differences, key=lambda one: KINDS.index(one.kinds[0]))
    for difference in ordered[:max_pods]:
        yield ""
        yield f"{difference.pod}: {', '.join(difference.kinds)}"
        yield f"  {report.old}: {_shown(difference, after=False)}"
        yield f"  {report.new}: {_shown(difference, after=True)}"
        for rule in difference.rules:
            yield f"  by: {rule.title} ({rule.name})"
        if not difference.rules:
            yield "  by: several rules together"
    if max_pods is not None and count > max_pods:
        yield ""
        yield f"… and {count - max_pods:,} more; -o json has all of them"


def _shown(difference: PodDifference, *, after: bool) -> str:
    explanation = difference.after if after else difference.before
    if explanation.error:
        return f"error: {explanation.error}"
    if explanation.feasible:
        score = explanation.total[explanation.chosen]
        return f"{explanation.chosen}, total score {score}, {len(explanation.feasible)} feasible nodes"
    return explanation.fit_error_full
