"""`bayplan whatif`: what would happen after a list of changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import click
from rich.console import Console

from bayplan.answers.sources.loading import SourceOptions, load_cluster
from bayplan.answers.whatif import Cluster, Outcome, Placement, Placements
from bayplan.cli.changes import Changes
from bayplan.cli.ordered import OrderedCommand, in_order
from bayplan.cli.output import (
    TABLE,
    make_console,
    number,
    output_option,
    print_document,
    print_table,
    print_warnings,
)
from bayplan.cli.plugin_failures import raise_failures, traceback_option
from bayplan.cli.source_options import source_options

FITS, DOES_NOT_FIT = 0, 1
MAX_ROWS: Final = 40

_WHAT: Final = {
    Outcome.SCHEDULED: "scheduled",
    Outcome.UNSCHEDULABLE: "unschedulable",
    Outcome.WAITING: "waits at Permit",
    Outcome.GATED: "gated",
    Outcome.FAILED: "failed",
    Outcome.SKIPPED: "skipped",
    Outcome.NOT_RECREATED: "lost",
}


@click.command(cls=OrderedCommand)
@click.option(
    "--add",
    "add",
    multiple=True,
    metavar="FILE[=REPLICAS]",
    help="Create the pods and workloads of a manifest; Deployments, ReplicaSets, StatefulSets and Jobs are "
    "expanded into pods. REPLICAS replaces their number of pods.",
)
@click.option(
    "--add-nodes",
    "add_nodes",
    multiple=True,
    metavar="N[=LIKE]",
    help="Add N empty nodes like a node of the cluster, a Node in a file, or a machine shape: 3=n01, "
    "3=node.yaml, 3=cpu=8,memory=32Gi. Without LIKE: like a node of the most frequent size.",
)
@click.option(
    "--remove-node",
    "remove_node",
    multiple=True,
    metavar="NODE",
    help="Remove a node; controllers create its pods again.",
)
@click.option(
    "--drain",
    "drain",
    multiple=True,
    metavar="NODE",
    help="Cordon a node and evict its pods, except those of DaemonSets and static pods.",
)
@click.option("--cordon", "cordon", multiple=True, metavar="NODE", help="Mark a node as unschedulable.")
@click.option(
    "--scale",
    "scale",
    multiple=True,
    metavar="NAMESPACE/NAME=N",
    help="Scale a Deployment, ReplicaSet, StatefulSet or Job; new pods are copies of its pods.",
)
@click.option(
    "--new-config",
    "new_config",
    multiple=True,
    metavar="FILE",
    help="Schedule with this configuration instead of that of --config.",
)
@click.option(
    "--ignore-pending",
    is_flag=True,
    help="Schedule only pods that the changes create or displace, not those that were pending before.",
)
@traceback_option
@output_option
@source_options
@click.pass_context
def whatif(
    ctx: click.Context,
    /,
    source: SourceOptions,
    output: str,
    traceback: bool,
    ignore_pending: bool,
    **changes: Sequence[str],
) -> int:
    """Show what would happen: make the changes in the given order, then schedule the pending pods.

    Pods are taken one after the other as the scheduler would take them, with Permit, groups, volumes and
    preemption. Nothing is written to the cluster. Exit status: 0 everything fits, 1 something does not,
    2 invalid input or a plugin failed.
    """
    loaded = load_cluster(source)
    cluster = Cluster.from_loaded(loaded)
    before = {pod.uid for pod in cluster.pending} if ignore_pending else set()
    change = Changes(cluster, source)
    done = [change.make(option, value) for option, value in in_order(ctx, changes)]
    budgets = cluster.drain_warnings()
    placed = cluster.schedule(pod for pod in cluster.pending if pod.uid not in before)
    placed = replace(placed, pods=(*placed.pods, *cluster.not_recreated))
    placed = replace(placed, warnings=(*placed.warnings, *budgets, *change.warnings))
    fits = all(one.fits for one in placed if one.outcome is not Outcome.SKIPPED)
    if output != TABLE:
        print_document(
            "WhatIf",
            {
                "name": loaded.name,
                "kubernetesVersion": loaded.release.version,
                "changes": done,
                **placed.as_json(),
                "fits": fits,
            },
            output,
        )
    else:
        _print(make_console(), loaded.name, cluster, done, placed)
    raise_failures(placed.failures, with_traceback=traceback)
    return FITS if fits else DOES_NOT_FIT


# Tables


def _print(console: Console, name: str, cluster: Cluster, changes: Sequence[str], placed: Placements) -> None:
    nodes = number(len(cluster.nodes), "node")
    console.print(f"{name}: {nodes} after the changes; decided as Kubernetes {cluster.columns.release}")
    for change in changes:
        console.print(f"  {change}")
    console.print()
    if not placed.pods:
        console.print("no pods to schedule")
    else:
        good = len(placed.scheduled)
        bad = len(placed) - good
        evicted = f", {number(len(placed.evicted), 'pod')} preempted" if placed.evicted else ""
        console.print(f"{number(good, 'pod')} scheduled, {bad:,} not{evicted}")
    _print_scheduled(console, placed.scheduled)
    _print_rest(console, placed.not_scheduled)
    if placed.warnings:
        console.print()
        print_warnings(console, placed.warnings)


def _print_scheduled(console: Console, pods: Sequence[Placement]) -> None:
    if not pods:
        return
    console.print()
    moves = any(one.was_on for one in pods)
    columns = ("pod", *(("from",) if moves else ()), "node", "preempts")
    if not any(one.evicted for one in pods):
        columns = columns[:-1]
    rows: list[tuple[str, ...]] = []
    for one in pods[:MAX_ROWS]:
        cells: dict[str, str] = {
            "pod": one.pod,
            "from": one.was_on,
            "node": one.node,
            "preempts": ", ".join(one.evicted),
        }
        rows.append(tuple(cells[column] for column in columns))
    print_table(console, columns, rows)
    if len(pods) > MAX_ROWS:
        console.print(f"  … and {len(pods) - MAX_ROWS:,} more; -o json has all of them")


def _print_rest(console: Console, pods: Sequence[Placement]) -> None:
    """Pods that are not scheduled, grouped by outcome and reason."""
    groups: dict[tuple[Outcome, str], list[str]] = defaultdict(list)
    for one in pods:
        groups[one.outcome, one.reason].append(f"{one.pod} (was on {one.was_on})" if one.was_on else one.pod)
    if groups:
        console.print()
    rows: list[tuple[Any, ...]] = []
    for (outcome, reason), names in groups.items():
        shown = ", ".join(names[:3]) + (f" +{len(names) - 3}" if len(names) > 3 else "")
        rows.append((str(len(names)), _WHAT[outcome], shown, reason))
    if rows:
        print_table(console, ("pods", "result", "names", "reason"), rows, right=("pods",))
