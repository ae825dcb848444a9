"""May this pod preempt, where would it help, and which node is best: the whole question, without doing it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bayplan.api.pod import Pod
from bayplan.framework.outcome import Eviction, FilterOutcome, fit_error
from bayplan.framework.status import Code, Status
from bayplan.preemption.choice import best
from bayplan.preemption.kept import dry_run_of
from bayplan.preemption.victims import DryRun
from bayplan.snapshot.cluster import Cluster

NEVER: Final = "not eligible due to preemptionPolicy=Never."
TERMINATING: Final = "not eligible due to a terminating pod on the nominated node."
NOT_HELPFUL: Final = Status(Code.UNRESOLVABLE, ("Preemption is not helpful for scheduling",))


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What came of it. `ineligible` says why the pod may not preempt; `chosen` is an index into `found`."""

    ineligible: str = ""
    found: DryRun | None = None
    chosen: int | None = None

    def eviction(self, cluster: Cluster) -> Eviction | None:
        if self.found is None or self.chosen is None:
            return None
        return eviction_at(cluster, self.found, self.chosen)


def eviction_at(cluster: Cluster, found: DryRun, index: int) -> Eviction:
    """What would have to be done on one of the rows."""
    victims = []
    for slot in found.victims_of(index):
        pod = cluster.pods.pod[slot]
        assert pod is not None
        victims.append(pod)
    return Eviction(cluster.nodes.name[int(found.rows[index])], tuple(victims), int(found.violations[index]))


def ineligible(pod: Pod, outcome: FilterOutcome) -> str:
    """Why the pod may not preempt now; empty where it may."""
    if pod.spec.preemption_policy == "Never":
        return NEVER
    cluster, nominated = outcome.cluster, pod.status.nominated_node_name
    if not nominated:
        return ""
    row = cluster.nodes.row_of.get(nominated)
    status = outcome.diagnosis.absent if row is None else outcome.diagnosis.status(row)
    if status.code is Code.UNRESOLVABLE or row is None:
        return ""
    for other in cluster.pods_on(row):
        if other.is_terminating and other.priority < pod.priority and _preempted(other):
            # Room is being made there already; evicting elsewhere would cost pods for nothing.
            return TERMINATING
    return ""


def _preempted(pod: Pod) -> bool:
    return any(
        condition.type == "DisruptionTarget"
        and condition.status == "True"
        and condition.reason == "PreemptionByScheduler"
        for condition in pod.status.conditions
    )


@dataclass(frozen=True, slots=True)
class Sampling:
    """Stop looking once enough nodes were found: upstream's way, for those who configure it."""

    percentage: int
    absolute: int
    offset: float
    """Where to begin, as a share of the list between 0 and 1."""


def evaluate(pod: Pod, outcome: FilterOutcome, sampling: Sampling | None = None) -> Evaluation:
    """Judges the nodes where evicting may help (without `sampling`: all of them), and chooses among them."""
    reason = ineligible(pod, outcome)
    if reason:
        return Evaluation(ineligible=reason)
    found = dry_run_of(pod, outcome, outcome.diagnosis.rows_with(Code.UNSCHEDULABLE))
    considered = found.fits if sampling is None else _sampled(found, sampling)
    return Evaluation(found=found, chosen=best(found, considered))


def _sampled(found: DryRun, sampling: Sampling) -> NDArray[np.bool_]:
    """The nodes that would have been found before the search stopped.

    It stops once there are enough, at least one of them without a violated budget.
    """
    count = len(found.rows)
    wanted = min(count, max(count * sampling.percentage // 100, sampling.absolute))
    first = int(sampling.offset * count)
    turn = np.concatenate((np.arange(first, count), np.arange(first)))
    fits = found.fits.take(turn)
    harmless = np.cumsum(fits & (found.violations.take(turn) == 0))
    enough = (harmless >= 1) & (np.cumsum(fits) >= wanted)
    end = int(enough.argmax()) + 1 if enough.any() else count
    considered = np.zeros(count, dtype=np.bool_)
    considered[turn[:end]] = fits[:end]
    return considered


def why_not(evaluation: Evaluation, outcome: FilterOutcome) -> str:
    """The message where evicting helps nowhere: what stands in the way on each node."""
    counts = [] if evaluation.found is None else evaluation.found.status_counts()
    return fit_error(outcome.diagnosis.node_count, counts, NOT_HELPFUL)


def preemption_errors(evaluation: Evaluation) -> list[str]:
    """What broke on nodes, each text once."""
    if evaluation.found is None:
        return []
    texts = [
        f'running "{status.plugin}" filter plugin: {status.message}'
        for status, _ in evaluation.found.status_counts()
        if status.code is Code.ERROR
    ]
    return list(dict.fromkeys(texts))
