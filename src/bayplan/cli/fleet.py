"""`bayplan fleet`: which clusters a workload goes to, how many replicas each gets, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Final, TypeVar

import click
import yaml
from rich.console import Console

from bayplan.answers.sources.loading import SourceOptions
from bayplan.answers.whatif.manifests import LeftOut, Manifest, read_manifests
from bayplan.api.decode import expand_lists
from bayplan.api.documents import read_documents
from bayplan.api.releases import DEFAULT_RELEASE
from bayplan.cli.errors import ExitStatus
from bayplan.cli.options import SchedulerOptions, scheduler_options
from bayplan.cli.output import (
    TABLE,
    make_console,
    number,
    output_option,
    print_document,
    print_table,
    print_warnings,
)
from bayplan.cli.terminal import echo
from bayplan.cli.whatif import name_and_number
from bayplan.errors import InputError
from bayplan.fleet.karmada.kinds import (
    Cluster as KarmadaCluster,
)
from bayplan.fleet.karmada.kinds import (
    Placement,
    PropagationPolicy,
    ReplicaScheduling,
    decode_karmada,
)
from bayplan.fleet.karmada.templates import placement_problems
from bayplan.fleet.members import Member, MemberSource, Unreachable, load_members
from bayplan.fleet.outages import Outage, leave
from bayplan.fleet.placing import (
    PlacedWorkload,
    Placer,
    branches,
    model,
    not_placeable,
    split,
)
from bayplan.fleet.printing import (
    EXPLAIN_COLUMNS,
    EXPLAIN_RIGHT,
    RIGHT,
    SHARE_COLUMNS,
    details,
    explain_rows,
    headline,
    member_text,
    members_json,
    placed_json,
    room_text,
    share_rows,
    steps,
)
from bayplan.fleet.room import AT_MOST, room_for_pod

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

TIME_LIMIT: Final = 10.0
_NO_MEMBERS: Final = "name at least one cluster with --context NAME or --cluster NAME=FILE"
_TWICE: Final = "two clusters are named {name!r}: write --context NAME=CONTEXT or --cluster NAME=FILE"
_NO_WORKLOAD: Final = "{file}: there is no pod and no workload in it that can be placed"
_POLICY_KINDS: Final = ("PropagationPolicy", "ClusterPropagationPolicy", "Cluster")
_DYNAMIC: Final[dict[str, dict[str, Any]]] = {
    "aggregated": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"},
    "by-room": {
        "replicaSchedulingType": "Divided",
        "replicaDivisionPreference": "Weighted",
        "weightPreference": {"dynamicWeight": "AvailableReplicas"},
    },
    "evenly": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"},
    "everywhere": {"replicaSchedulingType": "Duplicated"},
}


@dataclass(frozen=True, slots=True)
class Fleet:
    """The clusters and policies that the options name."""

    members: list[Member]
    missing: list[Unreachable]
    policies: list[PropagationPolicy]
    default: Placement

    def named(self, name: str) -> Member:
        for member in self.members:
            if member.name == name:
                return member
        known = ", ".join(member.name for member in self.members)
        unread = next((one.error for one in self.missing if one.name == name), "")
        raise InputError(
            f"cluster {name!r} could not be read: {unread}"
            if unread
            else f"there is no cluster {name!r} among {known}"
        )


_OPTIONS: Final = (
    click.option(
        "--context",
        "contexts",
        multiple=True,
        metavar="[NAME=]CONTEXT",
        help="A live cluster: a context of the kubeconfig. Can be repeated. NAME is what it is called here, "
        "if not like its context.",
    ),
    click.option(
        "--cluster",
        "files",
        multiple=True,
        metavar="NAME=FILE",
        help="A cluster from a snapshot, a YAML or JSON file of API objects, or a directory. Can be "
        "repeated; several files with one name are one cluster.",
    ),
    click.option("--kubeconfig", default="", metavar="FILE", help="The kubeconfig with the contexts."),
    click.option(
        "--policy",
        "policy_files",
        multiple=True,
        metavar="FILE",
        help="A file with PropagationPolicies of Karmada. It may also have Cluster objects, for labels, "
        "regions and taints of the clusters.",
    ),
    click.option(
        "--divide",
        type=click.Choice(sorted(_DYNAMIC)),
        default="aggregated",
        show_default=True,
        help="How to divide replicas that no policy claims: among as few clusters as possible, in "
        "proportion to what fits, evenly, or all of them in every cluster.",
    ),
    click.option(
        "--time-limit",
        type=click.FloatRange(min=0, min_open=True),
        default=TIME_LIMIT,
        show_default=True,
        metavar="SECONDS",
        help="How long reading a cluster may take; each has its own limit.",
    ),
    click.option(
        "--at-most",
        type=click.IntRange(min=1),
        default=AT_MOST,
        show_default=True,
        help="Where to stop counting what fits into a cluster; never below the replicas of a workload.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="Do not print which clusters have been read."),
)


def fleet_options(command: CommandT) -> CommandT:
    """Adds the options to a command, which gets a function that loads the fleet, and `at_most`."""

    @wraps(command)
    def wrapper(
        *args: Any,
        contexts: Sequence[str],
        files: Sequence[str],
        kubeconfig: str,
        policy_files: Sequence[str],
        divide: str,
        time_limit: float,
        quiet: bool,
        scheduler: SchedulerOptions,
        **values: Any,
    ) -> Any:
        default = Placement(replica_scheduling=decode_karmada(ReplicaScheduling, _DYNAMIC[divide]))
        sources = member_sources(contexts, files, kubeconfig, time_limit, scheduler)
        policies, declared = read_policies(policy_files)
        members, missing = load_members(sources, _quiet if quiet else _progress)
        for member in members:
            member.declared = declared.get(member.name)
        return command(*args, fleet=Fleet(members, missing, policies, default), **values)

    decorated: Any = scheduler_options(wrapper)
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def _progress(name: str, text: str) -> None:
    echo(f"{name}: {text}", err=True)


def _quiet(name: str, text: str) -> None:
    pass


def member_sources(
    contexts: Sequence[str],
    files: Sequence[str],
    kubeconfig: str,
    time_limit: float,
    scheduler: SchedulerOptions,
) -> list[MemberSource]:
    """The clusters that the options name."""
    base = SourceOptions(
        kubeconfig=kubeconfig,
        config_file=scheduler.config_file,
        plugin_specs=tuple(scheduler.plugin_specs),
        own_flags=scheduler.own_flags,
        release=scheduler.release,
        time_limit=time_limit,
    )
    found: dict[str, SourceOptions] = {}
    for text in contexts:
        name, sign, context = text.partition("=")
        if name in found:
            raise click.UsageError(_TWICE.format(name=name))
        found[name] = replace(base, context=context if sign else name)
    by_name: dict[str, list[str]] = {}
    for text in files:
        name, sign, file = text.partition("=")
        if not sign or not name or not file:
            raise click.UsageError(f"--cluster {text}: write NAME=FILE")
        by_name.setdefault(name, []).append(file)
    for name, several in by_name.items():
        if name in found:
            raise click.UsageError(_TWICE.format(name=name))
        found[name] = replace(base, files=tuple(several), kubeconfig="")
    if not found:
        raise click.UsageError(_NO_MEMBERS)
    return [MemberSource(name, options) for name, options in found.items()]


def read_policies(files: Sequence[str]) -> tuple[list[PropagationPolicy], dict[str, KarmadaCluster]]:
    """The policies and Cluster objects of files.

    Raises:
        InputError: a file is missing or malformed, or Karmada would refuse a policy.
    """
    from pathlib import Path

    policies: list[PropagationPolicy] = []
    clusters: dict[str, KarmadaCluster] = {}
    for file in files:
        for document in read_documents(Path(file)):
            for raw in expand_lists(document.content, document.source, document.line):
                kind = raw.get("kind")
                if kind not in _POLICY_KINDS:
                    raise InputError(
                        f"it is a {kind}, not one of {', '.join(_POLICY_KINDS)}",
                        source=file,
                        line=document.line,
                    )
                try:
                    if kind == "Cluster":
                        cluster = decode_karmada(KarmadaCluster, raw)
                        clusters[cluster.name] = cluster
                    else:
                        policy = decode_karmada(PropagationPolicy, raw)
                        policies.append(policy)
                        if problems := placement_problems(policy.spec.placement):
                            raise InputError("; ".join(problems), object_key=f"{kind} {policy.key}")
                except InputError as error:
                    raise error.at(source=file, line=document.line) from error.__cause__
    return policies, clusters


@click.group()
def fleet() -> None:
    """Place workloads in several clusters: where they fit, how they are divided, and why.

    Clusters are only read. What fits is counted by the scheduler of each cluster, in this process.
    """


_ADD: Final = click.option(
    "--add",
    "manifests",
    multiple=True,
    required=True,
    metavar="FILE[=REPLICAS]",
    help="A manifest with workloads; - for standard input. They are placed one after the other. Can be "
    "repeated.",
)
_FRESH: Final = click.option(
    "--fresh",
    is_flag=True,
    help="Divide all replicas again, as after a WorkloadRebalancer, instead of keeping those that are there.",
)


@fleet.command()
@_ADD
@_FRESH
@fleet_options
@output_option
def place(fleet: Fleet, manifests: Sequence[str], fresh: bool, at_most: int, output: str) -> ExitStatus:
    """Show where workloads fit, and how their replicas are divided.

    Exit status 1 if something does not fit, 3 if a cluster could not be read.
    """
    placed, left_out = _placed(fleet, manifests, fresh, at_most)
    if output != TABLE:
        print_document("FleetPlacement", _content(fleet, placed, left_out), output)
    else:
        console = make_console()
        _print_members(console, fleet)
        for one in placed:
            _print_placed(console, one)
        _print_left_out(console, left_out)
    return _status(fleet, placed, left_out)


@fleet.command()
@_ADD
@_FRESH
@fleet_options
@output_option
def explain(fleet: Fleet, manifests: Sequence[str], fresh: bool, at_most: int, output: str) -> ExitStatus:
    """Explain the placement of workloads: filters, scores, room and weights of every cluster."""
    placed, left_out = _placed(fleet, manifests, fresh, at_most)
    if output != TABLE:
        print_document("FleetPlacement", _content(fleet, placed, left_out), output)
    else:
        console = make_console()
        _print_members(console, fleet)
        for one in placed:
            console.print()
            console.print(headline(one), soft_wrap=True)
            for title, result in (("exact", one.result), ("by Karmada's estimates", one.by_estimate)):
                console.print()
                console.print(title)
                print_table(console, EXPLAIN_COLUMNS, explain_rows(one, result), right=EXPLAIN_RIGHT)
                for text in (*steps(result), *((result.error,) if result.error else ())):
                    console.print(f"  {text}", soft_wrap=True)
            console.print()
            for text in details(one):
                console.print(f"  {text}", soft_wrap=True)
        _print_left_out(console, left_out)
    return _status(fleet, placed, left_out)


def _placed(
    fleet: Fleet, files: Sequence[str], fresh: bool, at_most: int
) -> tuple[list[PlacedWorkload], list[LeftOut]]:
    placer = Placer(fleet.members, fleet.policies, fleet.default, at_most, fresh)
    found: list[PlacedWorkload] = []
    left_out: list[LeftOut] = []
    with branches(fleet.members):
        for text in files:
            file, replicas = name_and_number(text)
            read = read_manifests(file, _release(fleet))
            workloads, others = split(read)
            not_divided = list(not_placeable(workloads))
            left_out += [*read.left_out, *not_divided]
            keys = {(one.kind, one.key) for one in not_divided}
            chosen = [one for one in workloads if (one.kind, one.key) not in keys]
            if not chosen and not left_out:
                raise InputError(_NO_WORKLOAD.format(file=file))
            found += [placer.place(one, others, replicas) for one in chosen]
    return found, left_out


def _release(fleet: Fleet) -> Any:
    return fleet.members[0].cluster.columns.release if fleet.members else DEFAULT_RELEASE


def _status(fleet: Fleet, placed: Sequence[PlacedWorkload], left_out: Sequence[LeftOut]) -> ExitStatus:
    if any(one.failures for one in placed):
        return ExitStatus.FAILED
    if left_out or fleet.missing:
        return ExitStatus.NOT_JUDGED
    return ExitStatus.OK if all(one.fits for one in placed) else ExitStatus.NO


def _content(fleet: Fleet, placed: Sequence[PlacedWorkload], left_out: Sequence[LeftOut]) -> dict[str, Any]:
    return {
        "members": members_json(fleet.members, fleet.missing),
        "fits": all(one.fits for one in placed),
        "workloads": [placed_json(one) for one in placed],
        "leftOut": [one.as_json() for one in left_out],
    }


def _print_members(console: Console, fleet: Fleet) -> None:
    for member in fleet.members:
        console.print(member_text(member))
    for missing in fleet.missing:
        console.print(f"{missing.name}: not read: {missing.error}", soft_wrap=True)


def _print_placed(console: Console, placed: PlacedWorkload) -> None:
    console.print()
    console.print(headline(placed), soft_wrap=True)
    print_table(console, SHARE_COLUMNS, share_rows(placed), right=RIGHT)
    for text in details(placed):
        console.print(f"  {text}", soft_wrap=True)
    for failure in placed.failures:
        console.print(f"  a plugin failed: {failure}", soft_wrap=True)
    if placed.warnings:
        print_warnings(console, placed.warnings)
    weights = placed.static_weights()
    if weights and placed.result.division is not None and placed.result.division.rule != "duplicated":
        console.print()
        console.print("  as weights of a policy:")
        preference = {"weightPreference": {"staticWeightList": weights}}
        for line in yaml.safe_dump(preference, sort_keys=False).splitlines():
            console.print(f"    {line}", soft_wrap=True)


def _print_left_out(console: Console, left_out: Sequence[LeftOut]) -> None:
    if left_out:
        console.print()
        for one in left_out:
            console.print(f"not judged: {one}", soft_wrap=True)


# Capacity


@fleet.command()
@click.argument("pod", metavar="FILE")
@click.option("--for", "wanted", type=click.IntRange(min=0), metavar="N", help="Whether N copies fit.")
@fleet_options
@output_option
def capacity(fleet: Fleet, pod: str, wanted: int | None, at_most: int, output: str) -> ExitStatus:
    """Count how many more copies of a pod fit into each cluster, besides everything that is there.

    FILE is a manifest with one pod or workload. Exit status 1 if fewer fit than --for asks for.
    """
    workloads, _ = split(read_manifests(pod, _release(fleet)))
    if len(workloads) != 1:
        raise InputError("it must have exactly one pod or workload", source=pod)
    workload: Manifest = workloads[0]
    limit = max(at_most, wanted or 0)
    rooms = {
        member.name: room_for_pod(member, model(member.cluster, workload), limit) for member in fleet.members
    }
    total = sum(room.exact for room in rooms.values())
    if output != TABLE:
        content = {
            "members": members_json(fleet.members, fleet.missing),
            "object": workload.key,
            "wanted": wanted,
            "count": total,
            "isLimit": all(room.is_limit for room in rooms.values()),
            "clusters": [{"name": name, **room.as_json()} for name, room in rooms.items()],
        }
        print_document("FleetCapacity", content, output)
    else:
        console = make_console()
        _print_members(console, fleet)
        console.print()
        columns = ("cluster", "fit", "Karmada", "why Karmada's number differs")
        rows = [(name, room_text(room), f"{room.general:,}", room.explained) for name, room in rooms.items()]
        print_table(console, columns, rows, right=("fit", "Karmada"))
        for name, room in rooms.items():
            if room.is_limit and room.next_lacks:
                text = f"{name}: copy {room.exact + 1:,} would not fit: {room.next_lacks}"
                console.print(f"  {text}", soft_wrap=True)
        more = "" if all(room.is_limit for room in rooms.values()) else " or more"
        console.print(f"{number(total, 'pod')}{more} like those of {workload.kind} {workload.key} fit")
    if any(room.failures for room in rooms.values()):
        return ExitStatus.FAILED
    if fleet.missing:
        return ExitStatus.NOT_JUDGED
    return ExitStatus.NO if wanted is not None and total < wanted else ExitStatus.OK


# Drain and lose


@fleet.command()
@click.argument("name", metavar="CLUSTER")
@fleet_options
@output_option
def drain(fleet: Fleet, name: str, at_most: int, output: str) -> ExitStatus:
    """Show where the workloads of a cluster would go if it was drained, and which budgets block that.

    Exit status 1 if replicas would stay pending, or a PodDisruptionBudget does not allow the evictions.
    """
    return _leave(fleet, name, at_most, output, is_drain=True)


@fleet.command()
@click.argument("name", metavar="CLUSTER")
@fleet_options
@output_option
def lose(fleet: Fleet, name: str, at_most: int, output: str) -> ExitStatus:
    """Show where the workloads of a cluster would go if it was lost, and what would stay pending."""
    return _leave(fleet, name, at_most, output, is_drain=False)


def _leave(fleet: Fleet, name: str, at_most: int, output: str, *, is_drain: bool) -> ExitStatus:
    leaving = fleet.named(name)
    with branches(fleet.members):
        found = leave(fleet.members, leaving, fleet.policies, is_drain=is_drain, at_most=at_most)
    if output != TABLE:
        content = {
            "members": members_json(fleet.members, fleet.missing),
            "cluster": name,
            "drain": is_drain,
            "pending": found.pending,
            "workloads": [
                {
                    "kind": one.kind,
                    "object": one.key,
                    "replicas": one.replicas,
                    "to": dict(one.to),
                    "pending": one.pending,
                    "reason": one.reason,
                }
                for one in found.moves
            ],
            "blockedBy": [
                {"budget": one.budget, "pods": one.pods, "allowed": one.allowed} for one in found.blocked
            ],
            "daemonPods": found.daemons,
        }
        print_document("FleetOutage", content, output)
    else:
        console = make_console()
        _print_members(console, fleet)
        console.print()
        _print_outage(console, found, is_drain)
    if fleet.missing:
        return ExitStatus.NOT_JUDGED
    return ExitStatus.NO if found.pending or found.blocked else ExitStatus.OK


def _print_outage(console: Console, found: Outage, is_drain: bool) -> None:
    pods = sum(move.replicas for move in found.moves)
    what = "drain" if is_drain else "lose"
    moved = pods - found.pending
    console.print(
        f"{what} {found.cluster}: {number(moved, 'replica')} of {pods:,} would go elsewhere, "
        f"{found.pending:,} would stay pending"
    )
    rows = [
        (
            f"{one.kind} {one.key}",
            f"{one.replicas:,}",
            ", ".join(f"{name} {count:,}" for name, count in one.to.items()) or "–",
            f"{one.pending:,}",
            one.reason,
        )
        for one in found.moves
    ]
    print_table(console, ("workload", "pods", "to", "pending", "reason"), rows, right=("pods", "pending"))
    if found.daemons:
        console.print(f"  {number(found.daemons, 'pod')} of its nodes (DaemonSets, static pods) would end")
    for one in found.blocked:
        console.print(
            f"  PodDisruptionBudget {one.budget} allows {one.allowed:,} of {number(one.pods, 'eviction')}: "
            "the drain would wait"
        )
