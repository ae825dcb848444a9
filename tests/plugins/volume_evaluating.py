"""Clusters with storage, and the evaluation of one volume plugin on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bayplan.api.meta import Object
from bayplan.framework.outcome import Reasons, collect
from bayplan.plugin import Cluster, Code, CycleState, Node, NodeColumns, Plugin, Pod, Status
from bayplan.plugin.preemption import Hypothesis

from .evaluating import make_cluster

Rejection = tuple[Code, frozenset[str]]


def storage_cluster(
    nodes: Iterable[Node], *objects: Object, assigned: Mapping[str, Sequence[Pod]] | None = None
) -> Cluster:
    """A cluster with these nodes, other objects, and pods by the node's name."""
    cluster = make_cluster(nodes, assigned)
    for item in objects:
        cluster.objects.put(item)
    return cluster


def evaluate(plugin: Plugin, pod: Pod, cluster: Cluster) -> Status | dict[str, Rejection] | None:
    """The status of PreFilter or, if nodes are evaluated, the rejection of each that is rejected."""
    state = CycleState()
    answer: Status | None = filtering(plugin).pre_filter(state, pod, NodeColumns(cluster))
    return filtered(plugin, state, pod, NodeColumns(cluster)) if answer is None else answer


def filtered(plugin: Plugin, state: CycleState, pod: Pod, view: NodeColumns) -> dict[str, Rejection]:
    """The statuses of the nodes of a view that Filter rejects."""
    reasons = Reasons(plugin.name)
    found = collect(filtering(plugin).filter(state, pod, view), reasons, len(view))
    if found is None:
        return {}
    statuses = {
        name: reasons.status(int(bits))
        for name, bits, exists in zip(view.names, found.reason_ids(), view.exists, strict=True)
        if bits and exists
    }
    return {name: (status.code, frozenset(status.reasons)) for name, status in statuses.items()}


def filtering(plugin: Plugin) -> Any:
    """The plugin, as something with a PreFilter and a Filter."""
    return plugin


def slot_of(cluster: Cluster, uid: str) -> int:
    (slot,) = (slot for slot, pod in enumerate(cluster.pods.pod) if pod is not None and pod.uid == uid)
    return slot


def supposing(
    cluster: Cluster, gone: Iterable[Pod] = (), added: Mapping[str, Sequence[Pod]] | None = None
) -> Hypothesis:
    """The nodes in question as they would be without some pods, and with pods that are nominated to them."""
    changes: dict[int, list[tuple[int, int]]] = {}
    for pod in gone:
        slot = slot_of(cluster, pod.uid)
        changes.setdefault(cluster.pods.row.cell[slot], []).append((slot, -1))
    for name, pods in (added or {}).items():
        for pod in pods:
            cluster.nominate(pod, name)
            changes.setdefault(cluster.nodes.row_of[name], []).append((slot_of(cluster, pod.uid), 1))
    rows = sorted(changes)
    return Hypothesis.on_few_rows(cluster, rows, [changes[row] for row in rows])
