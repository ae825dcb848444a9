"""The options of `bayplan fleet`: which clusters, which policies; and loading them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from bayplan.answers.sources.loading import SourceOptions
from bayplan.api.decode import expand_lists
from bayplan.api.documents import read_documents
from bayplan.cli.options import SchedulerOptions, scheduler_options
from bayplan.cli.terminal import echo
from bayplan.errors import InputError
from bayplan.fleet.control_plane import ControlPlane, read_control_plane
from bayplan.fleet.karmada.kinds import Cluster as KarmadaCluster
from bayplan.fleet.karmada.kinds import Placement, PropagationPolicy, ReplicaScheduling, decode_karmada
from bayplan.fleet.karmada.templates import placement_problems
from bayplan.fleet.members import Member, MemberSource, Unreachable, load_members

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

TIME_LIMIT: Final = 10.0
_NO_MEMBERS: Final = "name at least one cluster with --context NAME or --cluster NAME=FILE"
_TWICE: Final = "two clusters are named {name!r}: write --context NAME=CONTEXT or --cluster NAME=FILE"
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
    plane: ControlPlane = field(default_factory=ControlPlane)

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
        "--karmada-context",
        default="",
        metavar="CONTEXT",
        help="A Karmada control plane: its Clusters, policies and bindings are used. --context and --cluster "
        "name its members as the control plane does.",
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
        help="Where to stop counting what fits into a cluster. [default: twice the replicas of a workload, "
        "at least 100; 500 without replicas]",
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
        karmada_context: str,
        divide: str,
        time_limit: float,
        quiet: bool,
        scheduler: SchedulerOptions,
        **values: Any,
    ) -> Any:
        default = Placement(replica_scheduling=decode_karmada(ReplicaScheduling, _DYNAMIC[divide]))
        sources = member_sources(contexts, files, kubeconfig, time_limit, scheduler)
        policies, declared = read_policies(policy_files)
        plane = ControlPlane()
        if karmada_context:
            limited = SourceOptions(kubeconfig=kubeconfig, context=karmada_context, time_limit=time_limit)
            plane = read_control_plane(limited)
            policies += plane.policies
            declared = {**plane.clusters, **declared}
        members, missing = load_members(sources, _quiet if quiet else _progress)
        for member in members:
            member.declared = declared.get(member.name)
        return command(*args, fleet=Fleet(members, missing, policies, default, plane), **values)

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
        InputError: a file is missing or malformed, or Karmada would reject a policy.
    """
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
