"""`bayplan compare`: several configurations on the same cluster and workload."""

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
from bayplan.answers.sources.loading import (
    SchedulerSettings,
    SourceOptions,
    as_release,
    load_cluster,
    load_releases,
    load_settings,
)
from bayplan.answers.sources.warnings import Warning
from bayplan.answers.whatif import Cluster
from bayplan.answers.whatif.comparison import (
    SKIPPED,
    Comparison,
    Estimate,
    Variant,
    Workload,
    compare,
    from_scratch,
)
from bayplan.answers.whatif.manifests import LeftOut
from bayplan.answers.whatif.outcomes import Applied
from bayplan.answers.whatif.rollouts import begin as begin_rollouts
from bayplan.api.meta import DEFAULT_NAMESPACE, Object
from bayplan.api.releases import Release, parse_release
from bayplan.cli.errors import ExitStatus, raise_failures, traceback_option
from bayplan.cli.options import comparing_source_options
from bayplan.cli.output import (
    TABLE,
    make_console,
    number,
    output_option,
    print_document,
    print_table,
    print_warnings,
)
from bayplan.cli.terminal import echo_json
from bayplan.cli.whatif import Changes, print_applied, print_left_out
from bayplan.config import default_config

DEFAULT: Final = "default"
_NOTHING: Final = "what is to be compared? Name a CONFIG, or two versions with --emulated-version"
_ONLY_VERSIONS: Final = (
    "two versions are compared without CONFIG, --from-scratch, --seeds, --shuffle and --dask; to compare the "
    "placements of all pods use CONFIG@VERSION"
)
MAX_DIFFERENCES: Final = 20
_PERCENT: Final = ("utilisation", "imbalance", "fragmentation")


@click.command("compare")
@click.argument("configs", nargs=-1, metavar="CONFIG...")
@click.option(
    "--add",
    multiple=True,
    metavar="FILE[=REPLICAS]",
    help="Add the pods and workloads of a manifest to the workload, as for whatif.",
)
@click.option(
    "--from-scratch",
    "scratch",
    is_flag=True,
    help="Schedule all pods again, except those of DaemonSets and static pods, on the empty nodes.",
)
@click.option(
    "--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="Runs per configuration."
)
@click.option("--shuffle", is_flag=True, help="Each seed has its own order of arrival.")
@click.option(
    "--jobs",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Processes. [default: one for each CPU]",
)
@click.option(
    "--dask",
    default="",
    metavar="ADDRESS",
    help="Run on the Dask cluster with this scheduler, tcp://HOST:PORT (needs bayplan[dask]).",
)
@traceback_option
@output_option
@comparing_source_options
def compare_command(
    configs: tuple[str, ...],
    source: SourceOptions,
    releases: tuple[Release, ...],
    add: tuple[str, ...],
    scratch: bool,
    seeds: int,
    shuffle: bool,
    jobs: int,
    dask: str,
    traceback: bool,
    output: str,
) -> int:
    """Compare scheduler configurations, or two Kubernetes versions: the same cluster and the same pending
    pods.

    CONFIG is a configuration file or `default`, and may name a Kubernetes version: CONFIG@1.37. With one
    CONFIG it is compared with that of --config, or with the default one.

    With two versions (--emulated-version 1.36 --emulated-version 1.37) and no CONFIG, each pending pod is
    decided as both, and those that differ are shown with the rules that make the difference.
    """
    if len(releases) > 1:
        if configs or scratch or shuffle or seeds > 1 or dask:
            raise click.UsageError(_ONLY_VERSIONS)
        return compare_versions(source, releases, add, output)
    if not configs:
        raise click.UsageError(_NOTHING)
    loaded = load_cluster(source)
    cluster = Cluster.from_loaded(loaded)
    objects = tuple(from_scratch(cluster.objects)) if scratch else tuple(cluster.objects)
    change = Changes(cluster, source)
    for value in add:
        change.add(value)
    chosen = configs if len(configs) > 1 else (source.config_file or DEFAULT, *configs)
    warnings: list[Warning] = [*loaded.warnings]
    variants = [_variant(text, source, loaded.release, warnings) for text in chosen]
    workload = Workload(objects, loaded.listed, shuffle, tuple(change.manifests))
    found = compare(workload, variants, seeds=seeds, jobs=jobs, dask=dask)
    found = replace(found, warnings=(*warnings, *found.warnings))
    if output != TABLE:
        versions = [variant.config.release.version for variant in variants]
        content = {
            "name": loaded.name,
            "kubernetesVersions": versions,
            "applied": [one.as_json() for one in change.applied],
            "leftOut": [one.as_json() for one in cluster.left_out],
            **found.as_json(),
        }
        print_document("Comparison", content, output)
    else:
        console = make_console()
        _print(console, loaded.name, found, variants, change.applied, shuffle=shuffle)
        print_left_out(console, cluster.left_out)
    raise_failures(found.failures, with_traceback=traceback)
    return ExitStatus.NOT_JUDGED if cluster.left_out else ExitStatus.OK


def _variant(text: str, source: SourceOptions, release: Release, warnings: list[Warning]) -> Variant:
    name, sign, version = text.rpartition("@")
    release = parse_release(version) if sign else release
    file = name if sign else text
    if file == DEFAULT:
        config = source.own_flags.apply(default_config(release=release))
        return Variant(text, config, source.plugin_specs)
    settings = load_settings(file, source.plugin_specs, source.own_flags, release)
    assert settings.config is not None, "a file was read"
    warnings += settings.warnings
    return Variant(text, settings.config, source.plugin_specs)


def _print(
    console: Console,
    name: str,
    found: Comparison,
    variants: Sequence[Variant],
    applied: Sequence[Applied],
    *,
    shuffle: bool,
) -> None:
    runs = "" if found.seeds == 1 else f", {found.seeds} seeds{' with shuffled arrival' if shuffle else ''}"
    releases = " and ".join(dict.fromkeys(str(variant.config.release) for variant in variants))
    heading = f"{name}: {number(found.pods, 'pod')} to schedule{runs}; decided as Kubernetes {releases}"
    console.print(heading)
    print_applied(console, applied)
    console.print()
    _print_rollouts(console, found)
    rows = [
        (figure, *(_shown(figure, one) for one in estimates))
        for figure, estimates in found.figures.items()
        if figure != SKIPPED or any(one.mean for one in estimates)
    ]
    print_table(console, ("", *found.names), rows, right=found.names)
    if found.seeds > 1:
        chance = any(one.margin is not None for estimates in found.figures.values() for one in estimates)
        note = "± is the 95 % confidence interval" if chance else "all seeds gave the same figures"
        console.print(f"  {note}")
    console.print()
    seed = " with the first seed" if found.seeds > 1 else ""
    console.print(f"{number(len(found.differences), 'pod')} placed differently{seed}")
    shown = list(found.differences.items())[:MAX_DIFFERENCES]
    if shown:
        print_table(
            console, ("pod", *found.names), [(pod, *(node or "–" for node in nodes)) for pod, nodes in shown]
        )
    if len(found.differences) > MAX_DIFFERENCES:
        console.print(f"  … and {len(found.differences) - MAX_DIFFERENCES:,} more; -o json has all of them")
    if found.warnings:
        console.print()
        print_warnings(console, found.warnings)


def _print_rollouts(console: Console, found: Comparison) -> None:
    """How the rollouts end: once if they end in the same way under all configurations."""
    seed = " with the first seed" if found.seeds > 1 else ""
    for of_workload in zip(*found.rollouts, strict=True):
        texts = list(map(str, of_workload))
        if len(set(texts)) == 1:
            console.print(f"{texts[0]}{seed}", soft_wrap=True)
        else:
            for name, text in zip(found.names, texts, strict=True):
                console.print(f"{name}: {text}{seed}", soft_wrap=True)
    if any(found.rollouts):
        console.print()


def _shown(figure: str, one: Estimate) -> str:
    if figure.startswith(_PERCENT):
        text, margin = f"{100 * one.mean:.1f} %", None if one.margin is None else f"{100 * one.margin:.1f}"
    elif figure == "waiting":
        text, margin = f"{one.mean:.1f} s", None if one.margin is None else f"{one.margin:.1f}"
    else:
        text = f"{one.mean:,.2f}".rstrip("0").rstrip(".")
        margin = None if one.margin is None else f"{one.margin:.2f}"
    return text if margin is None else f"{text} ± {margin}"


def compare_versions(
    source: SourceOptions, releases: Sequence[Release], add: Sequence[str], output: str
) -> int:
    """Prints what changes for the pending pods, and those of `--add`, from one version to the other. Returns
    the exit status."""
    if len({release.version for release in releases}) != len(releases) or len(releases) > 2:
        raise click.UsageError("--emulated-version: give two different versions")
    older, newer = sorted(releases, key=lambda release: release.minor)
    load = load_releases(source)
    left_out: Sequence[LeftOut] = ()
    applied: Sequence[Applied] = ()
    if add:
        cluster = Cluster.from_loaded(load(older))
        changes = Changes(cluster, source)
        for value in add:
            changes.add(value)
        begin_rollouts(cluster)
        applied, left_out = changes.applied, cluster.left_out
        load = partial(_with_objects, load, tuple(cluster.objects))
    report = compare_releases(load, older, newer)
    warnings = load(newer).warnings
    status = ExitStatus.NOT_JUDGED if left_out else ExitStatus.OK
    if output != TABLE:
        content = {
            **report.as_json(),
            "applied": [one.as_json() for one in applied],
            "leftOut": [one.as_json() for one in left_out],
            "warnings": [warning.as_json() for warning in warnings],
        }
        print_document("UpgradeReport", content, output)
        return status
    console = make_console()
    print_applied(console, applied)
    for line in text_lines(report, MAX_DIFFERENCES):
        console.print(line, soft_wrap=True)
    print_left_out(console, left_out)
    if warnings:
        console.print()
        print_warnings(console, warnings)
    return status


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
                echo_json(msgspec.json.encode(report.as_json()))
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
        yield f"  {report.old}: {_decision(difference, after=False)}"
        yield f"  {report.new}: {_decision(difference, after=True)}"
        for rule in difference.rules:
            yield f"  by: {rule.title} ({rule.name})"
        if not difference.rules:
            yield "  by: several rules together"
    if max_pods is not None and count > max_pods:
        yield ""
        yield f"… and {count - max_pods:,} more; -o json has all of them"


def _decision(difference: PodDifference, *, after: bool) -> str:
    explanation = difference.after if after else difference.before
    if explanation.error:
        return f"error: {explanation.error}"
    if explanation.feasible:
        score = explanation.total[explanation.chosen]
        return f"{explanation.chosen}, total score {score}, {len(explanation.feasible)} feasible nodes"
    return explanation.fit_error_full
