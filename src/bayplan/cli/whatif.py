"""`bayplan whatif`: what would happen after a list of changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import click
from rich.console import Console

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
from bayplan.cli.source_options import source_options
from bayplan.errors import InputError
from bayplan.sources.loading import load_cluster
from bayplan.sources.options import SourceOptions
from bayplan.sources.settings import load_settings
from bayplan.sources.warnings import Warning
from bayplan.whatif import Cluster, Outcome, Placement, Placements
from bayplan.whatif.manifests import MAX_PODS, read_manifests
from bayplan.whatif.nodes import read_node_template, usual_node

FITS, DOES_NOT_FIT = 0, 1
MAX_ROWS: Final = 40
MAX_NODES: Final = 100_000

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
@output_option
@source_options
@click.pass_context
def whatif(
    ctx: click.Context,
    /,
    source: SourceOptions,
    output: str,
    ignore_pending: bool,
    **changes: Sequence[str],
) -> int:
    """Show what would happen: make the changes in the given order, then schedule the pending pods.

    Pods are taken one after the other as the scheduler would take them, with Permit, groups, volumes and
    preemption. Nothing is written to the cluster. Exit status: 0 everything fits, 1 something does not,
    2 invalid input.
    """
    loaded = load_cluster(source)
    cluster = Cluster.from_loaded(loaded)
    before = {pod.uid for pod in cluster.pending} if ignore_pending else set()
    done: list[str] = []
    warnings: list[Warning] = []
    for name, value in in_order(ctx, changes):
        done.append(_CHANGES[name](cluster, value, source, warnings))
    budgets = cluster.budget_warnings()
    placed = cluster.schedule(pod for pod in cluster.pending if pod.uid not in before)
    placed = replace(placed, pods=(*placed.pods, *cluster.not_recreated))
    placed = replace(placed, warnings=(*placed.warnings, *budgets, *warnings))
    fits = all(one.fits for one in placed if one.outcome is not Outcome.SKIPPED)
    if output != TABLE:
        print_document(
            "WhatIf", {"name": loaded.name, "changes": done, **placed.as_json(), "fits": fits}, output
        )
    else:
        _print(make_console(), loaded.name, cluster, done, placed)
    return FITS if fits else DOES_NOT_FIT


# Changes


def add_manifest(cluster: Cluster, value: str) -> str:
    """`--add FILE[=REPLICAS]`. Returns what was done, as text."""
    file, replicas = _file_and_number(value)
    pods = cluster.add(*read_manifests(file, replicas))
    return f"add {number(len(pods), 'pod')} of {file}"


def _add(cluster: Cluster, value: str, source: SourceOptions, warnings: list[Warning]) -> str:
    return add_manifest(cluster, value)


def _add_nodes(cluster: Cluster, value: str, source: SourceOptions, warnings: list[Warning]) -> str:
    text, sign, like = value.partition("=")
    if not text.isdecimal() or (sign and not like):
        raise InputError(f"--add-nodes {value}: write N or N=LIKE, as in 3=n01 or 3=cpu=8,memory=32Gi")
    like = like or usual_node(cluster)
    if int(text) > MAX_NODES:
        raise InputError(f"--add-nodes {value}: the limit is {MAX_NODES:,} nodes")
    names = cluster.add_nodes(int(text), read_node_template(like, cluster))
    return f"add {number(len(names), 'node')} like {like}"


def _remove_node(cluster: Cluster, value: str, source: SourceOptions, warnings: list[Warning]) -> str:
    return f"remove node {value}: {number(len(cluster.remove_node(value)), 'pod')} to place again"


def _drain(cluster: Cluster, value: str, source: SourceOptions, warnings: list[Warning]) -> str:
    return f"drain {value}: {number(len(cluster.drain(value)), 'pod')} to place again"


def _cordon(cluster: Cluster, value: str, source: SourceOptions, warnings: list[Warning]) -> str:
    cluster.cordon(value)
    return f"cordon {value}"


def _scale(cluster: Cluster, value: str, source: SourceOptions, warnings: list[Warning]) -> str:
    workload, _, text = value.rpartition("=")
    if not workload or not text.isdecimal():
        raise InputError(f"--scale {value}: write NAMESPACE/NAME=N, as in shop/web=12")
    if int(text) > MAX_PODS:
        raise InputError(f"--scale {value}: the limit is {MAX_PODS:,} pods")
    cluster.scale(workload, int(text))
    return f"scale {workload} to {text}"


def _new_config(cluster: Cluster, value: str, source: SourceOptions, warnings: list[Warning]) -> str:
    settings = load_settings(value, source.plugin_specs, source.own_flags, cluster.columns.release)
    assert settings.config is not None, "a file was read"
    cluster.use_config(settings.config, settings.plugins)
    warnings += settings.warnings
    return f"schedule with {value}"


_CHANGES: Final = {
    "add": _add,
    "add_nodes": _add_nodes,
    "remove_node": _remove_node,
    "drain": _drain,
    "cordon": _cordon,
    "scale": _scale,
    "new_config": _new_config,
}


def _file_and_number(value: str) -> tuple[str, int | None]:
    """FILE[=REPLICAS]: a file name may contain =, too."""
    file, sign, text = value.rpartition("=")
    return (file, int(text)) if sign and text.isdecimal() else (value, None)


# Tables


def _print(console: Console, name: str, cluster: Cluster, changes: Sequence[str], placed: Placements) -> None:
    console.print(f"{name}: {number(len(cluster.nodes), 'node')} after the changes")
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
    """Pods that are not scheduled, grouped by what became of them and why."""
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
