"""Evaluation of one plugin alone, and generated clusters to evaluate it on.

Results are plain values by node name, so that a test can compare them with a table or with a rule
written for one node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from bayplan.framework.outcome import Reasons, collect
from bayplan.plugin import (
    Action,
    Cluster,
    ClusterEvent,
    Code,
    CycleState,
    Node,
    NodeColumns,
    Plugin,
    Pod,
    Resource,
    Status,
)
from bayplan.plugin.preemption import Hypothesis
from bayplan.runtime.profile import points_of
from bayplan.state.view import OneNode
from bayplan.testing.builders import make_node, make_pod

GPU = "example.com/gpu"

UNSCHEDULABLE, UNRESOLVABLE = Code.UNSCHEDULABLE, Code.UNRESOLVABLE


def make_cluster(nodes: Iterable[Node], assigned: Mapping[str, Sequence[Pod]] | None = None) -> Cluster:
    """A cluster of these nodes, with pods on them by the node's name."""
    cluster = Cluster()
    for node in nodes:
        cluster.set_node(node)
    for name, pods in (assigned or {}).items():
        for pod in pods:
            cluster.add_pod(pod, name)
    return cluster


def points(plugin: type[Plugin]) -> set[str]:
    """The extension points that a plugin implements, with NormalizeScore as one of them."""
    found = {str(point) for point in points_of(plugin)}
    return found | {"NormalizeScore"} if hasattr(plugin, "normalize") else found


def registrations(plugin: Plugin) -> list[tuple[str, Action]]:
    return [
        (registration.event.resource, registration.event.action)
        for registration in plugin.events_to_register() or ()
    ]


def requeues(plugin: Plugin, event: tuple[Resource, Action], pod: Pod, old: object, new: object) -> bool:
    """Whether an event brings a pod back that this plugin rejected."""
    registered = plugin.events_to_register()
    assert registered is not None
    incoming = ClusterEvent(*event)
    return any(
        registration.event.matches(incoming)
        and (registration.hint is None or registration.hint(pod, old, new))
        for registration in registered
    )


class Evaluation:
    """A plugin whose PreFilter and PreScore, where it has them, have been run for a pod."""

    def __init__(self, plugin: Plugin, pod: Pod, cluster: Cluster) -> None:
        self.plugin: Any = plugin
        self.pod = pod
        self.cluster = cluster
        self.nodes = NodeColumns(cluster)
        self.state = CycleState()
        self.pre_filter: Any = self._run("pre_filter")
        self.pre_score: Any = self._run("pre_score")

    def _run(self, method: str) -> Any:
        if not hasattr(self.plugin, method):
            return None
        return getattr(self.plugin, method)(self.state, self.pod, self.nodes)

    def statuses(self, view: NodeColumns | None = None) -> list[Status | None]:
        """The status of each row of a view, None where Filter does not reject it."""
        view = self.nodes if view is None else view
        if isinstance(self.pre_filter, Status) and self.pre_filter.code is Code.SKIP:
            return [None] * len(view)
        reasons = Reasons(self.plugin.name)
        found = collect(self.plugin.filter(self.state, self.pod, view), reasons, len(view))
        if found is None:
            return [None] * len(view)
        return [reasons.status(int(bits)) if bits else None for bits in found.reason_ids()]

    def rejected(self) -> dict[str, tuple[Code, tuple[str, ...]]]:
        """Code and reasons of each node that does not fit."""
        return {
            name: (status.code, status.reasons)
            for name, status in zip(self.nodes.names, self.statuses(), strict=True)
            if status is not None
        }

    def scores(self) -> list[int]:
        scores = np.asarray(self.plugin.score(self.state, self.pod, self.nodes))
        assert scores.dtype == np.int64
        return [int(score) for score in scores]

    def normalized(self) -> list[int]:
        scores = np.array(self.scores(), dtype=np.int64)
        return [int(score) for score in self.plugin.normalize(self.state, self.pod, self.nodes, scores)]

    def statuses_one_by_one(self) -> list[Status | None]:
        """The same as `statuses`, each row evaluated with plain numbers."""
        found: list[Status | None] = []
        for row in range(len(self.nodes)):
            reasons = Reasons(self.plugin.name)
            bits = 0
            for reject in self.plugin.filter(self.state, self.pod, OneNode(self.cluster, row)):
                assert type(reject.mask) is bool
                if reject.mask:
                    bits = reasons.with_reason(bits, reject)
            found.append(reasons.status(bits) if bits else None)
        return found

    def scores_one_by_one(self) -> list[int]:
        """The same as `scores`, each row evaluated with plain numbers."""
        scores = [
            self.plugin.score(self.state, self.pod, OneNode(self.cluster, row))
            for row in range(len(self.nodes))
        ]
        assert all(type(score) is int for score in scores)
        return scores


def suppose(
    cluster: Cluster, gone: Mapping[str, Sequence[Pod]], added: Mapping[str, Sequence[Pod]]
) -> Hypothesis:
    """Nodes (those that `gone` names) without some of their pods, and with some that are nominated there."""
    slot_of = {pod.uid: slot for slot, pod in enumerate(cluster.pods.pod) if pod is not None}
    return Hypothesis.on_few_rows(
        cluster,
        [cluster.nodes.row_of[name] for name in gone],
        [
            [
                *((slot_of[pod.uid], -1) for pod in gone[name]),
                *((slot_of[pod.uid], 1) for pod in added.get(name, ())),
            ]
            for name in gone
        ],
    )


def without(cluster: Cluster, uid: str) -> Hypothesis:
    """The row of an assigned pod as it would be if the pod were gone."""
    (slot,) = (slot for slot, pod in enumerate(cluster.pods.pod) if pod is not None and pod.uid == uid)
    return Hypothesis.on_few_rows(cluster, [cluster.pods.row.cell[slot]], [[(slot, -1)]])


def few_rows(count: int) -> st.SearchStrategy[list[int]]:
    """Some of the rows of a table, as a view of changed rows would have them."""
    return st.lists(st.integers(0, count - 1), min_size=1, max_size=count, unique=True)


def requests() -> st.SearchStrategy[dict[str, int]]:
    """What a container may request: nothing, nothing worth mentioning, a lot."""
    return st.fixed_dictionaries(
        {},
        optional={
            "cpu": st.integers(0, 5),
            "memory": st.integers(0, 5 * 2**30),
            "ephemeral-storage": st.integers(0, 100),
            GPU: st.integers(0, 4),
        },
    )


@st.composite
def resource_nodes(draw: st.DrawFn, name: str) -> Node:
    room: dict[str, Any] = draw(
        st.fixed_dictionaries({}, optional={"ephemeral_storage": st.integers(0, 300), GPU: st.integers(0, 4)})
    )
    cpu, memory, pods = st.integers(0, 8), st.integers(0, 9 * 2**30), st.integers(0, 4)
    return make_node(name, cpu=draw(cpu), memory=draw(memory), pods=draw(pods), **room)


@st.composite
def resource_clusters(draw: st.DrawFn) -> Cluster:
    """A few nodes of all sizes, some of them empty, some overcommitted."""
    nodes = [draw(resource_nodes(f"n{i}")) for i in range(draw(st.integers(1, 5)))]
    assigned = {
        node.name: [
            make_pod(f"on-{node.name}-{i}", requests=draw(requests())) for i in range(draw(st.integers(0, 3)))
        ]
        for node in nodes
    }
    return make_cluster(nodes, assigned)
