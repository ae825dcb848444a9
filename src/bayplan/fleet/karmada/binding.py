"""One attempt of karmada-scheduler for a binding: whether it is due, affinity groups in turn, and what is
written.

A binding whose replicas add up is not scheduled again, whatever happens to its clusters; and if no cluster is
feasible, its previous result is removed. Both are Karmada's rules, so an answer about a control plane has to
report them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from bayplan.errors import DecodeError
from bayplan.fleet.karmada.clusters import ClusterTable
from bayplan.fleet.karmada.estimate import Estimator, GeneralEstimator
from bayplan.fleet.karmada.kinds import (
    APPLIED_PLACEMENT,
    ClusterResourceBinding,
    Placement,
    ResourceBinding,
    TargetCluster,
    decode_karmada,
)
from bayplan.fleet.karmada.schedule import DEFAULT_OPTIONS, Options, Reason, Result, schedule

SCHEDULER_NAME: Final = "default-scheduler"
CLAIMED: Final = (
    "propagationpolicy.karmada.io/permanent-id",
    "clusterpropagationpolicy.karmada.io/permanent-id",
    "binding.karmada.io/managed-by",
)
"""Labels of a binding; one of them has to have a value."""
SUCCESS: Final = "Binding has been scheduled successfully."
_DELETING: Final = "skip schedule deleting {kind}: {key}"
_GROUP_FAILED: Final = "failed to schedule {kind}({key}) with clusterAffiliates index({index}): {error}"


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition `Scheduled` after the attempt."""

    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """What an attempt decides and writes."""

    targets: tuple[TargetCluster, ...]
    """`spec.clusters` afterwards."""
    observed_affinity: str
    trigger: str = ""
    """Why the binding is scheduled; empty: it is not due."""
    ignored: str = ""
    """Why it is never scheduled."""
    condition: Condition | None = None
    retry: Reason | None = None
    """The class of the error that the queue gets: it tries again."""
    events: tuple[str, ...] = ()
    result: Result | None = None
    """The run that decided: the successful one, or the first that failed."""
    runs: tuple[tuple[str, Result], ...] = ()
    """Every affinity group that was tried, by name, with its run."""
    generation_observed: bool = False
    placement_applied: bool = False

    @property
    def is_scheduled(self) -> bool:
        return self.condition is not None and self.condition.status == "True"


def attempt(
    binding: ResourceBinding,
    clusters: ClusterTable,
    *,
    estimators: Sequence[Estimator] = (GeneralEstimator(),),
    others: Sequence[ResourceBinding] | None = None,
    options: Options = DEFAULT_OPTIONS,
) -> Attempt:
    """Schedules a binding as karmada-scheduler would when it takes it from its queue."""
    is_cluster_scoped = isinstance(binding, ClusterResourceBinding)
    kind = "clusterResourceBinding" if is_cluster_scoped else "resourceBinding"
    spec, status = binding.spec, binding.status
    unchanged = Attempt(spec.clusters, status.scheduler_observing_affinity_name)
    if binding.metadata.deletion_timestamp is not None:
        text = f"Warning ScheduleBindingFailed {_DELETING.format(kind=kind, key=binding.key)}"
        return replace(unchanged, events=(text,))
    if spec.placement is None:
        # Only the log has the text: neither a condition nor an event is written.
        return replace(unchanged, retry=Reason.SCHEDULER_ERROR)
    trigger = reason_to_schedule(binding, clusters, options)
    if not trigger:
        return replace(unchanged, generation_observed=True)

    def run(observed: str) -> Result:
        return schedule(
            spec,
            clusters,
            observed=observed,
            estimators=estimators,
            others=others,
            options=options,
            fresh=reschedule_required(binding),
        )

    shown = kind[0].upper() + kind[1:]
    if not spec.placement.cluster_affinities:
        result = run(status.scheduler_observing_affinity_name)
        return _finished(binding, result, replace(unchanged, trigger=trigger, runs=(("", result),)))
    runs: list[tuple[str, Result]] = []
    events: list[str] = []
    start = 0 if reschedule_required(binding) else _observed_index(binding)
    for index, term in enumerate(spec.placement.cluster_affinities[start:], start):
        result = run(term.affinity_name)
        runs.append((term.affinity_name, result))
        if result.reason is None:
            observed = replace(unchanged, observed_affinity=term.affinity_name)
            done = replace(observed, trigger=trigger, runs=tuple(runs), events=tuple(events))
            return _finished(binding, result, done)
        text = _GROUP_FAILED.format(kind=shown, key=binding.key, index=index, error=result.error)
        events.append(f"Warning ScheduleBindingFailed {text}")
    found = replace(unchanged, trigger=trigger, runs=tuple(runs), events=tuple(events))
    return _finished(binding, runs[0][1], found, one_event=runs[0][1].reason is Reason.NO_CLUSTER_FIT)


def _finished(binding: ResourceBinding, result: Result, base: Attempt, *, one_event: bool = True) -> Attempt:
    """The attempt with what the deciding run writes."""
    if result.reason is None:
        shown = ", ".join(f"{one.name}:{one.replicas}" for one in result.targets)
        colon = "" if isinstance(binding, ClusterResourceBinding) else ":"
        event = f"Normal ScheduleBindingSucceed {SUCCESS} Result{colon} {{{shown}}}"
        return replace(
            base,
            targets=result.targets,
            condition=Condition("True", "Success", SUCCESS),
            events=(*base.events, event),
            result=result,
            generation_observed=True,
            placement_applied=True,
        )
    event = f"Warning ScheduleBindingFailed {result.error}"
    no_fit = result.reason is Reason.NO_CLUSTER_FIT
    return replace(
        base,
        # Without a feasible cluster the previous result is removed; after any other error it is kept.
        targets=() if no_fit else binding.spec.clusters,
        condition=Condition("False", result.reason, result.error),
        retry=None if no_fit else result.reason,
        events=(*base.events, event) if one_event else base.events,
        result=result,
        placement_applied=no_fit,
    )


def _observed_index(binding: ResourceBinding) -> int:
    assert binding.spec.placement is not None
    observed = binding.status.scheduler_observing_affinity_name
    names = [term.affinity_name for term in binding.spec.placement.cluster_affinities]
    return names.index(observed) if observed in names else 0


def considered(binding: ResourceBinding, clusters: ClusterTable) -> Attempt:
    """What karmada-scheduler does with a binding of its control plane: an attempt, unless it ignores it."""
    ignored = why_ignored(binding)
    if ignored:
        observed = binding.status.scheduler_observing_affinity_name
        return Attempt(binding.spec.clusters, observed, ignored=ignored)
    return attempt(binding, clusters)


def why_ignored(binding: ResourceBinding, scheduler_name: str = SCHEDULER_NAME) -> str:
    """Why karmada-scheduler never takes a binding from its queue; "" if it does."""
    named = binding.spec.scheduler_name or SCHEDULER_NAME
    if named != scheduler_name:
        return f"its schedulerName is {named}"
    if binding.spec.suspension is not None and binding.spec.suspension.scheduling:
        return "its scheduling is suspended"
    if not any(binding.metadata.labels.get(label) for label in CLAIMED):
        return "it has no label of the policy that made it"
    return ""


def reschedule_required(binding: ResourceBinding) -> bool:
    """Whether a rescheduling was requested after the last attempt that succeeded."""
    requested, last = binding.spec.reschedule_triggered_at, binding.status.last_scheduled_time
    return requested is not None and last is not None and requested > last


def reason_to_schedule(binding: ResourceBinding, clusters: ClusterTable, options: Options) -> str:
    """Why a binding is due to be scheduled; "" if it is not."""
    spec, placement = binding.spec, binding.spec.placement
    assert placement is not None
    if placement_changed(binding):
        return "the placement has changed"
    counts = [target.replicas for target in spec.clusters]
    if placement.replica_scheduling is not None:
        if placement.is_duplicated:
            differs = any(count != spec.replicas for count in counts)
        else:
            differs = sum(counts) != spec.replicas
        if differs:
            return "the number of replicas has changed"
        if options.components and spec.components and not spec.clusters:
            return "the components have no cluster yet"
    if reschedule_required(binding):
        return "a rescheduling was requested"
    if not spec.is_workload or placement.is_duplicated:
        return "it is not divided, so it is scheduled every time"
    deleting = {clusters.names[row] for row in clusters.deleting.nonzero()[0]}
    if any(target.name in deleting for target in spec.clusters):
        return "one of its clusters is being deleted"
    return ""


def placement_changed(binding: ResourceBinding) -> bool:
    """Whether the placement differs from the applied one in what matters for the result."""
    text, placement = binding.annotations.get(APPLIED_PLACEMENT, ""), binding.spec.placement
    assert placement is not None
    if not text:
        return True
    try:
        applied = decode_karmada(Placement, msgspec.json.decode(text, type=dict))
    except (msgspec.DecodeError, DecodeError):
        return False
    if applied == placement:
        return False
    for part in ("cluster_affinity", "cluster_tolerations", "spread_constraints", "replica_scheduling"):
        if getattr(applied, part) != getattr(placement, part):
            return True
    observed = binding.status.scheduler_observing_affinity_name
    if not observed:
        return True
    before, now = applied.term(observed), placement.term(observed)
    return before is None or now is None or before != now
