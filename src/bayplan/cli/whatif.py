"""`bayplan whatif`: what would happen after a list of changes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import click
from rich.console import Console

from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.answers.sources.loading import SourceOptions, load_cluster, load_settings
from bayplan.answers.sources.warnings import Reason, Warning
from bayplan.answers.whatif import Cluster, Outcome, Placement, Placements
from bayplan.answers.whatif.machines import read_node_template, usual_node
from bayplan.answers.whatif.manifests import LeftOut, Manifests, read_manifests
from bayplan.answers.whatif.outcomes import Applied
from bayplan.answers.whatif.scaling import scale_and_count
from bayplan.answers.whatif.workloads import MAX_PODS
from bayplan.cli.errors import ExitStatus, raise_failures, traceback_option
from bayplan.cli.options import source_options, without_kind
from bayplan.cli.output import (
    TABLE,
    make_console,
    number,
    output_option,
    print_document,
    print_table,
    print_warnings,
)
from bayplan.errors import InputError

_ORDER: Final = "bayplan.option_order"


class OrderedCommand(click.Command):
    """Remembers in which order options were given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        ctx.meta[_ORDER] = [parameter.name for parameter in order]
        return super().parse_args(ctx, args)


def in_order(ctx: click.Context, values: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, Any]]:
    """The values of repeated options, by option name, one after the other as they were given."""
    left = {name: iter(given) for name, given in values.items()}
    for name in ctx.meta[_ORDER]:
        if name in left:
            yield name, next(left[name])


MAX_NODES: Final = 100_000


class Changes:
    """Makes changes, and says what was done. The method for an option has the option's name."""

    def __init__(self, cluster: Cluster, source: SourceOptions) -> None:
        self._cluster = cluster
        self._source = source
        self.warnings: list[Warning] = []
        """What the results rest on since the changes."""
        self.applied: list[Applied] = []
        """The objects of all manifests."""
        self.manifests: list[tuple[Manifests, int | None]] = []
        """What was applied, with the number of replicas that was asked for."""

    def make(self, option: str, value: str) -> str:
        """Makes the change of one option.

        Raises:
            InputError: the value is malformed, or names something that is not there.
        """
        done: str = getattr(self, option)(value)
        return done

    def add(self, value: str) -> str:
        file, replicas = name_and_number(value)
        manifests = read_manifests(file, self._cluster.columns.release)
        applied = self._cluster.apply(manifests, replicas=replicas)
        self.manifests.append((manifests, replicas))
        self.applied += applied
        counts = Counter(one.change for one in applied)
        summary = ", ".join(f"{count:,} {change}" for change, count in counts.items())
        return f"apply {file}{f' with {replicas:,} replicas' if replicas is not None else ''}: {summary}"

    def add_nodes(self, value: str) -> str:
        text, sign, like = value.partition("=")
        if not text.isdecimal() or (sign and not like):
            raise InputError(f"--add-nodes {value}: write N or N=LIKE, as in 3=n01 or 3=cpu=8,memory=32Gi")
        if int(text) > MAX_NODES:
            raise InputError(f"--add-nodes {value}: the limit is {MAX_NODES:,} nodes")
        like = like or usual_node(self._cluster)
        names = self._cluster.add_nodes(int(text), read_node_template(like, self._cluster))
        return f"add {number(len(names), 'node')} like {like}"

    def remove_node(self, value: str) -> str:
        value = without_kind(value, "node")
        return f"remove node {value}: {number(len(self._cluster.remove_node(value)), 'pod')} to place again"

    def drain(self, value: str) -> str:
        value = without_kind(value, "node")
        return f"drain {value}: {number(len(self._cluster.drain(value)), 'pod')} to place again"

    def cordon(self, value: str) -> str:
        value = without_kind(value, "node")
        self._cluster.cordon(value)
        return f"cordon {value}"

    def scale(self, value: str) -> str:
        workload, _, text = value.rpartition("=")
        if not workload or not text.isdecimal():
            raise InputError(f"--scale {value}: write NAMESPACE/NAME=N, as in shop/web=12")
        if int(text) > MAX_PODS:
            raise InputError(f"--scale {value}: the limit is {MAX_PODS:,} pods")
        return scale_and_count(self._cluster, workload, int(text))

    def new_config(self, value: str) -> str:
        source = self._source
        release = self._cluster.columns.release
        settings = load_settings(value, source.plugin_specs, source.own_flags, release)
        assert settings.config is not None, "a file was read"
        self._cluster.use_config(settings.config, settings.plugins)
        self.warnings += settings.warnings
        return f"schedule with {value}"

    def queues(self, value: str) -> str:
        self._cluster.use_queues(value)
        return f"use the capacity queues of {value}"


def name_and_number(value: str) -> tuple[str, int | None]:
    """NAME[=NUMBER]: a name may contain =, too."""
    name, sign, text = value.rpartition("=")
    return (name, int(text)) if sign and text.isdecimal() else (value, None)


MAX_ROWS: Final = 40

_WHAT: Final = {
    Outcome.SCHEDULED: "scheduled",
    Outcome.UNSCHEDULABLE: "unschedulable",
    Outcome.WAITING: "waits at Permit",
    Outcome.GATED: "gated",
    Outcome.FAILED: "failed",
    Outcome.SKIPPED: "skipped",
    Outcome.NOT_RECREATED: "lost",
    Outcome.NOT_CREATED: "not created",
    Outcome.REJECTED: "rejected",
}


@click.command(cls=OrderedCommand)
@click.option(
    "--add",
    "add",
    multiple=True,
    metavar="FILE[=REPLICAS]",
    help="Apply a manifest: new workloads get their pods, existing ones are scaled or rolled out. REPLICAS "
    "replaces their number of pods.",
)
@click.option(
    "--add-nodes",
    "add_nodes",
    multiple=True,
    metavar="N[=LIKE]",
    help="Add N nodes with the pods of DaemonSets, like a node of the cluster, a Node in a file, or a "
    "machine shape: 3=n01, 3=node.yaml, 3=cpu=8,memory=32Gi. Without LIKE: like a node of the most frequent "
    "size.",
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
    help="Scale a Deployment, ReplicaSet, StatefulSet or Job; new pods are copies of its pods, or come from "
    "its template.",
)
@click.option(
    "--new-config",
    "new_config",
    multiple=True,
    metavar="FILE",
    help="Schedule with this configuration instead of that of --config.",
)
@click.option(
    "--queues",
    "queues",
    multiple=True,
    metavar="FILE",
    help="Use this queues.yaml, or volcano-scheduler.conf, instead of that of the configuration.",
)
@click.option(
    "--deschedule",
    metavar="FILE",
    help="Then show which pods `bayplan deschedule` would move by this DeschedulerPolicy.",
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
    deschedule: str | None,
    **changes: Sequence[str],
) -> int:
    """Show what would happen: make the changes in the given order, then schedule the pending pods.

    Pods are taken one after the other as the scheduler would take them, with Permit, groups, volumes and
    preemption. Nothing is written to the cluster. Exit status: 0 everything fits, 1 something does not,
    2 invalid input or a plugin failed, 3 pods or objects of a manifest were left out and all others fit.
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
    fits = fits and all(one.is_complete for one in placed.rollouts)
    plan = None
    if deschedule is not None:
        # Imported here: few questions are about descheduling.
        from bayplan.cli.deschedule import plan_after

        plan = plan_after(loaded, cluster, deschedule)
    if output != TABLE:
        print_document(
            "WhatIf",
            {
                "name": loaded.name,
                "kubernetesVersion": loaded.release.version,
                "changes": done,
                "applied": [one.as_json() for one in change.applied],
                "leftOut": [one.as_json() for one in cluster.left_out],
                **placed.as_json(),
                "fits": fits,
                **({} if plan is None else {"deschedule": plan.as_json()}),
            },
            output,
        )
    else:
        _print(make_console(), loaded, cluster, done, change.applied, placed)
        if plan is not None:
            from bayplan.cli.deschedule import print_plan

            console = make_console()
            console.print()
            print_plan(console, f"descheduling by {deschedule}", plan)
    raise_failures(placed.failures, with_traceback=traceback)
    if not fits or any(one.reason is Reason.EVICTION_BLOCKED for one in budgets):
        return ExitStatus.NO
    skipped = any(one.outcome is Outcome.SKIPPED for one in placed) or bool(plan and plan.errors)
    return ExitStatus.NOT_JUDGED if skipped or cluster.left_out else ExitStatus.OK


# Tables


def _print(
    console: Console,
    loaded: LoadedCluster,
    cluster: Cluster,
    changes: Sequence[str],
    applied: Sequence[Applied],
    placed: Placements,
) -> None:
    nodes = number(len(cluster.nodes), "node")
    console.print(f"{loaded.name}: {nodes} after the changes; {loaded.decided_as}")
    for change in changes:
        console.print(f"  {change}")
    print_applied(console, applied)
    console.print()
    for rollout in placed.rollouts:
        console.print(str(rollout), soft_wrap=True)
    if not placed.pods:
        console.print("no pods to schedule")
    else:
        good = len(placed.scheduled)
        bad = len(placed) - good
        evicted = f", {number(len(placed.evicted), 'pod')} preempted" if placed.evicted else ""
        console.print(f"{number(good, 'pod')} scheduled, {bad:,} not{evicted}")
    _print_scheduled(console, placed.scheduled)
    _print_rest(console, placed.not_scheduled)
    print_left_out(console, cluster.left_out)
    if placed.warnings:
        console.print()
        print_warnings(console, placed.warnings)


def print_applied(console: Console, applied: Sequence[Applied]) -> None:
    """What became of the objects of manifests."""
    for one in applied[:MAX_ROWS]:
        console.print(f"    {one}", soft_wrap=True)
    if len(applied) > MAX_ROWS:
        console.print(f"    … and {len(applied) - MAX_ROWS:,} more objects; -o json has all of them")


def print_left_out(console: Console, left_out: Sequence[LeftOut]) -> None:
    """Objects of manifests that were not judged."""
    if left_out:
        console.print()
    for one in left_out:
        console.print(f"left out: {one}", soft_wrap=True)


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
