"""Strategies for pods that are a problem themselves: too old, failed, or restarted too often.

A new pod is better on any node, so these do not need another node: only one on which the replacement fits.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bayplan.api.pod import Pod
from bayplan.deschedule.args import (
    PodConditionFilter,
    PodLifeTimeArgs,
    RemoveFailedPodsArgs,
    RemovePodsHavingTooManyRestartsArgs,
)
from bayplan.deschedule.eviction import Result
from bayplan.deschedule.plugin import Cycle, Goal, Strategy
from bayplan.deschedule.table import Bools, Flag, States


class PodLifeTime(Strategy):
    """Evicts pods that are too old, or in certain states for too long; the oldest first."""

    args_type: ClassVar = PodLifeTimeArgs
    goal: ClassVar = Goal.RECREATE
    reason: ClassVar = "it has lived too long"
    args: PodLifeTimeArgs

    def deschedule(self, cycle: Cycle) -> None:
        table, args = cycle.table, self.args
        mask = cycle.pods(args, finished=True)
        age = cycle.now - table.created
        if args.max_pod_life_time_seconds is not None:
            age = np.where(np.isnan(age), np.inf, age)
            mask &= (age >= 0) & (np.floor(age) > args.max_pod_life_time_seconds)
        if args.states:
            mask &= table.by_state(self._in_states)
        if args.owner_kinds is not None:
            mask &= self._owner_kinds(cycle)
        if args.exit_codes:
            mask &= table.by_state(self._exited)
        slots = np.flatnonzero(mask)
        if args.conditions:
            slots = slots[[self._has_condition(table.pods[slot], cycle.now) for slot in slots.tolist()]]
        slots = cycle.allowed(slots)
        created = np.where(np.isnan(table.created[slots]), -np.inf, table.created[slots])
        # Pods of the same age come node by node, as upstream lists them.
        for slot in slots[np.lexsort((table.row[slots], created))].tolist():
            if cycle.evict(slot) is Result.TOTAL_LIMIT:
                return

    def _in_states(self, states: States) -> bool:
        args = self.args
        found = {states.phase, states.reason} | states.reasons(init=args.including_init_containers)
        if args.including_ephemeral_containers:
            found |= states.ephemeral
        return not found.isdisjoint(args.states)

    def _exited(self, states: States) -> bool:
        codes = states.codes(init=self.args.including_init_containers)
        return not codes.isdisjoint(self.args.exit_codes)

    def _owner_kinds(self, cycle: Cycle) -> Bools:
        kinds = self.args.owner_kinds
        assert kinds is not None
        if kinds.include:
            return cycle.table.by_owners(lambda owners: any(one.kind in kinds.include for one in owners))
        return cycle.table.without_owners(kinds.exclude)

    def _has_condition(self, pod: Pod, now: float) -> bool:
        return any(_meets(pod, wanted, now) for wanted in self.args.conditions)


def _meets(pod: Pod, wanted: PodConditionFilter, now: float) -> bool:
    least = wanted.min_time_since_last_transition_seconds
    for one in pod.status.conditions:
        if wanted.type and one.type != wanted.type:
            continue
        if wanted.status and one.status != wanted.status:
            continue
        if wanted.reason and one.reason != wanted.reason:
            continue
        if least is not None:
            if one.last_transition_time is None:
                continue
            age = now - one.last_transition_time.timestamp()
            if age < 0 or int(age) < least:
                continue
        return True
    return False


class RemoveFailedPods(Strategy):
    """Removes pods in phase Failed. Their controllers have replaced them already, or do so now."""

    args_type: ClassVar = RemoveFailedPodsArgs
    goal: ClassVar = Goal.RECREATE
    reason: ClassVar = "it has failed"
    args: RemoveFailedPodsArgs

    def deschedule(self, cycle: Cycle) -> None:
        table, args = cycle.table, self.args
        mask = cycle.pods(args, finished=True) & table.has(Flag.FAILED)
        if args.min_pod_lifetime_seconds is not None:
            age = np.floor(cycle.now - table.created)
            # A negative age becomes a very large one upstream.
            mask &= ~((age >= 0) & (age < args.min_pod_lifetime_seconds))
        if args.exclude_owner_kinds:
            mask &= table.without_owners(args.exclude_owner_kinds)
        if args.reasons:
            mask &= table.by_state(self._has_reason)
        if args.exit_codes:
            mask &= table.by_state(self._exited)
        cycle.evict_by_node(mask)

    def _has_reason(self, states: States) -> bool:
        found = {states.reason} | states.reasons(init=self.args.including_init_containers)
        return not found.isdisjoint(self.args.reasons)

    def _exited(self, states: States) -> bool:
        codes = states.codes(init=self.args.including_init_containers)
        return not codes.isdisjoint(self.args.exit_codes)


class RemovePodsHavingTooManyRestarts(Strategy):
    """Evicts pods whose containers restarted too often; the worst of each node first."""

    args_type: ClassVar = RemovePodsHavingTooManyRestartsArgs
    goal: ClassVar = Goal.RECREATE
    reason: ClassVar = "its containers restarted too often"
    args: RemovePodsHavingTooManyRestartsArgs

    def deschedule(self, cycle: Cycle) -> None:
        table, args = cycle.table, self.args
        restarts = table.restarts
        if args.including_init_containers:
            restarts = restarts + table.init_restarts
        mask = cycle.pods(args, finished=True) & (restarts >= args.pod_restart_threshold)
        if args.states:
            mask &= table.by_state(self._in_states)
        # The most restarts first.
        cycle.evict_by_node(mask, lambda slots: slots[np.argsort(-restarts[slots], kind="stable")])

    def _in_states(self, states: States) -> bool:
        found = {states.phase} | states.waiting
        if self.args.including_init_containers:
            found |= states.init_waiting
        return not found.isdisjoint(self.args.states)
