"""`bayplan fleet`: which clusters a workload goes to, how many replicas each gets, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click
import yaml
from rich.console import Console

from bayplan.answers.whatif.manifests import LeftOut, Manifest, read_manifests
from bayplan.api.releases import DEFAULT_RELEASE
from bayplan.cli.errors import ExitStatus
from bayplan.cli.fleet_options import Fleet, fleet_options
from bayplan.cli.output import (
    TABLE,
    make_console,
    number,
    output_option,
    print_document,
    print_table,
    print_warnings,
)
from bayplan.cli.whatif import name_and_number
from bayplan.errors import InputError
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

_NO_WORKLOAD: Final = "{file}: there is no pod and no workload in it that can be placed"


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
def place(
    fleet: Fleet, manifests: Sequence[str], fresh: bool, at_most: int | None, output: str
) -> ExitStatus:
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
def explain(
    fleet: Fleet, manifests: Sequence[str], fresh: bool, at_most: int | None, output: str
) -> ExitStatus:
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
    fleet: Fleet, files: Sequence[str], fresh: bool, at_most: int | None
) -> tuple[list[PlacedWorkload], list[LeftOut]]:
    placer = Placer(fleet.members, fleet.policies, fleet.default, at_most, fresh, fleet.plane)
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
    if left_out or fleet.missing or any(one.unread for one in placed):
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
def capacity(fleet: Fleet, pod: str, wanted: int | None, at_most: int | None, output: str) -> ExitStatus:
    """Count how many more copies of a pod fit into each cluster, besides everything that is there.

    FILE is a manifest with one pod or workload. Exit status 1 if fewer fit than --for asks for.
    """
    workloads, _ = split(read_manifests(pod, _release(fleet)))
    if len(workloads) != 1:
        raise InputError("it must have exactly one pod or workload", source=pod)
    workload: Manifest = workloads[0]
    limit = max(at_most or AT_MOST, wanted or 0)
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
def drain(fleet: Fleet, name: str, at_most: int | None, output: str) -> ExitStatus:
    """Show where the workloads of a cluster would go if it were drained, and which budgets block that.

    Exit status 1 if replicas would stay pending, or a PodDisruptionBudget does not allow the evictions.
    """
    return _leave(fleet, name, at_most, output, is_drain=True)


@fleet.command()
@click.argument("name", metavar="CLUSTER")
@fleet_options
@output_option
def lose(fleet: Fleet, name: str, at_most: int | None, output: str) -> ExitStatus:
    """Show where the workloads of a cluster would go if it were lost, and what would stay pending."""
    return _leave(fleet, name, at_most, output, is_drain=False)


def _leave(fleet: Fleet, name: str, at_most: int | None, output: str, *, is_drain: bool) -> ExitStatus:
    leaving = fleet.named(name)
    with branches(fleet.members):
        found = leave(fleet.members, leaving, fleet.policies, is_drain=is_drain, at_most=at_most or AT_MOST)
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


# The estimator


@fleet.command()
@click.option(
    "--context",
    "contexts",
    multiple=True,
    required=True,
    metavar="[NAME=]CONTEXT",
    help="A member: a context of the kubeconfig. NAME is what Karmada calls it, if not like its context.",
)
@click.option("--kubeconfig", default="", metavar="FILE", help="The kubeconfig with the contexts.")
@click.option("--bind-address", default="0.0.0.0", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=10352, show_default=True)
@click.option("--tls-cert-file", default="", metavar="FILE", help="The certificate; without one, no TLS.")
@click.option("--tls-private-key-file", default="", metavar="FILE", help="The key of the certificate.")
@click.option("--client-ca-file", default="", metavar="FILE", help="Clients need a certificate of these CAs.")
@click.option("--metrics-port", type=click.IntRange(1, 65535), help="Serve Prometheus metrics on this port.")
def estimator(
    contexts: Sequence[str],
    kubeconfig: str,
    bind_address: str,
    port: int,
    tls_cert_file: str,
    tls_private_key_file: str,
    client_ca_file: str,
    metrics_port: int | None,
) -> None:
    """Answer Karmada's scheduler as its scheduler-estimator, with exact numbers. Runs until it is stopped."""
    import asyncio
    import logging

    from bayplan.answers.sources.loading import default_kubeconfig
    from bayplan.client.kubeconfig import load_access
    from bayplan.fleet.estimator.live import LiveMember
    from bayplan.fleet.estimator.server import ServerSettings, serve

    settings = ServerSettings(
        bind_address, port, tls_cert_file, tls_private_key_file, client_ca_file, metrics_port
    )
    settings.check()
    members = []
    for text in contexts:
        name, sign, context = text.partition("=")
        chosen = context if sign else name
        access = load_access(kubeconfig or default_kubeconfig(context=chosen), context=chosen)
        members.append(LiveMember(name, access))
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("bayplan.fleet").setLevel(logging.INFO)
    asyncio.run(serve(members, settings))
