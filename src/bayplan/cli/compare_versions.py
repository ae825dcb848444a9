"""`bayplan decide --compare-version`: what an upgrade of Kubernetes would change for pending pods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import click
import msgspec
from rich.console import Console

from bayplan.api.meta import DEFAULT_NAMESPACE
from bayplan.cli.encoding import echo_utf8
from bayplan.explain.upgrade import PodDifference, UpgradeReport, compare_releases
from bayplan.releases import Release
from bayplan.sources.files import read_clusters
from bayplan.sources.loading import as_release
from bayplan.sources.settings import SchedulerSettings


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


def text_lines(report: UpgradeReport) -> Iterator[str]:
    """The report for a terminal."""
    count = len(report.differences)
    pods = f"{report.pods:,} pending pod{'' if report.pods == 1 else 's'}"
    yield f"{report.name}: Kubernetes {report.old} → {report.new}: {pods}, {count:,} decided differently"
    for difference in report.differences:
        yield ""
        yield f"{difference.pod}: {', '.join(difference.kinds)}"
        yield f"  {report.old}: {_shown(difference, after=False)}"
        yield f"  {report.new}: {_shown(difference, after=True)}"
        for rule in difference.rules:
            yield f"  by: {rule.title} ({rule.name})"
        if not difference.rules:
            yield "  by: several rules together"


def _shown(difference: PodDifference, *, after: bool) -> str:
    explanation = difference.after if after else difference.before
    if explanation.error:
        return f"error: {explanation.error}"
    if explanation.feasible:
        score = explanation.total[explanation.chosen]
        return f"{explanation.chosen}, total score {score}, {len(explanation.feasible)} feasible nodes"
    return explanation.fit_error_full
