"""Schedules groups: runs the cycle, then submits each member and writes the condition of the PodGroup.

The cycle (`group_cycle.py`) decides for all members at once and leaves nothing behind. If the group is
scheduled, the members that found a node are assumed one after the other and bound like single pods;
otherwise every member fails, with its own reasons if it found no node, and the group's if it did.

schedule_one_podgroup.go: submitPodGroupAlgorithmResult
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from bayplan.api.groups import PodGroup
from bayplan.api.meta import Condition, Object
from bayplan.api.pod import Pod
from bayplan.errors import APIError, ConflictError, NotFoundError, ServerError
from bayplan.framework.outcome import Nomination
from bayplan.framework.state import GROUP_CYCLE
from bayplan.framework.status import Code, Status, describe
from bayplan.runtime.framework import Framework
from bayplan.runtime.search import Steps
from bayplan.scheduler.binding import Bindings, make_attempt
from bayplan.scheduler.context import Context
from bayplan.scheduler.cycle import Decision
from bayplan.scheduler.failure import (
    PATCH_TRIES,
    PATCH_WAIT_FACTOR,
    PATCH_WAIT_SECONDS,
    SCHEDULER_ERROR,
    SKIPPED,
    Evictions,
    Failures,
)
from bayplan.scheduler.group_cycle import UNSCHEDULABLE, GroupCycle, GroupDecision, GroupPart
from bayplan.scheduler.group_dialects import Dialect
from bayplan.scheduler.group_permit import GroupPermit
from bayplan.scheduling_queue.queued import QueuedGroup, QueuedPod
from bayplan.state.group_trees import invalid, tree_of
from bayplan.state.groups import INITIALLY_SCHEDULED, Group, GroupKey, GroupStates

if TYPE_CHECKING:
    from bayplan.queues.blocked import Notice

_log = logging.getLogger(__name__)

CLEARED: Final = Nomination("")

RunCycle = Callable[[Steps[GroupDecision], Pod], Awaitable[GroupDecision]]
"""Runs the steps of a cycle, extenders included."""


class GroupScheduling:
    """Schedules the groups of all profiles."""

    def __init__(
        self,
        context: Context,
        frameworks: Mapping[str, Framework],
        failures: Failures,
        bindings: Bindings,
        evictions: Evictions,
        run_cycle: RunCycle,
    ) -> None:
        self._context = context
        self._frameworks = frameworks
        self._failures = failures
        self._bindings = bindings
        self._evictions = evictions
        self._run_cycle = run_cycle
        self._conditions = GroupConditions(context)

    @property
    def _states(self) -> GroupStates:
        states = self._context.cluster.groups
        assert states is not None, "there are groups in the queue"
        return states

    def wait_for_quota(self, notices: Iterable[Notice]) -> None:
        """Writes which limit the groups of dialects wait for: users look at their own objects."""
        found = {id(each.info): (each.info, each.message) for each in notices}
        for entity, message in found.values():
            if isinstance(entity, QueuedGroup) and self._conditions.is_of_dialect(entity.group):
                status = Condition(type=INITIALLY_SCHEDULED, status="False", reason=SKIPPED, message=message)
                self._conditions.write(entity.group, status)

    async def schedule(self, entity: QueuedGroup, started: float) -> None:
        """One attempt for all waiting members of the group."""
        context, key = self._context, entity.group.key
        context.tasks.run_deferred()
        group = self._states.group(key)
        if group is None:
            text = f"pod group object not found for pod group {entity.key}"
            self._fail_all(entity.members, text, (), started)
            return
        pods = [info.pod for info in entity.members]
        tree = tree_of(self._states, group, pods)
        has_own_policy = "PodGroupPreemptionPolicy" in context.cluster.release.gates
        text = invalid(tree, has_own_policy=has_own_policy) if pods else ""
        if not text and pods and pods[0].spec.scheduler_name not in self._frameworks:
            text = f'profile not found for scheduler name "{pods[0].spec.scheduler_name}"'
        if text:
            self._fail_all(entity.members, text, tree.leaves(), started)
            return
        infos = self._schedulable(entity.members)
        if not infos:
            self._ended(Code.SUCCESS)
            return
        if len(infos) < len(pods):
            pods = [info.pod for info in infos]
            tree = tree_of(self._states, group, pods)
        framework = self._frameworks[pods[0].spec.scheduler_name]
        cycle = GroupCycle(framework, tree, context.stopwatch)
        if context.observers.group is not None:
            context.observers.group(entity, None)
        try:
            decision = await self._run_cycle(cycle.decide(), pods[0])
        except Exception as error:
            _log.exception("scheduling pod group %s failed", key)
            self._fail_all(infos, describe(error), tree.leaves(), started)
            return
        if context.observers.group is not None:
            context.observers.group(entity, decision)
        metrics = context.metrics
        if metrics.enabled:
            metrics.group_algorithm(context.loop.time() - started)
        cycle.shared.is_simulated = False
        code = self._submit(framework, decision, infos, started)
        if metrics.enabled:
            seconds = context.loop.time() - started
            metrics.group_attempt(_result(decision), framework.profile.scheduler_name, seconds)
            if decision.preemption_code is not None:
                metrics.group_preemption(decision.preemption_code.label, decision.preemption_seconds)
            profile = framework.profile
            if profile.placement_generators:
                metrics.placements(profile.scheduler_name, cycle.generated_placements, cycle.evaluations)
        self._ended(code)

    def _ended(self, code: Code) -> None:
        groups = self._context.queue.groups
        assert groups is not None
        groups.attempt_ended(code)

    def _schedulable(self, infos: Sequence[QueuedPod]) -> list[QueuedPod]:
        """The members to schedule: those that are being deleted or are assumed already are dropped."""
        context, left = self._context, []
        for info in infos:
            pod = info.pod
            if pod.metadata.deletion_timestamp is not None:
                context.recorder.skipped_deleting(pod, info.profile)
                context.queue.done(pod.uid)
            elif pod.metadata.uid in context.cache.assumed:
                context.queue.done(pod.uid)
            else:
                left.append(info)
        return left

    def _fail_all(
        self, infos: Sequence[QueuedPod], text: str, groups: Iterable[Group], started: float
    ) -> None:
        """The attempt failed before any member of these PodGroups was tried."""
        status = Status(Code.ERROR, (text,))
        for info in infos:
            self._fail(info, status, text, CLEARED, started)
        for group in groups:
            self._conditions.write(group, _condition(status, group))
        self._ended(Code.ERROR)

    # Members

    def _submit(
        self, framework: Framework, decision: GroupDecision, infos: Sequence[QueuedPod], started: float
    ) -> Code:
        """Executes the decision. Returns the result that decides when the group is tried again."""
        eviction = decision.eviction
        if eviction is not None:
            self._evictions.start_for_group(
                decision.group, framework.profile.scheduler_name, eviction, decision.preempting_plugin
            )
        attempts, of_pod = [], {info.pod.metadata.uid: info for info in infos}
        for part in decision.parts:
            for pod, member in zip(part.pods, part.decisions, strict=True):
                info = of_pod[pod.metadata.uid]
                if part.final.is_success and member is not None and member.found is not None:
                    self._report(member)
                    attempt = make_attempt(framework, member.found, info, started)
                    if self._bindings.assume(attempt):
                        attempts.append(attempt)
                else:
                    self._fail_member(decision, part, member, info, started)
        # All members are assumed before the first passes Permit, so that none has to wait for the others.
        for attempt in attempts:
            attempt.state.pop(GROUP_CYCLE, None)

        def ended(result: Status) -> None:
            for part in decision.parts:
                if not part.group.key.is_composite:
                    status = part.final if result.is_success or not part.final.is_success else result
                    self._conditions.write(part.group, _condition(status, part.group))

        permit = GroupPermit(self._bindings, self._states, decision.group, ended)
        code = permit.commit(attempts, framework.profile)
        return decision.status.code if code is Code.SUCCESS else code

    def _report(self, member: Decision) -> None:
        """Reports what becomes of a member: one that found a node has none if its group is not scheduled."""
        if self._context.observers.decided is not None:
            self._context.observers.decided(member)

    def _fail_member(
        self,
        decision: GroupDecision,
        part: GroupPart,
        member: Decision | None,
        info: QueuedPod,
        started: float,
    ) -> None:
        """A member is not scheduled: because of itself, of the group, or both."""
        final = part.final
        if member is not None and member.traceback:
            self._context.failures.log(_log, f"pod {member.pod.key}: {member.message}", member.traceback)
        if final.code is Code.ERROR:
            if member is not None and member.status.code is Code.ERROR:
                final = member.status
            self._fail(info, final, final.message, CLEARED, started)
            return
        nomination = decision.nominations.get(info.pod.uid)
        if member is None:
            status = part.status
            self._fail(info, status, status.message, nomination, started)
        elif member.found is None:
            if nomination is None and (member.diagnosis is None or not member.diagnosis.node_count):
                nomination = CLEARED
            self._fail(info, member.status, member.message, nomination, started, member)
        elif decision.waits_for_preemption:
            self._fail(info, final, final.message, nomination, started)
        else:
            self._fail(info, final, f"{UNSCHEDULABLE}, {final.message}", CLEARED, started)

    def _fail(
        self,
        info: QueuedPod,
        status: Status,
        message: str,
        nomination: Nomination | None,
        started: float,
        member: Decision | None = None,
    ) -> None:
        context = self._context
        if context.metrics.enabled:
            result = "unschedulable" if status.is_rejection else "error"
            context.metrics.attempt(result, info.profile, context.loop.time() - started)
        diagnosis = None if member is None else member.diagnosis
        self._report(Decision(info.pod, status, message, diagnosis=diagnosis))
        plugins: frozenset[str] = frozenset()
        if member is not None and diagnosis is None and member.status.plugin:
            plugins = frozenset((member.status.plugin,))
        self._failures.handle(info, info.pod, status, message, nomination, diagnosis, plugins)


def _condition(status: Status, group: Group) -> Condition:
    """The condition after an attempt with this result."""
    if status.is_success:
        value, reason, message = "True", "Scheduled", ""
    else:
        value, message = "False", status.message
        reason = "Unschedulable" if status.is_rejection else SCHEDULER_ERROR
    return Condition(
        type=INITIALLY_SCHEDULED,
        status=value,
        reason=reason,
        message=message,
        observed_generation=group.source.metadata.generation,
    )


def _result(decision: GroupDecision) -> str:
    """The label of metrics."""
    if decision.final.is_success:
        return "scheduled"
    if decision.final.code is Code.ERROR:
        return "error"
    return "waiting_on_preemption" if decision.waits_for_preemption else "unschedulable"


class GroupConditions:
    """Writes the conditions of PodGroups, one after the other for each group.

    What was written is remembered until the watch shows it. Without that, an attempt that follows at once
    would see the group without its condition, and replace True by False.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._written: dict[GroupKey, tuple[str, Condition]] = {}
        """By group: the uid of the object and the condition last sent."""
        self._writing: dict[GroupKey, list[tuple[Group, Condition]]] = {}

    def write(self, group: Group, condition: Condition) -> None:
        """Writes the condition if it says something new. Once True, that of Kubernetes stays True."""
        known = self._known(group)
        if known is not None:
            is_same = (known.status, known.reason, known.message) == (
                condition.status,
                condition.reason,
                condition.message,
            )
            if is_same or (known.status == "True" and not self._is_withdrawn(group)):
                return
        self._written[group.key] = (group.uid, condition)
        waiting = self._writing.get(group.key)
        if waiting is not None:
            waiting.append((group, condition))
            return
        self._writing[group.key] = [(group, condition)]
        self._context.tasks.start(self._write_all(group.key), "status of pod group", str(group.key))

    def is_of_dialect(self, group: Group) -> bool:
        """Whether a group stands for an object of another kind."""
        return any(group.key in one for one in self._context.dialects)

    def _is_withdrawn(self, group: Group) -> bool:
        """Whether a group of a dialect has lost members that it needs since it was scheduled."""
        states = self._context.cluster.groups
        if states is None or not self.is_of_dialect(group):
            return False
        return states[group.key].scheduled_count < group.min_count

    def _known(self, group: Group) -> Condition | None:
        """The condition as it was last written, or as the object shows it."""
        shown = group.condition()
        uid, written = self._written.get(group.key, ("", None))
        if written is None:
            return shown
        if uid != group.uid:
            del self._written[group.key]
            return shown
        if shown is not None and (shown.status, shown.message) == (written.status, written.message):
            if group.key not in self._writing:
                del self._written[group.key]
            return shown
        return written

    async def _write_all(self, key: GroupKey) -> None:
        waiting = self._writing[key]
        try:
            while waiting:
                group, condition = waiting[0]
                try:
                    await self._write_one(group, condition)
                except NotFoundError:
                    pass
                except APIError as error:
                    _log.warning("cannot write the condition of pod group %s: %s", key, error)
                    if self._written.get(key) == (group.uid, condition):
                        del self._written[key]
                waiting.pop(0)
        finally:
            del self._writing[key]

    async def _write_one(self, group: Group, condition: Condition) -> None:
        """Writes a condition, with retries where they can help."""
        context, wait = self._context, PATCH_WAIT_SECONDS
        dialect = next((one.dialect for one in context.dialects if group.key in one), None)
        kind = PodGroup if dialect is None else dialect.record
        if kind is None:
            return
        current: Object | None = self._shown(group) if dialect is None else None
        for tries_left in range(PATCH_TRIES - 1, -1, -1):
            try:
                if current is None:
                    current = await context.api.get(kind, group.key.name, group.key.namespace)
                if current.metadata.uid == group.uid:
                    changed = self._changed(current, group, condition, dialect)
                    if changed is not None:
                        await context.api.update_status(changed)
                return
            except (ConflictError, ServerError):
                if not tries_left:
                    raise
            current = None
            await asyncio.sleep(wait * (1 + 0.1 * context.rng.random()))
            wait *= PATCH_WAIT_FACTOR

    def _shown(self, group: Group) -> PodGroup | None:
        """The object as the watch has shown it last: nearly always it has not changed since."""
        states = self._context.cluster.groups
        found = None if states is None else states.group(group.key)
        return None if found is None or not isinstance(found.source, PodGroup) else found.source

    def _changed(
        self, current: Object, group: Group, condition: Condition, dialect: Dialect | None
    ) -> Object | None:
        context = self._context
        if isinstance(current, PodGroup):
            return with_condition(current, condition, context.now())
        states = context.cluster.groups
        assert states is not None
        assert dialect is not None
        return dialect.written(current, condition, states[group.key], context.now())


def with_condition(item: PodGroup, condition: Condition, now: float) -> PodGroup:
    """The object with this condition in place of the one of the same type."""
    others: list[Any] = []
    changed: datetime | None = datetime.fromtimestamp(int(now), UTC)
    for known in item.status.conditions:
        if known.type != condition.type:
            others.append(known)
        elif known.status == condition.status:
            changed = known.last_transition_time
    condition = replace(condition, last_transition_time=changed)
    return replace(item, status=replace(item.status, conditions=(*others, condition)))
