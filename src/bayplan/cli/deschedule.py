"""`bayplan deschedule`: plans moves by a descheduler policy, and makes them."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import click
import yaml
from msgspec.structs import replace
from rich.console import Console

from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.answers.sources.loading import SourceOptions, default_kubeconfig, load_cluster
from bayplan.answers.whatif import Cluster
from bayplan.api.meta import Object
from bayplan.api.workloads import PriorityClass
from bayplan.cli.errors import ExitStatus
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
from bayplan.cli.terminal import echo
from bayplan.client.access import Access
from bayplan.client.kubeconfig import load_access
from bayplan.client.leader_election import ElectionSettings
from bayplan.client.requests import Connections, Requests
from bayplan.config import Decision, DescheduleConfiguration, Mode
from bayplan.config.load import read_config_text
from bayplan.deschedule.descheduler import Descheduler, args_types
from bayplan.deschedule.executing import Executor, Outcome, Rate, Step
from bayplan.deschedule.live import COMPONENT, UsageReader, follow
from bayplan.deschedule.memory import Memory
from bayplan.deschedule.plan import Kept, Move, Plan, read_moves
from bayplan.deschedule.planner import Planner, evict_by_rules
from bayplan.deschedule.plugin import Strategy
from bayplan.deschedule.policy import load_policy
from bayplan.deschedule.process import RunOptions, run_descheduler
from bayplan.deschedule.running import LEASE
from bayplan.deschedule.strategies import STRATEGIES
from bayplan.deschedule.surge import make_surge
from bayplan.deschedule.times import Times, read_schedule
from bayplan.deschedule.usage import MeasuredUsage
from bayplan.errors import ConfigError, InputError
from bayplan.framework.args import Duration
from bayplan.scheduler.plugin_sources import load_class

MAX_KEPT: Final = 20

policy_option = click.option(
    "--policy",
    required=True,
    metavar="FILE",
    help="A DeschedulerPolicy (descheduler/v1alpha2), as descheduler reads it.",
)
decision_option = click.option(
    "--decision",
    type=click.Choice([one.value for one in Decision]),
    help="Who decides: the scheduler (a pod is moved only where its replacement goes and if that helps), or "
    "upstream's rules.  [default: deschedule.decision of the BayplanConfiguration, else scheduler]",
)
strategy_option = click.option(
    "--strategy",
    "strategies",
    multiple=True,
    metavar="SOURCE:CLASS",
    help="A strategy of your own, module:Class or path/to/file.py:Class, that the policy names. Can be "
    "repeated.",
)
rate_option = click.option(
    "--evictions-per-minute",
    "rate",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many pods are evicted in a minute at most.  [default: deschedule.evictionsPerMinute, else 10]",
)

mode_option = click.option(
    "--mode",
    type=click.Choice([one.value for one in Mode]),
    help="How pods are moved: evict, or surge (Deployments create the replacement first, where they allow "
    "it).  [default: deschedule.mode of the BayplanConfiguration, else evict]",
)


class DurationType(click.ParamType[Duration]):
    """A duration as Kubernetes writes it."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Duration:
        try:
            return value if isinstance(value, Duration) else Duration.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.group()
def deschedule() -> None:
    """Move pods to where the scheduler would put them now, by the policy of descheduler.

    https://sigs.k8s.io/descheduler describes policies and strategies.
    """


@deschedule.command()
@policy_option
@strategy_option
@decision_option
@output_option
@source_options
def plan(
    policy: str, source: SourceOptions, strategies: tuple[str, ...], decision: str | None, output: str
) -> int:
    """Show which pods would be moved, where, and why; and what descheduler would evict.

    Nothing is written. Exit status: 0 nothing would be moved, 1 pods would be moved, 2 invalid input, 3 a
    strategy could not run.
    """
    loaded = load_cluster(source)
    settings = _settings(loaded, decision)
    descheduler = read_descheduler(loaded.objects, policy, strategies)
    usage = MeasuredUsage() if source.files else asyncio.run(_read_usage(source, descheduler))
    made = make_plan(loaded, descheduler, settings, usage)
    content = {"name": loaded.name, "policy": policy, "decision": settings.decision.value}
    if output != TABLE:
        print_document("DeschedulePlan", {**content, **made.as_json()}, output)
    else:
        _print_plan(make_console(), loaded, made, settings.decision)
    if made.errors:
        return ExitStatus.NOT_JUDGED
    return ExitStatus.NO if made.moves else ExitStatus.OK


@deschedule.command()
@click.argument("plan_file", metavar="PLAN")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@rate_option
@mode_option
@source_options
def apply(plan_file: str, source: SourceOptions, yes: bool, rate: int | None, mode: str | None) -> int:
    """Make the moves of a plan (`plan -o json`), once, in order.

    Each move is checked against the cluster as it is then: it is made only if the pod is still there and the
    scheduler still puts its replacement on the node of the plan. Exit status: 0 all moves were made, 1 some
    were not, 2 invalid input or a failure.
    """
    if source.files:
        raise InputError("a plan is applied to a live cluster: use --kubeconfig, not -f")
    document = yaml.safe_load(read_config_text(plan_file))
    if isinstance(document, dict) and document.get("decision") == Decision.UPSTREAM:
        raise InputError("this plan has no targets: it was made with --decision upstream", source=plan_file)
    moves = read_moves(document if isinstance(document, dict) else {}, plan_file)
    if not moves:
        echo("the plan has no moves")
        return ExitStatus.OK
    loaded = load_cluster(source)
    if not yes:
        _confirm(loaded, moves)
    steps = asyncio.run(_apply(source, loaded, moves, _settings(loaded, None, mode, rate)))
    done = sum(one.outcome is Outcome.MOVED for one in steps)
    echo(f"{done} of {number(len(moves), 'move')} made")
    return ExitStatus.OK if done == len(moves) else ExitStatus.NO


@deschedule.command()
@policy_option
@strategy_option
@decision_option
@rate_option
@mode_option
@click.option(
    "--interval",
    type=DurationType(),
    default="0s",
    metavar="DURATION",
    help="The time from the start of a cycle to the start of the next.  [default: one cycle]",
)
@click.option(
    "--schedule",
    default="",
    metavar="CRON",
    help="When cycles begin instead, in UTC: minute, hour, day of month, month and day of week, as in cron "
    '("*/10 * * * *").',
)
@click.option(
    "--evictions-in-background",
    is_flag=True,
    help="Pods with the annotation descheduler.alpha.kubernetes.io/request-evict-only may be evicted later "
    "by another component; with --decision upstream.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan of each cycle; evict nothing.")
@click.option(
    "--leader-elect",
    is_flag=True,
    help="Act only while this process holds the lease. Needs --interval or --schedule.",
)
@click.option("--lease-namespace", default="kube-system", show_default=True, metavar="NAME")
@click.option("--lease-name", default=LEASE, show_default=True, metavar="NAME")
@click.option("--bind-address", default="127.0.0.1", show_default=True, metavar="ADDRESS")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="PORT",
    help="Serve /metrics, /healthz and /readyz over HTTP.  [default: do not serve]",
)
@source_options
def run(
    policy: str,
    source: SourceOptions,
    strategies: tuple[str, ...],
    decision: str | None,
    rate: int | None,
    mode: str | None,
    interval: Duration,
    schedule: str,
    evictions_in_background: bool,
    dry_run: bool,
    leader_elect: bool,
    lease_namespace: str,
    lease_name: str,
    bind_address: str,
    port: int,
) -> int:
    """Plan and act, once or again and again.

    No pod is evicted while the lease has the annotation bayplan.dev/deschedule-paused=true. Exit status: 0,
    or 2 for invalid input or a failure.
    """
    if source.files:
        raise InputError("a live cluster is descheduled: use --kubeconfig, not -f")
    if interval and schedule:
        raise InputError("either --interval or --schedule can be given, not both")
    times = Times(interval.seconds, read_schedule(schedule) if schedule else None)
    if leader_elect and not times.repeats:
        raise InputError("--leader-elect needs --interval or --schedule")
    loaded = load_cluster(source)
    settings = _settings(loaded, decision, mode, rate)
    descheduler = read_descheduler(loaded.objects, policy, strategies)
    options = RunOptions(
        _access(source),
        loaded,
        times,
        dry_run,
        ElectionSettings(namespace=lease_namespace, name=lease_name) if leader_elect else None,
        (lease_namespace, lease_name),
        (bind_address, port) if port else None,
        evictions_in_background,
    )
    asyncio.run(run_descheduler(options, descheduler, settings, _print_cycle(loaded.name), print_step))
    return ExitStatus.OK


def _print_cycle(name: str) -> Callable[[Plan], None]:
    def show(made: Plan) -> None:
        evictions = number(made.upstream_evictions, "pod")
        echo(f"{name}: {number(len(made.moves), 'move')}; descheduler would evict {evictions}")
        for one in made.moves:
            echo(f"planned   {one.pod}  {one.source} → {one.target or 'removed'}: {one.why}")

    return show


def _confirm(loaded: LoadedCluster, moves: Sequence[Move]) -> None:
    if not sys.stdin.isatty():
        raise InputError("this evicts pods: pass --yes, or confirm it on a terminal")
    click.confirm(f"Evict {number(len(moves), 'pod')} of {loaded.name}?", abort=True, err=True)


async def _apply(
    source: SourceOptions, loaded: LoadedCluster, moves: Sequence[Move], settings: DescheduleConfiguration
) -> list[Step]:
    async with follow(_access(source), loaded) as live:
        executor = Executor(
            live,
            Memory(),
            Rate(settings.evictions_per_minute),
            settings.replacement_timeout.seconds,
            surge=make_surge(settings, live),
        )
        return await executor.run(moves, print_step)


def _access(source: SourceOptions) -> Access:
    kubeconfig = source.kubeconfig or default_kubeconfig(context=source.context)
    return load_access(kubeconfig, context=source.context)


def print_step(step: Step) -> None:
    """One line for each step."""
    move = step.move
    where = f"{move.source} → {step.node or move.target}" if move.target else move.source
    text = f"{step.outcome.value:<9} {move.pod}  {where}"
    echo(f"{text}: {step.why}" if step.why else text)


def _settings(
    loaded: LoadedCluster, decision: str | None, mode: str | None = None, rate: int | None = None
) -> DescheduleConfiguration:
    found = DescheduleConfiguration() if loaded.config is None else loaded.config.bayplan.deschedule
    return replace(
        found,
        decision=found.decision if decision is None else Decision(decision),
        mode=found.mode if mode is None else Mode(mode),
        evictions_per_minute=rate or found.evictions_per_minute,
    )


def read_descheduler(objects: Iterable[Object], path: str, specs: Sequence[str] = ()) -> Descheduler:
    """The policy of a file, with the priority classes of the cluster and strategies of the user.

    Raises:
        DecodeError: the policy is not valid.
        ConfigError: a plugin cannot be built.
    """
    classes = {one.name: one.value for one in objects if isinstance(one, PriorityClass)}
    strategies = {**STRATEGIES, **{one.name: one for one in map(_load_strategy, specs)}}
    policy = load_policy(path, classes.get, args_types(strategies))
    try:
        return Descheduler(policy, strategies)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _load_strategy(spec: str) -> type[Strategy]:
    found = load_class(spec)
    if not isinstance(found, type) or not issubclass(found, Strategy):
        raise ConfigError(f"{spec} is not a subclass of Strategy")
    return found


async def _read_usage(source: SourceOptions, descheduler: Descheduler) -> MeasuredUsage:
    """One measurement of the live cluster, if the policy has a source of measurements."""
    usage, connections = MeasuredUsage(), Connections(_access(source))
    try:
        await UsageReader(Requests(connections, None, component=COMPONENT)).read(usage, descheduler.policy)
    finally:
        await connections.close()
    return usage


def make_plan(
    loaded: LoadedCluster,
    descheduler: Descheduler,
    settings: DescheduleConfiguration,
    usage: MeasuredUsage,
    now: Callable[[], float] = time.time,
) -> Plan:
    """The plan of a cluster."""
    cluster = Cluster.from_loaded(loaded)
    if settings.decision is Decision.SCHEDULER:
        return Planner(cluster, descheduler, now(), margin=settings.margin, usage=usage).plan()
    return upstream_plan(cluster, descheduler, now(), usage)


def plan_after(loaded: LoadedCluster, cluster: Cluster, path: str) -> Plan:
    """What would be moved in a cluster after hypothetical changes. Usage is not measured there.

    Raises:
        DecodeError: the policy is not valid.
        ConfigError: a plugin cannot be built.
    """
    descheduler, settings = read_descheduler(loaded.objects, path), _settings(loaded, None)
    return Planner(cluster, descheduler, time.time(), margin=settings.margin, usage=MeasuredUsage()).plan()


def upstream_plan(cluster: Cluster, descheduler: Descheduler, now: float, usage: MeasuredUsage) -> Plan:
    """What descheduler would evict. It does not know where the replacements go."""
    evicted, result = evict_by_rules(Planner(cluster, descheduler, now).table(), descheduler, now, usage)
    moves = tuple(
        Move(one.pod.key, one.pod.uid, one.node, "", one.profile, one.strategy, "evicted by upstream's rules")
        for one in evicted
    )
    return Plan(moves, (), len(moves), (), tuple(result.errors), descheduler.policy.warnings)


def _print_plan(console: Console, loaded: LoadedCluster, made: Plan, decision: Decision) -> None:
    if decision is Decision.UPSTREAM:
        console.print(f"{loaded.name}: descheduler would evict {number(len(made.moves), 'pod')}")
        _print_tables(console, made)
    else:
        print_plan(console, loaded.name, made)
    print_warnings(console, loaded.warnings)


def print_plan(console: Console, name: str, made: Plan) -> None:
    """Moves, and what stays."""
    upstream = number(made.upstream_evictions, "pod")
    console.print(f"{name}: {number(len(made.moves), 'move')}; descheduler would evict {upstream}")
    _print_tables(console, made)


def _print_tables(console: Console, made: Plan) -> None:
    if made.moves:
        console.print()
        rows = [_row(i, one) for i, one in enumerate(made.moves, 1)]
        print_table(console, ("#", "pod", "from", "to", "strategy", "why", "after"), rows, right=("#",))
    if made.emptied:
        console.print(f"nodes without pods afterwards: {', '.join(made.emptied)}")
    if made.kept:
        console.print()
        console.print(f"{number(len(made.kept), 'candidate')} {_stay(made.kept)}:")
        print_table(
            console, ("pod", "node", "strategy", "why"), [_kept_row(one) for one in made.kept[:MAX_KEPT]]
        )
        if len(made.kept) > MAX_KEPT:
            console.print(f"  … and {len(made.kept) - MAX_KEPT:,} more; -o json has all of them")
    for text in (*made.errors, *made.warnings):
        console.print(f"warning: {text}", soft_wrap=True)


def _stay(kept: Sequence[Kept]) -> str:
    return "stays" if len(kept) == 1 else "stay"


def _row(index: int, move: Move) -> tuple[str, ...]:
    budget = f" (uses PodDisruptionBudget {move.budget})" if move.budget else ""
    after = ", ".join(map(str, move.after))
    return str(index), move.pod, move.source, move.target or "-", move.strategy, f"{move.why}{budget}", after


def _kept_row(kept: Kept) -> tuple[Any, ...]:
    return kept.pod, kept.node, kept.strategy, kept.why
