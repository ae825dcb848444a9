"""`bayplan capacity`: how many more pods fit, and how many nodes they need."""

from __future__ import annotations

from collections import Counter
from typing import Final

import click
from rich.console import Console

from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.answers.sources.loading import SourceOptions, load_cluster
from bayplan.answers.whatif import Capacity, Cluster
from bayplan.answers.whatif.capacity import NodesNeeded, nodes_needed
from bayplan.answers.whatif.machines import read_node_template
from bayplan.api.pod import Pod
from bayplan.cli.errors import ExitStatus, raise_failures, traceback_option
from bayplan.cli.options import source_options
from bayplan.cli.output import (
    TABLE,
    make_console,
    number,
    output_option,
    print_document,
    print_table,
    print_warnings,
)
from bayplan.cli.whatif import name_and_number, print_left_out
from bayplan.state.groups import group_key

MAX_NODES: Final = 12


@click.command()
@click.argument("pods", nargs=-1, required=True, metavar="POD...")
@click.option(
    "--for",
    "wanted",
    type=click.IntRange(min=1, max=1_000_000),
    metavar="N",
    help="How many pods are wanted: whether they fit, and with --nodes how many nodes are needed for them.",
)
@click.option(
    "--nodes",
    "template",
    metavar="LIKE",
    help="Add nodes like a node of the cluster, a Node in a file, or a machine shape (cpu=8,memory=32Gi), "
    "until the wanted pods fit. Needs --for.",
)
@click.option(
    "--at-most",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    metavar="N",
    help="Stop counting at this number of pods.",
)
@traceback_option
@output_option
@source_options
def capacity(
    pods: tuple[str, ...],
    source: SourceOptions,
    wanted: int | None,
    template: str | None,
    at_most: int,
    traceback: bool,
    output: str,
) -> int:
    """Count how many more pods fit on the cluster, without evictions.

    POD is a manifest with one pod or workload, FILE[=SHARE], or a pod of the cluster, NAMESPACE/NAME[=SHARE].
    Several of them are a mix in proportion to their shares. Copies are scheduled one by one until the next
    does not fit. Exit status: 1 if --for N pods do not fit, 2 invalid input or a plugin failed, 3 objects of
    a manifest were left out.
    """
    if template is not None and wanted is None:
        raise click.UsageError("--nodes needs --for N")
    loaded = load_cluster(source)
    cluster = Cluster.from_loaded(loaded)
    mix = [each for text in pods for each in _shares(text, cluster)]
    counted = cluster.capacity(mix, at_most=at_most if wanted is None else wanted)
    needed = None
    if template is not None and wanted is not None and not counted.failures:
        needed = nodes_needed(cluster, mix, wanted, read_node_template(template, cluster))
    fits = wanted is None or counted.count >= wanted
    enough = fits or (needed is not None and needed.count is not None)
    if output != TABLE:
        content = {
            "name": loaded.name,
            "kubernetesVersion": loaded.release.version,
            "wanted": wanted,
            **counted.as_json(),
            "leftOut": [one.as_json() for one in cluster.left_out],
        }
        if needed is not None:
            content["nodes"] = {"like": template, **needed.as_json()}
        print_document("Capacity", content, output)
    else:
        _print(make_console(), loaded, cluster, counted, wanted, template, needed)
    raise_failures(counted.failures, with_traceback=traceback)
    if not enough and not any(str(group_key(pod)) in cluster.groups_left_out for pod, _ in mix):
        return ExitStatus.NO
    return ExitStatus.NOT_JUDGED if cluster.left_out else ExitStatus.OK


def _shares(text: str, cluster: Cluster) -> list[tuple[Pod, int]]:
    name, share = name_and_number(text)
    count = 1 if share is None else share
    known = cluster.find_pod(name) if "/" in name else None
    if known is not None:
        return [(known, count)]
    return [(pod, own * count) for pod, own in cluster.models(name)]


def _print(
    console: Console,
    loaded: LoadedCluster,
    cluster: Cluster,
    counted: Capacity,
    wanted: int | None,
    template: str | None,
    needed: NodesNeeded | None,
) -> None:
    counts = f"{number(len(cluster.nodes), 'node')}, {number(cluster.pod_count, 'pod')}"
    console.print(f"{loaded.name}: {counts}; {loaded.decided_as}")
    console.print()
    what = "more gang" if counted.gang_size else "more pod"
    size = f", {number(counted.gang_size, 'member')} each" if counted.gang_size else ""
    if counted.failures:
        console.print(f"{number(counted.count, what)} placed before a plugin failed")
    elif wanted is not None:
        result = f"only {counted.count:,} {'fits' if counted.count == 1 else 'fit'}"
        if counted.count >= wanted:
            result = "it fits" if wanted == 1 else "they fit"
        elif not counted.count:
            result = "it does not fit" if wanted == 1 else "none fits"
        console.print(f"{number(wanted, what)} wanted{size}: {result}")
    elif counted.is_limit:
        console.print(f"{number(counted.count, what)} {'fits' if counted.count == 1 else 'fit'}{size}")
    else:
        console.print(f"at least {counted.count:,} {what}s fit{size}; counting stopped at --at-most")
    if counted.is_limit and counted.reason:
        console.print(f"  the next one ({counted.stopped_by}) does not: {counted.reason}", soft_wrap=True)
    if counted.by_node:
        console.print()
        rows = Counter(counted.by_node).most_common()
        print_table(
            console,
            ("node", "pods"),
            [(node, f"{count:,}") for node, count in rows[:MAX_NODES]],
            right=("pods",),
        )
        if len(rows) > MAX_NODES:
            console.print(f"  … and {len(rows) - MAX_NODES:,} more nodes")
    if needed is not None:
        console.print()
        if needed.count is None:
            console.print(f"no number of nodes like {template} is enough: {needed.reason}", soft_wrap=True)
        elif needed.count:
            console.print(f"{number(needed.count, 'node')} like {template} would be enough")
    print_left_out(console, cluster.left_out)
    if counted.warnings:
        console.print()
        print_warnings(console, counted.warnings)
