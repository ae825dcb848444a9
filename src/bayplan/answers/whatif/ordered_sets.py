"""StatefulSets that create one pod after the other: none before all pods with lower ordinals run.

A change creates all pods at once here, because usually they fit. Afterwards those are taken back that their
controller would not have created yet. Room that they took from other pods of the same run is not given back:
the result is that not everything fits in any case.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bayplan.answers.whatif.outcomes import Outcome, Placement, Placements
from bayplan.answers.whatif.pods import delete_pod
from bayplan.api.pod import Pod
from bayplan.api.workloads import StatefulSet
from bayplan.controllers.workloads import ordinal_of

if TYPE_CHECKING:
    from bayplan.answers.whatif.cluster import Cluster

PARALLEL: Final = "Parallel"
_WAITS: Final = "its StatefulSet creates it when {pod} runs (podManagementPolicy OrderedReady)"


def without_later_pods(cluster: Cluster, placed: Placements) -> Placements:
    """The result without pods that StatefulSets would not have created, because earlier ones do not run."""
    taken_back: dict[str, Placement] = {}
    for (namespace, name), pods in _created_pods(cluster, placed).items():
        found = cluster._store.find(StatefulSet, name, namespace)
        if found is not None and found.spec.pod_management_policy == PARALLEL:
            continue
        first = _first_missing(cluster, namespace, name)
        if first is None:
            continue
        reason = _WAITS.format(pod=f"{name}-{first}")
        for pod in pods:
            ordinal = ordinal_of(pod.name, name)
            if ordinal is not None and ordinal > first:
                delete_pod(cluster, pod)
                taken_back[pod.key] = Placement(pod.key, Outcome.NOT_CREATED, reason=reason)
    return replace(placed, pods=tuple(taken_back.get(one.pod, one) for one in placed))


def _created_pods(cluster: Cluster, placed: Placements) -> dict[tuple[str, str], list[Pod]]:
    """The pods that the changes created, by StatefulSet."""
    found: dict[tuple[str, str], list[Pod]] = defaultdict(list)
    for one in placed:
        is_created = one.pod in cluster._created or one.pod in cluster._lost
        pod = cluster.find_pod(one.pod) if is_created else None
        owner = None if pod is None else pod.metadata.controller()
        if pod is not None and owner is not None and owner.kind == "StatefulSet":
            found[pod.namespace, owner.name].append(pod)
    return found


def _first_missing(cluster: Cluster, namespace: str, name: str) -> int | None:
    """The lowest ordinal whose pod has no node, or was rejected by the API server."""
    without_node = [
        pod.key
        for pod in cluster.pending
        if (owner := pod.metadata.controller()) is not None and owner.kind == "StatefulSet"
    ]
    rejected = [one.pod for one in cluster.not_recreated if one.outcome is Outcome.REJECTED]
    prefix = f"{namespace}/{name}"
    ordinals = (ordinal_of(key, prefix) for key in (*without_node, *rejected))
    return min((ordinal for ordinal in ordinals if ordinal is not None), default=None)
