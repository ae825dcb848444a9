"""`decision: scheduler`: a pod is moved only if the scheduler would place its replacement on a better node.

The strategies run as they do upstream (`descheduler.py`), but each eviction is tried first: on a branch of
the cluster the pod is evicted, and the real scheduler places its replacement, with all plugins and its
profile. The move becomes part of the plan only if the replacement gets another node and the strategy accepts
it (`Strategy.accepts`). Then the branch is kept, so that the room counts as used for later candidates;
otherwise it is reverted, and the strategy continues as after a failed eviction.

    strategy ─► cycle.evict ─► PodEvictor: limits ─► Planner: opt-out, memory, budget ─► branch ─► Move, Kept

Upstream's own estimate of fitting (nodeFit) is not used, because the scheduler decides. Candidates without a
feasible node are tried again after the others, because moves make room.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final

import numpy as np

from bayplan.answers.whatif import Cluster
from bayplan.api.meta import Object
from bayplan.api.node import Namespace, Node
from bayplan.api.pod import Pod
from bayplan.api.storage import PersistentVolumeClaim
from bayplan.api.workloads import PodDisruptionBudget
from bayplan.controllers.pods import belongs_to_node
from bayplan.deschedule.budgets import Budgets
from bayplan.deschedule.descheduler import CycleResult, Descheduler
from bayplan.deschedule.eviction import Answer, PodEvictor, Request, Result
from bayplan.deschedule.memory import Memory
from bayplan.deschedule.node_fit import NodeFit
from bayplan.deschedule.plan import Kept, Move, Plan
from bayplan.deschedule.plugin import Cycle, Goal, Strategy, Usage
from bayplan.deschedule.replacements import OPT_OUT, opted_out, owner_of, place_replacement, template_of
from bayplan.deschedule.strategies.utilization import HighNodeUtilization
from bayplan.deschedule.table import Bools, ClusterTable, Flag, PodColumns

REMOVAL_TAINTS: Final = frozenset(
    {
        "karpenter.sh/disrupted",
        "ToBeDeletedByClusterAutoscaler",
        "DeletionCandidateOfClusterAutoscaler",
    }
)
"""Taints of nodes that an autoscaler is about to remove."""
DEFAULT_MARGIN: Final = 5.0
MAX_RETRIES: Final = 3
_NOT_MOVED: Final = 1


class _SchedulerDecides(NodeFit):
    """Replaces upstream's estimate: the scheduler decides later whether a pod fits."""

    def fits_any_other(self, slot: int, rows: Bools) -> bool:
        return True

    def fits_any(self, slot: int, rows: Bools) -> bool:
        return True


@dataclass(slots=True)
class _Candidate:
    """A pod without a feasible node, to be tried again."""

    request: Request
    strategy: Strategy
    cycle: Cycle


@dataclass(slots=True)
class Planner:
    """Makes one plan. The cluster is unchanged afterwards."""

    cluster: Cluster
    descheduler: Descheduler
    now: float
    memory: Memory = field(default_factory=Memory)
    margin: float = DEFAULT_MARGIN
    """By how many percentage points a move for balance must improve utilization."""
    usage: Usage | None = None
    columns: PodColumns = field(default_factory=PodColumns)
    on_result: Callable[[Result, str, str, str, str], None] | None = None
    nominates: bool = False
    """Whether replacements are nominated to their targets, so that whole nodes can be emptied even if the
    scheduler prefers others."""
    _moves: list[Move] = field(default_factory=list)
    _moves_from: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """The numbers of the moves away from each node, counted from 1."""
    _kept: list[Kept] = field(default_factory=list)
    _retries: list[_Candidate] = field(default_factory=list)
    _emptied: list[str] = field(default_factory=list)
    _aside: frozenset[str] = frozenset()
    """Nodes that get no pods while nodes are emptied."""
    _strategy: Strategy | None = None
    _cycle: Cycle | None = None
    _branch: Cluster | None = None
    _budgets: Budgets = field(default_factory=Budgets)
    _left: set[tuple[str, str]] = field(default_factory=set)
    """Owners, and nodes that this plan moves pods of theirs away from."""

    def plan(self) -> Plan:
        """The moves that help, in order, and what stays."""
        self.memory.set_nodes(one for one in self.cluster.objects if isinstance(one, Node))
        upstream, skipped = self._upstream()
        table = self.table()
        self._budgets = Budgets.of(table.budgets)
        policy = self.descheduler.policy
        evictor = PodEvictor(table, self._decide, policy.limits, on_result=self.on_result, now=self.now)
        with self.cluster.branch() as branch:
            self._branch = branch
            pending = branch.pending
            if pending:
                branch.schedule()
            result = self.descheduler.cycle(
                table,
                evictor,
                now=self.now,
                usage=self.usage,
                around=self._around,
                node_fit=_SchedulerDecides(table),
            )
            self._retry()
        moves = tuple(replace(one, upstream=one.pod in upstream) for one in self._moves)
        moved = {one.pod for one in moves}
        kept = [one for one in self._kept if one.pod not in moved]
        candidates = moved | {one.pod for one in kept}
        kept = [replace(one, upstream=one.pod in upstream) for one in kept]
        kept += [
            Kept(pod, node, profile, strategy, "not a candidate after the moves of this plan")
            for pod, (node, profile, strategy) in upstream.items()
            if pod not in candidates
        ]
        return Plan(
            moves,
            tuple(kept),
            len(upstream),
            tuple(self._emptied),
            tuple(result.errors),
            self._warnings(skipped, len(pending)),
        )

    def _warnings(self, skipped: bool, pending: int) -> tuple[str, ...]:
        found = list(self.descheduler.policy.warnings)
        if skipped:
            found.append("fewer than 2 nodes are ready and selected: nothing is descheduled")
        if pending:
            found.append(
                f"{pending:,} pods are pending: they are placed first, and those that fit nowhere are not "
                "tried again after each move"
            )
        return tuple(found)

    def table(self) -> ClusterTable:
        """The cluster as columns."""
        return make_table(self.columns, self.cluster.objects)

    def _upstream(self) -> tuple[dict[str, tuple[str, str, str]], bool]:
        """What descheduler would evict: node, profile and strategy by pod."""
        evicted, result = evict_by_rules(self.table(), self.descheduler, self.now, self.usage)
        return {one.pod.key: (one.node, one.profile, one.strategy) for one in evicted}, result.skipped

    # A strategy runs

    def _around(self, strategy: Strategy, cycle: Cycle, run: Callable[[Cycle], None]) -> None:
        self._strategy, self._cycle = strategy, cycle
        if strategy.goal is Goal.CONSOLIDATE and isinstance(strategy, HighNodeUtilization):
            self._consolidate(strategy, cycle)
        else:
            run(cycle)

    def _decide(self, request: Request) -> Answer:
        """An eviction that a strategy asks for."""
        assert self._strategy is not None
        assert self._cycle is not None
        move = self._try(request, self._strategy, self._cycle)
        if isinstance(move, Move):
            self._accept(move, request, self._cycle.table)
            return Answer()
        text, is_placement = move
        if is_placement:
            self._retries.append(_Candidate(request, self._strategy, self._cycle))
        self._keep(request, text)
        return Answer(_NOT_MOVED, text)

    def _keep(self, request: Request, why: str) -> None:
        self._kept.append(Kept(request.pod.key, request.node, request.profile, request.strategy, why))

    def _retry(self) -> None:
        """Tries candidates without a feasible node again, as long as moves make room."""
        for _ in range(MAX_RETRIES):
            left, self._retries = self._retries, []
            moved, gone = False, {move.uid for move in self._moves}
            for one in left:
                if one.request.pod.uid in gone:
                    continue  # another strategy has moved it since
                is_balance = one.strategy.goal not in (Goal.REPAIR, Goal.RECREATE)
                if is_balance or one.cycle.evictor.limit_reached(one.request.pod) is not None:
                    continue
                found = self._try(one.request, one.strategy, one.cycle)
                if isinstance(found, Move):
                    self._accept(found, one.request, one.cycle.table)
                    one.cycle.evictor.add(one.request.pod)
                    gone.add(one.request.pod.uid)
                    moved = True
                else:
                    self._retries.append(one)
            if not moved:
                return

    # One pod

    def _try(self, request: Request, strategy: Strategy, cycle: Cycle) -> Move | tuple[str, bool]:
        """The move of a pod; or why it stays, and whether another place could change that."""
        pod, table = request.pod, cycle.table
        if refusal := self._refusal(request.slot, pod, strategy, cycle):
            return refusal, False
        if table.flags[request.slot] & Flag.FINISHED:
            return self._move(request, "", strategy, f"{strategy.reason}; only its object is left")
        if belongs_to_node(pod):
            if strategy.goal is not Goal.RECREATE:
                return f"{owner_of(pod)} creates it again on the same node", False
            why = f"{strategy.reason}; {owner_of(pod)} creates it again on {request.node}"
            return self._move(request, request.node, strategy, why)
        budget = self._budgets.of_pod(pod)
        if isinstance(budget, str):
            return budget, False
        assert self._branch is not None
        with self._branch.branch() as trial:
            target, problem = place_replacement(trial, pod)
            if problem:
                return problem, True
            verdict = self._judge(request, target, strategy, cycle)
            if verdict[0]:
                trial.commit()
        if not verdict[0]:
            return verdict[1], True
        if budget is not None:
            budget.left -= 1
        name = "" if budget is None else budget.key
        move = self._move(request, target, strategy, verdict[1])
        return replace(move, budget=name, gain=round(verdict[2], 1))

    def _refusal(self, slot: int, pod: Pod, strategy: Strategy, cycle: Cycle) -> str:
        """Why a pod is never moved now, or ""."""
        if opted_out(pod):
            return f"{OPT_OUT} is false"
        namespace = cycle.table.namespaces.get(pod.namespace)
        if namespace is not None and opted_out(namespace):
            return f"{OPT_OUT} of namespace {pod.namespace} is false"
        if pod.is_finished:
            return ""
        if pod.metadata.controller() is None:
            return "it has no controller that would create it again"
        if not len(self.memory):
            return ""
        owner, template = owner_of(pod), template_of(pod)
        if strategy.goal is not Goal.RECREATE:
            created = float(cycle.table.created[slot])
            self.memory.is_candidate(owner, template, pod.spec.node_name, created, self.now)
        pause = self.memory.pause(owner, template, self.now)
        if pause is not None:
            until = datetime.fromtimestamp(pause[1], UTC).strftime("%H:%M:%S")
            often = "once" if pause[0] == 1 else f"{pause[0]} times"
            return f"{owner} came back {often}: it is paused until {until} UTC"
        return ""

    def _judge(
        self, request: Request, target: str, strategy: Strategy, cycle: Cycle
    ) -> tuple[bool, str, float]:
        pod, source = request.pod, request.node
        owner = owner_of(pod)
        if strategy.goal is Goal.RECREATE:
            where = f"stays on {source}" if target == source else f"goes to {target}"
            return True, f"{strategy.reason}; its replacement {where}", 0.0
        if target == source:
            return False, f"the scheduler would put it back on {source}", 0.0
        row = cycle.table.row_of[target]
        node = cycle.table.nodes[row]
        marks = sorted(taint.key for taint in node.spec.taints if taint.key in REMOVAL_TAINTS)
        if marks:
            return False, f"the scheduler would put it on {target}, which is being removed ({marks[0]})", 0.0
        # A rule that is violated has to be repaired; moves for balance alone could go back and forth.
        if strategy.goal is not Goal.REPAIR and self._has_left(pod, target):
            return False, f"{owner} was moved away from {target} before", 0.0
        verdict = strategy.accepts(cycle, request.slot, row)
        if not verdict.solves:
            return False, f"the scheduler would put it on {target}: {verdict.why}", 0.0
        if verdict.is_percentage and verdict.gain < self.margin:
            text = f"the gain of {verdict.gain:.1f} percentage points is below the margin of {self.margin:g}"
            return False, f"{verdict.why}: {text}", 0.0
        if strategy.goal is not Goal.REPAIR and (objection := self._objection(request, row, strategy, cycle)):
            return False, f"the scheduler would put it on {target}: {objection}", 0.0
        return True, f"{strategy.reason}; {verdict.why}", verdict.gain

    def _has_left(self, pod: Pod, target: str) -> bool:
        owner = owner_of(pod)
        return (owner, target) in self._left or self.memory.has_left(owner, template_of(pod), target)

    def _objection(self, request: Request, row: int, strategy: Strategy, cycle: Cycle) -> str:
        """Why another strategy of the policy would evict the replacement again, or ""."""
        profiles = self.descheduler.profiles
        others = (one for profile in profiles for one in (*profile.deschedule, *profile.balance))
        objections = (one.objects(cycle, request.slot, row) for one in others if one is not strategy)
        return next(filter(None, objections), "")

    def _move(self, request: Request, target: str, strategy: Strategy, why: str) -> Move:
        freed = tuple(self._moves_from.get(target, ()) if target else ())
        pod = request.pod
        return Move(
            pod.key,
            pod.uid,
            request.node,
            target,
            request.profile,
            request.strategy,
            why,
            after=freed,
            owner=owner_of(pod),
        )

    def _accept(self, move: Move, request: Request, table: ClusterTable) -> None:
        self._moves.append(move)
        self._moves_from[move.source].append(len(self._moves))
        if not move.target:
            table.remove(request.slot)
        elif move.target != move.source:
            self._left.add((move.owner, move.source))
            table.move(request.slot, table.row_of[move.target])
        # A pod that was moved is not a candidate of the next strategy.
        table.mark_terminating(request.slot)

    # Whole nodes

    def _consolidate(self, strategy: HighNodeUtilization, cycle: Cycle) -> None:
        """Empties underutilized nodes, each only if all of its pods have a place on nodes with pods."""
        table = cycle.table
        use, under, _ = strategy.underutilized(cycle)
        removable = strategy.removable(cycle)
        order = np.flatnonzero(under)
        order = order[np.argsort(use.used[order].sum(axis=1), kind="stable")]
        if np.count_nonzero(under) <= strategy.args.number_of_nodes:
            return
        rows = [int(use.rows[i]) for i in order.tolist()]
        with self._only_fuller_nodes(rows, len(rows) == len(use.rows), table):
            for row in rows:
                self._empty(row, strategy, cycle, removable, table)

    @contextmanager
    def _only_fuller_nodes(self, rows: list[int], are_all: bool, table: ClusterTable) -> Iterator[None]:
        """While nodes are emptied, replacements go to nodes that stay: a scheduler that spreads pods would
        prefer those that are to be emptied. Only replacements that are nominated go where it would not."""
        assert self._branch is not None
        branch = self._branch
        # If all nodes are underutilized, the fuller half of them stays.
        chosen = [table.nodes[row] for row in (rows[: len(rows) // 2] if are_all else rows)]
        aside = [node.name for node in chosen if not node.spec.unschedulable] if self.nominates else []
        for name in aside:
            branch.cordon(name)
        self._aside = frozenset(aside)
        yield
        self._aside = frozenset()
        for name in aside:
            branch.uncordon(name)

    def _empty(
        self, row: int, strategy: HighNodeUtilization, cycle: Cycle, removable: Bools, table: ClusterTable
    ) -> None:
        name = table.nodes[row].name
        if any(one.target == name for one in self._moves):
            return  # it has just got pods
        here = np.flatnonzero(table.counted & (table.row == row) & (table.flags & Flag.DAEMON == 0))
        here = here[table.flags[here] & (Flag.MIRROR | Flag.STATIC) == 0]
        if not len(here):
            return
        pods = [(int(slot), table.pods[slot]) for slot in here]
        requests = [Request(slot, pod, name, cycle.profile, cycle.strategy, None) for slot, pod in pods]
        allowed = set(cycle.allowed(here[removable[here]]).tolist())
        fixed = [one for one in requests if one.slot not in allowed]
        if fixed:
            why = cycle.checks.checks(fixed[0].slot) or "it may not be evicted"
            self._keep(fixed[0], f"{name} cannot be emptied: {why}")
            return
        evictor = cycle.evictor
        before = len(self._moves)
        left = self._budgets.left()
        known = set(self._left)
        assert self._branch is not None
        outer = self._branch
        undo: list[tuple[int, int]] = []
        with outer.branch() as trial:
            self._branch = trial
            problem = ""
            for request in requests:
                if (reached := evictor.limit_reached(request.pod)) is not None:
                    problem = reached[0].value
                    break
                found = self._try(request, strategy, cycle)
                if isinstance(found, tuple):
                    problem = found[0]
                    break
                if found.target in self._emptied or found.target in self._aside:
                    problem = f"the scheduler would put it on {found.target}, which this plan empties"
                    break
                found = replace(found, nominated=self.nominates)
                undo.append((request.slot, row))
                self._accept(found, request, table)
                evictor.add(request.pod)
            if not problem:
                trial.commit()
        self._branch = outer
        if not problem:
            self._emptied.append(name)
            return
        for slot, was in reversed(undo):
            table.move(slot, was)
            table.flags[slot] &= ~Flag.TERMINATING
            evictor.add(table.pods[slot], -1)
        del self._moves[before:]
        for numbers in self._moves_from.values():
            numbers[:] = [one for one in numbers if one <= before]
        self._budgets.restore(left)
        self._left = known
        self._keep(request, f"{name} cannot be emptied: {problem}")


def evict_by_rules(
    table: ClusterTable,
    descheduler: Descheduler,
    now: float,
    usage: Usage | None = None,
    send: Callable[[Request], Answer] | None = None,
) -> tuple[list[Request], CycleResult]:
    """A cycle by upstream's rules, which changes the table: the evictions that succeeded, in order.

    Args:
        send: the answer to an eviction; None: all succeed.
    """

    def evict(request: Request) -> Answer:
        answer = Answer() if send is None else send(request)
        if not answer.code:
            table.remove(request.slot)
        return answer

    evictor = PodEvictor(table, evict, descheduler.policy.limits, now=now)
    result = descheduler.cycle(table, evictor, now=now, usage=usage)
    return [one.request for one in evictor.attempts if not one.answer.code], result


def make_table(columns: PodColumns, objects: Iterable[Object]) -> ClusterTable:
    """Objects as a table, with columns that may have most of the pods already."""
    by_kind: dict[type[Object], list[Any]] = defaultdict(list)
    # Objects of one kind are next to each other, so there are few groups.
    for kind, group in groupby(objects, type):
        by_kind[kind] += group
    columns.sync(by_kind[Pod])
    return ClusterTable(
        columns,
        by_kind[Node],
        namespaces=by_kind[Namespace],
        budgets=by_kind[PodDisruptionBudget],
        claims=by_kind[PersistentVolumeClaim],
    )
