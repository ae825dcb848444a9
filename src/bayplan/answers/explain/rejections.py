"""Rejected nodes in groups, by plugin and reason; a `Subject` is one group with what `details.py` reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bayplan.answers.explain.explanation import Explanation
from bayplan.answers.explain.remedies import PodInTheWay, pod_state
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.framework.plugin_api import NodeNames
from bayplan.framework.status import Code, Status
from bayplan.runtime import calls
from bayplan.runtime.framework import Framework
from bayplan.state.cluster import Cluster
from bayplan.state.columns import IdColumn
from bayplan.state.view import NodeColumns


@dataclass(frozen=True, slots=True)
class Rejection:
    """The nodes that one plugin rejects for the same reasons."""

    status: Status
    nodes: tuple[str, ...]
    nominated: tuple[tuple[str, ...], ...] = ()
    """For each node the nominated pods that the status counts; empty if it counts none on any node."""
    fits_without_nominated: tuple[bool, ...] = ()
    """For each node whether it would fit without them."""


def rejection_on(explanation: Explanation, node: str) -> Rejection | None:
    """The rejection of one node; None if it fits."""
    status = explanation.node_status.get(node)
    if status is None:
        return None
    return _rejection(explanation, status, [node], counts_nominated=node in explanation.nominated)


def rejections(explanation: Explanation) -> list[Rejection]:
    """All rejected nodes in groups, the largest group first."""
    found: dict[tuple[Status, bool], list[str]] = {}
    for node, status in explanation.node_status.items():
        found.setdefault((status, node in explanation.nominated), []).append(node)
    groups = [
        _rejection(explanation, status, nodes, counts_nominated=counts)
        for (status, counts), nodes in found.items()
    ]
    return sorted(groups, key=lambda group: -len(group.nodes))


def _rejection(
    explanation: Explanation, status: Status, nodes: Sequence[str], *, counts_nominated: bool
) -> Rejection:
    if not counts_nominated:
        return Rejection(status, tuple(nodes))
    return Rejection(
        status,
        tuple(nodes),
        tuple(explanation.nominated[node] for node in nodes),
        tuple(node in explanation.fits_without_nominated for node in nodes),
    )


@dataclass(frozen=True, slots=True)
class Subject:
    """Nodes that one plugin rejects for the same reasons."""

    framework: Framework
    pod: Pod
    status: Status
    nodes: Sequence[str]
    rows: IdColumn

    @property
    def cluster(self) -> Cluster:
        return self.framework.cluster

    def node_objects(self) -> Iterator[Node]:
        for row in self.rows.tolist():
            node = self.cluster.nodes.node[row]
            if node is not None:
                yield node

    @property
    def several(self) -> bool:
        return len(self.nodes) > 1

    def pods(self) -> Iterator[tuple[Pod, str]]:
        """The pods on these nodes, each with its node."""
        for row, node in zip(self.rows.tolist(), self.nodes, strict=True):
            for pod in self.cluster.pods_on(row):
                yield pod, node

    def in_the_way(self, pod: Pod, node: str) -> PodInTheWay:
        """A pod that is assigned to a node, or counted as if it were."""
        is_nominated = self.cluster.nominated_slot(pod.uid) >= 0
        return PodInTheWay(pod.key, node, pod_state(pod, nominated=is_nominated))

    @contextmanager
    def counting_nominated(self, pods: Sequence[str]) -> Iterator[None]:
        """These pods are on the node they are nominated to, for a while."""
        cluster = self.cluster
        cluster.undo.mark()
        try:
            for row, slots in list(cluster.nominated.items()):
                for slot in slots:
                    pod = cluster.pods.pod[slot]
                    if pod is not None and pod.key in pods:
                        cluster.add_pod(pod, cluster.nodes.name[row])
            yield
        finally:
            cluster.undo.revert()

    def plugin_state(self, key: Any = None) -> Any:
        """What the plugin's PreFilter has found out about the pod; None if it had nothing to do."""
        name = self.status.plugin
        step = next((one for one in self.framework.profile.filters if one.name == name), None)
        if step is None:
            return None
        search = self.framework.begin_uncached(self.pod)
        state = search.results.state_of(step) if step.cached else search.state
        answer = calls.pre_filter(step, state, self.pod, NodeColumns(self.cluster))
        if not isinstance(answer, NodeNames) and answer.code is not Code.SUCCESS:
            return None
        return state.get(name if key is None else key)
