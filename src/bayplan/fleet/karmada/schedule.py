"""One run of Karmada's scheduling algorithm: filter, score, select, assign.

The only score is that a cluster has the workload already. The results of each step are part of the `Result`,
so that explanations come from the run that decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

import numpy as np

from bayplan.fleet.karmada.clusters import ClusterTable, Ints
from bayplan.fleet.karmada.division import Division, Selected, divide
from bayplan.fleet.karmada.estimate import NO_ANSWER, Estimator, EstimatorError, GeneralEstimator
from bayplan.fleet.karmada.filters import FilterResult, filter_clusters
from bayplan.fleet.karmada.kinds import (
    MAX_INT32,
    BindingSpec,
    ComponentReplicas,
    Placement,
    ResourceBinding,
    TargetCluster,
)
from bayplan.fleet.karmada.spread import ANY, Candidates, Selection, counts_sets, select_clusters

LOCALITY_SCORE: Final = 100
NO_TIER: Final = 1000
"""The tier of a cluster that neither the affinity group nor one of its overflow tiers matches."""

SELECT: Final = "failed to select clusters: "
ASSIGN: Final = "failed to assign replicas: "


class Reason(StrEnum):
    """Why a binding is not scheduled: the reason of its condition."""

    NO_CLUSTER_FIT = "NoClusterFit"
    UNSCHEDULABLE = "Unschedulable"
    SCHEDULER_ERROR = "SchedulerError"


@dataclass(frozen=True, slots=True)
class Options:
    """Feature gates and flags of karmada-scheduler that change its decisions."""

    components: bool = False
    """Feature gate MultiplePodTemplatesScheduling."""
    empty_workload_propagation: bool = False
    """`--enable-empty-workload-propagation`."""


DEFAULT_OPTIONS: Final = Options()


@dataclass(frozen=True, slots=True)
class ClusterRoom:
    """What the estimators found for the feasible clusters; arrays in the order of the rows."""

    more: Ints
    """Replicas that fit in addition to the existing ones."""
    by_estimator: Mapping[str, Ints] = field(default_factory=dict)
    """What each of them answered; NO_ANSWER for nothing."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Estimators that were left out, and why."""


@dataclass(frozen=True, slots=True)
class Result:
    """The clusters and their replicas, or why there are none; and what each step found."""

    filtered: FilterResult
    targets: tuple[TargetCluster, ...] = ()
    error: str = ""
    reason: Reason | None = None
    candidates: Candidates | None = None
    room: ClusterRoom | None = None
    previous: Ints | None = None
    """Replicas that the feasible clusters have, in the order of the candidates."""
    selection: Selection | None = None
    division: Division | None = None

    @property
    def replicas(self) -> dict[str, int]:
        return {target.name: target.replicas for target in self.targets}


def schedule(
    spec: BindingSpec,
    clusters: ClusterTable,
    *,
    observed: str = "",
    estimators: Sequence[Estimator] = (GeneralEstimator(),),
    others: Sequence[ResourceBinding] | None = None,
    options: Options = DEFAULT_OPTIONS,
    fresh: bool = False,
) -> Result:
    """Schedules a binding.

    Args:
        observed: the name of the affinity group to use.
        others: all bindings, for workload affinity; None: the feature is off.
        fresh: whether a rescheduling was requested: all replicas are divided again.
    """
    placement = spec.placement or Placement()
    filtered = filter_clusters(spec, clusters, observed, others)
    rows = np.flatnonzero(filtered.feasible)
    if not len(rows):
        return Result(filtered, error=filtered.message(), reason=Reason.NO_CLUSTER_FIT)
    in_sets = options.components and counts_sets(spec)
    room = estimate_room(spec, clusters, rows, estimators, sets=in_sets)
    previous = _previous_replicas(spec, clusters)[rows]
    candidates = Candidates(
        rows,
        clusters.name_rank[rows],
        _tiers(placement, clusters, observed)[rows],
        np.where(clusters.with_names(target.name for target in spec.clusters)[rows], LOCALITY_SCORE, 0),
        room.more + previous,
        [clusters.regions[row] for row in rows],
    )
    need = ANY if placement.is_duplicated else 1 if in_sets else spec.replicas
    selection = select_clusters(candidates, placement, spec.replicas, need)
    found = Result(filtered, candidates=candidates, room=room, previous=previous, selection=selection)
    if selection.error:
        return replace(found, error=SELECT + selection.error, reason=Reason.SCHEDULER_ERROR)
    return _assign(found, spec, clusters, observed, options, fresh=fresh)


def estimate_room(
    spec: BindingSpec, clusters: ClusterTable, rows: Ints, estimators: Sequence[Estimator], *, sets: bool
) -> ClusterRoom:
    """Room for more replicas: the smallest answer for each cluster; without an answer, all replicas fit."""
    more = np.full(len(rows), MAX_INT32, np.int64)
    if spec.replicas == 0 and not spec.components:
        return ClusterRoom(more)
    answers: dict[str, Ints] = {}
    failed: dict[str, str] = {}
    for one in estimators:
        try:
            answer = answers[one.name] = one.available(clusters, rows, spec, sets=sets)
        except EstimatorError as error:
            failed[one.name] = str(error)
            continue
        more = np.where(answer == NO_ANSWER, more, np.minimum(more, answer))
    return ClusterRoom(np.where(more == MAX_INT32, spec.replicas, more), answers, failed)


def _previous_replicas(spec: BindingSpec, clusters: ClusterTable) -> Ints:
    replicas = np.zeros(len(clusters), np.int64)
    for target in spec.clusters:
        if target.name in clusters.row_of:
            replicas[clusters.row_of[target.name]] = target.replicas
    return replicas


def _tiers(placement: Placement, clusters: ClusterTable, observed: str) -> Ints:
    """The overflow tier of each cluster."""
    tiers = np.zeros(len(clusters), np.int64)
    term = None if placement.cluster_affinity is not None else placement.term(observed)
    if term is not None:
        tiers[:] = NO_TIER
        affinities = (term, *(term.overflow_affinities or ()))
        for tier in range(len(affinities) - 1, -1, -1):
            tiers[clusters.matching(affinities[tier])] = tier
    return tiers


def _assign(
    found: Result,
    spec: BindingSpec,
    clusters: ClusterTable,
    observed: str,
    options: Options,
    *,
    fresh: bool,
) -> Result:
    candidates, selection, room = found.candidates, found.selection, found.room
    assert candidates is not None
    assert selection is not None
    assert room is not None
    placement = spec.placement or Placement()
    rows = [int(candidates.rows[index]) for index in selection.selected]
    names = [clusters.names[row] for row in rows]
    has_replicas = spec.replicas > 0 or spec.replica_requirements is not None
    if names and (not has_replicas or len(spec.components) > 1):
        parts: tuple[ComponentReplicas, ...] = ()
        if options.components and len(spec.components) > 1 and counts_sets(spec):
            parts = tuple(ComponentReplicas(name=one.name, replicas=one.replicas) for one in spec.components)
        targets = tuple(TargetCluster(name=name, components=parts) for name in names)
        return replace(found, targets=targets)
    previous = {target.name: target.replicas for target in spec.clusters}
    weights = _static_weights(placement, clusters, rows)
    selected = [
        Selected(
            name,
            int(room.more[index]),
            previous.get(name, 0),
            name in previous,
            weight,
            int(candidates.tiers[index]),
        )
        for name, index, weight in zip(names, selection.selected, weights, strict=True)
    ]
    term = None if placement.cluster_affinity is not None else placement.term(observed)
    division = divide(
        selected,
        placement,
        spec.replicas,
        spec.resource.uid,
        list(previous),
        fresh=fresh,
        in_tiers=term is not None and term.overflow_affinities is not None,
    )
    if division.error:
        reason = Reason.UNSCHEDULABLE if division.is_unschedulable else Reason.SCHEDULER_ERROR
        return replace(found, error=ASSIGN + division.error, reason=reason, division=division)
    replicas = dict(division.replicas)
    if options.empty_workload_propagation:
        replicas.update((name, 0) for name in names if name not in replicas)
    targets = tuple(TargetCluster(name=name, replicas=count) for name, count in replicas.items())
    return replace(found, targets=targets, division=division)


def _static_weights(
    placement: Placement, clusters: ClusterTable, rows: Sequence[int]
) -> Sequence[int | None]:
    """The highest weight of the rules that match each cluster; None if none does."""
    scheduling = placement.replica_scheduling
    preference = None if scheduling is None else scheduling.weight_preference
    if preference is None or not preference.static_weight_list:
        return [None] * len(rows)
    best = np.zeros(len(clusters), np.int64)
    for rule in preference.static_weight_list:
        matching = clusters.matching(rule.target_cluster)
        best[matching] = np.maximum(best[matching], rule.weight)
    return [int(best[row]) if best[row] > 0 else None for row in rows]
