"""Which evictions would violate a PodDisruptionBudget.

Pods are processed in order of importance; every pod that a budget protects uses one of its allowed
disruptions, and those for which none is left violate it. Each node is evaluated on its own.

If several budgets protect a pod, releases differ in whether a violated one prevents it from using disruptions
of the next (`Release.budget_walk_stops`).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from bayplan.api.selectors import Selector, compile_selector
from bayplan.api.workloads import PodDisruptionBudget
from bayplan.errors import SelectorError
from bayplan.state.cluster import Cluster
from bayplan.state.columns import distinct_ids
from bayplan.state.hypothesis import Hypothesis


def violating(evicted: Hypothesis) -> NDArray[np.bool_]:
    """For each pod of the hypothesis (in order of importance within its row): whether its eviction violates a
    budget."""
    cluster = evicted.cluster
    result = np.zeros(len(evicted.slots), dtype=np.bool_)
    budgets = cluster.objects.of(PodDisruptionBudget)
    if not len(budgets) or not len(evicted.slots):
        return result
    label_sets = cluster.pods.label_set.array.take(evicted.slots)
    first = np.repeat(evicted.starts[:-1], evicted.starts[1:] - evicted.starts[:-1])
    for budget, matching_sets in _protecting(budgets, cluster, distinct_ids(label_sets).tolist()):
        protected = np.isin(label_sets, matching_sets)
        if budget.status.disrupted_pods:
            for index in protected.nonzero()[0]:
                pod = cluster.pods.pod[evicted.slots[index]]
                if pod is not None and pod.name in budget.status.disrupted_pods:
                    protected[index] = False
        if cluster.release.budget_walk_stops:
            protected &= ~result
        running = np.cumsum(protected)
        before = np.concatenate(([0], running))
        used: NDArray[np.int64] = running - before.take(first)
        result |= protected & (used > budget.status.disruptions_allowed)
    return result


def _protecting(
    budgets: Iterable[PodDisruptionBudget], cluster: Cluster, set_ids: list[int]
) -> Iterable[tuple[PodDisruptionBudget, list[int]]]:
    """Each budget that protects some of these sets of labels, with their ids."""
    by_namespace: dict[str, list[int]] = {}
    for set_id in set_ids:
        label_set = cluster.label_sets[set_id]
        if label_set.labels:
            by_namespace.setdefault(label_set.namespace, []).append(set_id)
    for budget in budgets:
        here = by_namespace.get(budget.namespace)
        if not here:
            continue
        selector = _selector(budget)
        if selector is None:
            continue
        matching = [set_id for set_id in here if selector.matches(cluster.label_sets[set_id].labels)]
        if matching:
            yield budget, matching


def _selector(budget: PodDisruptionBudget) -> Selector | None:
    """None for budgets that protect nothing: without a selector, with an empty or a malformed one."""
    try:
        selector = compile_selector(budget.spec.selector)
    except SelectorError:
        return None
    return None if selector.is_empty or selector.is_nothing else selector
